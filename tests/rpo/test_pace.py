"""How fast things came at most: between no two looks more than the pace says, whatever the bursts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dr_ctl.rpo.bounds.pace import Pace

US = 1_000_000


def paced(times_s: list[float], counter: list[int], era: list[int] | None = None) -> Pace | None:
    us = np.array([round(each * US) for each in times_s], np.int64)
    return Pace.of(us, np.array(counter, np.int64), np.array(era or [0] * len(us), np.int64))


def test_a_burst_at_one_look_is_no_rate() -> None:
    steady = [25 * n for n in range(41)]
    burst = [count + (58 if n > 20 else 0) for n, count in enumerate(steady)]

    found = paced([n / 4 for n in range(41)], burst)

    assert found is not None
    assert found.rate == pytest.approx(158)
    assert found.burst == pytest.approx(58 - 58 / 4)
    assert found.most(US // 4) == 83
    assert found.most(10 * US) < 4 * 83 * 10


@pytest.mark.parametrize("every_s", [0.25, 1.0, 5.0])
def test_between_no_two_looks_came_more(every_s: float) -> None:
    chance = random.Random(every_s)
    times, counter = [0.0], [0]
    for _ in range(200):
        times.append(times[-1] + every_s * chance.uniform(0.7, 1.6))
        counter.append(counter[-1] + (chance.randrange(400) if chance.random() < 0.2 else chance.randrange(20)))

    found = paced(times, counter)

    assert found is not None
    for begin in range(200):
        for end in range(begin + 1, 201):
            assert counter[end] - counter[begin] <= found.most(round((times[end] - times[begin]) * US))


def test_looks_that_are_seconds_apart_know_no_burst() -> None:
    found = paced([0, 5, 10, 15], [0, 50, 100, 200])

    assert found is not None
    assert (found.rate, found.burst) == (20.0, pytest.approx(0.0))
    assert found.most(4 * US) == 80


def test_a_restart_counts_anew() -> None:
    assert paced([0, 5, 10, 15, 20], [0, 50, 0, 20, 60], [0, 0, 1, 1, 1]) == Pace(10.0, 0.0)


@pytest.mark.parametrize("times", [[], [0.0], [0.0, 5.0]])
def test_too_few_looks_tell_no_pace(times: list[float]) -> None:
    assert paced(times, [0] * len(times)) is None
