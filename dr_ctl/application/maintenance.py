"""A maintenance, with its end, reason and author, which STATE stores because the brokers may be down meanwhile. During
it a monitor wakes nobody except for split brain, and makes no run by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from dr_ctl.application import lock
from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core.document import document, read_file
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Health
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.disk import private
from dr_ctl.engine.runs import write

LONGEST: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Maintenance:
    until: datetime
    reason: str
    by: str
    since: datetime

    @property
    def text(self) -> str:
        return f"maintenance until {stamp(self.until)} ({self.reason}, by {self.by})"

    @property
    def finding(self) -> Finding:
        return found("DR-MAINT-001", maintenance=self.text)

    def silenced(self, problems: Iterable[Finding]) -> list[Finding]:
        """Make warnings of the findings that would wake somebody, except those that also count in a maintenance."""
        return [
            problem if problem.page is None or problem.always else replace(problem, page=Health.WARNING)
            for problem in problems
        ]


@dataclass(frozen=True, slots=True)
class MaintenanceData:
    maintenance: Maintenance | None


def _path(caller: Caller) -> Path:
    return caller.state() / "maintenance.json"


def now(caller: Caller) -> Maintenance | None:
    """Return the present maintenance, if any; an unreadable file is none."""
    written = read_file(Maintenance, _path(caller))
    return written if written is not None and system().now() < written.until else None


def shown(caller: Caller) -> Result:
    """Show the maintenance; raises `UsageError` for an unreadable file."""
    path, going_on = _path(caller), now(caller)
    if path.exists() and read_file(Maintenance, path) is None:
        text = f"{path} cannot be read: there is no maintenance"
        raise UsageError(text, remedy="`dr-ctl maintenance off` removes the file.")
    text = "no maintenance" if going_on is None else going_on.text
    return Result(ExitCode.OK, text, data=MaintenanceData(going_on))


def begin(caller: Caller, until: datetime, reason: str) -> Result:
    """Begin a maintenance, or replace the present one. Raises `UsageError`."""
    at = system().now()
    if until - at > LONGEST:
        text = f"--until {stamp(until)}: more than {LONGEST.days} days from now"
        raise UsageError(text, remedy="Begin it again then.")
    author = lock.author()
    caller.runs()  # raises if STATE has another installation's runs
    private(caller.state())
    write(_path(caller), document(Maintenance(until, reason, f"{author['user']}@{author['host']}", at)))
    return shown(caller)


def end(caller: Caller) -> Result:
    ended = now(caller)
    _path(caller).unlink(missing_ok=True)
    text = "no maintenance was going on" if ended is None else f"ended: {ended.text}"
    return Result(ExitCode.OK, text, data=MaintenanceData(None))
