"""The page of an estimate: what it shows, and that it is whole without a history too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dr_ctl.core.model import Finding, Severity
from dr_ctl.report.forecast import judged
from dr_ctl.report.history_page import HistoryPage, Told, method_of_estimate, of_estimate
from dr_ctl.report.html import write_page
from dr_ctl.report.outflow import Chart
from dr_ctl.report.over_time import over_time
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
    {"loss": LINE, "age_ms": LINE, "duplicates": LINE, "drain": NOTHING},
    {"loss": ((0.5, 0.0), (1.0, 9.0)), "age_ms": ((1.0, 3.0),), "duplicates": (), "drain": ()},
)
QUEUE = {"pair": "orders-1", "name": NASTY, "share": 0.75, "most": 12}


def form(page: HistoryPage, folder: Path, method: HistoryPage | None = None) -> Form:
    write_page(folder / "page.html", page, method)
    return parsed(folder / "page.html")


def parsed(file: Path) -> Form:
    found = Form()
    found.feed(file.read_text(encoding="utf-8"))
    found.close()
    assert found.open == []
    return found


@pytest.mark.parametrize(
    ("likely", "most", "word"), [(6, 9, "missed"), (5, 5, "kept"), (4, 6, "cannot tell"), (None, None, "cannot tell")]
)
def test_a_figure_stands_beside_its_limit(likely: int | None, most: int | None, word: str) -> None:
    loss = {"p99": most, "likely": {"p99": likely}}
    data = {"total": {"loss": loss}, "classes": [{"queues": ["a", "b"], "loss": loss}, {"queues": ["c"], "loss": loss}]}
    of_total, age, *_, of_class = judged(data, {(): {"loss": 5}, ("a", "b"): {"loss": 5}})
    assert (of_total.word, of_total.allowed, of_class.word) == (word, "5", word)
    assert (of_class.name, age.allowed, age.word) == ("a, b: loss, messages", "", "")


def test_an_estimate_is_drawn_over_time_and_by_share(tmp_path: Path) -> None:
    finding = Finding("DR-RPO-003", Severity.WARNING, f"old {NASTY}", "look")

    data = {**estimate(), "advice": [f"consume {NASTY}"], "queues": [QUEUE]}
    told = Told(f"missed {NASTY}", "As of then", "Made now.", {(): {"loss": 5}, ("orders.#",): {"age_s": 1}})

    page, method = of_estimate(NASTY, data, CURVES, [finding], told), method_of_estimate(NASTY, data, CURVES, told)

    assert method is not None
    titles = {chart.title: chart for chart in (*page.charts, *method.charts)}
    over_time = titles["Loss over time"]
    assert len(over_time.lines[0].pieces) == 2  # the gap stays a gap
    assert over_time.y[-1].label == "10"
    assert titles["Time to drain over time"].note
    assert not titles["Time to drain over time"].lines
    assert titles["Loss: how much of the time it was no more"].lines
    found = form(page, tmp_path, method)
    assert [dict(attrs).get("id") for tag, attrs in found.tags if tag == "section"] == [
        "verdict",
        "judged",
        "advice",
        "queues",
        "charts",
        "findings",
    ]
    assert found.text.count(NASTY) >= 5
    assert "DR-RPO-003" in found.text
    assert "Made now." in found.text
    assert ("a", {"href": "page-method.html"}) in found.tags
    beside = parsed(tmp_path / "page-method.html")
    sections = [dict(attrs).get("id") for tag, attrs in beside.tags if tag == "section"]
    assert sections == ["verdict", "estimate", "charts"]
    assert ("a", {"href": "page.html"}) in beside.tags


def over_time_(**more: float) -> Chart:
    likely = tuple((at, None if value is None else value / 2) for at, value in LINE)
    return over_time("Loss over time", "messages", (BEGIN, TIMES[-1]), LINE, likely, **more)


def test_the_bound_is_a_band_above_what_was_likely() -> None:
    chart = over_time_()
    assert [(line.label, line.course) for line in chart.lines] == [("at most", "up to 9"), ("likely", "up to 4.5")]
    [band] = chart.areas
    assert len(band.polygons) == 2  # the gap stays a gap
    assert band.polygons[0].split() == ["0,100", "11.111,90", "22.222,80", "33.333,70",
                                        "33.333,85", "22.222,90", "11.111,95", "0,100"]  # fmt: skip


def test_excursions_above_the_objective_are_marked(tmp_path: Path) -> None:
    chart = over_time_(limit=5)
    assert [line.label for line in chart.lines] == ["at most", "likely", "objective"]
    assert chart.lines[2].pieces == ("0,50 100,50",)
    assert [area.label for area in chart.areas] == ["between likely and at most", "1 excursion above the objective"]
    page = HistoryPage("orders", "", (), None, (chart,), ())
    classes = [dict(attrs).get("class") for tag, attrs in form(page, tmp_path).tags if tag == "polygon"]
    assert classes == ["area band", "area band", "area above"]


def test_an_objective_that_was_kept_is_said_and_one_far_above_flattens_no_curve() -> None:
    kept, far = over_time_(limit=10), over_time_(limit=100_000)
    assert kept.caption.endswith("It was never above the objective.")
    assert len(kept.areas) == 1
    assert (far.y[-1].label, len(far.lines)) == ("10", 2)
    assert "lies far above" in far.caption


def test_without_a_history_the_page_says_so(tmp_path: Path) -> None:
    finding = Finding("DR-RPO-001", Severity.WARNING, "no history", "record")
    text = form(of_estimate("orders", {"total": None}, None, [finding], Told()), tmp_path).text
    assert "How much would be lost is not known" in text
    assert "There is no history to draw." in text
