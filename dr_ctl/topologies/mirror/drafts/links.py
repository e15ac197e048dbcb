"""The calls by which links are restarted and started. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.engine.plan import Call
from dr_ctl.topologies.mirror.operations import start_link, stop_link
from dr_ctl.topologies.mirror.view import BrokerView

NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3


def restarts(views: Sequence[BrokerView]) -> list[Call]:
    """Stop and start links: a hung handshake is otherwise waited out, which takes a minute."""
    return [
        make(view, view.link, NOT_ATTACHED, LINK_RESTARTS)
        for view in views
        if view.link is not None
        for make in (stop_link, start_link)
    ]


def starts(views: Sequence[BrokerView]) -> list[Call]:
    """Start those again that were started."""
    links = [(view, view.link) for view in views if view.link is not None]
    return [start_link(view, link, "it is stopped") for view, link in links if link.started]
