"""Work beside other work: its result, its error, its time limit; and all of it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from dr_ctl.core.system import ThisMachine, all_ended, beside, running_on, system, together


def test_work_gives_its_result_or_raises_what_ended_it() -> None:
    def fails() -> int:
        raise ValueError("no")

    assert beside(lambda: 3, "three").result() == 3
    with pytest.raises(ValueError, match="no"):
        beside(fails, "fails").result()


def test_who_waits_for_a_while_is_told_whether_it_has_ended() -> None:
    gate = threading.Event()
    work = beside(partial(gate.wait, 10), "gate")

    assert not work.wait(0)
    assert not all_ended([work], 0.01)
    gate.set()
    assert work.wait(10)
    assert all_ended([work], 0)


def test_all_is_done_at_the_same_time_and_in_order() -> None:
    both = threading.Barrier(2)

    def meet(number: int) -> int:
        both.wait(10)  # nobody passes alone
        return number

    assert together([partial(meet, number) for number in range(4)], "meet", most=2) == [0, 1, 2, 3]
    assert together([], "nothing", most=2) == []


def test_the_first_error_is_raised_once_all_have_ended() -> None:
    done = []

    def work(number: int) -> None:
        done.append(number)
        if number:
            raise ValueError(str(number))

    with pytest.raises(ValueError, match="1"):
        together([partial(work, number) for number in range(3)], "work", most=2)
    assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize(("error", "is_told"), [(ValueError("a defect"), True), (OSError("away"), False)])
def test_a_defect_that_nobody_asks_for_is_told(
    error: Exception, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))

    def fails() -> None:
        raise error

    work = beside(fails, "fails")
    work.wait()
    del work

    assert told == ([error] if is_told else [])


def test_the_system_that_stands_in_is_gone_after_the_block() -> None:
    class Other(ThisMachine):
        def start(self, work: Callable[[], object], name: str) -> object:  # type: ignore[override]
            raise RuntimeError(name)

    before, other = system(), Other()
    with running_on(other), pytest.raises(RuntimeError, match="work"):
        beside(lambda: None, "work")
    assert system() is before
