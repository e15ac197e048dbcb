"""The pages over all runs and rehearsals, and of an estimate: what they sum up and show, each whole alone."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dr_ctl.core.exit_codes import Tone
from dr_ctl.core.model import Finding, Severity
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.runs import RunFiles
from dr_ctl.engine.states import StepEvent
from dr_ctl.report.forecast import judged
from dr_ctl.report.history_page import HistoryPage, Told, method_of_estimate, of_estimate
from dr_ctl.report.html import write_index, write_page, write_report
from dr_ctl.report.index_page import IndexPage, index_page
from dr_ctl.report.outflow import Chart
from dr_ctl.report.over_time import over_time
from dr_ctl.rpo.estimate.result import Curves
from tests.report import scribe
from tests.report.scribe import ABOUT, NASTY, Scribe
from tests.report.test_page import Form, estimate, plain

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
YEAR = timedelta(days=365)
MINUTES = 60.0
"""The objective of the scribe's installation is two of them."""


class Shelf:
    """Runs under a STATE, some days ago each."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def scribe(self, days: float, operation: str) -> Scribe:
        at = NOW - timedelta(days=days)
        folder = self.state / "runs" / f"{at:%Y%m%dT%H%M%SZ}-{operation}-paris-7f3a"
        folder.mkdir(parents=True)
        run = Scribe(folder, at=at, plan=scribe.plan(ask=Ask(operation, "paris", reason=f"CHG-{days:g}")))
        run.files = RunFiles(folder.name, folder)
        return run.begin()

    def move(self, days: float, out_s: float = 0.4) -> RunFiles:
        run = self.scribe(days, "swapover").to_fence().drained().activated()
        run.end(0, "ok", "paris serves", pairs=[{"name": "orders-1", "serving": "paris"}], outage_s=out_s)
        write_report(run.files)
        return run.files

    def undone(self, days: float) -> None:
        run = self.scribe(days, "swapover").to_fence().start("drain").let(30)
        run.stop("drain", StepEvent.FAILED, "not drained").undo("fence", 0.8).undo("quiesce", 0.2)
        run.end(24, "drain_timeout", "not drained after 30 s; undone: london serves again", undone=True)

    def loss(self, days: float, lost: int | None, out_s: dict[str, float | None]) -> None:
        run = self.scribe(days, "failover").did("observe", 0.3).did("activate", 0.5)
        bounds = {"lost": {"at_most": lost, "likely": lost}, "duplicates": {"at_most": 0, "likely": 0}}
        pairs = [{"name": "orders-1", "serving": "paris"}]
        run.end(0, "ok", "paris serves", command="failover", pairs=pairs, bounds=bounds, out_s=out_s)

    def rehearsal(self, days: float, outcome: str = "ok", code: int = 0) -> None:
        self.scribe(days, "rehearse").did("observe", 0.3).end(code, outcome, "walked", command="rehearse")

    def on_twin(self, days: float, *wrong: str) -> None:
        played = [{"wrong": [each]} for each in wrong] + [{"wrong": []}] * 5
        folder = self.state / "rehearsals"
        folder.mkdir(exist_ok=True)
        told = {
            "at": (NOW - timedelta(days=days)).isoformat(),
            "variations": played,
            "outage_s": {"median": 0.3, "most": 0.9},
        }
        (folder / f"{days}-twin.json").write_text(json.dumps(told), encoding="utf-8")

    def page(self, since: datetime = NOW - YEAR) -> IndexPage:
        runs = [RunFiles(path.name, path) for path in sorted((self.state / "runs").glob("*"))]
        return index_page(runs, self.state / "rehearsals", since, NOW, beside=self.state)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def summed(page: IndexPage) -> dict[str, tuple[str, str, str, str]]:
    lines = [(line.name, line.runs, line.worst, line.last, line.judged) for line in page.lines]
    return {name: (runs, plain(worst), plain(last), judged) for name, runs, worst, last, judged in lines}


def test_a_year_in_which_all_went_well(shelf: Shelf) -> None:
    shelf.move(200, 1.5)
    shelf.move(20, 0.4)
    shelf.loss(100, 0, {"at_least": 2.0, "at_most": 3.0})
    shelf.rehearsal(40)
    shelf.on_twin(10)

    page = shelf.page()

    assert page.title == "Runs and rehearsals of orders"
    assert (page.tone, page.words) == (Tone.GOOD, "Every objective that was set was kept")
    assert page.sentence == "2 planned moves, 1 loss of a site, 2 rehearsals."
    assert summed(page) == {
        "Planned moves: clients out": ("2", "1.50 s", "400 ms", "kept: 2"),
        "Losses of a site: clients out (RTO)": ("1", "3.00 s", "at least 2.00 s, at most 3.00 s", "kept: 1"),
        "Losses of a site: messages lost (RPO)": ("1", "at most 0", "at most 0", "kept: 1"),
    }
    assert [row.lost.text for row in page.rows] == ["", "drained first", "", "at most 0", "drained first"]
    assert [row.what.split()[0] for row in page.rows] == ["Rehearsal", "Swapover", "Rehearse", "Failover", "Swapover"]
    assert [(name, figure) for name, figure, _ in page.tiles] == [
        ("Last planned move that went well", "2026-11-05"),
        ("Last loss of a site", "2026-08-17"),
        ("Last rehearsal that went well", "2026-11-15"),
        ("Runs and rehearsals", "5"),
    ]


@pytest.mark.parametrize(
    ("happens", "tone", "words"),
    [
        (lambda shelf: shelf.move(9, 3 * MINUTES), Tone.OWED, "An objective was not kept"),
        (lambda shelf: shelf.loss(9, 7, {"at_least": 1.0, "at_most": 2.0}), Tone.OWED, "An objective was not kept"),
        (lambda shelf: shelf.loss(9, None, {"at_least": 1.0, "at_most": 2.0}), Tone.OPEN, "cannot be told"),
        (lambda shelf: shelf.loss(9, 0, {"at_least": 1.0, "at_most": None}), Tone.OPEN, "cannot be told"),
        (lambda shelf: shelf.on_twin(9, "both served"), Tone.OWED, "1 run or rehearsal did not end well"),
        (lambda shelf: shelf.rehearsal(9, "stranded", 23), Tone.OWED, "1 run or rehearsal did not end well"),
    ],
)
def test_the_worst_that_is_known_decides(
    shelf: Shelf, happens: Callable[[Shelf], None], tone: Tone, words: str
) -> None:
    shelf.move(30)
    happens(shelf)
    page = shelf.page()
    assert page.tone is tone
    assert words in page.words


def test_nothing_is_no_success(shelf: Shelf) -> None:
    shelf.move(400)
    page = shelf.page()
    assert (page.tone, page.words, page.rows) == (Tone.OPEN, "No run and no rehearsal in this time", ())
    assert {figure for _, figure, _ in page.tiles} == {"none in this time", "0"}
    shelf.rehearsal(3)
    assert shelf.page().words == "No run of this time was held against an objective"


def test_a_figure_that_is_not_known_is_none_of_the_best(shelf: Shelf) -> None:
    shelf.loss(20, 3, {"at_least": 1.0, "at_most": 2.0})
    shelf.loss(10, None, {"at_least": 1.0, "at_most": None})

    lines = summed(shelf.page())

    assert lines["Losses of a site: clients out (RTO)"][1:] == (
        "2.00 s; not known of 1",
        "at least 1.00 s",
        "cannot tell: 1, kept: 1",
    )
    assert lines["Losses of a site: messages lost (RPO)"][1] == "at most 3; not known of 1"


def test_an_undone_and_an_open_run_count_as_neither_well_nor_moved(shelf: Shelf) -> None:
    shelf.undone(20)
    shelf.scribe(10, "swapover").did("observe", 0.3).close()
    page = shelf.page()
    assert [row.tone for row in page.rows] == [Tone.OPEN, Tone.UNDONE]
    assert [row.lost.text for row in page.rows] == ["", ""]
    assert page.tiles[0][1] == "none in this time"
    assert page.tiles[3][1:] == ("2", "2 put back, not ended, or not well")


def test_objectives_are_those_of_the_run_itself(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.move(30, 90.0)
    tight = {**ABOUT, "objectives": {"recovery_s": 1.0, "lost": 0, "duplicates": None}}
    monkeypatch.setitem(scribe.ADA, "about", tight)
    shelf.move(10, 0.5)
    page = shelf.page()
    assert summed(page)["Planned moves: clients out"][3] == "kept: 2"
    assert plain(page.lines[0].objective) == "within 1.00 s"


def test_a_record_that_was_altered_is_told_before_all_else(shelf: Shelf) -> None:
    files = shelf.move(9)
    files.journal.write_bytes(files.journal.read_bytes().replace(b'"paused":1', b'"paused":2'))
    page = shelf.page()
    assert (page.tone, page.words) == (Tone.BAD, "The record of 1 run was altered")
    assert "of journal.jsonl was altered" in page.rows[0].record


@pytest.mark.parametrize(("ended", "says"), [(True, "The record of 1 run was altered"), (False, "What came of 1 run")])
def test_a_run_of_whose_journal_no_line_can_be_read_is_not_one_that_never_began(
    shelf: Shelf, ended: bool, says: str
) -> None:
    shelf.move(20)
    files = shelf.move(9)
    files.journal.write_bytes(files.journal.read_bytes()[:40])
    if not ended:
        files.result.unlink()

    page = shelf.page()

    assert (page.tone, page.words[: len(says)]) == (Tone.BAD if ended else Tone.OPEN, says)
    assert page.notes == ("The journal of 1 run cannot be read: nobody knows what came of it.",)
    assert shelf.page(NOW - timedelta(days=5)).notes == ()


def test_evidence_that_cannot_be_read_hides_no_other(shelf: Shelf) -> None:
    shelf.on_twin(9)
    (shelf.state / "rehearsals" / "torn-twin.json").write_text('{"at": "2026', encoding="utf-8")
    (shelf.state / "runs" / "20261120T000000Z-swapover-paris-0000").mkdir(parents=True)
    page = shelf.page()
    assert (len(page.rows), page.notes) == (
        1,
        ("1 run never began: nothing was changed.", "The evidence of 1 rehearsal on a twin cannot be read."),
    )


def test_the_page_is_well_formed_loads_nothing_and_leads_to_the_reports(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(scribe.ADA, "about", {**ABOUT, "name": NASTY})
    run = shelf.scribe(9, NASTY.replace("/", "_"))
    run.end(0, "ok", NASTY)
    moved = shelf.move(8)
    path = shelf.state / "index.html"
    write_index(path, shelf.page())
    text = path.read_text("utf-8")
    form = Form(text)

    links = [attributes["href"] for tag, attributes in form.tags if tag == "a"]
    assert links == [f"runs/{moved.name}/report.html"]
    assert (path.parent / links[0]).exists()
    assert "default-src 'none'" in text
    assert {tag for tag, _ in form.tags}.isdisjoint({"script", "link", "img", "iframe"})
    assert "<script>alert" not in text
    assert NASTY in form.text


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
    return Form((folder / "page.html").read_text(encoding="utf-8"))


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
    sections = [dict(attrs).get("id") for tag, attrs in found.tags if tag == "section"]
    assert sections == ["verdict", "judged", "advice", "queues", "charts", "findings"]
    assert found.text.count(NASTY) >= 5
    assert "DR-RPO-003" in found.text
    assert "Made now." in found.text
    assert ("a", {"href": "page-method.html"}) in found.tags
    beside = Form((tmp_path / "page-method.html").read_text(encoding="utf-8"))
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
