"""Quantiles, intervals and the next minutes from histograms made by hand. No Spark."""

import random

import numpy as np
import pytest

from dr_ctl.rpo.core.changes import LEAST_MOMENTS, Changes, level
from dr_ctl.rpo.core.histogram import Histogram, weighted_quantile
from dr_ctl.rpo.core.intervals import LEAST_BLOCKS, between, interval, quantity
from dr_ctl.rpo.core.scope import ahead
from dr_ctl.rpo.core.verdict import t_value


def histogram(values: list[list[int]]) -> Histogram:
    """Of a series in blocks: one unit of time each."""
    flat = np.array([value for each in values for value in each], np.int64)
    block = np.array([number for number, each in enumerate(values) for _ in each], np.int64)
    return Histogram.of(flat, np.ones(len(flat), np.int64), block, len(values))


def test_quantiles_weigh_time() -> None:
    values, weights = np.array([0, 7, 50]), np.array([90, 9, 1])

    found = Histogram.of(values, weights, np.zeros(3, np.int64), 1)

    assert [found.quantile(p) for p in (0.5, 0.9, 0.95, 0.99, 0.999)] == [0, 0, 7, 7, 50]
    none = histogram([[]])
    assert (found.max, none.quantile(0.5), none.max) == (50, None, None)


def test_what_is_likely_is_never_above_the_bound() -> None:
    """Of one bucket the bound was seen at 5611 at most, and what was likely at 5614, when the bound was above it."""
    bound, likely = histogram([[5611, 5611, 5800]]), histogram([[5614, 5614, 5700]])

    found = quantity(5611, bound, 5614, likely, 1.0)

    assert (found.p50, found.likely.p50) == (5611, 5611)
    assert (found.now, found.likely.now) == (5611, 5611)
    assert (found.max, found.likely.max) == (5800, 5700)


def test_an_interval_needs_blocks() -> None:
    dice = random.Random(1)
    many = [[dice.choice([0, 0, 0, 8]) for _ in range(40)] for _ in range(24)]

    assert interval(histogram(many), 0.5) == (0, 0)
    assert interval(histogram(many), 0.99) == (8, 8)
    assert interval(histogram(many[: LEAST_BLOCKS - 1]), 0.5) is None


def test_the_upper_end_is_open_where_too_few_excursions_stand_behind_it() -> None:
    def with_excursions(count: int) -> tuple[int, int | None] | None:
        values = [[0] * 100 for _ in range(24)]
        for number in range(count):
            values[number * 24 // count][3] = 8 + number
        return interval(histogram(values), 0.995)

    assert with_excursions(3) == (0, None)
    told = with_excursions(20)
    assert told[0] < told[1]
    # Nothing ever rose above it: nobody knows how high it would.
    assert interval(histogram([[0] * 40] * 24), 0.5) == (0, None)


def test_an_interval_of_what_is_not_known_is_not_known() -> None:
    dice = random.Random(3)
    values = np.array([dice.choice([0, 5, 8]) for _ in range(2400)], np.int64)
    known = Histogram.of(values, np.ones(2400, np.int64), np.arange(2400) // 100, 24)
    partly = Histogram(known.buckets, known.weights, known.largest, known.unknown + 20)

    assert interval(known, 0.95) == (8, 8)
    assert interval(partly, 0.95) is None  # the quantile itself is not known
    assert interval(partly, 0.5) == (5, 5)


def test_excursions_that_stand_together_tell_less_than_their_number() -> None:
    together, apart = [[0] * 40 for _ in range(24)], [[0] * 40 for _ in range(24)]
    for block in range(5):
        together[block] = [0, 0, 8, 8] * 10
    for block in range(24):
        apart[block] = [8] * (3 + block % 3) + [0] * (37 - block % 3)

    narrow, wide = (interval(histogram(each), 0.9) for each in (apart, together))

    assert narrow == (0, 8)
    assert wide == (0, None)


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

    narrow, wide = interval(histogram(alike), 0.95), interval(histogram(differing), 0.95)

    assert narrow[0] <= 57 <= narrow[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]


def test_a_weighted_quantile_and_students_t() -> None:
    assert weighted_quantile(np.array([5, 1]), np.array([1, 9]), 0.9) == 1
    assert weighted_quantile(np.array([5, 1]), np.array([1, 9]), 0.91) == 5
    assert weighted_quantile(np.array([]), np.array([], np.int64), 0.5) is None
    assert [round(t_value(freedom), 2) for freedom in (7, 23, 27, 1000)] == [2.36, 2.07, 2.05, 1.96]


def changes(*moments: tuple[int, int, int]) -> Changes:
    """Of so many moments each: a magnitude of loss, a change, how many."""
    columns = [np.repeat([each[place] for each in moments], [each[2] for each in moments]) for place in (0, 1)]
    count = len(columns[0])
    one = np.ones(count, np.int64)
    return Changes(one * 0, np.arange(count), columns[0], np.zeros(count, bool), columns[1], one, one)


@pytest.mark.parametrize(("loss", "magnitude"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11)])
def test_the_magnitude_of_a_loss(loss: int, magnitude: int) -> None:
    assert level(loss) == magnitude


def test_similar_moments_first_then_their_neighbours() -> None:
    found = changes((3, 1, LEAST_MOMENTS), (4, 2, 5), (6, 9, LEAST_MOMENTS))

    def similar(at: int, *, stalled: bool = False) -> set[int] | None:
        told = found.similar(at, stalled=stalled)
        return None if told is None else set(told.change.tolist())

    assert (similar(3), similar(4), similar(6), similar(4, stalled=True)) == ({1}, {1, 2}, {9}, None)
    assert changes((3, 1, 5)).similar(3, stalled=False) is None


def test_ahead_counts_from_the_bound_of_the_last_interval() -> None:
    similar = changes((3, -50, 50), (3, 10, 50))

    found = ahead(4, 20, similar)

    assert (found.now, found.p50, found.p95, found.max) == (4, 0, 30, 30)


def test_while_it_stalls_and_nothing_similar_is_known_it_goes_on_growing() -> None:
    found = ahead(4, 20, None, fallback=[1, 2, 3, 4])

    assert (found.p50, found.p95, found.p99, found.max) == (21, 22, 23, 24)
    assert ahead(4, 20, None).p99 is None
    assert ahead(4, None, changes((0, 1, 1))).p99 is None
