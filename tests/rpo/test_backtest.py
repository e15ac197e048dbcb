"""The backtest: folds by hand, and a simulated past."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from dr_ctl.rpo.core.calibration import UNITS, BoundRow, Calibration, Fold, Row, ahead, unconditional
from dr_ctl.rpo.core.changes import Changes
from dr_ctl.rpo.core.histogram import Histogram
from dr_ctl.rpo.estimate.backtest import Backtest, BacktestAnswer, backtest
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.files import write
from tests.rpo import by_hand
from tests.rpo.simulator import LOADS, history


def row(rows: list[Row], quantile: str) -> Row:
    return next(each for each in rows if (each.metric, each.quantile) == ("loss", quantile))


def by_metric(folds_: list[list[int]]) -> dict[str, Histogram]:
    values = np.array([value for each in folds_ for value in each], np.int64)
    fold = np.array([number for number, each in enumerate(folds_) for _ in each], np.int64)
    return dict.fromkeys(UNITS, Histogram.of(values, np.full(len(values), 10), fold, len(folds_)))


def test_a_fold_is_asked_with_what_was_known_before_it() -> None:
    found = row(unconditional(by_metric([[5], [5], [5], [9, 4]])), "p95")

    assert [(fold.number, fold.said, fold.was, fold.coverage) for fold in found.folds] == [
        (2, 5, 5, 1.0),
        (3, 5, 9, 0.5),
    ]
    assert found.width == pytest.approx((0 * 10 + (5 - 6.5) * 20) / 30)


FOLD_US = 100_000_000


def moved(*moments: tuple[int, int, bool]) -> dict[str, Changes]:
    """Forty moments each: in which fold, the change, whether it stalled."""
    fold, change, stalled = (np.repeat(np.array(each), 40) for each in zip(*moments, strict=True))
    count = len(fold)
    one = np.ones(count, np.int64)
    found = Changes(one * 0, fold * FOLD_US + FOLD_US // 2, np.full(count, 3), stalled.astype(bool), change, one, one)
    return dict.fromkeys(UNITS, found)


def said_ahead(found: dict[str, Changes], horizon_s: float) -> Row:
    return row(ahead(found, horizon_s=horizon_s, span_us=(0, 6 * FOLD_US), folds=6), "p99")


def test_ahead_it_takes_similar_moments_whose_end_was_known() -> None:
    found = moved(*((block, change, False) for block in range(6) for change in (0, block)))

    near, far = (said_ahead(found, horizon_s) for horizon_s in (10, 250))

    assert [(fold.number, round(fold.said, 6)) for fold in near.folds] == [(2, 0), (3, 1), (4, 2), (5, 3)]
    assert [(fold.number, round(fold.said, 6)) for fold in far.folds] == [(4, 0), (5, 1)]
    assert [fold.coverage for fold in near.folds] == pytest.approx([0.5] * 4)


def test_a_stall_is_not_told_from_moments_that_flow() -> None:
    found = moved((0, 1, False), (1, 1, False), (2, 1, False), (2, 50, True))

    assert [(fold.number, fold.weight, fold.coverage) for fold in said_ahead(found, 10).folds] == [(2, 40, 1.0)]


def folds(*coverages: float) -> tuple[Fold, ...]:
    return tuple(Fold(n, 1.0, 1.0, coverage, 1.0, 0.0) for n, coverage in enumerate(coverages))


@pytest.mark.parametrize(
    ("coverages", "verdict"),
    [
        ((0.95, 0.97, 0.93, 0.96, 0.95, 0.94, 0.98, 0.95), Calibration.HOLDS),
        ((1.0,) * 8, Calibration.HOLDS),
        ((0.80, 0.82, 0.78, 0.81, 0.8, 0.79, 0.83, 0.8), Calibration.NARROW),
        ((1.0, 0.1, 1.0, 1.0, 1.0, 1.0, 0.9, 1.0), Calibration.HOLDS),  # one bad part is no proof
        ((0.5,) * 7, Calibration.UNKNOWN),
        ((), Calibration.UNKNOWN),
    ],
)
def test_a_coverage_is_judged_over_the_folds(coverages: tuple[float, ...], verdict: Calibration) -> None:
    assert Row("loss", None, "p95", folds(*coverages)).verdict is verdict


def test_the_worst_counts_and_what_is_not_known_does_not() -> None:
    good, bad, none = Calibration.HOLDS, Calibration.NARROW, Calibration.UNKNOWN

    assert Calibration.worst([good, bad, none]) is bad
    assert Calibration.worst([none, good]) is good
    assert Calibration.worst([none, none]) is none
    assert BoundRow(0, 0, None, None).verdict is none
    assert BoundRow(1000, 989, 1.0, 1.0).verdict is bad
    assert BacktestAnswer(None).as_json()["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("bound", "coverages", "verdict"),
    [
        (BoundRow(1000, 1000, 1.0, 1.0), (), Calibration.UNKNOWN),  # a bound that held says nothing of quantiles
        (BoundRow(1000, 1000, 1.0, 1.0), (1.0,) * 8, Calibration.HOLDS),
        (BoundRow(1000, 900, 1.0, 1.0), (1.0,) * 8, Calibration.NARROW),
        (BoundRow(0, 0, None, None), (1.0,) * 8, Calibration.HOLDS),
    ],
)
def test_a_backtest_that_tested_no_quantile_is_unknown(
    bound: BoundRow, coverages: tuple[float, ...], verdict: Calibration
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    rows = (Row("loss", None, "p95", folds(*coverages)), Row("loss", None, "p50", folds(*(1.0,) * 8)))

    assert Backtest("london", (now, now), bound, rows).verdict is verdict


def test_a_simulated_past(tmp_path: Path) -> None:
    write(history(LOADS[3], 7, hours=1.5, pair="orders-1")[0], tmp_path)

    found = backtest(Request(history=tmp_path), by_hand.made, horizons_s=(60.0, 300.0)).backtest

    assert (found.site, found.bound.moments > 400, found.bound.coverage) == ("london", True, 1.0)
    assert found.bound.excess > 0
    assert abs(found.bound.bias) <= 0.1 * found.bound.mean
    assert 0 < found.bound.error <= 0.25 * found.bound.mean
    by_name = {(each.metric, each.horizon_s, each.quantile): each for each in found.rows}
    assert len(by_name) == 2 * 3 * 3
    assert all(each.folds for each in found.rows)
    assert by_name["loss", 60.0, "p95"].coverage > 0.8
    assert found.as_json()["bound"]["coverage"] == 1.0
