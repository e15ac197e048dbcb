"""Time that jumps: who is woken, and when, and what ends."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from dr_ctl.core.system import all_ended, in_background, in_parallel, system
from dr_ctl_lab.simulation import scheduler
from dr_ctl_lab.simulation.scheduler import Standstill
from dr_ctl_lab.simulation.system import Simulation, simulated


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with simulated() as simulation:
        yield simulation


def test_who_waits_goes_on_by_time_and_at_one_time_by_order_and_the_wall_clock_with_it(simulation: Simulation) -> None:
    order: list[tuple[str, float, float]] = []
    began, at = simulation.monotonic(), simulation.now()

    def after(what: str, seconds: float) -> None:
        system().sleep(seconds)
        order.append((what, simulation.monotonic() - began, (simulation.now() - at).total_seconds()))

    waits = [("slow", 86_400.0), ("first", 1.0), ("second", 1.0), ("at once", 0.0)]
    in_parallel([partial(after, *wait) for wait in waits], "work", most=4)

    assert order == [(what, s, s) for what, s in sorted(waits, key=lambda options: options[1])]


def test_an_event_wakes_who_waits_and_a_time_limit_does(simulation: Simulation) -> None:
    event, began = system().event(), simulation.monotonic()
    waiting = [in_background(partial(event.wait, 5.0), "waits"), in_background(partial(event.wait, 1.0), "gives up")]

    system().sleep(2.0)
    event.set()

    assert [waiter.result() for waiter in waiting] == [True, False]
    assert simulation.monotonic() - began == 2.0
    assert event.wait(0)


def test_who_gave_up_waiting_is_not_woken_out_of_the_next_wait(simulation: Simulation) -> None:
    work, event = in_background(partial(system().sleep, 5.0), "work"), system().event()
    assert not work.wait(1.0)
    began = simulation.monotonic()

    assert not event.wait(30.0)

    assert simulation.monotonic() - began == 30.0
    assert all_ended([work], 0)


def test_an_error_is_raised_where_the_result_is_asked_for_and_a_defect_that_nobody_asked_for_at_the_end() -> None:
    def fails() -> None:
        raise ValueError("a defect")

    with simulated():
        with pytest.raises(ValueError, match="a defect"):
            in_background(fails, "fails").result()
        in_background(partial(open, "/nowhere/at/all"), "away").wait()  # that is no defect
    with pytest.raises(ValueError, match="a defect"), simulated():
        in_background(fails, "fails").wait()


def test_what_still_waits_at_the_end_is_ended() -> None:
    ended = []

    def waits() -> None:
        try:
            system().event().wait()
        finally:
            ended.append("tidied up")
            system().sleep(1.0)
            ended.append("never")

    before = threading.active_count()
    with simulated():
        in_background(waits, "waits")
        system().sleep(1.0)
        in_background(waits, "never begins")

    assert ended == ["tidied up"]
    assert threading.active_count() == before


def spins() -> None:
    while True:
        system().sleep(0)


def goes_on() -> None:
    while True:
        system().sleep(60.0)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: system().event().wait(), r"no task is due.*beside it"),
        (spins, r"time does not pass.*beside it"),
        (goes_on, "waits for too long"),
    ],
)
def test_a_wait_for_what_will_never_happen_is_told(
    simulation: Simulation, work: Callable[[], object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if work is spins:
        monkeypatch.setattr(scheduler, "MAX_TURNS", 100)
    in_background(work, "beside it")
    with pytest.raises(Standstill, match=says):
        system().event().wait()


def test_a_thread_that_the_simulation_has_not_started_may_not_wait_in_it(simulation: Simulation) -> None:
    errors: list[Exception] = []

    def waits() -> None:
        try:
            system().sleep(1.0)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()

    assert "is no task of the simulation" in str(errors[0])


class Interrupted(Exception):
    pass


def test_a_signal_is_heard_in_the_middle_of_a_wait(simulation: Simulation) -> None:
    event, began, heard = system().event(), simulation.monotonic(), list[float]()

    def now() -> float:
        return simulation.monotonic() - began

    def raises() -> None:
        raise Interrupted

    def signals() -> None:
        for handler in (lambda: heard.append(now()), event.set, raises):
            system().sleep(1.0)
            simulation._scheduler.interrupt(handler)

    in_background(signals, "signals")

    assert event.wait(60.0)
    assert (heard, now()) == ([1.0], 2.0)
    with pytest.raises(Interrupted):
        system().sleep(60.0)
    assert now() == 3.0
    system().sleep(60.0)  # what was left of the other wait wakes nobody
    assert now() == 63.0
