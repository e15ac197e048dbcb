"""A time in which nobody looked is no burst: after it the bound is near the truth, and holds the bursts that there
may be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, at

PAIR, QUEUE, OUTFLOW = "orders-1", "orders", ("mixed", "*")
STEP_S, NEAR_S, RATE = 0.05, 0.25, 60
BATCH = 2000


def steady(now: float) -> int:
    return round(RATE * STEP_S)


def with_a_batch(begin_s: float) -> Callable[[float], int]:
    return lambda now: steady(now) + BATCH * (begin_s <= now < begin_s + STEP_S / 2)


def lived(
    folder: Path,
    gap: tuple[float, float],
    died_s: float,
    sent: Callable[[float], int] = steady,
    *,
    seen_down_after_s: float = 0.2,
) -> tuple[FifoSite, float]:
    """A site in step with its peer, which nobody looks at within the gap; and when it was looked at last."""
    site, rows = FifoSite(PAIR, "mixed", (QUEUE,)), list[Row]()
    looked_s = 0.0
    for number in range(round(died_s / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(sent(now)):
            site.send(QUEUE, now)
        for _ in range(2 * RATE):
            site.consume(QUEUE)
        is_looked = number % round(NEAR_S / STEP_S) == 0 and not gap[0] < now < gap[1]
        if is_looked:
            rows += [*site.look(now), Row(site="london", ts=at(now), pair=PAIR, kind="site", name="serving", took_ms=9)]
            looked_s = now
        for _ in range(10 * BATCH):
            if not site.outflows[OUTFLOW]:
                break
            site.ship(OUTFLOW)
    down = Row(site="london", ts=at(died_s + seen_down_after_s), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], folder)
    return site, looked_s


def asked(folder: Path, died_s: float, **more: object) -> Bounds:
    return bounds(folder, site="london", now=at(died_s + 1), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("ago_s", [10, 60, 540])
@pytest.mark.parametrize("lasts_s", [1.5, 31, 115, 900])
def test_after_a_gap_the_bound_is_near_the_truth(tmp_path: Path, lasts_s: float, ago_s: float) -> None:
    over_s = 70 + lasts_s
    site, _ = lived(tmp_path, (70, over_s), over_s + ago_s)

    found = asked(tmp_path, over_s + ago_s)

    lost = site.truth(over_s + ago_s).loss
    assert found.lost.at_most is not None
    assert lost <= found.lost.at_most <= 2 * lost + 1.5 * RATE
    assert found.duplicates.at_most is not None
    assert found.duplicates.at_most <= 1.5 * RATE


def test_a_pace_that_wandered_meanwhile_is_no_burst(tmp_path: Path) -> None:
    site, _ = lived(tmp_path, (70, 112), 130, lambda now: steady(now) + (now >= 70))

    found = asked(tmp_path, 130)

    lost = site.truth(130).loss
    assert found.lost.at_most is not None
    assert lost <= found.lost.at_most <= 2 * lost + 1.5 * (RATE + 1 / STEP_S)


def test_a_word_on_the_end_of_the_service_shortens_the_time_after_a_gap_too(tmp_path: Path) -> None:
    _, looked_s = lived(tmp_path, (70, 101), 130, seen_down_after_s=0.9)

    without, word = (asked(tmp_path, 130, **each) for each in ({}, {"silent_since": at(looked_s)}))

    assert word.lost.at_most is not None
    assert without.lost.at_most is not None
    assert word.lost.at_most < without.lost.at_most


def test_a_service_that_came_in_a_gap_and_was_seen_for_seconds_is_bounded_by_its_pace(tmp_path: Path) -> None:
    """As where a monitor is started again after a move."""
    lived(tmp_path, (15, 43), 47, lambda now: steady(now) * (now > 20))

    found = asked(tmp_path, 47)

    assert found.lost.at_most is not None
    assert found.lost.at_most <= 1.5 * RATE


def test_what_came_in_a_gap_beyond_all_that_was_seen_may_have_come_at_once(tmp_path: Path) -> None:
    """Readings around show no such batch: it may come again."""
    lived(tmp_path, (70, 101), 160, with_a_batch(85))

    found = asked(tmp_path, 160)

    assert found.lost.at_most is not None
    assert BATCH <= found.lost.at_most <= BATCH + 3 * RATE


def test_where_too_little_was_seen_all_of_a_gap_may_have_come_at_once(tmp_path: Path) -> None:
    lived(tmp_path, (5, 36), 40)

    found = asked(tmp_path, 40)

    assert found.lost.at_most is not None
    assert found.lost.at_most >= 30 * RATE


def test_a_look_that_waited_long_for_its_answer_is_no_burst_either(tmp_path: Path) -> None:
    """What it counted is of any moment of that time."""
    site, rows = FifoSite(PAIR, "mixed", (QUEUE,)), list[Row]()
    for number in range(2400):
        now = number * STEP_S
        for _ in range(steady(now)):
            site.send(QUEUE, now)
            site.consume(QUEUE)
        while site.outflows[OUTFLOW]:
            site.ship(OUTFLOW)
        if number % 5 == 0 and not 1400 < number < 2000:
            took_ms = 29_000 if number == 2000 else 10
            site_row = Row(site="london", ts=at(now), pair=PAIR, kind="site", name="serving", took_ms=took_ms)
            rows += [*site.look(now), site_row]
    died = at(2400 * STEP_S)
    down = Row(site="london", ts=died + timedelta(seconds=0.2), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], tmp_path)

    found = bounds(tmp_path, site="london", now=died + timedelta(seconds=1))

    assert found.lost.at_most is not None
    assert found.lost.at_most <= 1.5 * RATE
