"""What a move costs, in a sentence for whoever is to agree to it: by what was seen, and by the moves made before."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from dr_ctl.application.price import FailoverPrice
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.operations import FAILBACK, FAILOVER, SWAPOVER
from dr_ctl.engine.plan import Plan
from dr_ctl.engine.record import record
from dr_ctl.engine.runs import Runs
from dr_ctl.topologies.topology import Snapshot

_PLANNED: Final = (SWAPOVER, FAILBACK)
_LATEST: Final = 5
"""So many moves of the past are enough to tell how long one takes."""


def cost(plan: Plan, snapshot: Snapshot, price: FailoverPrice | None, runs: Runs) -> str:
    """The cost of a failover or of a planned move; empty for any other operation."""
    operation = plan.ask.operation
    if operation == FAILOVER and price is not None:
        return f"{price_text(price.bounds())}; {_clients(plan, snapshot, plan.target)} are served by {plan.target} then"
    if operation not in _PLANNED:
        return ""
    most_s = plan.ask.max_outage_s
    limit = "" if most_s is None else f", at most {duration(most_s)} (then it is undone)"
    kept = "what clients hold comes again" if plan.ask.cut_in_flight else "nothing is lost, nothing comes twice"
    return f"{_clients(plan, snapshot, plan.source)} will be out for {_time(plan, snapshot, runs)}{limit}; {kept}"


def _clients(plan: Plan, snapshot: Snapshot, site: str) -> str:
    if plan.ask.units is not None:
        count = len(plan.ask.units)
    else:
        count = len({name for each in snapshot.brokers if each.site == site for name in each.depths})
    return f"clients of {count} queue{'' if count == 1 else 's'}" if count else f"clients of {site}"


def _time(plan: Plan, snapshot: Snapshot, runs: Runs) -> str:
    """For how long clients will be out: by what earlier moves took, and never a figure that nobody has measured."""
    took = _earlier(runs)
    if took:
        moves = "the last move" if len(took) == 1 else f"the last {len(took)} moves"
        between = f"{duration(min(took))} to {duration(max(took))}" if len(took) > 1 else duration(took[0])
        return f"about {duration(median(took))} ({moves}: {between})"
    ships = [link.outflow for link in snapshot.links() if link.site == plan.source]
    now = "" if None in ships or not ships else f" ({sum(each or 0 for each in ships)} to ship now)"
    return f"a time that no move from here has measured yet{now}"


def _earlier(runs: Runs) -> Sequence[float]:
    """The outages of the last planned moves that ended well, by the runs of this STATE."""
    took: list[float] = []
    for files in reversed(runs.all()):
        if files.name.split("-")[1:2] not in [[each] for each in _PLANNED]:
            continue
        told = record(files)
        if told.exit_code in (ExitCode.OK, ExitCode.WARNINGS) and told.out is not None:
            took += [told.out.at_most_s] if told.out.at_most_s is not None else []
        if len(took) == _LATEST:
            break
    return took
