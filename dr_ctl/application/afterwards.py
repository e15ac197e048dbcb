"""The installation's own commands that are told how a run ended: `after:` of the settings.

They run once the run is written down and its lock is given back. Whatever becomes of them, the run has ended as its
result says: one that fails, hangs or is missing is a warning.
"""

from collections.abc import Callable
from dataclasses import replace

from dr_ctl.application.caller import Caller
from dr_ctl.application.carrying_out import Broken
from dr_ctl.application.installation import Opened
from dr_ctl.application.result import Result, of_error
from dr_ctl.core.errors import Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.notation import if_known
from dr_ctl.engine.ports import Done
from dr_ctl.engine.stopping import StopRequest, stoppable
from dr_ctl.processes.hooks import Place
from dr_ctl.processes.secrets import variables
from dr_ctl.settings.model import DEBT, After


def telling(caller: Caller, opened: Opened, act: Callable[[], Result]) -> Result:
    """Act, and tell how the run ended where the act was one. Call it where no lock is held."""
    try:
        result = act()
    except Broken as error:
        for finding in _told(caller, opened, replace(of_error(error), ended=error.ended)):
            caller.say(f"{finding.id}  {finding.text}")
        raise
    return replace(result, findings=(*result.findings, *_told(caller, opened, result)))


def _told(caller: Caller, opened: Opened, result: Result) -> list[Finding]:
    """Tell each command that listens for this end; gives a finding for each that could not be told."""
    if result.ended is None:
        return []
    words = {result.code.outcome, *([DEBT] if result.debts else [])}
    listeners = [each for each in opened.installation.settings.after if words.intersection(each.on)]
    if not listeners:
        return []
    caller.say(f"{result.code.outcome}: {result.summary}")
    place = Place(opened.installation.file.parent, variables(opened.installation.settings))
    document = result.envelope(caller.command)
    facts: dict[str, Json] = {
        **{key: document[key] for key in ("run", "command", "outcome", "exit_code", "summary")},
        **result.ended,
        "installation": opened.installation.settings.name,
        "state_dir": str(caller.state()),
    }
    findings: list[Finding] = []
    waiting = [*listeners]
    with stoppable() as stop:  # as in a run, no closed terminal ends this
        try:
            while waiting:
                caller.say(f"telling {waiting[0].run[0]}")
                if (why := _why_not(place, waiting[0], facts, document, stop)) is not None:
                    findings.append(_finding(f"a command was not told how the run ended: {why}", result))
                waiting.pop(0)
        except Stopped as stopped:
            stop.over()
            late = ", ".join(each.run[0] for each in waiting)
            findings.append(_finding(f"{stopped} before these were told how the run ended: {late}", result))
    return findings


def _why_not(
    place: Place, each: After, facts: dict[str, Json], document: dict[str, Json], stop: StopRequest
) -> str | None:
    try:
        outcome = place.run(each.run[0], each.run, each.timeout, facts, document, stop)
    except (OSError, ValueError) as error:  # no room for its input, or a word that no variable can hold
        return f"{each.run[0]} could not be started: {error}"
    return None if isinstance(outcome, Done) else outcome.text


def _finding(text: str, result: Result) -> Finding:
    remedy = f"Tell them by hand: `dr-ctl runs show {if_known(result.run)}`. The run itself ended as it says."
    return found("DR-HOOK-002", text, remedy)
