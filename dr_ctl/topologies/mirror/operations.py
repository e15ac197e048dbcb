"""The operations on a link that dr-ctl calls, and the calls made of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.engine.plan import Call
from dr_ctl.jolokia import beans
from dr_ctl.topologies.artemis.operations import call

if TYPE_CHECKING:
    from dr_ctl.topologies.mirror.view import BrokerView, Link

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"


def stop_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, beans.server(view.broker), STOP_LINK, (link.name,), f"stop link {link.name}", when, at_most)


def start_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, beans.server(view.broker), START_LINK, (link.name,), f"start link {link.name}", when, at_most)
