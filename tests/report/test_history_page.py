"""The page of an estimate and of a backtest: what it shows, and that it is whole without a history too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from dr_ctl.core.model import Finding, Severity
from dr_ctl.report.history_page import HistoryPage, of_backtest, of_estimate
from dr_ctl.report.html import write_page
from dr_ctl.rpo.backtest.backtest import Backtest, BacktestAnswer
from dr_ctl.rpo.backtest.calibration import BoundRow, Fold, Row
from dr_ctl.rpo.estimate.curves import Curves
from tests.report.scribe import NASTY
from tests.report.test_html import Form
from tests.report.test_view import estimate

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
TIMES = [BEGIN + timedelta(minutes=minute) for minute in range(10)]
LINE = tuple((at, None if number == 4 else float(number)) for number, at in enumerate(TIMES))
NOTHING = tuple((at, None) for at in TIMES)
CURVES = Curves(
    BEGIN,
    TIMES[-1],
    {"loss": LINE, "age_ms": LINE, "duplicates": LINE, "drain_ms": NOTHING},
    {"loss": ((0.5, 0.0), (1.0, 9.0)), "age_ms": ((1.0, 3.0),), "duplicates": (), "drain_ms": ()},
)
FOLDS = tuple(Fold(number, 5.0, 4.0 + number, 0.9, 1.0, 0.5) for number in range(9))
TESTED = Backtest(
    "london", (BEGIN, TIMES[-1]), BoundRow(100, 100, 3.0, 1.5, -0.5, 0.75), (Row("loss", None, "p99", FOLDS),), CURVES
)


def form(page: HistoryPage, folder: Path) -> Form:
    write_page(folder / "page.html", page)
    parsed = Form()
    parsed.feed((folder / "page.html").read_text(encoding="utf-8"))
    parsed.close()
    assert parsed.open == []
    return parsed


def test_an_estimate_is_drawn_over_time_and_by_share(tmp_path: Path) -> None:
    finding = Finding("DR-RPO-003", Severity.WARNING, f"old {NASTY}", "look")

    page = of_estimate(NASTY, estimate(), CURVES, [finding])

    titles = {chart.title: chart for chart in page.charts}
    over_time = titles["Loss over time"]
    assert len(over_time.lines[0].pieces) == 2  # the gap stays a gap
    assert over_time.y[-1].label == "10"
    assert titles["Time to drain over time"].note
    assert not titles["Time to drain over time"].lines
    assert titles["Loss: how much of the time it was no more"].lines
    found = form(page, tmp_path)
    assert [dict(attrs).get("id") for tag, attrs in found.tags if tag == "section"] == [
        "verdict",
        "estimate",
        "charts",
        "findings",
    ]
    assert NASTY in found.text
    assert "DR-RPO-003" in found.text


def test_a_backtest_says_how_each_figure_held(tmp_path: Path) -> None:
    page = of_backtest("orders", BacktestAnswer(TESTED))

    assert page.verdict == "The estimate says less than what then was true"
    assert page.calibration[0] == ("Bound between two looks", "", "100.0 %", "1.5", "100", "holds")
    assert page.calibration[1] == ("Likely between two looks", "", "", "-0.5", "100", "off by 0.75")
    assert page.calibration[2][:3] == ("Loss, p99, at a random moment", "99.0 %", "90.0 %")
    assert len(page.charts[0].lines) == 2
    assert "said before" in form(page, tmp_path).text


def test_without_a_history_the_page_says_so(tmp_path: Path) -> None:
    page = of_backtest(
        "orders", BacktestAnswer(None, (Finding("DR-RPO-001", Severity.WARNING, "no history", "record"),))
    )

    text = form(page, tmp_path).text

    assert "There is too little history to tell" in text
    assert "There is no history to draw." in text
