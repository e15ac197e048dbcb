"""Twins whose producers send to both sites."""

from __future__ import annotations

from typing import Any, Final

from dr_ctl.twin.classic.beans import beans
from dr_ctl.twin.classic.console import CONSOLE, settings
from dr_ctl.twin.classic.fanout.broker import PRODUCERS, FanoutBroker
from dr_ctl.twin.classic.fanout.way import FanoutWay
from dr_ctl.twin.classic.session import ClassicSession
from dr_ctl.twin.kind import Kind
from dr_ctl.twin.parts import Acceptor


def _broker(peer: str, **told: Any) -> FanoutBroker:
    del peer  # nothing joins them
    return FanoutBroker(**told)


KIND: Final = Kind(
    topology="classic-fanout",
    joined="have the same producers",
    doors=(Acceptor("stomp", "STOMP"), Acceptor(PRODUCERS, "STOMP", opens_at_boot=True)),
    broker=_broker,
    way=FanoutWay,
    beans=beans,
    dialect=CONSOLE,
    settings=settings,
    session=ClassicSession,
    policy=lambda broker: broker.policy,
)
