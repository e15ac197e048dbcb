"""What is done for `observe` and `check`: looks, the checks asked again, and a greeting as a client gets it."""

from __future__ import annotations

from dr_ctl.core.model import ExitCode, Json, Severity, some
from dr_ctl.engine.operations import ACTIVATE, DRAIN, SWAPOVER
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common import checks
from dr_ctl.topologies.common.drafts.check import fences
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def observe(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step, move, hand
    seen = tools.observer.observe()
    roles: dict[str, Json] = {site: role.value for site, role in seen.roles.items()}
    return Done(", ".join(f"{site} is {role}" for site, role in roles.items()), {"roles": roles})


def check(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step, hand
    seen = tools.observer.observe()
    errors = tuple(each for each in tools.recipe.why_not(seen, move) if each.severity is Severity.ERROR)
    if errors:
        return Refused(errors[0].text, findings=errors, code=ExitCode.PRECHECK_FAILED)
    if move.ask.operation in (SWAPOVER, DRAIN, ACTIVATE):
        opened = [view for view in seen.views(move.target) if view.open and not move.leaves(view.pair)]
        if opened:
            text = f"{move.target} was opened to clients meanwhile: {some([each.pair for each in opened])}"
            finding = checks.error("DR-ROLE-001", text, "`dr-ctl status` says who serves.")
            return Refused(text, findings=(finding,), code=ExitCode.PRECHECK_FAILED)
    findings = tools.doors.greet(move.source) if fences(seen, move) else []
    greeted: list[Json] = [site for site, _ in tools.doors.greeted]
    return Done("nothing speaks against it", {"greeted": greeted}, tuple(findings))
