"""The operations on a link that dr-ctl calls, and the calls made of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia import beans
from dr_ctl.topologies.artemis.operations import call, request

if TYPE_CHECKING:
    from dr_ctl.core.model import Json
    from dr_ctl.topologies.mirror.view import BrokerView, Link

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"


def stop_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, Goal.LINK_DOWN, link.name, _asked(view, STOP_LINK, link), f"stop link {link.name}", when, at_most)


def start_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, Goal.LINK_UP, link.name, _asked(view, START_LINK, link), f"start link {link.name}", when, at_most)


def _asked(view: BrokerView, operation: str, link: Link) -> Mapping[str, Json]:
    return request(beans.server(view.broker), operation, (link.name,))
