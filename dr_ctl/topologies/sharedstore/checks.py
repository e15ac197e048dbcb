"""The named checks of brokers that share a store find all that speaks against a move at once. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, brief
from dr_ctl.core.notation import duration
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Goal
from dr_ctl.topologies.classic.beans import STOPS
from dr_ctl.topologies.classic.broker import BY_CONSOLE, of_pausing, of_permits
from dr_ctl.topologies.common import reasons
from dr_ctl.topologies.common.checks import Case, Checks, Named, of_listeners, of_queues
from dr_ctl.topologies.common.gate import accepting
from dr_ctl.topologies.sharedstore.view import BrokerView, both_serve, ending

SKEW_S: Final = 2.0


def not_in_store(lacking: Mapping[str, int], accepted: Mapping[str, int]) -> list[Finding]:
    if not (wrong := {name: count for name, count in lacking.items() if count > accepted.get(name, 0)}):
        return []
    items = brief([f"{name}: {count} message(s)" for name, count in wrong.items()])
    return [found("DR-STORE-008", items=items, words=accepting(wrong))]


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    def of_one(view: BrokerView) -> Iterator[Finding]:
        if case.move.spec.operation == FAILBACK:
            return of_broker(view, case)
        return (
            finding for finding in _of_broker(view, case.move.spec.accept_difference) if finding.id != "DR-STORE-008"
        )

    return reasons.of_return(case, of_one, frozenset(), "DR-RETURN-001.sharedstore")


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    if case is None:
        yield from _of_broker(view, {})
        return
    # A broker that gave up the store by ending itself is started after the move.
    gave_up = case.move.activation_sent and view.site == case.move.source
    needed = view.site == case.move.target and not case.move.activation_sent
    for finding in _of_broker(view, case.move.spec.accept_difference):
        if needed and finding.id == "DR-STORE-007":  # a target that cannot be shown to run gets no store
            yield replace(finding, severity=Severity.ERROR)
        elif not (gave_up and finding.id == "DR-STORE-004"):
            yield finding
    yield from of_pausing(view, case)


def _of_broker(view: BrokerView, accepted: Mapping[str, int]) -> Iterator[Finding]:
    if view.answered:
        yield from of_listeners(view)
        yield from of_permits(view, () if Goal.STOP in view.own.commands else (STOPS,))
        yield from of_queues(view)
        yield from _holder(view)
        yield from not_in_store(view.in_memory, accepted)
    else:
        if view.stranger is not None and not view.peer_serves:
            yield _stranger(view)
        yield from _waiting(view)


def _holder(view: BrokerView) -> Iterator[Finding]:
    if view.lock is None:
        yield found("DR-STORE-001.of_broker", broker=view, why=view.unread)
    elif view.others is not None:
        if view.peer_serves:
            yield from both_serve(view)
        else:
            yield found("DR-STORE-002.taking", broker=view, lock=view.lock.text, peer=view.config.peer)
    elif view.stranger is not None:
        yield _stranger(view)
    elif not view.lock.written:
        yield found("DR-STORE-013", broker=view)
    elif not view.lock.held and view.lock.left_s is not None:
        yield found("DR-STORE-005.ran_out", broker=view, late=f"{-view.lock.left_s:.1f}")
    elif not view.lock.held:
        yield found("DR-STORE-003", broker=view, said=view.lock.text)
    yield from _clocks(view)
    renewed_s, lasts_s = (view.lock.renewed_s, view.lock.lasts_s) if view.lock is not None else (None, None)
    if renewed_s is not None and lasts_s is not None:
        if renewed_s >= lasts_s:
            yield found("DR-STORE-005.renewed_late", broker=view, renewed=f"{renewed_s:.1f}", lasts=f"{lasts_s:.1f}")
    elif view.own.lease_is_row and view.own.keep_alive_s >= view.own.lease_s:
        periods = f"{duration(view.own.keep_alive_s)}, the lease lasts {duration(view.own.lease_s)}"
        yield found("DR-STORE-005.by_settings", broker=view, periods=periods)


def _stranger(view: BrokerView) -> Finding:
    whose, site, peer = f"If activemq.xml of {view.site} has it as `leaseHolderId`: add", view.site, view.config.peer
    return found("DR-STORE-014", broker=view, stranger=view.stranger, whose=whose, pair=view.pair, site=site, peer=peer)


def _clocks(view: BrokerView) -> Iterator[Finding]:
    """Find a lease that the clocks contradict: the broker writes it, and the database's clock judges it."""
    lock = view.lock
    if lock is None or lock.left_s is None or view.others is not None:
        return
    off_s = lock.left_s - view.own.lease_s
    if off_s <= SKEW_S and lock.held:
        return
    wrong = f"{off_s:.0f} s further away than a lease lasts" if off_s > 0 else f"{-lock.left_s:.0f} s ago"
    machine = f"{abs(lock.ahead_s or 0):.1f} s {'ahead of' if (lock.ahead_s or 0) > 0 else 'behind'} this machine's"
    yield found("DR-STORE-006", broker=view, wrong=wrong, machine=machine, site=view.site)


def _waiting(view: BrokerView) -> Iterator[Finding]:
    if view.runs is False:
        yield found("DR-STORE-004.not_running", broker=view, start=view.own.start[0].upper() + view.own.start[1:])
    elif view.ending:
        yield ending(view)
    elif view.runs is None:
        yield found("DR-STORE-007", broker=view, pair=view.pair, site=view.site)


def _lock(view: BrokerView) -> str | None:
    return view.lock.text if view.lock is not None else None


def _of_holder(read: Callable[[BrokerView], str | None]) -> Callable[[BrokerView], str | None]:
    """Read the value only of a broker that answers."""
    return lambda view: read(view) if view.answered else "it waits"


def _clock(view: BrokerView) -> str | None:
    if view.lock is None:
        return None
    if view.lock.ahead_s is None:
        return "a file has no lease"
    return f"the database's clock is {view.lock.ahead_s:+.1f} s off this machine's"


def _process(view: BrokerView) -> str:
    return {True: "its process runs", False: "its process does not run", None: "nothing says"}[view.runs]


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *(replace(check, read=_of_holder(check.read)) for check in BY_CONSOLE),
    Named("DR-STORE-001", _lock),
    Named("DR-STORE-002", _of_holder(_lock)),
    Named("DR-STORE-014", _lock),
    Named("DR-STORE-003", _of_holder(_lock)),
    Named("DR-STORE-013", _of_holder(_lock)),
    Named("DR-STORE-008", _of_holder(lambda view: f"{sum(view.in_memory.values())} message(s) in memory alone")),
    Named("DR-STORE-004", _process),
    Named("DR-STORE-005", lambda view: f"every {duration(view.own.keep_alive_s)} of {duration(view.own.lease_s)}"),
    Named("DR-STORE-006", _clock),
    Named("DR-STORE-007", _process),
)
CHECKS: Final = Checks(of_broker, lambda *_: (), of_return, reasons.is_settled, BY_BROKER, ())
