"""The waits for links: why one does not end, and that a link which hangs is restarted, a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.patience import Patience
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.topologies.mirror.drafts.shipping import LINK_RESTARTS
from dr_ctl.topologies.mirror.links import Flows, Mender, Movement, PairWait, until_all
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.patience import MirrorPatience


def flow(outflow: int = 0, added: int = 0, *, attached: bool = True, pending: int = 0) -> Flow:
    return Flow(
        to_ship=outflow,
        outflow_delivering=0,
        outflow_consumers=1 if attached else 0,
        outflow_added=added,
        unapplied=pending,
        link_started=True,
        link_connected=attached,
        doors_open=(),
        mirror_open=True,
    )


class World:
    """Stands for tools, observer, hand and broker, on a clock that only waiting moves."""

    patience, waits = Patience(), MirrorPatience()
    site, restarts = "london", 0

    def __init__(self) -> None:
        self.now_s, self.observer, self.told = 0.0, self, list[Any]()

    def together(self, ask: Callable[[Any], Any], of: Sequence[Any]) -> list[Any]:
        return [ask(each) for each in of]

    def waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        self.told.append(depth)

    def sample(self, evidence: Any) -> None:
        """Of each poll."""

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s

    def notice(self, text: str) -> None:
        assert "restarting it" in text
        assert "although the peer answers" in text

    def names(self) -> Any:
        return SimpleNamespace(broker_connection=None)

    def change(self, calls: Any, hand: Any) -> list[Any]:
        self.restarts += 1
        return []


class UntilEmpty(PairWait):
    def ended(self, now: Flows, hand: Any) -> Outcome | None:
        return Done("empty") if self.left(now) == 0 else None


def wait(world: Any) -> UntilEmpty:
    way: Any = [SimpleNamespace(site=site, pair="a", names=world.names) for site in ("london", "paris")]
    return UntilEmpty(way, world, world)


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (flow(10, 10), flow(30, 30), "the peer has taken nothing from london for 2 s: its link hangs"),
        (flow(10, 10), flow(20, 30), None),
        (flow(10, 10), flow(5, 10), None),
        (flow(0, 10), flow(0, 10), None),
        (flow(10, 10, attached=False), flow(10, 10, attached=False), "the link of london is not attached"),
        (flow(10, 10), flow(0, 10, pending=3), "acknowledgements wait to be applied at london (3)"),
        (flow(), TimedOut("http://paris: no answer"), "london does not answer: http://paris: no answer"),
    ],
    ids=["nothing shipped", "shipped while more came", "shipped", "empty", "not attached", "not applied", "silent"],
)
def test_what_keeps_it_from_ending_is_said(first: Flow, then: Any, says: str | None) -> None:
    world: Any = World()
    one = wait(world)
    one.look({"london": first, "paris": flow()}, world)
    world.now_s += 2.0
    one.look({"london": then, "paris": flow()}, world)
    assert one.why({"london": then, "paris": flow()}, world) == says


def test_a_pair_that_has_ended_is_not_asked_any_more_and_what_a_silent_broker_holds_is_never_zero() -> None:
    world: Any = World()
    asked = list[str]()

    def flows(site: str, pair: str) -> Flow:
        asked.append(pair)
        if (site, pair) == ("paris", "b") and world.now_s < 1:
            raise TimedOut("no answer")
        return flow(0 if pair == "a" or world.now_s > 2 else 5, 5)

    def broker(site: str, pair: str) -> Any:
        return SimpleNamespace(site=site, pair=pair, names=world.names, flow=lambda timeout_s: flows(site, pair))

    waits = [UntilEmpty((broker("london", pair), broker("paris", pair)), world, world) for pair in "ab"]
    assert until_all(world, waits, world, "under way", 1.0) is None
    assert (asked.count("a"), world.told) == (2, [None, 10, 10, 0])


def tended(mender: Mender, world: Any, at_s: float, london: Flow) -> None:
    """One look of the mender's, at that time."""
    world.now_s = at_s
    told = {"london": london, "paris": flow()}
    mender._movement.note(told, world.now_s)
    mender.tend(told, world)


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
    world: Any = World()
    mender = Mender(world, [world], Movement())

    for second in range(60):
        tended(mender, world, float(second), at(second))

    assert (world.restarts, mender.restarts) == (restarts, restarts)


@pytest.mark.parametrize(
    ("now", "limit_s"),
    [(flow(10, 10), MirrorPatience().hung_s), (flow(10, 10, attached=False), Patience().link_lost_s)],
    ids=["idle", "unattached"],
)
def test_it_is_given_its_time(now: Flow, limit_s: float) -> None:
    world: Any = World()
    mender = Mender(world, [world], Movement())

    for moment in (0.0, limit_s - 0.1):
        tended(mender, world, moment, now)
    before = world.restarts
    tended(mender, world, limit_s + 0.1, now)

    assert (before, world.restarts) == (0, 1)
