"""Gives the clients' roles back what a lasting fence took, and shows it."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.engine.goals import ALL
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Hand
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.access import Observer
from dr_ctl.topologies.artemis.effects import left_of
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import Broker


def admit(observer: Observer[Broker], sender: Sender, site: str, calls: Sequence[Call], hand: Hand) -> str | None:
    """Make those of `calls` that let roles in; broker.xml is read again only where they are still kept out. Gives why
    they are, None where nothing keeps them out."""
    gives = [call for call in calls if call.thing != ALL]
    if not gives or not (missing := _left(gives, observer, site)):
        return None
    hand.change(missing, sender.send)
    if not (missing := _left(gives, observer, site)):
        return None
    pairs = {call.pair for call in missing}
    hand.change([call for call in calls if call.thing == ALL and call.pair in pairs], sender.send)
    missing = _left(gives, observer, site)
    return f"{site}: has not come true: {checks.some([call.about for call in missing])}" if missing else None


def _left(calls: Sequence[Call], observer: Observer[Broker], site: str) -> list[Call]:
    views = observer.look_at(site)
    return [call for call in calls if left_of([call], views)]
