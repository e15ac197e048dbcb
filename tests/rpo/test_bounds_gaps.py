"""A time in which nobody looked is no burst: after it the bound is near the truth, and holds the bursts that there
may be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
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
    took_ms: int = 9,
    down_after_s: float = 0.2,
) -> FifoSite:
    """A site in step with its peer, which nobody looks at within the gap; the look after it waited so long."""
    site, rows = FifoSite(PAIR, "mixed", (QUEUE,)), list[Row]()
    for number in range(round(died_s / STEP_S) + 1):
        now = number * STEP_S
        for _ in range(sent(now)):
            site.send(QUEUE, now)
        for _ in range(2 * RATE):
            site.consume(QUEUE)
        if number % round(NEAR_S / STEP_S) == 0 and not gap[0] < now < gap[1]:
            late = took_ms if gap[1] <= now < gap[1] + NEAR_S else 9
            role = Row(site="london", ts=at(now), pair=PAIR, kind="site", name="serving", took_ms=late)
            rows += [*site.look(now), role]
        while site.outflows[OUTFLOW]:
            site.ship(OUTFLOW)
    down = Row(site="london", ts=at(died_s + down_after_s), pair=PAIR, kind="site", name="down", took_ms=1)
    write([*rows, down], folder)
    return site


def asked(folder: Path, died_s: float, **more: Any) -> int:
    found = bounds(folder, site="london", now=at(died_s + 1), **more)
    assert found.lost.at_most is not None
    assert found.duplicates.at_most is not None
    return found.lost.at_most


def later(now: float) -> int:
    return steady(now) * (now > 20)


def faster(now: float) -> int:
    return steady(now) + (now >= 70)


GAPS: dict[str, tuple[tuple[float, float], float, Callable[[float], int], int, float, float]] = {
    **{f"{lasts_s} s, {ago_s} s ago": ((70, 70 + lasts_s), 70 + lasts_s + ago_s, steady, 9, 0, 1.5 * RATE)
       for lasts_s, ago_s in ((1.5, 540), (31, 60), (115, 10), (900, 60))},
    "a pace that wandered meanwhile": ((70, 112), 130, faster, 9, 0, 1.5 * (RATE + 1 / STEP_S)),
    # As where a monitor is started again after a move.
    "a service that came in it and was seen for seconds": ((15, 43), 47, later, 9, 0, 1.5 * RATE),
    # What a late answer counted is of any moment of that time.
    "and a look that waited long for its answer": ((70, 100), 120, steady, 29_000, 0, 1.5 * RATE),
    # Readings around show no such batch: it may come again.
    "a batch in it, beyond all that was seen": ((70, 101), 160, with_a_batch(85), 9, BATCH, BATCH + 3 * RATE),
    "where too little was seen all of it may have come at once": ((5, 36), 40, steady, 9, 30 * RATE, 1e9),
}  # fmt: skip


@pytest.mark.parametrize(("gap", "died_s", "sent", "took_ms", "least", "most"), GAPS.values(), ids=GAPS)
def test_after_a_gap_the_bound_is_near_the_truth(
    tmp_path: Path,
    gap: tuple[float, float],
    died_s: float,
    sent: Callable[[float], int],
    took_ms: int,
    least: float,
    most: float,
) -> None:
    site = lived(tmp_path, gap, died_s, sent, took_ms=took_ms)

    at_most = asked(tmp_path, died_s)

    lost = site.truth(died_s).loss
    assert max(lost, least) <= at_most <= 2 * lost + most


def test_a_word_on_the_end_of_the_service_shortens_the_time_after_a_gap_too(tmp_path: Path) -> None:
    lived(tmp_path, (70, 101), 130, down_after_s=0.9)

    assert asked(tmp_path, 130, silent_since=at(130)) < asked(tmp_path, 130)
