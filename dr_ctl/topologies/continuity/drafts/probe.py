"""Plans `probe`: a message, and the activation again where a late command undoes it. Pure."""

from dataclasses import replace
from typing import Final

from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts import proving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.continuity.view import ContinuitySeen

UNDONE: Final = "a command that was under way has deactivated the site"
AGAIN_AT_MOST: Final = 10


def draft(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    common = proving.probe(rules, step, seen, move)
    again = [
        replace(call, at_most=AGAIN_AT_MOST)
        for view in seen.views(move.target)
        for call in view.fence.opening(view.doors, Peer.NOT_DRAINED, UNDONE)
    ]
    about = f"{common.about}; then watched until no late command can undo the activation"
    return replace(common, about=about, calls=(*common.calls, *in_part("again", again)))
