"""Who is late is told as silent, keeps nobody waiting, and is asked again once it has answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import Role
from dr_ctl.topologies.common import watching
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.watching import Watch


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
