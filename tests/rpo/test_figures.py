"""Quantiles, intervals and the next minutes from histograms made by hand. No Spark."""

from __future__ import annotations

import random

import pytest

from dr_ctl.rpo.estimate.cells import BOTH, HELD, PUT, STEP, TOLD, Cell
from dr_ctl.rpo.estimate.figures import LEAST_EXCURSIONS, Histogram, Table, between, t_value, weighted_quantile
from dr_ctl.rpo.estimate.horizon import LEAST_MOMENTS, ahead, changes, level


def cell(kind: str, value: int, *, block: int = 0, weight: int = 1, states: int = 1) -> Cell:
    return Cell(
        kind, "total", "loss", block, 0, stalled=False, bucket=value, weight_us=weight, value=value, states=states
    )


def histogram(values: list[list[int]]) -> Histogram:
    """Of a series in blocks: one unit of time each."""
    found, before = Histogram(), None
    for block, each in enumerate(values):
        for value in each:
            found.add(cell(HELD, value, block=block))
            if before is not None and min(value, before) > 0:
                found.add(cell(BOTH, min(value, before), block=block, weight=0))
            before = value
    return found


def test_quantiles_weigh_time() -> None:
    found = Histogram()
    for value, weight in ((0, 90), (7, 9), (50, 1)):
        found.add(cell(HELD, value, weight=weight))

    assert [found.quantile(p) for p in (0.5, 0.9, 0.95, 0.99, 0.999)] == [0, 0, 7, 7, 50]
    assert (found.max, Histogram().quantile(0.5), Histogram().max) == (50, None, None)


def test_excursions_are_counted_by_their_rises() -> None:
    found = histogram([[0, 5, 9, 5, 0, 0, 5, 0, 9, 9, 9]])

    assert [found.excursions(value) for value in (0, 4, 5, 9)] == [3, 3, 2, 0]


def test_students_t() -> None:
    assert [round(t_value(freedom), 2) for freedom in (7, 23, 27, 1000)] == [2.36, 2.07, 2.05, 1.96]


def test_an_interval_needs_blocks_and_excursions() -> None:
    dice = random.Random(1)
    many = [[dice.choice([0, 0, 0, 8]) for _ in range(40)] for _ in range(24)]

    assert histogram(many).interval(0.5) is not None
    assert histogram(many[:23]).interval(0.5) is None
    assert histogram([[0] * 40] * 24).interval(0.5) is None
    few = [[0] * 40 for _ in range(24)]
    for number in range(LEAST_EXCURSIONS - 1):
        few[2 * number][3] = 8
    assert histogram(few).interval(0.5) is None
    few[20][3] = 8
    assert histogram(few).interval(0.5) is not None


def test_excursions_that_stand_together_tell_less_than_their_number() -> None:
    together = [[0] * 40 for _ in range(24)]
    for block in range(5):
        together[block] = [0, 0, 8, 8] * 10

    assert histogram(together).excursions(0) == 50
    assert histogram(together).interval(0.9) is None


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # Clopper and Pearson's bounds for 5 of 10, 190 of 200, 990 of 1000.
    [(0.5, 10, 0.1871, 0.8129), (0.95, 200, 0.9100, 0.9758), (0.99, 1000, 0.9817, 0.9952)],
)
def test_the_interval_of_a_share(share: float, count: float, low: float, high: float) -> None:
    assert between(share, count) == pytest.approx((low, high), abs=0.001)


def test_blocks_that_differ_make_the_interval_wide() -> None:
    dice = random.Random(2)
    alike = [[dice.randrange(60) for _ in range(100)] for _ in range(24)]
    differing = [[dice.randrange(60) * mood // 2 for _ in range(100)] for mood in (1, 2, 3) * 8]

    narrow, wide = histogram(alike).interval(0.95), histogram(differing).interval(0.95)

    assert narrow is not None
    assert wide is not None
    assert narrow[0] <= 57 <= narrow[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]


def test_what_the_counters_do_not_explain() -> None:
    table = Table.of([cell(PUT, 200), cell(TOLD, 190)])

    assert table.unexplained("total") == 0.05
    assert table.unexplained("class:0") is None


def test_a_weighted_quantile() -> None:
    assert weighted_quantile([(5, 1), (1, 9)], 0.9) == 1
    assert weighted_quantile([(5, 1), (1, 9)], 0.91) == 5
    assert weighted_quantile([], 0.5) is None


def step(at: int, change: int, states: int, *, stalled: bool = False) -> Cell:
    return Cell(STEP, "total", "loss", 0, at, stalled, change, states, change, states)


@pytest.mark.parametrize(("loss", "magnitude"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11)])
def test_the_magnitude_of_a_loss(loss: int, magnitude: int) -> None:
    assert level(loss) == magnitude


def test_similar_moments_first_then_their_neighbours() -> None:
    found = changes([step(3, 1, LEAST_MOMENTS), step(4, 2, 5), step(6, 9, LEAST_MOMENTS)])["total", "loss"]

    assert found.similar(3, stalled=False) == [(1, LEAST_MOMENTS)]
    assert sorted(found.similar(4, stalled=False)) == [(1, LEAST_MOMENTS), (2, 5)]
    assert found.similar(4, stalled=True) == []
    assert changes([step(3, 1, 5)])["total", "loss"].similar(3, stalled=False) == []


def test_ahead_counts_from_the_bound_of_the_last_interval() -> None:
    similar = [(-50, 50), (10, 50)]

    found = ahead(4, 20, similar)

    assert (found.now, found.p50, found.p95, found.max) == (4, 0, 30, 30)


def test_while_it_stalls_and_nothing_similar_is_known_it_goes_on_growing() -> None:
    found = ahead(4, 20, [], fallback=[1, 2, 3, 4])

    assert (found.p50, found.p95, found.p99, found.max) == (21, 22, 23, 24)
    assert ahead(4, 20, []).p99 is None
    assert ahead(4, None, [(1, 1)]).p99 is None
