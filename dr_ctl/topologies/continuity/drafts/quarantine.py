"""Plans `quarantine`: the plugin's commands are kept as well. Pure."""

from dataclasses import replace

from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import pause_lasting, resume
from dr_ctl.topologies.common.drafts import quarantine
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.continuity.view import ContinuitySeen


def draft(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    """A site that came back would obey the commands of the outage, one by one."""
    common = quarantine.draft(rules, step, seen, move)
    kept: list[Call] = []
    again: list[Call] = []
    for view in seen.views(move.target):
        commands = view.commands
        if commands is not None:
            if not commands.out.paused:
                kept.append(pause_lasting(view, commands.out))
            if not before(move, view)["commands_paused"]:
                again.append(resume(view, commands.out, "it is paused"))
    about = f"{common.about}, and what the plugin would tell it"
    return replace(common, about=about, calls=(*common.calls, *kept), inverse=(*again, *common.inverse))
