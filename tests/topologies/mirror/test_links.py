"""A link that hangs is restarted a bounded number of times, whatever its flags say; one that works is left alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.patience import Patience
from dr_ctl.topologies.mirror.drafts.shipping import LINK_RESTARTS
from dr_ctl.topologies.mirror.links import Mender, Movement
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.patience import MirrorPatience
from tests.topologies.mirror.test_wait import flow


class Restarted:
    """Stands for tools, broker and hand: counts restarts on a clock that the test moves."""

    site = "london"
    patience, waits = Patience(), MirrorPatience()

    def __init__(self) -> None:
        self.now_s = 0.0
        self.restarts = 0

    def names(self) -> Any:
        return SimpleNamespace(broker_connection=None)

    def change(self, calls: object, hand: object) -> list[object]:
        del calls, hand
        self.restarts += 1
        return []

    def notice(self, text: str) -> None:
        assert "although the peer answers" in text

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("at", "restarts"),
    [
        (lambda second: flow(10, 10 + second), 0),
        (lambda second: flow(10, 10), LINK_RESTARTS),
        (lambda second: flow(10 + second, 10 + second), LINK_RESTARTS),
        (lambda second: flow(0, 10), 0),
        (lambda second: flow(10, 10, attached=False), LINK_RESTARTS),
    ],
    ids=["ships", "ships nothing", "ships nothing while more comes", "has nothing to ship", "not attached"],
)
def test_what_hangs_is_restarted_and_nothing_else(at: Callable[[int], Flow], restarts: int) -> None:
    world: Any = Restarted()
    movement = Movement()
    mender = Mender(world, [world], movement)

    for second in range(60):
        world.now_s = float(second)
        told = {"london": at(second), "paris": flow()}
        movement.note(told, world.now_s)
        mender.tend(told, world)

    assert (world.restarts, mender.restarts) == (restarts, restarts)


@pytest.mark.parametrize(
    ("now", "limit_s"),
    [(flow(10, 10), MirrorPatience().hung_s), (flow(10, 10, attached=False), Patience().link_lost_s)],
    ids=["idle", "unattached"],
)
def test_it_is_given_its_time(now: Flow, limit_s: float) -> None:
    world: Any = Restarted()
    movement = Movement()
    mender = Mender(world, [world], movement)

    for moment in (0.0, limit_s - 0.1):
        world.now_s = moment
        told = {"london": now, "paris": flow()}
        movement.note(told, world.now_s)
        mender.tend(told, world)
    before = world.restarts
    world.now_s = limit_s + 0.1
    told = {"london": now, "paris": flow()}
    movement.note(told, world.now_s)
    mender.tend(told, world)

    assert (before, world.restarts) == (0, 1)
