"""The results of an estimate: patterns of queues, verdicts, the document, what is stored of it; and the backtest."""

import json
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.notation import matches
from dr_ctl.rpo.core.calibration import NAMES, ahead, unconditional
from dr_ctl.rpo.core.hour import Changes
from dr_ctl.rpo.core.quantities import BoundRow, Calibration, Figures, Fold, Horizon, Quantiles, Quantity, Row
from dr_ctl.rpo.core.rows import Histogram
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.estimate import backtest, estimate
from dr_ctl.rpo.estimate.request import Request, store, stored, stored_at
from dr_ctl.rpo.estimate.result import (
    Backtest,
    BacktestAnswer,
    Estimate,
    EstimateAnswer,
    LossClass,
    LossLimit,
    Objectives,
    SeenWindow,
    Span,
    Verdict,
    verdict_of,
)
from dr_ctl.rpo.pipeline.make import reading
from dr_ctl.settings.model import HistoryLocation
from tests.rpo import by_hand
from tests.rpo.files import newest_first, usable_files, write
from tests.rpo.simulator import LOADS, history


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("orders.#", ("orders.new", "orders.new.eu", "orders"), ("ordersnew",)),
        ("#", ("anything.at.all",), ()),
        ("#.dead", ("dead", "orders.new.dead"), ("undead",)),
        ("a.#.b", ("a.b", "a.x.y.b"), ()),
        ("a.*.b", ("a.x.b",), ("a.b", "a.x.y.b")),
        ("*", ("orders",), ("orders.new",)),
        ("orders", ("orders",), ("orders.new", "my.orders")),
        ("or+ers.[x]", ("or+ers.[x]",), ()),
        ("or+ers", (), ("orrers",)),
    ],
)
def test_a_pattern_reads_queues_by_words(pattern: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    assert [each for each in (*inside, *outside) if matches([pattern], each)] == [*inside]


def told(most: float | None, likely: float | None = None) -> Quantity:
    return Quantity(p99=most, likely=Quantiles(p99=likely))


@pytest.mark.parametrize(
    ("loss", "age_s", "limit", "expected"),
    [
        (told(10), told(0.0), LossLimit(messages=10), Verdict.MET),
        (told(11, 10), told(0.0), LossLimit(messages=10), Verdict.UNKNOWN),  # 10 likely, 11 at most: nobody can tell
        (told(214, 11), told(0.0), LossLimit(messages=10), Verdict.MISSED),
        (told(0), told(30.0, 2.0), LossLimit(age_s=30), Verdict.MET),
        (told(0), told(339.0, 0.25), LossLimit(messages=10, age_s=30), Verdict.UNKNOWN),
        (told(0), told(339.0, 30.1), LossLimit(messages=10, age_s=30), Verdict.MISSED),
        (told(None), told(0.0), LossLimit(messages=10), Verdict.UNKNOWN),
        (told(None), told(31.0, 31.0), LossLimit(messages=10, age_s=30), Verdict.MISSED),
        (told(None), told(None), LossLimit(), Verdict.MET),
    ],
)
def test_a_limit_is_missed_by_what_is_likely_and_met_by_the_bound(
    loss: Quantity, age_s: Quantity, limit: LossLimit, expected: Verdict
) -> None:
    assert verdict_of(Figures(loss, age_s, Quantity(), Quantity(), Horizon(300)), limit) is expected


def test_without_history_the_verdict_is_unknown_and_spark_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    with reading() as make:
        answer = estimate(Request(history=tmp_path / "history"), make)

    assert answer.estimate is None
    assert answer.verdict is Verdict.UNKNOWN
    assert [finding.id for finding in answer.findings] == ["DR-RPO-001"]
    assert answer.data["verdict"] == "unknown"


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def answer(site: str = "london", lost: int = 7) -> EstimateAnswer:
    figures = Figures(Quantity(now=lost, p99=9), Quantity(now=0.5, p99=1.5), Quantity(), Quantity(), Horizon(300))
    window = SeenWindow(NOW, NOW, 1, 0.0)
    return EstimateAnswer(Estimate(site, NOW, 0.0, window, Verdict.MET, figures, (), ()))


def test_what_was_stored_is_read_with_its_age(tmp_path: Path) -> None:
    store(HistoryLocation.at(tmp_path), answer(), NOW)

    kept, findings = stored(HistoryLocation.at(tmp_path), "london")

    assert findings == []
    told = document(kept.as_of(NOW + timedelta(seconds=90)))
    assert (told["made_at"], told["age_s"]) == ("2026-03-01T12:00:00.000Z", 90.0)
    assert {key: told[key] for key in answer().data} == answer().data
    assert stat.S_IMODE(stored_at(tmp_path, "london").stat().st_mode) == 0o600


def test_each_site_has_its_own_and_keeps_it_where_there_is_no_other_and_the_history_is_not_disturbed(
    tmp_path: Path,
) -> None:
    store(HistoryLocation.at(tmp_path), answer("london", 1), NOW)
    store(HistoryLocation.at(tmp_path), answer("paris", 2), NOW)
    place = HistoryLocation.at(tmp_path)
    store(place, EstimateAnswer(None), NOW + timedelta(hours=1))

    assert stored(place, "01")[0] is None
    assert [stored(place, site)[0].data["total"]["loss"]["now"] for site in ("london", "paris")] == [1, 2]
    assert usable_files(tmp_path) == ([], [])
    assert list(newest_first(tmp_path, "london")) == []
    stored_at(tmp_path, "paris").rename(stored_at(tmp_path, "london"))
    assert stored(place, "london")[0] is None, "it is of another site"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"made_at": "x", "data": {}, "findings": []})],
    ids=["empty", "torn", "list", "nothing", "no moment"],
)
def test_one_that_cannot_be_read_is_named_and_no_estimate(tmp_path: Path, text: str) -> None:
    stored_at(tmp_path, "london").write_text(text)

    kept, [finding] = stored(HistoryLocation.at(tmp_path), "london")

    assert (kept, finding.id) == (None, "DR-RPO-017")
    assert str(stored_at(tmp_path, "london")) in finding.text


def test_where_it_cannot_be_written_the_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("no folder")

    with pytest.raises(EnvironmentFault, match="cannot be stored"):
        store(HistoryLocation.at(tmp_path / "none"), answer(), NOW)


def test_what_the_worker_is_asked_stands_in_no_file_and_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import json, sys; print(json.dumps({'heard': sys.stdin.readline(), 'words': sys.argv}))"
    monkeypatch.setattr(request, "command", lambda: [sys.executable, "-c", script])
    limits = Objectives(LossLimit(0, 30.0), (LossClass(("a.#", "b"), LossLimit(5)),))
    conf = {"spark.hadoop.fs.s3a.secret.key": "s"}
    told = request.Request(history=str(tmp_path), since=NOW, objectives=limits, exclude=("x",), conf=conf)

    estimating = request.Estimating(told)
    estimating._process.wait(20)
    answer = estimating.answer()
    estimating.end()

    assert request.Request.from_json(answer["heard"]) == told
    assert answer["words"] == ["-c"]
    assert [*tmp_path.iterdir()] == []


def row(rows: list[Row], quantile: str) -> Row:
    return next(row for row in rows if (row.metric, row.quantile) == ("loss", quantile))


def by_metric(folds_: list[list[int]]) -> dict[str, Histogram]:
    values = np.array([value for fold_rows in folds_ for value in fold_rows], np.int64)
    fold = np.array([number for number, fold_rows in enumerate(folds_) for _ in fold_rows], np.int64)
    return dict.fromkeys(NAMES, Histogram.of(values, np.full(len(values), 10), fold, len(folds_)))


def test_a_fold_is_asked_with_what_was_known_before_it() -> None:
    found = row(unconditional(by_metric([[5], [5], [5], [9, 4]])), "p95")

    assert [(fold.number, fold.said, fold.coverage) for fold in found.tested] == [(2, 5, 1.0), (3, 5, 0.5)]
    assert found.width == pytest.approx((0 * 10 + (5 - 6.5) * 20) / 30)


FOLD_US = 100_000_000


def moved(*moments: tuple[int, int, bool]) -> dict[str, Changes]:
    """Forty moments each: in which fold, the change, whether it stalled."""
    fold, change, stalled = (np.repeat(np.array(each), 40) for each in zip(*moments, strict=True))
    count = len(fold)
    one = np.ones(count, np.int64)
    found = Changes(one * 0, fold * FOLD_US + FOLD_US // 2, np.full(count, 3), stalled.astype(bool), change, one, one)
    return dict.fromkeys(NAMES, found)


def said_ahead(found: dict[str, Changes], horizon_s: float) -> Row:
    return row(ahead(found, horizon_s=horizon_s, span_us=(0, 6 * FOLD_US), folds=6), "p99")


def test_ahead_it_takes_similar_moments_whose_end_was_known() -> None:
    found = moved(*((block, change, False) for block in range(6) for change in (0, block)))

    near, far = (said_ahead(found, horizon_s) for horizon_s in (10, 250))

    assert [(fold.number, round(fold.said, 6)) for fold in near.tested] == [(2, 0), (3, 1), (4, 2), (5, 3)]
    assert [(fold.number, round(fold.said, 6)) for fold in far.tested] == [(4, 0), (5, 1)]
    assert [fold.coverage for fold in near.tested] == pytest.approx([0.5] * 4)


def test_a_stall_is_not_told_from_moments_that_flow() -> None:
    found = moved((0, 1, False), (1, 1, False), (2, 1, False), (2, 50, True))

    assert [(fold.number, fold.weight, fold.coverage) for fold in said_ahead(found, 10).tested] == [(2, 40, 1.0)]


def folds(*coverages: float) -> tuple[Fold, ...]:
    return tuple(Fold(n, 1.0, coverage, 1.0, 0.0) for n, coverage in enumerate(coverages))


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


def test_the_worst_counts() -> None:
    """Of a backtest what is not known does not; of limits a single miss is enough."""
    assert Verdict.worst([Verdict.MET, Verdict.MISSED, Verdict.UNKNOWN]) is Verdict.MISSED
    assert Verdict.worst([Verdict.MET, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert Verdict.worst([]) is Verdict.MET
    good, bad, none = Calibration.HOLDS, Calibration.NARROW, Calibration.UNKNOWN

    assert Calibration.worst([good, bad, none]) is bad
    assert Calibration.worst([none, good]) is good
    assert Calibration.worst([none, none]) is none
    assert BoundRow(0, 0, None, None).verdict is none
    assert BoundRow(1000, 989, 1.0, 1.0).verdict is bad
    assert BacktestAnswer(None).data["verdict"] == "unknown"


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
    rows = (Row("loss", None, "p95", folds(*coverages)), Row("loss", None, "p50", folds(*(1.0,) * 8)))

    assert Backtest("london", Span(NOW, NOW), bound, rows).verdict is verdict


def test_a_simulated_past(tmp_path: Path) -> None:
    write(history(LOADS[3], 7, hours=1.5, pair="orders-1")[0], tmp_path)

    found = backtest(Request(history=tmp_path), by_hand.made, horizons_s=(60.0, 300.0)).backtest

    assert (found.site, found.bound.moments > 400, found.bound.coverage) == ("london", True, 1.0)
    assert found.bound.excess > 0
    assert abs(found.bound.likely.bias) <= 0.1 * found.bound.mean
    assert 0 < found.bound.likely.error <= 0.25 * found.bound.mean
    by_name = {(row.metric, row.horizon_s, row.quantile): row for row in found.rows}
    assert len(by_name) == 2 * 3 * 3
    assert all(row.folds for row in found.rows)
    assert by_name["loss", 60.0, "p95"].coverage > 0.8
    assert document(found)["bound"]["coverage"] == 1.0
