"""A wanted state is sent until nothing of it is missing: once to each broker, and again where another node serves."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.views import broker

MOVE = Move(Ask("fence", "paris"), "london", {})
WANTS = ((wants.clients_kept_out, wants.SOURCE),)


class World(Tools[Any]):
    """A broker that is told to close its listener: what it says before, and after each time."""

    def __init__(self, *readings: tuple[str, bool]) -> None:
        self.rules: Any = None
        self.observer: Any = SimpleNamespace(look_at=lambda site: [self.view])
        self.sent = list[str]()
        self._readings = [broker("london", start=start, serving=is_open) for start, is_open in readings]

    @property
    def view(self) -> BrokerView:
        return self._readings[min(len(self.sent), len(self._readings) - 1)]

    def change(self, calls: Sequence[Call], context: Any) -> list[Any]:
        self.sent += [call.about for call in calls]
        return []


def reached(world: World) -> None:
    world.reach(WANTS, MOVE, object())  # type: ignore[arg-type]


def sent(world: World) -> None:
    send = world.sending(wants.clients_kept_out, MOVE, object())  # type: ignore[arg-type]
    for _ in range(3):
        send([world.view])


@pytest.mark.parametrize("by", [reached, sent])
@pytest.mark.parametrize(
    ("readings", "count"),
    [
        ([("1", False)], 0),
        ([("1", True), ("1", False)], 1),
        ([("1", True), ("1", True)], 1),
        ([("1", True), ("2", True), ("2", False)], 2),
        ([("1", True), ("2", True), ("2", True)], 2),
    ],
    ids=["it holds", "it is sent", "in vain", "another node is active", "in vain there too"],
)
def test_it_is_sent_once_to_each_node_until_nothing_is_missing(
    by: Callable[[World], None], readings: Sequence[tuple[str, bool]], count: int
) -> None:
    world = World(*readings)
    by(world)
    assert world.sent == ["close acceptor clients at london"] * count
