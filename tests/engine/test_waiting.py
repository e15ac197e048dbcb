"""All waits follow one law: how often is looked, when a wait holds, and which look decides when the time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.engine.waiting import Waited, until


class Clock:
    """A hand whose time is what the looks and the waits of a test take."""

    def __init__(self, looks: Iterable[int], takes_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.looked_at: list[float] = []
        self._looks, self._takes_s = iter(looks), takes_s

    only_looks = False

    def look(self) -> int:
        self.looked_at.append(self.now_s - 100.0)
        self.now_s += self._takes_s
        return next(self._looks)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s

    def change(self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Outcome]]) -> list[Outcome]:
        raise NotImplementedError

    def sample(self, evidence: Mapping[str, Json]) -> None:
        raise NotImplementedError

    def waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        raise NotImplementedError

    def notice(self, text: str) -> None:
        raise NotImplementedError

    def let_in(self) -> None:
        raise NotImplementedError


def is_zero(seen: int) -> bool:
    return seen == 0


def test_a_wait_looks_once_where_no_time_is_left() -> None:
    clock = Clock([1])
    assert until(clock, clock.look, holds=is_zero, within_s=0.0, poll_s=1.0) == Waited(1, held=False)
    assert clock.looked_at == [0.0]


def test_polls_count_from_the_beginning_of_a_look() -> None:
    clock = Clock([1, 1, 0], takes_s=0.4)
    assert until(clock, clock.look, holds=is_zero, within_s=9.0, poll_s=1.0) == Waited(0, held=True)
    assert clock.looked_at == [0.0, 1.0, 2.0]


def test_a_wait_holds_only_after_so_many_looks_in_a_row() -> None:
    clock = Clock([0, 1, 0, 0])
    assert until(clock, clock.look, holds=is_zero, within_s=9.0, poll_s=1.0, calm=2).held
    assert len(clock.looked_at) == 4


def test_a_look_that_began_after_the_deadline_decides() -> None:
    """The second look begins in time and ends late: the third, which began late, finds it."""
    clock = Clock([1, 1, 0], takes_s=2.0)
    assert until(clock, clock.look, holds=is_zero, within_s=3.0, poll_s=0.5) == Waited(0, held=True)
    assert clock.looked_at == [0.0, 2.0, 4.0]


def test_only_one_look_begins_after_the_deadline() -> None:
    clock = Clock([1] * 9)
    assert until(clock, clock.look, holds=is_zero, within_s=2.5, poll_s=1.0) == Waited(1, held=False)
    assert clock.looked_at == [0.0, 1.0, 2.0, 3.0]


def test_a_hopeless_look_ends_it_at_once_and_one_that_holds_is_never_hopeless() -> None:
    hopeless, held = Clock([1, 2, 0]), Clock([0])
    assert until(hopeless, hopeless.look, holds=is_zero, within_s=None, poll_s=1.0, hopeless=lambda seen: seen > 1) == (
        Waited(2, held=False)
    )
    assert until(held, held.look, holds=is_zero, within_s=None, poll_s=1.0, hopeless=lambda _: True).held


def test_meanwhile_gets_each_look_after_which_the_wait_goes_on() -> None:
    clock, seen = Clock([3, 2, 0]), list[int]()
    until(clock, clock.look, holds=is_zero, within_s=9.0, poll_s=1.0, meanwhile=seen.append)
    assert seen == [3, 2]
