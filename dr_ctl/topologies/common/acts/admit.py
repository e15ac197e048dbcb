"""Gives the clients' roles back what a lasting fence took, and shows it."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.core.model import some
from dr_ctl.engine.goals import ALL
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.common.effects import left_of
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def admit(tools: Tools[Broker], site: str, calls: Sequence[Call], hand: Hand) -> str | None:
    """Make those of `calls` that let roles in; broker.xml is read again only where they are still kept out. Gives why
    they are, None where nothing keeps them out."""
    gives = [call for call in calls if call.thing != ALL]
    if not gives or not (missing := _left(tools, gives, site)):
        return None
    tools.change(missing, hand)
    if not (missing := _left(tools, gives, site)):
        return None
    pairs = {call.unit for call in missing}
    tools.change([call for call in calls if call.thing == ALL and call.unit in pairs], hand)
    missing = _left(tools, gives, site)
    return f"{site}: has not come true: {some([call.about for call in missing])}" if missing else None


def _left(tools: Tools[Broker], calls: Sequence[Call], site: str) -> list[Call]:
    views = tools.observer.look_at(site)
    return [call for call in calls if left_of([call], views)]
