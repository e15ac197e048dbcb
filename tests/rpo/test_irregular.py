"""Histories as they come: gaps, restarts, clocks that jump, files twice or late. Expected figures come from a
machine that knows every message, never from the code under test.

Each irregularity is a pair of its own in one history. In its life the truth between two readings is exactly what
counters can tell, so that a bound is right or wrong to the one: right after each reading messages are sent; right
before the next they are consumed and everything is shipped, or, while the link stalls, neither.
"""

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dr_ctl.rpo.core.arrays import NA
from dr_ctl.rpo.core.step_functions import METRICS, Steps
from dr_ctl.rpo.history.row import Row
from tests.rpo import fifo
from tests.rpo.fifo import FifoSite, Truth
from tests.rpo.files import usable_files, write
from tests.rpo.test_coverage import Estimated, estimated_of
from tests.rpo.test_estimate import estimated

EVERY_S = 10
QUEUE, OUTFLOW = "orders", ("mixed", "*")
NORMAL = (3, 7, 1, 0, 5, 9, 2, 4)
"""Messages an interval, over and over."""


class Interval(NamedTuple):
    """Between which moments it lay, and what was true in it at most."""

    from_s: float
    to_s: float
    loss: int
    age_s: float
    duplicates: int


class Life:
    """A pair at a site, from look to look. `looks` are the rows of each; `intervals` what was true in between."""

    def __init__(self, pair: str, *, site: str = "london", role: str = "serving", begin_s: float = 0) -> None:
        self.site, self.pair, self.role = site, pair, role
        self.machine = FifoSite(pair, "mixed", (QUEUE,))
        self.now_s = begin_s
        self.looks: list[list[Row]] = []
        self.intervals: list[Interval] = []
        self._look()

    def _look(self) -> None:
        rows = self.machine.look(self.now_s)
        role = replace(rows[0], kind="site", name=self.role, depth=None, delivering=None, added=None, removed=None)
        self.looks.append([replace(row, site=self.site) for row in (role, *rows)])

    def live(self, count: int, *, stalled: bool = False, idle: bool = False) -> None:
        for _ in range(count):
            begin_s, end_s = self.now_s, self.now_s + EVERY_S
            for _ in range(0 if idle else NORMAL[len(self.intervals) % len(NORMAL)]):
                self.machine.send(QUEUE, begin_s)
            seen = [self.machine.truth(begin_s), self.machine.truth(end_s)]
            if not stalled:
                self._finish(end_s, seen)
            most = (max(getattr(truth, name) for truth in seen) for name in ("loss", "age_s", "duplicates"))
            self.intervals.append(Interval(begin_s, end_s, *most))
            self.now_s = end_s
            self._look()

    def _finish(self, end_s: float, seen: list[Truth]) -> None:
        while self.machine.waiting[QUEUE]:
            self.machine.consume(QUEUE)
        while self.machine.outflows[OUTFLOW]:
            self.machine.ship(OUTFLOW)
            seen.append(self.machine.truth(end_s))

    def restart(self) -> None:
        """The broker begins anew right after the last reading: the next interval has no counters in common with it."""
        self.machine.restart()

    def rows(self, keep: Callable[[int], bool] = lambda _: True) -> list[Row]:
        """The rows of all readings, or of those whose numbers are to be kept."""
        return [row for number, look in enumerate(self.looks) if keep(number) for row in look]


def ordinary(pair: str, **more: object) -> Life:
    """Traffic, a stall of four intervals, catching up, silence, traffic."""
    life = Life(pair, **more)
    life.live(6)
    life.live(4, stalled=True)
    life.live(8)
    life.live(2, idle=True)
    life.live(4)
    return life


def taken_over() -> Life:
    life = Life("taken over")
    life.live(8)
    life.restart()
    life.live(8)
    return life


def by_nodes(life: Life) -> list[Row]:
    starts = ["a/100/x"] * 9 + ["b/199/y", "b/200/y"] * 4
    return [replace(row, start=start) for look, start in zip(life.looks, starts, strict=True) for row in look]


def within(intervals: Sequence[Interval], *, leave_out: Sequence[int] = ()) -> dict[tuple[float, float], Interval]:
    return {(each.from_s, each.to_s): each for n, each in enumerate(intervals) if n not in leave_out}


def shifted(interval: Interval, by_s: float) -> Interval:
    return interval._replace(from_s=interval.from_s + by_s, to_s=interval.to_s + by_s)


def weighted(intervals: Mapping[tuple[float, float], Interval], metric: str, probability: float) -> float:
    seconds = sorted(getattr(lag, metric) for lag in intervals.values() for _ in range(round(lag.to_s - lag.from_s)))
    rank = -(-int(probability * 100 * len(seconds)) // 100)
    return float(seconds[max(0, rank - 1)])


Intervals = dict[tuple[float, float], Interval]
HOUR_S, BACK_S, FAR_BACK_S = 3600, 25, 297
MIDNIGHT_S = 12 * 3600
"""Both machines count from noon."""


def intervals(steps: Steps) -> Intervals:
    found = {}
    for n, (begin_us, end_us) in enumerate(zip(steps.begin.tolist(), steps.end.tolist(), strict=True)):
        span = tuple(us / 1e6 - fifo.EPOCH.timestamp() for us in (begin_us, end_us))
        loss, age_ms, duplicates = (int(steps.bound.of(name)[n]) for name in METRICS)
        age_s = -1 if steps.bound.is_floor[n] or age_ms == NA else age_ms / 1000
        found[span] = Interval(*span, loss, age_s, duplicates)
    return found


EXPECTED: dict[str, Intervals] = {}


def _lives() -> dict[str, list[Row]]:
    """The rows of every pair, and what is expected of it in `EXPECTED`."""
    rows: dict[str, list[Row]] = {}

    def add(life: Life, expected: Intervals, kept: list[Row] | None = None) -> None:
        EXPECTED[life.pair] = expected
        rows[life.pair] = life.rows() if kept is None else kept

    for pair in ("plain", "twice", "late", "foreign"):
        life = ordinary(pair)
        add(life, within(life.intervals))

    # Nobody looked for seven intervals while all was well: what comes after is told by counters that went on.
    life = ordinary("gap")
    add(life, within(life.intervals, leave_out=range(11, 18)), life.rows(lambda n: n not in range(12, 18)))

    # Two readings are missing, which is no gap: what was sent within all three intervals may have been lost at once.
    life = ordinary("two missing")
    missed = life.intervals[12:15]
    whole = Interval(missed[0].from_s, missed[-1].to_s, sum(interval.loss for interval in missed), 3 * EVERY_S, 0)
    whole = whole._replace(duplicates=whole.loss)
    expected = within(life.intervals, leave_out=range(12, 15))
    add(life, {**expected, (whole.from_s, whole.to_s): whole}, life.rows(lambda n: n not in (13, 14)))

    # Counters begin anew, with a new start and without one that could be read. All had been shipped.
    for pair in ("restart", "counters fall"):
        life = Life(pair)
        life.live(8)
        life.restart()
        life.live(8)
        told = life.rows() if pair == "restart" else [replace(row, start=None) for row in life.rows()]
        # Only the counters tell that something began: they fell because they had been higher.
        add(life, within(life.intervals, leave_out=[8]), told)

    # Another node takes over; a second monitor tells its turn by the step beside that of the first.
    life = taken_over()
    add(life, within(life.intervals, leave_out=[8]), by_nodes(life))

    # The monitor's clock is put forward by an hour after the eleventh look; all goes on.
    life = ordinary("forward")
    moved = [shifted(interval, HOUR_S) for interval in life.intervals[11:]]
    add(life, within([*life.intervals[:10], *moved]), put(life, 11, HOUR_S))

    # And back by two and a half intervals, and by five minutes: looks of two times lie among each other. Of these, and
    # of two readings on either side, nothing is said, and never that minutes of messages came within a second.
    life = ordinary("back")
    after = [shifted(interval, -BACK_S) for interval in life.intervals[21:]]
    add(life, within([*life.intervals[:14], *after]), put(life, 18, -BACK_S))
    life = Life("far back")
    life.live(80)
    after = [shifted(interval, -FAR_BACK_S) for interval in life.intervals[70:]]
    add(life, within([*life.intervals[:9], *after]), put(life, 40, -FAR_BACK_S))

    # Midnight lies in the stall.
    life = ordinary("midnight", begin_s=MIDNIGHT_S - 80)
    add(life, within(life.intervals))
    return rows


def put(life: Life, first: int, by_s: float) -> list[Row]:
    """The rows of a life whose monitor's clock was put by so much before a reading."""
    by = timedelta(seconds=by_s)
    return [replace(row, ts=row.ts + by) if n >= first else row for n, look in enumerate(life.looks) for row in look]


def _files(rows: dict[str, list[Row]], root: Path) -> None:
    for pair, told in rows.items():
        if pair == "late":
            # What comes after is written before, and three readings a file.
            looks = [told[at : at + 9] for at in range(0, len(told), 9)]
            random.Random(1).shuffle(looks)
            for part in looks:
                write(random.Random(2).sample(part, len(part)), root)
            continue
        paths = write(told, root)
        if pair == "twice":
            for path in paths:
                shutil.copy(path, path.with_name(f"again-{path.name}"))
            write(told[10:20], root)
        if pair == "foreign":
            for path in paths:
                _with_foreign_columns(path)
    folder = root / "date=2026-03-01" / "site=london"
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / ".hidden.parquet.part").write_bytes(b"PAR1")


def _with_foreign_columns(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    more = {"note": pa.array(["seen"] * len(table)), "site": pa.array([7] * len(table)), "Depth2": table["depth"]}
    wider = pa.table({**more, **{name: table[name] for name in reversed(table.column_names)}})
    pq.write_table(wider, path)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Estimated:
    root = tmp_path_factory.mktemp("irregular")
    _files(_lives(), root)
    return estimated_of(usable_files(root)[0])


PAIRS = "plain,twice,late,foreign,gap,two missing,restart,taken over,counters fall,forward,back,far back,midnight"


@pytest.mark.parametrize("pair", PAIRS.split(","))
def test_every_covered_interval_says_what_was_true_in_it_and_quantiles_are_those_of_that_time(
    told: Estimated, pair: str
) -> None:
    assert intervals(told.covered[pair]) == EXPECTED[pair]

    for metric, name, per in (("loss", "loss", 1), ("age_ms", "age_s", 1000), ("duplicates", "duplicates", 1)):
        for probability in (0.5, 0.95, 0.99):
            said = told.histograms[pair, metric].quantile(probability)
            assert said == weighted(EXPECTED[pair], name, probability) * per, (metric, probability)


def test_a_takeover_is_no_silence_of_the_site(tmp_path: Path) -> None:
    write(by_nodes(taken_over()), tmp_path)
    answer = estimated(tmp_path, now_s=170)

    assert answer.estimate.window.covered_s == EVERY_S * 15
    [told] = [finding.text for finding in answer.findings if finding.id in ("DR-RPO-024", "DR-RPO-033")]
    assert told == "takeovers inside the site took at most 10 s in all: the figures are of the rest of the time"


def test_a_swapover_in_the_middle_does_not_mix_the_directions(tmp_path: Path) -> None:
    """London serves for ten looks, Paris for ten, then London again. What one site ships is not what the other does."""
    rows: list[Row] = []
    lives = {"london": Life("orders-1"), "paris": Life("orders-1", site="paris", role="standby")}
    served: dict[str, list[Interval]] = {"london": [], "paris": []}
    for turn, serving in enumerate(("london", "paris", "london")):
        for site, life in lives.items():
            life.role = "serving" if site == serving else "standby"
            life.looks[-1][0] = replace(life.looks[-1][0], name=life.role)
            before = len(life.intervals)
            # A standby's own outflow is not at rest: what the other site ships is acknowledged there, say.
            life.live(10, stalled=site == serving and turn == 1)
            served[site] += life.intervals[before:] if site == serving else []
    for life in lives.values():
        rows += life.rows()
    write(rows, tmp_path)

    for site, expected in served.items():
        answer = estimated(tmp_path, site=site, now_s=300).estimate
        assert answer.window.covered_s == EVERY_S * len(expected)
        assert (answer.total.loss.max, answer.total.age_s.max, answer.total.duplicates.max) == tuple(
            max(getattr(expected_row, name) for expected_row in expected) for name in ("loss", "age_s", "duplicates")
        )
        intervals = within(expected)
        assert answer.total.loss.p50 == weighted(intervals, "loss", 0.5)
        assert answer.total.age_s.p95 == weighted(intervals, "age_s", 0.95)
    unasked = estimated(tmp_path, now_s=300).estimate
    assert unasked.site == "london"
