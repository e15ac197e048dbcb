"""`monitor --auto-reinstate`: which lost sites may be taken in again without a person, and the runs that do it."""

from dataclasses import dataclass, field
from typing import Final

from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result, of_error
from dr_ctl.application.run import run
from dr_ctl.core.errors import DrCtlError, Stopped
from dr_ctl.core.model import ExitCode, Json, Role
from dr_ctl.engine.ask import Ask, RunOptions
from dr_ctl.engine.operations import REINSTATE
from dr_ctl.engine.roles import renamed_sites
from dr_ctl.topologies.topology import Snapshot

AGAIN_S: Final = 60.0  # a run that did not end well is not repeated at every look


def reinstatable(snapshot: Snapshot) -> tuple[str, ...]:
    """The sites that a debt is owed for, that answer, and that need no person: the debt stands where the highest epoch
    is, and the site that took over is seen serving in the same look."""
    if renamed_sites(snapshot) is not None or len({debt.kept_at for debt in snapshot.debts}) > 1:
        return ()  # lost in turn: which of them really serves is for a person to say
    epochs = dict.fromkeys(snapshot.roles, 0)
    for look in snapshot.locks:
        epochs[look.site] = max(epochs[look.site], look.highest.epoch if look.highest is not None else 0)
    highest = max(epochs.values())
    sites = {
        debt.about
        for debt in snapshot.debts
        if epochs[debt.kept_at] == highest
        and snapshot.roles[debt.kept_at] is Role.SERVING
        and snapshot.roles.get(debt.about) in (Role.STANDBY, Role.SERVING)
    }
    return tuple(sorted(sites))


@dataclass
class AutoReinstate:
    """Takes a lost site that is back in again, by a run like any other. `runs` are those that it made, by name and
    outcome."""

    caller: Caller
    runs: list[Json] = field(default_factory=list)
    _not_before: dict[str, float] = field(default_factory=dict)

    def reinstate(self, snapshot: Snapshot) -> None:
        """Reinstate each site that may be, unless that failed a moment ago. Says what came of it."""
        clock = self.caller.clock
        for site in reinstatable(snapshot):
            if clock.monotonic() < self._not_before.get(site, 0.0):
                continue
            self.caller.say(f"{site} is back: taking it in again")
            result = self._reinstate(site)
            if result.code is not ExitCode.OK:
                self._not_before[site] = clock.monotonic() + AGAIN_S
            # Refused beside an open run, a result names that one.
            if result.run is not None and all(each.id != "DR-RUN-003" for each in result.findings):
                self.runs.append({"run": result.run, "outcome": result.code.outcome, "exit_code": int(result.code)})
            self.caller.line(result.envelope(REINSTATE), f"{result.code.outcome}: {result.summary}")

    def _reinstate(self, site: str) -> Result:
        """A signal during the run ends the monitor too, once the run has ended."""
        try:
            result = run(self.caller, Ask(REINSTATE, site), RunOptions(yes=True))
        except Stopped:
            raise
        except DrCtlError as error:
            return of_error(error)
        if result.code in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
            raise Stopped(int(result.code) - 128)
        return result
