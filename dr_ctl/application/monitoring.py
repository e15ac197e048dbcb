"""The monitor as a command: samples both sites, and keeps the stored estimate fresh."""

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field

from dr_ctl.agents.exposing import exposing
from dr_ctl.agents.monitor import Look, Monitor, shown
from dr_ctl.agents.refreshing import Refresher, stays_by_default
from dr_ctl.application.auto_reinstate import AutoReinstate
from dr_ctl.application.caller import Caller
from dr_ctl.application.estimates import request
from dr_ctl.application.figures import Figures
from dr_ctl.application.installation import Opened
from dr_ctl.application.result import Result
from dr_ctl.core.document import document
from dr_ctl.core.errors import Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.core.system import stamp
from dr_ctl.engine.operations import REINSTATE
from dr_ctl.processes import service
from dr_ctl.settings.model import Installation


def monitor(caller: Caller, lasting_s: float | None, *, auto_reinstate: bool, metrics: str | None = None) -> Result:
    """Look at least once, until the time is over or a signal ends it. `auto_reinstate`: of a lost site that is back."""
    installation, clock = caller.installation(), caller.clock
    until = clock.monotonic() + lasting_s if lasting_s is not None else None
    reinstating = AutoReinstate(caller.called(REINSTATE)) if auto_reinstate else None
    recorded = Recorded(caller)
    with (
        exposing(metrics) as board,
        Opened.of(caller) as opened,
        closing(Monitor(installation, opened.topology, clock)) as watching,
        _refreshing(installation) as refreshing,
    ):
        figures = Figures(caller, opened) if metrics is not None else None
        try:
            while until is None or clock.monotonic() < until or not watching.looks:
                look = watching.sample()
                if refreshing is not None and watching.is_on_disk and (why := refreshing.look()) is not None:
                    caller.say(why)
                recorded.tell(look)
                if figures is not None:
                    board.shown = shown(watching, look, figures.of(look.snapshot, look.at))
                service.notify(service.READY, service.ALIVE, f"STATUS={look.line}")
                caller.line(document(look), look.line)
                if reinstating is not None:
                    reinstating.reinstate(look.snapshot)
                watching.wait(until)
        except Stopped:
            pass
    service.notify(service.STOPPING)
    place = installation.history.shown
    text = f"{watching.looks} look(s), {watching.rows} row(s) written to {place}"
    data: dict[str, Json] = {"looks": watching.looks, "rows": watching.rows}
    if reinstating is not None:
        text += f"; {len(reinstating.runs)} run(s) to reinstate a lost site"
        data["reinstated"] = [*reinstating.runs]
    return Result(ExitCode.OK, text, recorded.findings, data=data)


def _refreshing(installation: Installation) -> AbstractContextManager[Refresher | None]:
    """What keeps the stored estimate fresh, if the settings want it to be."""
    how = installation.settings.monitor.estimate
    if how == "off":
        return nullcontext()
    stays = stays_by_default() if how is None else how == "resident"
    return closing(Refresher(request(installation), stays=stays))


@dataclass
class Recorded:
    """Reports trouble with writing the history: once when the trouble begins, once when it ends."""

    caller: Caller
    _trouble: str | None = None
    _dropped: int = 0
    _troubles: dict[str, Finding] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        """The troubles so far, each kind with its first time."""
        return [*self._troubles.values()]

    def tell(self, look: Look) -> None:
        before, self._trouble = self._trouble, look.trouble
        if look.trouble is not None and look.trouble != before:
            self.caller.say(f"{look.trouble}; the monitor goes on, and keeps {look.waiting} row(s) until it is over")
            finding = found("DR-MON-001", trouble=look.trouble, at=stamp(look.at))
            self._troubles.setdefault(look.trouble, finding)
        if look.trouble is None and before is not None:
            lost = look.dropped - self._dropped
            loss = f"{lost} row(s) were dropped meanwhile, the oldest of queues first" if lost else "nothing was lost"
            self.caller.say(f"the history is written again; {loss}")
            self._dropped = look.dropped
