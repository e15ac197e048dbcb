"""What is decided for `activate`: the part changes hands, and what only the target had is put back. Pure."""

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
    told = drafts.activate.draft(rules, step, _taken_in(seen, move) if returns else seen, move)
    back = [
        may_put_back(view, queue)
        for view in seen.views(move.target)
        for name, queue in view.business.items()
        # What a return will set aside is not known before it.
        if returns or kept_queue(view.site, name) in view.named
    ]
    about = f"{move.target} becomes the source, which opens its doors; proven by a client's greeting"
    return replace(told, about=about, calls=(*told.calls, *in_part(BACK, back)))


def _taken_in(seen: Seen[BrokerView], move: Move) -> Seen[BrokerView]:
    """As it will be by then: the return has made the target the replica."""
    views = {
        pair: replace(view, plugin=replace(view.plugin, part=REPLICA))
        if isinstance(view, BrokerView) and view.plugin is not None
        else view
        for pair, view in seen.sites[move.target].items()
    }
    return replace(seen, sites={**seen.sites, move.target: views})
