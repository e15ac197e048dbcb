"""The page as HTML: its anchors, its escaping, its form; and that it is written whatever is left of the run."""

import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.html import pieces, render, write_report
from dr_ctl.report.reading import read_run
from dr_ctl.report.view import view
from tests.documents import no_none
from tests.report import scribe
from tests.report.scribe import NASTY, Scribe, call, flows
from tests.report.test_view import estimate

VOID = {"meta", "br", "circle", "rect", "path", "line", "polyline"}


class Form(HTMLParser):
    """Fails on a tag that is closed by another; gathers ids, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def form(run: Scribe) -> Form:
    parsed = Form()
    page = write_report(run.files).read_text(encoding="utf-8")
    no_none(page)
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    return parsed


def everything(folder: Path) -> Scribe:
    """A run with every section, and a queue whose name is made to break a page."""
    run = Scribe(folder).begin()
    run.start("estimate").stop("estimate", estimate=estimate())
    run.start("quiesce").sent("quiesce", call(f"pause {NASTY}", when=f"{NASTY} exists")).stop("quiesce", text=NASTY)
    run.start("fence").sent("fence", call("close"), outcome="refused", text=NASTY).stop("fence", proof="flag")
    run.start("drain")
    for left in (5, 3, 0):
        run.sample("drain", {NASTY: {"outflow": left, "pending": 0, "attached": left > 3}}).let(0.4)
    run.stop("drain").did("verify", 1, **{NASTY: {"samples": 3, "ids_compared": 2, "depths": {NASTY: 2}}})
    run.did("point-of-no-return", 0).did("activate", 1, proof="attempt")
    finding = {"id": "DR-X", "severity": "error", "text": NASTY, "remedy": f"Run `dr-ctl {NASTY}`."}
    bounds = {"lost": {"at_most": None}, "queues": [{"name": NASTY, "lost": 1, "duplicates": None}]}
    return run.end(0, "ok", NASTY, [finding], pairs=[{"name": NASTY, "serving": NASTY}], bounds=bounds)


RUNS = [scribe.done, scribe.undone, scribe.resumed, scribe.cut_off, everything]


@pytest.mark.parametrize("make", RUNS)
def test_every_page_is_well_formed_and_loads_nothing(make: Any, tmp_path: Path) -> None:
    parsed = form(make(tmp_path))
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {"verdict", "asked", "outage", "timeline", "outflow", "findings", "calls", "journal"} <= set(ids)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parsed.tags}
    assert not {"href", "src", "onload"} & {name for _, attrs in parsed.tags for name in attrs}


def test_the_page_refers_to_nothing_outside(tmp_path: Path) -> None:
    page = write_report(scribe.done(tmp_path).files).read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|@import|url\(", page)  # addresses of brokers stand there as words
    assert "default-src &#39;none&#39;" not in page
    assert "default-src 'none'" in page


def test_names_are_escaped(tmp_path: Path) -> None:
    parsed = form(everything(tmp_path))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert parsed.text.count(NASTY) >= 10
    # The request is JSON about the call; the queue's own name stands as it is.
    assert f"pause {NASTY}" in parsed.text


def test_outcomes_are_told_in_words_and_shapes(tmp_path: Path) -> None:
    parsed = form(scribe.undone(tmp_path))
    assert "refused" in parsed.text
    assert "06 undo fence" in parsed.text
    assert "exit code 24" in parsed.text
    assert "Not begun: 08 verify" in parsed.text
    assert sum(tag == "polyline" for tag, _ in parsed.tags) == 2


def test_not_known_is_written_out(tmp_path: Path) -> None:
    assert form(everything(tmp_path)).text.count("not known") > 10


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = write_report(scribe.done(tmp_path).files)
    assert path == tmp_path / "report.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_run_makes_the_same_page(tmp_path: Path) -> None:
    run = scribe.done(tmp_path)
    assert write_report(run.files).read_bytes() == write_report(run.files).read_bytes()


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
    for told in odd:
        run.sample("drain", {"london": told, "delivering": told}).let(0.1)
    run.stop("drain", took_s=[0.2], proof=[1]).did("verify", 1, **{"orders-1": {"depths": 3}})
    run.start("estimate").stop("estimate", estimate={"total": {"loss": 3, "horizon": [], "unexplained": "x"}})
    run.end(0, "ok", "odd", pairs=7, bounds=[1], outage_s="x")

    assert write_report(run.files).exists()
    run.files.result.write_text(json.dumps({"exit_code": 4711, "data": 3, "findings": {}, "debts": [3, {"a": 1}]}))
    assert write_report(run.files).exists()


def test_many_calls_and_samples_still_make_a_page_soon(tmp_path: Path) -> None:
    run = Scribe(tmp_path).begin().start("drain")
    run.sent("drain", *(call(f"resume q.{place}") for place in range(2000)))
    for place in range(2000):
        run.sample("drain", flows(2000 - place)).let(0.05)
    assert write_report(run.stop("drain").close().files).stat().st_size < 3_000_000


def test_code_in_sentences() -> None:
    assert pieces("Run `a b` now") == [(False, "Run "), (True, "a b"), (False, " now")]
    assert pieces("one ` only") == [(False, "one ` only")]


def test_the_style_survives_escaping() -> None:
    style = resources.files("dr_ctl.report").joinpath("page.css").read_text(encoding="utf-8")
    assert not set(style) & set("<>&\"'")


def test_each_printed_page_has_the_runs_name_and_its_own_number(tmp_path: Path) -> None:
    page = render(view(read_run(scribe.done(tmp_path).files)))
    assert f'@bottom-left {{ content: "{scribe.NAME}";' in page
    assert 'counter(page) " of " counter(pages)' in page


@pytest.mark.parametrize("name", ['x"; } body { display: none', "</style>", "ü", ""])
def test_a_folder_with_an_odd_name_gets_into_no_style_sheet(tmp_path: Path, name: str) -> None:
    page = render(replace(view(read_run(scribe.done(tmp_path).files)), name=name))
    assert '@bottom-left { content: "";' in page
