"""Past runs as `runs` shows them: ended, open, cut off, never begun, altered; no broker and no settings are needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.report.scribe import Scribe, aborted, call, cut_off, done, undone

ENDED = "20261121T020000Z-swapover-paris-7f3a"
OPEN = "20261122T020000Z-swapover-paris-1b2c"
EMPTY = "20261123T020000Z-swapover-paris-9d0e"


def folder(dr_ctl: Shell, name: str) -> Path:
    path = dr_ctl.state / "runs" / name
    path.mkdir(parents=True)
    return path


@pytest.fixture
def runs(dr_ctl: Shell) -> None:
    """One run that ended, a later one that was cut off, and one whose process died before it wrote a line."""
    done(folder(dr_ctl, ENDED))
    cut_off(folder(dr_ctl, OPEN))
    folder(dr_ctl, EMPTY)


def altered(path: Path) -> None:
    """One figure in the middle of the journal is another than was written."""
    text = path.read_text(encoding="utf-8")
    assert '"paused":1' in text
    path.write_text(text.replace('"paused":1', '"paused":2'), encoding="utf-8")


def lost_line(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:4] + lines[5:]), encoding="utf-8")


def garbled(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe no line\n", *lines[3:]]))


DAMAGES = pytest.mark.parametrize("damage", [altered, lost_line, garbled])


def test_before_the_first_run_there_are_none(dr_ctl: Shell) -> None:
    ended = dr_ctl("runs", "list")

    assert (ended.code, ended.out) == (0, "0 run(s)\n")
    assert not dr_ctl.state.exists()


@pytest.mark.usefixtures("runs")
def test_the_list_says_of_each_how_it_ended(dr_ctl: Shell) -> None:
    assert dr_ctl("runs", "list", "--json").document["data"]["runs"] == [
        {"run": ENDED, "outcome": "ok", "summary": "paris serves"},
        {"run": OPEN, "outcome": "open", "summary": "under way, or interrupted"},
        {"run": EMPTY, "outcome": "none", "summary": "it never began: nothing was changed by it"},
    ]
    assert [line.split()[:2] for line in dr_ctl("runs", "list").out.splitlines()] == [
        [ENDED, "ok"],
        [OPEN, "open"],
        [EMPTY, "none"],
        ["3", "run(s)"],
    ]


@pytest.mark.parametrize(
    ("write", "word", "summary"),
    [
        (aborted, "aborted", "aborted; undone: london serves again"),
        (undone, "drain_timeout", "not drained after 60 s; undone: london serves again"),
    ],
)
def test_a_run_that_was_undone_is_not_said_to_have_ended_well(
    dr_ctl: Shell, write: Callable[[Path], Scribe], word: str, summary: str
) -> None:
    write(folder(dr_ctl, ENDED))

    assert dr_ctl("runs", "list").out.splitlines()[0] == f"{ENDED}  {word:<16} {summary}"
    assert dr_ctl("runs", "list", "--json").document["data"]["runs"] == [
        {"run": ENDED, "outcome": word, "summary": summary}
    ]
    assert dr_ctl("runs", "show", "--json").document["data"]["outcome"] == word
    last = dr_ctl("runs", "show", "--follow", "--json").out.splitlines()[-1]
    assert json.loads(last)["data"]["outcome"] == word


@pytest.mark.usefixtures("runs")
def test_a_run_is_shown_step_by_step_with_its_calls(dr_ctl: Shell) -> None:
    text, told = dr_ctl("runs", "show", ENDED), dr_ctl("runs", "show", ENDED, "--json").document

    assert (text.code, told["run"], told["data"]["outcome"]) == (0, ENDED, "ok")
    assert told["summary"] == f"{ENDED}: ok: paris serves"
    assert [(step["step"], step["event"]) for step in told["data"]["steps"]][:4] == [
        ("01-observe", "started"),
        ("01-observe", "succeeded"),
        ("02-check", "started"),
        ("02-check", "succeeded"),
    ]
    lines = text.out.splitlines()
    fence = next(place for place, line in enumerate(lines) if "06-fence: started" in line)
    assert lines[fence + 1].endswith("call: close acceptor clients at london")
    assert lines[-1] == f"{ENDED}: ok: paris serves"


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("name", [OPEN, OPEN[:10]])
def test_a_run_that_was_cut_off_is_shown_as_far_as_it_came(dr_ctl: Shell, name: str) -> None:
    ended = dr_ctl("runs", "show", name)

    assert ended.code == 0
    assert "call: close acceptor clients at london" in ended.out
    assert ended.out.splitlines()[-1] == f"{OPEN}: open: under way, or interrupted"


@pytest.mark.usefixtures("runs")
def test_a_run_that_never_began_is_the_last_one_and_says_so(dr_ctl: Shell) -> None:
    ended = dr_ctl("runs", "show")

    assert (ended.code, ended.out) == (0, f"{EMPTY}: none: it never began: nothing was changed by it\n")


@pytest.mark.usefixtures("runs")
def test_a_beginning_that_fits_several_runs_is_refused(dr_ctl: Shell) -> None:
    ended = dr_ctl("runs", "show", "2026")

    assert ended.code == 2
    assert "3 runs with the name 2026" in ended.out


def test_signals_refusals_and_undone_steps_are_shown(dr_ctl: Shell) -> None:
    scribe = Scribe(folder(dr_ctl, ENDED)).begin().start("fence")
    scribe.sent("fence", call("close acceptor clients at london"), outcome="refused", text="no such acceptor")
    scribe.journal.signal("interrupted")
    scribe.undo("fence", 0.5).end(130, "interrupted", "stopped by a signal; undone")

    out = dr_ctl("runs", "show").out

    assert "refused: no such acceptor" in out
    assert "signal: interrupted" in out
    assert "06-fence: undone: put back" in out


@pytest.mark.parametrize(
    ("write", "words"),
    [(done, "paris serves"), (undone, "not drained after 60 s"), (cut_off, "close acceptor clients at london")],
)
def test_the_report_is_written_anew(dr_ctl: Shell, write: Callable[[Path], Scribe], words: str) -> None:
    run = folder(dr_ctl, ENDED)
    write(run)
    (run / "report.html").write_text("an older one", encoding="utf-8")

    ended = dr_ctl("runs", "report", "--json")

    page = Path(ended.document["data"]["report"])
    assert (ended.code, page, ended.document["run"]) == (0, run / "report.html", ENDED)
    assert words in page.read_text(encoding="utf-8")


@DAMAGES
def test_a_damaged_journal_is_not_shown_as_if_it_were_whole(dr_ctl: Shell, damage: Callable[[Path], None]) -> None:
    done(folder(dr_ctl, ENDED))
    damage(dr_ctl.state / "runs" / ENDED / "journal.jsonl")

    ended = dr_ctl("runs", "show", "--json")

    assert ended.code == 1
    [finding] = ended.document["findings"]
    assert "journal.jsonl: line " in finding["text"]
    assert "dr-ctl status" in finding["remedy"]
    assert "defect" not in ended.out


@DAMAGES
def test_the_report_of_a_damaged_journal_says_what_it_leaves_out(dr_ctl: Shell, damage: Callable[[Path], None]) -> None:
    done(folder(dr_ctl, ENDED))
    damage(dr_ctl.state / "runs" / ENDED / "journal.jsonl")

    ended = dr_ctl("runs", "report")

    assert ended.code == 0
    assert "left out" in (dr_ctl.state / "runs" / ENDED / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"outcome": "ok"}', "\udcff"])
def test_one_damaged_result_does_not_hide_the_other_runs(dr_ctl: Shell, text: str) -> None:
    done(folder(dr_ctl, ENDED))
    done(folder(dr_ctl, OPEN))
    (dr_ctl.state / "runs" / ENDED / "result.json").write_bytes(text.encode(errors="surrogateescape"))

    told = dr_ctl("runs", "list", "--json").document["data"]["runs"]

    assert [row["outcome"] for row in told] == ["unknown", "ok"]
    assert "result.json cannot be read" in told[0]["summary"]


def test_an_interrupted_run_with_a_damaged_journal_is_not_gone_on_with(dr_ctl: Shell, nobody: str) -> None:
    cut_off(folder(dr_ctl, OPEN))
    journal = dr_ctl.state / "runs" / OPEN / "journal.jsonl"
    lost_line(journal)
    before = journal.read_bytes()

    for verb in ("resume", "abort"):
        ended = dr_ctl(verb, "--yes", "--json")
        assert ended.code == 1
        assert "does not fit the lines before it" in ended.document["summary"]
    assert journal.read_bytes() == before


def test_no_document_of_a_run_is_made_up(dr_ctl: Shell) -> None:
    done(folder(dr_ctl, ENDED))

    told = json.loads((dr_ctl.state / "runs" / ENDED / "result.json").read_text(encoding="utf-8"))
    shown = dr_ctl("runs", "show", "--json").document

    assert shown["data"]["entries"] == told["journal"]["count"]
