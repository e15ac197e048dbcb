"""Who is late is told as silent and keeps nobody waiting; many calls go out in several POSTs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import Role
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common import watching
from dr_ctl.topologies.common.calls import pause
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.sender import MOST_IN_A_POST, Sender
from dr_ctl.topologies.common.watching import Watch
from tests.topologies.continuity.views import PAIR, broker, queue


@dataclass(eq=False)
class Broker:
    site: str
    pair: str = "orders-1"
    answers: Event = field(default_factory=Event)
    told: Any = "well"
    asked: int = 0

    def ask(self) -> Any:
        self.asked += 1
        self.answers.wait(10)
        return self.told


@pytest.fixture
def brokers() -> list[Broker]:
    london, paris = Broker("london"), Broker("paris")
    london.answers.set()
    return [london, paris]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, brokers: list[Broker]) -> Iterator[Watch]:
    monkeypatch.setattr(watching, "LATE_S", 0.05)
    watch = Watch(SystemClock())
    yield watch
    for each in brokers:
        each.answers.set()
    watch.close()


def told(watch: Watch, brokers: list[Broker], *, small: bool = True) -> list[Any]:
    found, _ = watch.ask(brokers, Broker.ask, small=small)  # type: ignore[type-var]
    return found


def settled(watch: Watch, brokers: list[Broker]) -> list[Any]:
    """What is told once every question has been answered."""
    for late in watch._late.values():
        assert late.wait(10)
    return told(watch, brokers)


def test_who_is_late_is_told_as_silent_and_asked_once_until_it_answers(watch: Watch, brokers: list[Broker]) -> None:
    _, paris = brokers
    for small in (True, True, False, True):
        here, there = told(watch, brokers, small=small)
        assert (here, there.role) == ("well", Role.UNKNOWN)
    assert paris.asked == 1
    paris.answers.set()
    assert settled(watch, brokers) == ["well", "well"]
    assert paris.asked == 2


def test_who_said_how_it_fails_and_is_late_again_is_told_as_it_said(watch: Watch, brokers: list[Broker]) -> None:
    _, paris = brokers
    told(watch, brokers)
    paris.told = Silent("orders-1", "paris", TimedOut("no answer within 5 s"))
    paris.answers.set()
    settled(watch, brokers)
    paris.answers.clear()
    assert told(watch, brokers)[1].role is Role.SICK
    assert told(watch, brokers, small=False)[1].role is Role.SICK


def test_how_long_the_last_in_time_has_waited_is_told_where_somebody_is_late(
    watch: Watch, brokers: list[Broker]
) -> None:
    assert watch.ask(brokers, Broker.ask, small=True)[1] >= 0.04  # type: ignore[type-var]
    for each in brokers:
        each.answers.set()
    settled(watch, brokers)
    assert watch.ask(brokers, Broker.ask, small=True)[1] == 0.0  # type: ignore[type-var]


LONDON = broker("london")
CALLS = [pause(LONDON, queue(f"orders.{n}")) for n in range(2 * MOST_IN_A_POST + 1)]


class Channel:
    """One broker; the POST of that number has no answer."""

    def __init__(self, silent: int | None = None) -> None:
        self.posts: list[Sequence[Call]] = []
        self._silent = silent

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        self.posts.append(calls)
        if len(self.posts) - 1 == self._silent:
            raise TimedOut("http://london: no answer")
        return [Done(call.about) for call in calls]


def sent(channel: Channel) -> list[Outcome]:
    access = SimpleNamespace(channel=lambda: channel)
    observer: Any = SimpleNamespace(brokers={"london": {PAIR: access}})
    return Sender(observer).send(CALLS)


def test_each_is_sent_once_and_in_order() -> None:
    channel = Channel()
    told = sent(channel)
    assert [call for post in channel.posts for call in post] == CALLS
    assert [each.text for each in told] == [call.about for call in CALLS]
    assert max(len(post) for post in channel.posts) <= MOST_IN_A_POST


@pytest.mark.parametrize("silent", [0, 1])
def test_what_comes_behind_a_silence_is_not_sent(silent: int) -> None:
    channel = Channel(silent)
    told = sent(channel)
    assert len(channel.posts) == silent + 1
    words = [each.word for each in told]
    assert words.index("unknown") == silent * MOST_IN_A_POST
    assert words.count("unknown") == MOST_IN_A_POST
    assert set(words[(silent + 1) * MOST_IN_A_POST :]) == {"refused"}
