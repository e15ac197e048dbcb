"""Plans `activate`: the target becomes the source, and messages that only the target had are put back. Pure."""

from __future__ import annotations

from dataclasses import replace

from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import drafts
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.replica.beans import REPLICA
from dr_ctl.topologies.replica.calls import kept_queue, may_put_back
from dr_ctl.topologies.replica.view import BrokerView

BACK = "put back"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    returns = move.ask.operation == FAILBACK
    common = drafts.activate.draft(rules, step, _taken_in(seen, move) if returns else seen, move)
    back = [
        may_put_back(view, queue)
        for view in seen.views(move.target)
        for name, queue in view.business.items()
        # Plan every queue: which messages a return will set aside is not known before.
        if returns or kept_queue(view.site, name) in view.named
    ]
    about = f"{move.target} becomes the source, which opens its doors; proven by a client's greeting"
    return replace(common, about=about, calls=(*common.calls, *in_part(BACK, back)))


def _taken_in(seen: Seen[BrokerView], move: Move) -> Seen[BrokerView]:
    """Show the target as the replica, because the return will have made it so."""
    views = {
        pair: replace(view, plugin=replace(view.plugin, part=REPLICA))
        if isinstance(view, BrokerView) and view.plugin is not None
        else view
        for pair, view in seen.sites[move.target].items()
    }
    return replace(seen, sites={**seen.sites, move.target: views})
