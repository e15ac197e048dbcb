"""The page of one run, section by section, and its form; the pages over all runs and of an estimate."""

import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pytest

from dr_ctl.core.document import moment, number
from dr_ctl.core.findings import Tone
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.system import stamp
from dr_ctl.engine.journal import StepEvent
from dr_ctl.engine.plan import Goal, PlannedStep, Spec
from dr_ctl.engine.record import read_run
from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.charts import Chart, over_time
from dr_ctl.report.estimate_page import EstimatePage, as_words
from dr_ctl.report.html import pieces, render, write_report
from dr_ctl.report.index_page import IndexPage
from dr_ctl.report.run_page import RunPage
from dr_ctl.report.story import Mark
from dr_ctl.report.values import count, seconds
from dr_ctl.rpo.core.quantities import Curves
from dr_ctl.rpo.history.row import micros
from tests.documents import no_none
from tests.report import scribe
from tests.report.scribe import ABOUT, NASTY, Scribe, call, flows, plan

VOID = {"meta", "br", "circle", "rect", "path", "line", "polyline"}


class Form(HTMLParser):
    """Fails on a tag that is closed by another; gathers ids, attributes and text, the text by section too."""

    def __init__(self, page: str = "") -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._texts: dict[str, list[str]] = {"head": []}
        if page:
            self.feed(page)
            self.close()
            assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if "id" in dict(attrs):
            self._texts[str(dict(attrs)["id"])] = []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        self._texts[next(reversed(self._texts))].append(data)

    @property
    def sections(self) -> dict[str, str]:
        return {name: " ".join(plain(" ".join(texts)).split()) for name, texts in self._texts.items()}


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ")


def read(run: Scribe) -> Form:
    page = write_report(run.files).read_text(encoding="utf-8")
    no_none(page)
    form = Form(page)
    ids = [attrs["id"] for _, attrs in form.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"verdict", "asked", "outage", "timeline", "outflow", "findings", "calls", "journal"} <= set(ids)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in form.tags}
    assert not {"href", "src", "onload"} & {name for _, attrs in form.tags for name in attrs}
    assert not re.search(r"(src|href)=|@import|url\(", page)  # addresses of brokers stand there as words
    assert "default-src 'none'" in page
    return form


def page_of(run: Scribe) -> RunPage:
    return RunPage(read_run(run.files))


def test_figures_for_people() -> None:
    rows = [plain(seconds(figure)) for figure in (None, 0, 0.0001, 0.25, 300, 61)]
    assert rows == ["not known", "0 s", "under 1 ms", "250 ms", "5 min", "1 min 1 s"]
    assert [plain(count(figure)) for figure in (None, 0, 12345, True)] == ["not known", "0", "12 345", "not known"]
    assert [number(float("inf")), moment("yesterday"), moment(7)] == [None] * 3


def quantity(**told: Any) -> dict[str, Any]:
    return {"now": None, "p50": None, "p95": None, "p99": None, "max": None, "ci95": {}} | told


def estimate() -> dict[str, Any]:
    total = {
        "loss": quantity(now=3, p99=1890, ci95={"p99": [1200, 2600]}),
        "age_s": quantity(now=0.4),
        "duplicates": quantity(now=0),
        "drain_s": quantity(),
        "horizon": {"seconds": 300.0, "loss": quantity(p50=7), "age_s": quantity()},
        "unexplained": 0.03,
    }
    return {
        "site": "london",
        "read_at": "2026-11-21T02:00:00.000Z",
        "stale_s": 3.2,
        "window": {"from": "A", "to": "B", "samples": 1209, "covered_s": 60.0},
        "verdict": "missed",
        "total": total,
        "flows": [{"from": "london", "pair": "orders-1", "name": "*", **total}],
        "classes": [{"queues": ["audit.#"], "verdict": "met", **total}],
    }


def everything(folder: Path) -> Scribe:
    """A run with every section, and a queue whose name is made to break a page."""
    run = Scribe(folder).begin()
    run.start("estimate").stop("estimate", text="if london died: " + "a sentence " * 30, estimate=estimate())
    run.start("quiesce").sent("quiesce", call(f"pause {NASTY}", when=f"{NASTY} exists")).stop("quiesce", text=NASTY)
    run.start("fence").sent("fence", call("close"), outcome="refused", text=NASTY).stop("fence", proof="flag")
    run.start("drain")
    for left in (5, 3, 0):
        run.sample("drain", {NASTY: {"outflow": left, "pending": 0, "attached": left > 3}}).let(0.4)
    run.stop("drain").did("verify", 1, **{NASTY: {"samples": 3, "ids_compared": 2, "depths": {NASTY: 2}}})
    run.did("point-of-no-return", 0).did("activate", 1, proof="attempt")
    error = {"id": "DR-X", "severity": "error", "text": NASTY, "remedy": f"Run `dr-ctl {NASTY}`."}
    info = {"id": "DR-A", "severity": "info", "text": "a", "remedy": ""}
    bounds = {"lost": {"at_most": None}, "queues": [{"name": NASTY, "lost": 1, "duplicates": None}]}
    return run.end(0, "ok", NASTY, [info, error, info], pairs=[{"name": NASTY, "serving": NASTY}], bounds=bounds)


def take_in(folder: Path) -> Scribe:
    steps = (PlannedStep(1, "reinstate", "paris", "residue in"),)
    held, freed = (replace(call("orders at paris", "paris"), goal=goal) for goal in (Goal.PAUSE, Goal.RESUME))
    run = Scribe(folder, plan=plan(spec=Spec("reinstate", "london"), steps=steps)).begin().start("reinstate")
    run.sent("reinstate", held, took=0.5).let(4).sent("reinstate", freed, took=0.5).let(1).stop("reinstate")
    return run.end(0, "ok", "london is taken in", command="reinstate")


def not_undone(folder: Path) -> Scribe:
    run = Scribe(folder).begin().to_fence().start("drain").stop("drain", StepEvent.FAILED, "paris is open")
    run.undo("fence", 0.5, StepEvent.UNDO_FAILED, "paris is open: london stays closed")
    return run.end(23, "stranded", "stranded", pairs=[{"name": "orders-1", "serving": None}], undone=False)


def delivered_later(folder: Path) -> Scribe:
    run = Scribe(folder).begin().to_fence().drained().did("verify", 1.0).did("point-of-no-return", 0)
    let_in = run.start("activate").let(0.5).at
    return run.let(7.0).stop("activate", let_in_at=stamp(let_in)).end(0, "ok", "paris serves")


def activating(folder: Path) -> Scribe:
    """Open, and the call that activates went out."""
    run = Scribe(folder).begin().to_fence().start("activate")
    run.journal.intents(run.step("activate"), [call("open", "paris")])
    return run.close()


def stopped(folder: Path) -> Scribe:
    run = Scribe(folder).begin().to_fence().start("drain").stop("drain", StepEvent.FAILED, "stopped by a signal")
    run.journal.signal("interrupted")
    return run.undo("fence", 0.5).end(130, "interrupted", "stopped by a signal; undone", undone=True)


def failed_over(folder: Path) -> Scribe:
    basis: dict[str, Any] = {"brokers": {"london": {"orders-1": {"version": "2.44.0"}}, "paris": {}}}
    asked = plan(spec=Spec("failover", "paris", accept_loss=500, reason="london burns"), basis=basis)
    run = Scribe(folder).begin(asked).to_fence().activated()
    bounds = {
        "lost": {"at_most": 12, "read_at": "2026-11-21T02:00:00.000Z"},
        "duplicates": {"at_most": None, "read_at": None},
        "queues": [{"name": "orders", "lost": 12, "duplicates": None}],
    }
    return run.end(0, "ok", "paris serves", bounds=bounds)


def refused(folder: Path) -> Scribe:
    run = Scribe(folder).begin().did("observe", 0.1).start("check").stop("check", StepEvent.FAILED, "both serve")
    return run.end(10, "precheck_failed", "both serve; nothing was changed", undone=True)


def altered(folder: Path) -> Scribe:
    run = scribe.done(folder)
    lines = run.files.journal.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[4] = lines[4].replace("check ended", "check went well")
    run.files.journal.write_text("".join(lines), encoding="utf-8")
    return run


def unsealed(folder: Path) -> Scribe:
    run = scribe.done(folder)
    run.files.result.unlink()
    return run


def clock_back(folder: Path) -> Scribe:
    return Scribe(folder).begin().did("observe", 1).let(-30).did("check", 1).close()


def older(folder: Path) -> Scribe:
    """Whose journal does not say who began it."""
    run = Scribe(folder)
    run.journal.run(plan(), {})
    return run.close()


def signed(folder: Path) -> Scribe:
    run = Scribe(folder)
    people = [{"name": "ada@example.com", "key": "SHA256:Ab"}, {"name": "bob@example.com", "key": "SHA256:Bc"}]
    run.journal.run(plan(), {**scribe.ADA, "approved": {"plan_sha256": "5e" * 32, "by": people}})
    return run.close()


# Of each run the tone, and words of its sections; a text that begins with "no: " is not there.
PAGES: Final = (
    Path(__file__).with_name("pages.txt").read_text("utf-8").format(NAME=scribe.NAME, SHA="5e" * 32, NASTY=NASTY)
)


@pytest.mark.parametrize("expected", PAGES.strip().split("\n\n"), ids=lambda text: str(text.split()[0]))
def test_each_section_says_what_happened(expected: str, tmp_path: Path) -> None:
    head, *lines = expected.splitlines()
    name, tone = head.split()
    run: Scribe = globals().get(name, getattr(scribe, name, None))(tmp_path)

    sections = read(run).sections

    assert page_of(run).verdict.tone.value == tone
    for section, _, text in (line.strip().partition(": ") for line in lines):
        is_there = text.removeprefix("no: ") in sections[section]
        assert is_there is not text.startswith("no: "), (section, text, sections[section])


def test_the_bars_of_a_run_that_went_well(tmp_path: Path) -> None:
    (chapter,) = page_of(scribe.done(tmp_path)).chapters

    # 7.9 s in all: the fence begins at 3.5, the point of no return lies at 7.0, the activation ends at 7.5.
    assert chapter.rows[5][1].left == pytest.approx(100 * 3.5 / 7.9, abs=0.01)
    assert chapter.no_return == pytest.approx(100 * 7.0 / 7.9, abs=0.01)
    assert chapter.band is not None
    assert chapter.band.left + chapter.band.width == pytest.approx(100 * 7.5 / 7.9, abs=0.01)
    assert not chapter.band.after
    assert all(0 <= bar.left <= bar.left + bar.width <= 100.001 for _, bar in chapter.rows)


def test_the_bars_of_two_parts_with_one_outage(tmp_path: Path) -> None:
    first, second = page_of(scribe.resumed(tmp_path)).chapters

    step, bar = first.rows[-1]
    assert (step.mark, bar.after) == (Mark.NO_END, True)
    bands = [(case.band.before, case.band.after) for case in (first, second) if case.band is not None]
    assert bands == [(False, True), (True, False)]


def test_never_begun(tmp_path: Path) -> None:
    run = Scribe(tmp_path).close()
    run.files.journal.unlink()
    page = page_of(run)
    assert (page.verdict.words, page.title, page.chapters) == ("Never begun", scribe.NAME, ())


UNREAD = {"outflow": None, "pending": None}


@pytest.mark.parametrize(
    ("samples", "note", "caption"),
    [
        ([flows(900, 4)],
         "Only 1 sample, too few for a curve.; london: outflow 900, paris: not applied 4; all else 0.", ""),
        # A drain that was empty all along has no curve.
        ([flows(0)] * 5, "5 samples: 0 every time. There is no curve to draw.", ""),
        # A reading without an answer is a gap and not a zero.
        ([flows(300), flows(200), {**flows(0), "london": {"unknown": "timed out"}}, flows(100), flows(50)],
         "", "london did not answer in 1 of 5 samples.; On average 125 a second."),
        # A figure that was never read is not told as zero.
        ([{**flows(left), "paris": {**UNREAD, "attached": None}} for left in (300, 200, 100)],
         "0 in every sample: london: not applied. Never read: paris: outflow, paris: not applied.", ""),
        ([{"paris": UNREAD}] * 3, "3 samples: no figure was read.", ""),
    ],
)  # fmt: skip
def test_what_is_drawn_of_a_wait_and_what_is_said(tmp_path: Path, samples: Any, note: str, caption: str) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    for sample in samples:
        run.sample("drain", sample).let(0.5)
    (chart,) = page_of(run.stop("drain").close()).charts
    assert all(words in chart.note for words in note.split("; ", 1))
    assert all(words in chart.caption for words in caption.split("; "))
    assert "not attached" not in chart.caption
    assert [(len(line.pieces), len(line.dots)) for line in chart.lines] == (
        [(2, 4)] if caption else [(1, 3)] if "Never read" in note else []
    )


def test_many_samples_keep_their_peak(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    for place in range(3000):
        run.sample("drain", flows(99_000 if place == 1234 else 3000 - place)).let(0.02)
    (chart,) = page_of(run.stop("drain").close()).charts
    points = chart.lines[0].pieces[0].split()
    assert len(points) < 500
    assert min(float(point.split(",")[1]) for point in points) == pytest.approx(1, abs=0.1)
    assert plain(chart.lines[0].course) == "3 000 → 1, at most 99 000"


def measured(page: RunPage) -> list[tuple[str, str, str, str]]:
    return [(plain(row.objective), plain(row.result), row.judged, row.sign) for row in page.measured]


@pytest.mark.parametrize(
    ("operation", "code", "outcome", "undone", "says"),
    [
        ("swapover", 0, "ok", None, "Moved from london to paris; verified"),
        ("failback", 0, "ok", None, "Moved from london to paris; verified"),
        ("failover", 0, "ok", None, "Failed over from london to paris; verified"),
        ("reinstate", 0, "ok", None, "Reinstated paris; verified"),
        ("fence", 0, "ok", None, "Fenced london; verified"),
        ("swapover", 20, "reverted", True, "Not moved from london to paris: undone, and verified"),
        ("swapover", 21, "incomplete", None, "Moved from london to paris, but something is left to do"),
        ("failover", 22, "unknown", None, "Not known to have failed over from london to paris: the end could not be"),
        (
            "failover",
            23,
            "stranded",
            False,
            "Not failed over from london to paris: no site serves, and the undo did not",
        ),
        ("failover", 11, "loss_refused", None, "Not failed over from london to paris: refused: more may be lost"),
    ],
)
def test_the_headline(tmp_path: Path, operation: str, code: int, outcome: str, undone: bool | None, says: str) -> None:
    more = {} if undone is None else {"undone": undone}
    run = Scribe(tmp_path).begin(plan(spec=Spec(operation, "paris"))).end(code, outcome, "so it ended", **more)
    assert page_of(run).verdict.words.startswith(says)


@pytest.mark.parametrize(
    ("at_least", "at_most", "figure", "said"),
    [
        (2.7, 3.0, "at least 2.70 s, at most 3.00 s", ("kept", "good")),
        (100, 140, "at least 1 min 40 s, at most 2 min 20 s", ("cannot tell", "open")),
        (130, 140, "at least 2 min 10 s, at most 2 min 20 s", ("not kept", "cost")),
        (None, 140, "at most 2 min 20 s", ("cannot tell", "open")),
        (130, None, "at least 2 min 10 s", ("not kept", "cost")),
        (None, None, "not known", ("cannot tell", "open")),
    ],
)
def test_a_failover_by_what_looks_tell(
    tmp_path: Path, at_least: float | None, at_most: float | None, figure: str, said: tuple[str, str]
) -> None:
    looks = {"last_served": "2026-11-21T01:59:59.000Z", "seen_down": "2026-11-21T01:59:59.300Z"}
    run = Scribe(tmp_path).begin(plan(spec=Spec("failover", "paris"))).activated()
    page = page_of(run.end(0, "ok", "paris serves", out_s={"at_least": at_least, "at_most": at_most, **looks}))

    assert plain(page.outage.figure) == figure
    assert measured(page)[0] == ("within 2 min", figure, *said)
    assert page.outage.sentence == (
        "London was last seen serving at 01:59:59.000Z, first seen down at 01:59:59.300Z; "
        "let in at 02:00:01.500Z by paris."
    )


@pytest.mark.parametrize(
    ("lost", "accepted", "said"),
    [
        ({"at_most": 0}, None, ("at most 0", "at most 0", "kept", "good")),
        ({"at_most": 94, "likely": 2}, 100,
         ("at most 0", "at most 94, likely 2", "not kept; a person accepted 100 messages", "cost")),
        ({"at_most": 94, "likely": 0}, None, ("at most 0", "at most 94, likely 0", "cannot tell", "open")),
        ({"at_most": None, "likely": None}, "unknown",
         ("at most 0", "not known", "cannot tell; a person accepted unknown", "open")),
    ],
)  # fmt: skip
def test_a_loss_against_its_limit(tmp_path: Path, lost: dict[str, Any], accepted: Any, said: tuple[str, ...]) -> None:
    run = Scribe(tmp_path).begin(plan(spec=Spec("failover", "paris", accept_loss=accepted)))
    page = page_of(run.end(0, "ok", "paris serves", bounds={"lost": lost, "duplicates": {"at_most": 3}}))
    assert measured(page)[-2:] == [said, ("none is set", "at most 3", "no objective", "info")]


def test_names_are_escaped(tmp_path: Path) -> None:
    parsed = read(everything(tmp_path))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert parsed.text.count(NASTY) >= 10
    # The request is JSON about the call; the queue's own name stands as it is.
    assert f"pause {NASTY}" in parsed.text


def test_only_its_owner_may_read_it_and_the_same_run_makes_the_same_page(tmp_path: Path) -> None:
    run = scribe.done(tmp_path)
    path = write_report(run.files)
    first = path.read_bytes()
    assert (path, stat.S_IMODE(path.stat().st_mode)) == (tmp_path / "report.html", 0o600)
    assert write_report(run.files).read_bytes() == first


def test_a_report_is_written_wherever_the_journal_was_cut(tmp_path: Path) -> None:
    run = scribe.resumed(tmp_path)
    whole = run.files.journal.read_bytes()
    run.files.result.unlink()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for end in [0, *ends, *(end - 30 for end in ends)]:
        run.files.journal.write_bytes(whole[:end])
        page = write_report(run.files).read_text(encoding="utf-8")
        assert ("is torn" in page) == (end not in (0, *ends))


@pytest.mark.parametrize("junk", [b"", b"7\n", b"[]\n", b"null\n{}\n", b"\xff\xfe\n\x00", b'{"hash": 3}\n{"a": 1}\n'])
def test_a_report_is_written_for_files_that_are_not_what_they_should_be(junk: bytes, tmp_path: Path) -> None:
    files = RunFiles("20261121T020000Z-swapover-paris-7f3a", tmp_path)
    for path in (files.journal, files.plan, files.result):
        path.write_bytes(junk)
    assert write_report(files).exists()


def test_a_report_is_written_when_figures_have_other_shapes(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    odd: list[Any] = [None, 7, "x", [], {}, {"outflow": "many", "pending": None}, {"delivering": [1]}]
    for item in odd:
        run.sample("drain", {"london": item, "delivering": item}).let(0.1)
    run.stop("drain", took_s=[0.2], proof=[1]).did("verify", 1, **{"orders-1": {"depths": 3}})
    run.start("estimate").stop("estimate", estimate={"total": {"loss": 3, "horizon": [], "unexplained": "x"}})
    run.end(0, "ok", "odd", pairs=7, bounds=[1], outage_s="x")

    assert write_report(run.files).exists()
    run.files.result.write_text(json.dumps({"exit_code": 4711, "data": 3, "findings": {}, "debts": [3, {"a": 1}]}))
    assert write_report(run.files).exists()


def test_code_in_sentences() -> None:
    assert pieces("Run `a b` now") == [(False, "Run "), (True, "a b"), (False, " now")]
    assert pieces("one ` only") == [(False, "one ` only")]


def test_the_style_survives_escaping() -> None:
    style = resources.files("dr_ctl.report").joinpath("page.css").read_text(encoding="utf-8")
    assert not set(style) & set("<>&\"'")


@pytest.mark.parametrize("name", [scribe.NAME, 'x"; } body { display: none', "</style>", "ü", ""])
def test_each_printed_page_has_the_runs_name_and_its_own_number_and_an_odd_one_gets_into_no_style_sheet(
    tmp_path: Path, name: str
) -> None:
    values = RunPage(read_run(scribe.done(tmp_path).files))
    values.name = name
    page = render(values)
    assert f'@bottom-left {{ content: "{name if name == scribe.NAME else ""}";' in page
    assert 'counter(page) " of " counter(pages)' in page


NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
YEAR = timedelta(days=365)
MINUTES = 60.0
"""The objective of the scribe's installation is two of them."""


class Shelf:
    def __init__(self, state: Path) -> None:
        self.state = state

    def scribe(self, days: float, operation: str) -> Scribe:
        at = NOW - timedelta(days=days)
        folder = self.state / "runs" / f"{at:%Y%m%dT%H%M%SZ}-{operation}-paris-7f3a"
        folder.mkdir(parents=True)
        run = Scribe(folder, at=at, plan=scribe.plan(spec=Spec(operation, "paris", reason=f"CHG-{days:g}")))
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
        played = [{"wrong": [item]} for item in wrong] + [{"wrong": []}] * 5
        folder = self.state / "rehearsals"
        folder.mkdir(exist_ok=True)
        options = {
            "at": (NOW - timedelta(days=days)).isoformat(),
            "variations": played,
            "outage_s": {"median": 0.3, "most": 0.9},
        }
        (folder / f"{days}-twin.json").write_text(json.dumps(options), encoding="utf-8")

    def page(self, since: datetime = NOW - YEAR) -> IndexPage:
        runs = [RunFiles(path.name, path) for path in sorted((self.state / "runs").glob("*"))]
        return IndexPage(runs, self.state / "rehearsals", since, NOW, folder=self.state)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


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
    assert [row.lost.result for row in page.rows] == ["", "drained first", "", "at most 0", "drained first"]
    assert [row.what.split()[0] for row in page.rows] == ["Rehearsal", "Swapover", "Rehearse", "Failover", "Swapover"]
    assert [plain(row.out.result) for row in page.rows[1::2]] == ["400 ms", "at least 2.00 s, at most 3.00 s"]
    assert {row.out.judged for row in page.rows} == {"kept", ""}


@pytest.mark.parametrize(
    ("happens", "tone", "words"),
    [
        (lambda shelf: shelf.move(9, 3 * MINUTES), Tone.COST, "An objective was not kept"),
        (lambda shelf: shelf.loss(9, 7, {"at_least": 1.0, "at_most": 2.0}), Tone.COST, "An objective was not kept"),
        (lambda shelf: shelf.loss(9, None, {"at_least": 1.0, "at_most": 2.0}), Tone.OPEN, "cannot be determined"),
        (lambda shelf: shelf.loss(9, 0, {"at_least": 1.0, "at_most": None}), Tone.OPEN, "cannot be determined"),
        (lambda shelf: shelf.on_twin(9, "both served"), Tone.COST, "1 run or rehearsal did not end well"),
        (lambda shelf: shelf.rehearsal(9, "stranded", 23), Tone.COST, "1 run or rehearsal did not end well"),
    ],
)
def test_the_worst_known_decides(shelf: Shelf, happens: Callable[[Shelf], None], tone: Tone, words: str) -> None:
    shelf.move(30)
    happens(shelf)
    page = shelf.page()
    assert page.tone is tone
    assert words in page.words


def test_nothing_is_no_success(shelf: Shelf) -> None:
    shelf.move(400)
    page = shelf.page()
    assert (page.tone, page.words, page.rows) == (Tone.OPEN, "No run and no rehearsal in this time", [])
    shelf.rehearsal(3)
    assert shelf.page().words == "No run of this time has an objective"


def test_an_undone_and_an_open_run_count_as_neither_well_nor_moved(shelf: Shelf) -> None:
    shelf.undone(20)
    shelf.scribe(10, "swapover").did("observe", 0.3).close()
    page = shelf.page()
    assert [row.tone for row in page.rows] == [Tone.OPEN, Tone.UNDONE]
    assert [row.lost.result for row in page.rows] == ["", ""]


def test_objectives_are_those_of_the_run_itself(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.move(30, 90.0)
    tight = {**ABOUT, "objectives": {"recovery_s": 1.0, "lost": 0, "duplicates": None}}
    monkeypatch.setitem(scribe.ADA, "about", tight)
    shelf.move(10, 0.5)
    page = shelf.page()
    assert [(plain(row.measured[0].objective), row.out.judged) for row in page.rows] == [
        ("within 1.00 s", "kept"),
        ("within 2 min", "kept"),
    ]


def test_a_record_that_was_altered_is_told_before_all_else(shelf: Shelf) -> None:
    files = shelf.move(9)
    files.journal.write_bytes(files.journal.read_bytes().replace(b'"paused":1', b'"paused":2'))
    page = shelf.page()
    assert (page.tone, page.words) == (Tone.BAD, "The record of 1 run was altered")
    assert "of journal.jsonl was altered" in page.rows[0].record


@pytest.mark.parametrize(("ended", "says"), [(True, "The record of 1 run was altered"), (False, "The outcome of 1 r")])
def test_a_run_whose_journal_cannot_be_read_is_not_one_that_never_began(shelf: Shelf, ended: bool, says: str) -> None:
    shelf.move(20)
    files = shelf.move(9)
    files.journal.write_bytes(files.journal.read_bytes()[:40])
    if not ended:
        files.result.unlink()

    page = shelf.page()

    assert (page.tone, page.words[: len(says)]) == (Tone.BAD if ended else Tone.OPEN, says)
    assert page.notes == ["The journal of 1 run cannot be read: the outcome is not known."]
    assert shelf.page(NOW - timedelta(days=5)).notes == []


def test_evidence_that_cannot_be_read_hides_no_other(shelf: Shelf) -> None:
    shelf.on_twin(9)
    (shelf.state / "rehearsals" / "torn-twin.json").write_text('{"at": "2026', encoding="utf-8")
    (shelf.state / "runs" / "20261120T000000Z-swapover-paris-0000").mkdir(parents=True)
    page = shelf.page()
    notes = ["1 run never began: nothing was changed.", "The evidence of 1 rehearsal on a twin cannot be read."]
    assert (len(page.rows), page.notes) == (1, notes)


def test_the_index_is_well_formed_and_leads_to_the_reports(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scribe.ADA, "about", {**ABOUT, "name": NASTY})
    run = shelf.scribe(9, NASTY.replace("/", "_"))
    run.end(0, "ok", NASTY)
    moved = shelf.move(8)
    path = shelf.state / "index.html"
    text = render(shelf.page())
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
MOST = [value for _, value in LINE]
CURVES = Curves(
    micros(BEGIN), micros(TIMES[-1]), {"loss": MOST, "age_ms": MOST, "duplicates": MOST, "drain": [None] * 10}
)
QUEUE = {"pair": "orders-1", "name": NASTY, "share": 0.75, "most": 12}


@pytest.mark.parametrize(
    ("likely", "most", "word"), [(6, 9, "missed"), (5, 5, "kept"), (4, 6, "cannot tell"), (None, None, "cannot tell")]
)
def test_a_figure_stands_beside_its_limit(likely: int | None, most: int | None, word: str) -> None:
    loss = {"p99": most, "likely": {"p99": likely}}
    data = {"total": {"loss": loss}, "classes": [{"queues": ["a", "b"], "loss": loss}, {"queues": ["c"], "loss": loss}]}
    of_total, age, *_, of_class = as_words(data, {(): {"loss": 5}, ("a", "b"): {"loss": 5}}).figures
    assert (of_total.judged, of_total.allowed, of_class.judged) == (word, "5", word)
    assert (of_class.name, age.allowed, age.judged) == ("a, b: loss, messages", "", "")


def test_the_page_of_an_estimate() -> None:
    finding = Finding("DR-RPO-003", Severity.WARNING, f"old {NASTY}", "look")
    data = {**estimate(), "advice": [f"consume {NASTY}"], "queues": [QUEUE]}
    said = (f"missed {NASTY}", "As of then")
    limits = {(): {"loss": 5}, ("audit.#",): {"age_s": 1}}

    page = EstimatePage(NASTY, data, CURVES, [finding], sentences=said, made="Made now.", limits=limits)

    titles = {chart.title: chart for chart in page.charts}
    assert len(titles["Loss over time"].lines[0].pieces) == 2  # the gap stays a gap
    assert titles["Loss over time"].y[-1].label == "10"
    assert titles["Time to drain over time"].note
    assert not titles["Time to drain over time"].lines
    form = Form(render(page))
    ids = [dict(attrs).get("id") for tag, attrs in form.tags if tag == "section"]
    assert ids == ["verdict", "estimate", "advice", "queues", "charts", "findings", "method"]
    assert form.text.count(NASTY) >= 5
    assert "DR-RPO-003" in form.sections["findings"]
    assert "Made now." in form.text
    assert sum(attrs.get("class") == "stays" for _, attrs in form.tags) == 1 + len(page.forecast.figures)
    for text in (
        "Loss, messages at most 3 not known not known 1 890 1 200 to 2 600 not known 5 cannot tell",
        "audit.#: age of the oldest lost at most 400 ms",
        "3% of the outflow is not in the queues' counters",
    ):
        assert text in form.sections["estimate"]


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


def test_excursions_above_the_objective_are_marked() -> None:
    chart = over_time_(limit=5)
    assert [line.label for line in chart.lines] == ["at most", "likely", "objective"]
    assert chart.lines[2].pieces == ("0,50 100,50",)
    assert [area.label for area in chart.areas] == ["between likely and at most", "1 excursion above the objective"]
    page = EstimatePage("orders", {}, None, [])
    page.charts = (chart,)
    classes = [dict(attrs).get("class") for tag, attrs in Form(render(page)).tags if tag == "polygon"]
    assert classes == ["area band", "area band", "area above"]


def test_an_objective_that_was_kept_is_said_and_one_far_above_flattens_no_curve() -> None:
    kept, far = over_time_(limit=10), over_time_(limit=100_000)
    assert kept.caption.endswith("It was never above the objective.")
    assert len(kept.areas) == 1
    assert (far.y[-1].label, len(far.lines)) == ("10", 2)
    assert "lies far above" in far.caption


def test_without_a_history_the_page_says_so() -> None:
    finding = Finding("DR-RPO-001", Severity.WARNING, "no history", "record")
    text = Form(render(EstimatePage("orders", {"total": None}, None, [finding]))).text
    assert "How many messages would be lost is not known" in text
    assert "There is no history to draw." in text
