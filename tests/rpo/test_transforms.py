"""Bounds against truth worked out by hand, and against a model that knows every message; quantiles, intervals and the
next minutes from histograms made by hand."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dr_ctl.rpo.core.arrays import NA, Ints
from dr_ctl.rpo.core.hour import MIN_MOMENTS, Changes
from dr_ctl.rpo.core.quantities import t_value
from dr_ctl.rpo.core.rows import MIN_BLOCKS, Histogram, between, bucket_of, interval, quantity, weighted_quantile
from dr_ctl.rpo.core.scope import ahead
from dr_ctl.rpo.core.step_functions import METRICS, Figures, LagSeries, Steps, drain_ms, fold
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, Style, Truth, at
from tests.rpo.files import lag_of, write

NOW = 0


@dataclass(frozen=True)
class Bound:
    loss: int | None
    age_s: float | None
    duplicates: int | None
    drain_s: float | None
    covered: bool
    is_floor: bool


Bounds = dict[tuple[str, str, str, int], Bound]  # pair, flow, scope, number of the interval


def bounds(
    rows: Iterable[Row],
    root: Path,
    *,
    classes: tuple[tuple[str, ...], ...] = (("a.#",),),
    exclude: tuple[str, ...] = (),
) -> Bounds:
    lag = lag_of(write(rows, root), classes=classes, exclude=exclude)
    found: Bounds = {}
    for number, name in enumerate(["total", *(f"class:{place}" for place in range(len(classes)))]):
        steps, now = lag.steps(number), lag.now(number)
        for flow, key in enumerate(lag.flows.keys):
            at_flow = now.only(now.flow == flow)
            if len(at_flow.flow):
                found[(*key, name, NOW)] = bound(lag, at_flow.bound, 0, covered=True, is_floor=False)
            flow_steps = steps.take(np.flatnonzero(steps.flow == flow))
            for n in range(len(flow_steps.begin)):
                covered, floor = bool(flow_steps.covered[n]), bool(flow_steps.bound.is_floor[n])
                found[(*key, name, n + 1)] = bound(lag, flow_steps.bound, n, covered=covered, is_floor=floor)
    return found


def bound(lag: LagSeries, told: Figures, n: int, *, covered: bool, is_floor: bool) -> Bound:
    rates = lag.rates[int(told.drain_acks[n])][int(told.drain_flow[n])]
    took = drain_ms(told.drain[n : n + 1], rates)
    loss, age_ms, duplicates, drain = (None if each == NA else int(each)
                                  for each in (told.loss[n], told.age_ms[n], told.duplicates[n], took[0]))  # fmt: skip
    age_s, drain_s = (None if each is None else each / 1000 for each in (age_ms, drain))
    return Bound(loss, age_s, duplicates, drain_s, covered, is_floor)


def queue(pair: str, name: str, second: float, *, added: int, acked: int, depth: int | None = None, **more: Any) -> Row:
    told = {"start": "1", "depth": added - acked if depth is None else depth, "removed": acked, "acked": acked, **more}
    return Row(site="london", ts=at(second), pair=pair, kind="queue", name=name, added=added, **told)


def outflow(
    pair: str, second: float, *, put: int, shipped: int, kind: str = "mixed", name: str = "*", **more: Any
) -> Row:
    told = {"start": "1", "link": True, "depth": put - shipped, "removed": shipped, **more}
    return Row(site="london", ts=at(second), pair=pair, kind=kind, name=name, added=put, **told)


BY_HAND = [
    # Nothing under way, although much has passed.
    *[queue("idle", "a", s, added=5, acked=5) for s in (0, 10, 20)],
    *[outflow("idle", s, put=10, shipped=10) for s in (0, 10, 20)],
    # Sends only; the link falls behind.
    queue("behind", "a", 0, added=0, acked=0),
    outflow("behind", 0, put=0, shipped=0, kind="mirror"),
    queue("behind", "a", 10, added=10, acked=0),
    outflow("behind", 10, put=10, shipped=0, kind="mirror"),
    queue("behind", "a", 20, added=30, acked=0),
    outflow("behind", 20, put=30, shipped=10, kind="mirror"),
    # Sends and acknowledgements in one outflow: ten sent, four of them consumed.
    queue("both", "a", 0, added=0, acked=0),
    outflow("both", 0, put=0, shipped=0),
    queue("both", "a", 10, added=10, acked=4),
    outflow("both", 10, put=14, shipped=0),
    queue("both", "a", 20, added=10, acked=4),
    outflow("both", 20, put=14, shipped=12),
    # Two queues share an outflow.
    queue("several", "a.x", 0, added=0, acked=0),
    queue("several", "b", 0, added=0, acked=0),
    outflow("several", 0, put=0, shipped=0, kind="mirror"),
    queue("several", "a.x", 10, added=3, acked=0),
    queue("several", "b", 10, added=5, acked=0),
    outflow("several", 10, put=8, shipped=0, kind="mirror"),
    # A restart: counters begin anew, ten things are still in the outflow.
    queue("restart", "a", 0, added=100, acked=60),
    outflow("restart", 0, put=160, shipped=150),
    queue("restart", "a", 10, added=0, acked=0, depth=40, start="2"),
    outflow("restart", 10, put=0, shipped=0, depth=10, start="2"),
    queue("restart", "a", 20, added=5, acked=0, depth=45, start="2"),
    outflow("restart", 20, put=5, shipped=12, depth=3, start="2"),
    # The queue could not be read at 10 s; its outflow could.
    *[queue("unread", "a", s, added=int(s), acked=0) for s in (0, 20)],
    *[outflow("unread", s, put=int(s), shipped=0, kind="mirror") for s in (0, 10, 20)],
    # A queue appears; another is made anew, and its counters with it.
    *[outflow("made", s, put=int(s), shipped=0, kind="mirror") for s in (0, 10, 20)],
    queue("made", "a.new", 10, added=4, acked=0),
    queue("made", "a.new", 20, added=4, acked=0),
    queue("made", "b", 0, added=9, acked=9),
    queue("made", "b", 10, added=6, acked=0),
    queue("made", "b", 20, added=16, acked=0),
    # The last reading did not get at the queue.
    *[queue("blind", "a", s, added=0, acked=0) for s in (0, 10)],
    *[outflow("blind", s, put=int(s), shipped=0) for s in (0, 10, 20)],
    # Old messages wait in the queue, and the broker knows how old.
    *[queue("old", "a", s, added=4, acked=0, oldest_ms=3000) for s in (0, 100)],
    *[outflow("old", s, put=4, shipped=0, kind="mirror") for s in (0, 100)],
    # With the link away hardly a thing is shipped; what drains tells how fast the link is.
    *[
        outflow("away", 10 * n, put=100, shipped=shipped, kind="mirror", link=n != 1)
        for n, shipped in enumerate((0, 10, 20, 70))
    ],
    # Every queue has its own outflow, all acknowledgements share one.
    *[queue("bridges", "a", s, added=int(s), acked=int(s) // 2) for s in (0, 10)],
    *[outflow("bridges", s, put=int(s), shipped=int(s) - int(s) // 5, kind="mirror", name="a") for s in (0, 10)],
    *[outflow("bridges", s, put=int(s) // 2, shipped=0, kind="acks") for s in (0, 10)],
]
NOTHING = Bound(0, 0, 0, 0, covered=True, is_floor=False)
# By pair (and flow, and scope) and number of the interval: the bound, or its loss, or loss and duplicates.
EXPECTED: dict[tuple[str, ...], dict[int, Bound | int | tuple[int, int]]] = {
    ("idle",): {1: NOTHING, 2: NOTHING, NOW: NOTHING},
    # One thing a second was shipped between two readings that both saw a backlog.
    ("behind",): {
        1: Bound(10, 10.0, None, 10.0, covered=True, is_floor=False),
        2: Bound(30, 20.0, None, 30.0, covered=True, is_floor=False),
        NOW: Bound(20, 10.0, None, 20.0, covered=True, is_floor=False)},
    ("away",): {NOW: Bound(30, 30.0, None, 6.0, covered=True, is_floor=False)},
    # Six were left in the queue when it began; two things are left in the outflow, whatever they are.
    ("both",): {1: (10, 4), 2: (6, 4), NOW: (2, 2)},
    ("several",): {NOW: 8},
    ("several", "*", "class:0"): {NOW: 3},
    # The depth of the outflow is the bound.
    ("restart",): {2: (15, 15), NOW: (3, 0)},
    # Of twenty sent within the two intervals, at most ten can have been in the outflow in the first of them.
    ("unread",): {1: 10, 2: 20, NOW: 20},
    ("made",): {1: 10, 2: 20},
    # As much was put in since the reading that read the queue.
    ("blind",): {1: 0, 2: 20, NOW: 10},
    # Eight of ten are shipped, but no reading saw the counters at eight: all since the first reading, two at most.
    ("bridges", "a"): {NOW: (2, 5)},
    ("bridges",): {NOW: 0},
}  # fmt: skip


def test_bounds_are_those_by_hand(tmp_path: Path) -> None:
    found = bounds(BY_HAND, tmp_path)

    for words, expected in EXPECTED.items():
        key = (*words, *("*", "total")[len(words) - 1 :]) if len(words) < 3 else words
        for number, value in expected.items():
            said, two = found[(*key, number)], (found[(*key, number)].loss, found[(*key, number)].duplicates)
            assert value in (said, said.loss, two), (words, number, said)
    assert [found["restart", "*", "total", number].covered for number in (1, 2)] == [False, True]
    assert found["restart", "*", "total", 2].is_floor
    assert (found["both", "*", "total", NOW].age_s, found["restart", "*", "total", NOW].age_s) == (20.0, 10.0)
    # Nothing lost is older than the oldest in the queue.
    assert found["old", "*", "total", NOW].age_s == 3.0


def test_queues_left_out_count_nothing(tmp_path: Path) -> None:
    found = bounds([row for row in BY_HAND if row.pair == "several"], tmp_path, exclude=("b",))

    assert found["several", "*", "total", NOW].loss == 3


def life(seed: int, style: Style) -> tuple[str, list[Row], dict[int, list[Truth]]]:
    """Run a site by a seed; return its readings, and all that was true within each interval between two readings."""
    chance = random.Random(seed)
    queues = tuple(f"q{number}" for number in range(chance.randint(1, 3)))
    site = FifoSite(f"{style}-{seed}", style, queues)
    rows: list[Row] = []
    true: dict[int, list[Truth]] = defaultdict(list)
    now, speed = 0.0, 1.0
    for number in range(1, 41):
        if chance.random() < 0.05:
            site.restart()
        compared = [name for name in queues if style == "plugin" and chance.random() < 0.8]
        site.copies = site.copies if chance.random() < 0.8 else style != "plugin" or chance.random() < 0.5
        rows += site.look(now, compared=compared)
        true[number].append(site.truth(now))
        if number > 1:
            true[number - 1].append(site.truth(now))
        if chance.random() < 0.2:
            speed = chance.choice([0.0, 0.3, 1.0, 3.0])
        for _ in range(chance.randint(0, 30)):
            now += chance.random() * 0.5
            queue_ = chance.choice(queues)
            if chance.random() < 0.55:
                site.send(queue_, now)
            else:
                site.consume(queue_)
            for outflow_ in site.outflows:
                if chance.random() < speed / 2:
                    site.ship(outflow_)
            true[number].append(site.truth(now))
        now += 0.5
        true[number].append(site.truth(now))
    rows += site.look(now)
    return site.pair, rows, true


def test_the_bound_is_never_below_the_truth_between_two_looks(tmp_path: Path) -> None:
    styles: list[Style] = ["mixed", "split", "bridges", "plugin"]
    lives = [life(seed, style) for style in styles for seed in range(6)]

    found = bounds([row for _, rows, _ in lives for row in rows], tmp_path)

    checked, bounded = 0, 0
    for pair, _, true in lives:
        for n, truths in true.items():
            flows = [b for (p, _, scope, number), b in found.items() if (p, scope, number) == (pair, "total", n)]
            if not all(flow.covered for flow in flows):
                continue
            loss = sum(flow.loss or 0 for flow in flows)
            age_s = max(flow.age_s or 0 for flow in flows)
            duplicates = sum(flow.duplicates or 0 for flow in flows)
            uncertain = any(flow.is_floor for flow in flows)
            for truth in truths:
                assert loss >= truth.loss, (pair, n)
                assert uncertain or age_s >= truth.age_s - 1e-6, (pair, n)
                assert duplicates >= truth.duplicates, (pair, n)
                checked += 1
            bounded += loss
    assert checked > 3000
    # A bound that is always everything would pass too.
    assert bounded < 3 * sum(max(t.loss for t in truths) for _, _, true in lives for truths in true.values())


def ints(*values: int | None) -> Ints:
    return np.array([NA if value is None else value for value in values], np.int64)


def test_values_are_weighted_by_time_and_rounded_up_by_two_percent_at_most() -> None:
    found = Histogram.of(ints(0, 63, 10_000, 10_001, None), ints(10, 70, 5, 5, 10), ints(0, 0, 0, 1, 1), 2)

    assert [found.quantile(p) for p in (0.1, 0.5, 0.85)] == [0, 63, 10_001]
    assert found.weights.tolist() == [[10, 0], [70, 0], [5, 5]]
    # What is not known may be above all: a quantile that reaches into it is not known, and the most never is.
    assert found.unknown.tolist() == [0, 10]
    assert (found.quantile(0.95), found.max) == (None, None)


def test_buckets_are_exact_below_64_and_two_percent_wide_above() -> None:
    values = [0, 1, 63, 64, 65, 66, 100, 1_000_000, -1, -63, -64, -100, -1_000_000]

    found = dict(zip(values, bucket_of(ints(*values)).tolist(), strict=True))

    assert [found[value] for value in (0, 1, 63, 64, -1, -63, -64)] == [0, 1, 63, 64, -1, -63, -64]
    assert found[65] == 65
    assert found[66] == 66
    for value, number in found.items():
        if value >= 64:
            assert value <= 64 * 1.02 ** (number - 64) <= value * 1.02 + 1e-6
        if value <= -64:
            assert value / 1.02 - 1e-6 >= -64 * 1.02 ** (-number - 64) >= value - 1e-6
    by_value = [found[value] for value in sorted(values)]
    assert by_value == sorted(by_value)


def steps(edges: list[int], loss: list[int], age_ms: list[int], covered: list[bool], idle: list[bool]) -> Steps:
    zero = ints(*[0] * len(loss))
    holds, none = np.array(covered), np.zeros(len(loss), bool)
    figures = Figures(ints(*loss), ints(*age_ms), *(zero,) * 5, none)
    ends = ints(*edges[:-1]), ints(*edges[1:])
    return Steps(zero, *ends, figures, (figures, figures), holds, np.array(idle), none, none, none)


def folded(*parts: Steps) -> Steps:
    """Outflows one after the other, each with a number of its own."""

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], tuple):
            return tuple(joined([row_values[end] for row_values in values]) for end in (0, 1))
        if isinstance(values[0], Figures):
            return Figures(*(np.concatenate([getattr(part, f.name) for part in values]) for f in fields(Figures)))
        return np.concatenate(values)

    numbered = [replace(part, flow=part.flow + number) for number, part in enumerate(parts)]
    whole = Steps(*(joined([getattr(part, each.name) for part in numbered]) for each in fields(Steps)))
    return fold(whole, np.zeros(len(parts), bool))


def told(found: Steps) -> list[tuple[int, int, int, int, bool]]:
    columns = (found.begin, found.weight, found.bound.loss, found.bound.age_ms, found.covered)
    return list(zip(*(column.tolist() for column in columns), strict=True))


Part = tuple[list[int], list[int], list[int], list[bool], list[bool]]
P: Part = ([0, 10, 20], [1, 2], [10, 20], [True, True], [False, False])
MOVED: Part = ([0, 10, 20], [5, 900], [10, 900], [True, False], [False, True])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # q counts from its first reading on, at 4.
        ([P, ([4, 14, 20], [10, 20], [5, 30], [True, False], [False, False])],
         [(0, 4, 1, 10, True), (4, 6, 11, 10, True), (10, 4, 12, 20, True), (14, 6, 22, 30, False)]),
        ([P, MOVED], [(0, 10, 6, 10, True), (10, 10, 2, 20, True)]),
        ([MOVED, MOVED], [(0, 10, 10, 10, True), (10, 10, 0, 0, False)]),
    ],
    ids=["pairs that are looked at in turn", "one that has moved away", "both have"],
)  # fmt: skip
def test_pairs_are_added_up_at_every_moment(parts: list[Part], expected: list[tuple[Any, ...]]) -> None:
    assert told(folded(*(steps(*part) for part in parts))) == expected


BEYOND = (0, 2, 5, 1, 4, 4, 7, 3)
"""How many more copies than counters tell were seen at the other site, by look."""


def test_no_bound_is_below_what_is_likely(tmp_path: Path) -> None:
    rows = []
    for number, beyond in enumerate(BEYOND):
        told = {"site": "london", "ts": at(5 * number), "pair": "orders-1", "start": "1"}
        removed = 5600 + 3 * number
        rows += [
            Row(**told, kind="site", name="serving"),
            Row(**told, kind="queue", name="q", depth=10, added=removed + 10, removed=removed, acked=removed),
            Row(**told, kind="mirror", name="q", depth=0, added=removed + 10, removed=removed + 10, link=True),
            Row(**told, kind="acks", name="q", depth=removed + beyond, added=removed, removed=0, link=True),
        ]
    lag = lag_of(write(rows, tmp_path))

    steps, now = lag.steps(0), lag.now(0)

    for metric in METRICS:
        for bound, likely in (
            *((steps.bound.of(metric), each.of(metric)) for each in steps.likely),
            (now.bound.of(metric), now.likely[0].of(metric)),
        ):
            known = (bound != NA) & (likely != NA)
            assert known.any()
            assert (likely[known] <= bound[known]).all(), (metric, bound, likely)
    assert np.array_equal(now.likely[0].duplicates, now.bound.duplicates)


def histogram(values: list[list[int]]) -> Histogram:
    """Of a series in blocks: one unit of time each."""
    flat = np.array([value for row_values in values for value in row_values], np.int64)
    block = np.array([number for number, each in enumerate(values) for _ in each], np.int64)
    return Histogram.of(flat, np.ones(len(flat), np.int64), block, len(values))


def test_what_is_likely_is_never_above_the_bound() -> None:
    """Of one bucket the bound was seen at 5611 at most, and what was likely at 5614, when the bound was above it."""
    bound, likely = histogram([[5611, 5611, 5800]]), histogram([[5614, 5614, 5700]])

    found = quantity(5611, bound, 5614, likely, 1.0)

    assert (found.p50, found.likely.p50) == (5611, 5611)
    assert (found.now, found.likely.now) == (5611, 5611)
    assert (found.max, found.likely.max) == (5800, 5700)


def drawn(seed: int, among: Sequence[int], blocks: int = 24, size: int = 40) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.choice(among) for _ in range(size)] for _ in range(blocks)]


def excursions(count: int) -> list[list[int]]:
    values = [[0] * 100 for _ in range(24)]
    for number in range(count):
        values[number * 24 // count][3] = 8 + number
    return values


MANY = drawn(1, [0, 0, 0, 8])
KNOWN = histogram(drawn(3, [0, 5, 8], size=100))
PARTLY = replace(KNOWN, unknown=KNOWN.unknown + 20)
INTERVALS: dict[str, tuple[Histogram, float, tuple[int, int | None] | None]] = {
    "of enough blocks": (histogram(MANY), 0.5, (0, 0)),
    "of a high quantile": (histogram(MANY), 0.99, (8, 8)),
    "of too few blocks": (histogram(MANY[: MIN_BLOCKS - 1]), 0.5, None),
    "with too few excursions its end is open": (histogram(excursions(3)), 0.995, (0, None)),
    "nothing ever rose above it, and nobody knows how high it would": (histogram([[0] * 40] * 24), 0.5, (0, None)),
    "all is known": (KNOWN, 0.95, (8, 8)),
    "the quantile itself is not known": (PARTLY, 0.95, None),
    "what is not known lies above it": (PARTLY, 0.5, (5, 5)),
    "excursions apart": (histogram([[8] * (3 + n % 3) + [0] * (37 - n % 3) for n in range(24)]), 0.9, (0, 8)),
    "excursions that stand together tell less than their number": (
        histogram([[0, 0, 8, 8] * 10] * 5 + [[0] * 40] * 19), 0.9, (0, None)),
}  # fmt: skip


@pytest.mark.parametrize(("found", "probability", "expected"), INTERVALS.values(), ids=INTERVALS)
def test_the_interval_of_a_quantile(
    found: Histogram, probability: float, expected: tuple[int, int | None] | None
) -> None:
    assert interval(found, probability) == expected


def test_many_excursions_close_it_and_blocks_that_differ_make_it_wide() -> None:
    low, high = interval(histogram(excursions(20)), 0.995)
    assert low < high
    assert (histogram([[]]).quantile(0.5), histogram([[]]).max) == (None, None)
    alike = drawn(2, range(60), size=100)
    differing = [[each * mood // 2 for each in block] for block, mood in zip(alike, (1, 2, 3) * 8, strict=True)]

    narrow, wide = interval(histogram(alike), 0.95), interval(histogram(differing), 0.95)

    assert narrow[0] <= 57 <= narrow[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    # Clopper and Pearson's bounds for 5 of 10, 190 of 200, 990 of 1000.
    [(0.5, 10, 0.1871, 0.8129), (0.95, 200, 0.9100, 0.9758), (0.99, 1000, 0.9817, 0.9952)],
)
def test_the_interval_of_a_share(share: float, count: float, low: float, high: float) -> None:
    assert between(share, count) == pytest.approx((low, high), abs=0.001)


def test_a_weighted_quantile_and_students_t() -> None:
    assert weighted_quantile(np.array([5, 1]), np.array([1, 9]), 0.9) == 1
    assert weighted_quantile(np.array([5, 1]), np.array([1, 9]), 0.91) == 5
    assert weighted_quantile(np.array([]), np.array([], np.int64), 0.5) is None
    assert [round(t_value(freedom), 2) for freedom in (7, 23, 27, 1000)] == [2.36, 2.07, 2.05, 1.96]


def changes(*moments: tuple[int, int, int]) -> Changes:
    """Of so many moments each: a magnitude of loss, a change, how many."""
    columns = [np.repeat([moment[place] for moment in moments], [moment[2] for moment in moments]) for place in (0, 1)]
    count = len(columns[0])
    one = np.ones(count, np.int64)
    return Changes(one * 0, np.arange(count), columns[0], np.zeros(count, bool), columns[1], one, one)


def test_similar_moments_first_then_their_neighbours() -> None:
    found = changes((3, 1, MIN_MOMENTS), (4, 2, 5), (6, 9, MIN_MOMENTS))

    def similar(at: int, *, stalled: bool = False) -> set[int] | None:
        told = found.similar(at, stalled=stalled)
        return None if told is None else set(told.most.tolist())

    assert (similar(3), similar(4), similar(6), similar(4, stalled=True)) == ({1}, {1, 2}, {9}, None)
    assert changes((3, 1, 5)).similar(3, stalled=False) is None


def test_ahead_counts_from_the_bound_of_the_last_interval_and_while_it_stalls_it_goes_on_growing() -> None:
    found, unlike = ahead(4, 20, changes((3, -50, 50), (3, 10, 50))), ahead(4, 20, None, fallback=[1, 2, 3, 4])

    assert (found.now, found.p50, found.p95, found.max) == (4, 0, 30, 30)
    assert (unlike.p50, unlike.p95, unlike.p99, unlike.max) == (21, 22, 23, 24)
    assert ahead(4, 20, None).p99 is None
    assert ahead(4, None, changes((0, 1, 1))).p99 is None
