"""Past runs as `runs` shows them: ended, open, cut off, never begun, altered; no broker and no settings are needed."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dr_ctl.engine.record import record
from dr_ctl.engine.runs import RunFiles
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.report.scribe import Scribe, aborted, call, cut_off, done, undone

ENDED = "20261121T020000Z-swapover-paris-7f3a"
OPEN = "20261122T020000Z-swapover-paris-1b2c"
EMPTY = "20261123T020000Z-swapover-paris-9d0e"


def folder(dr_ctl: Shell, name: str) -> Path:
    path = dr_ctl.state / "runs" / name
    path.mkdir(parents=True)
    return path


def lost_line(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:4] + lines[5:]), encoding="utf-8")


def garbled(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff\xfe no line\n", *lines[3:]]))


def test_a_run_that_two_people_worked_on_names_both(dr_ctl: Shell) -> None:
    aborted(folder(dr_ctl, ENDED))

    [row] = dr_ctl("runs", "list", "--json").document["data"]["runs"]

    assert (row["by"], row["took_s"]) == ("ada@ops-1, bob@ops-2", 65.0)


def test_a_run_that_never_began_is_the_last_one_and_says_so(dr_ctl: Shell) -> None:
    done(folder(dr_ctl, ENDED))
    folder(dr_ctl, EMPTY)

    ended = dr_ctl("runs", "show")

    assert (ended.code, ended.out) == (0, f"{EMPTY}: none: it never began: nothing was changed by it\n")


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


@pytest.mark.parametrize("damage", [lost_line, garbled])
def test_a_damaged_journal_is_not_shown_as_if_it_were_whole(dr_ctl: Shell, damage: Callable[[Path], None]) -> None:
    done(folder(dr_ctl, ENDED))
    damage(dr_ctl.state / "runs" / ENDED / "journal.jsonl")

    ended, report = dr_ctl("runs", "show", "--json"), dr_ctl("runs", "report")

    assert (ended.code, report.code) == (1, 0)
    [finding] = ended.document["findings"]
    assert "journal.jsonl: line " in finding["text"]
    assert "`dr-ctl runs verify" in finding["remedy"]
    assert "--forget" not in finding["remedy"]  # it has ended: there is nothing to give up
    assert "defect" not in ended.out
    assert "left out" in (dr_ctl.state / "runs" / ENDED / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "[]", '{"outcome": "ok"}', "\udcff"])
def test_one_damaged_result_does_not_hide_the_other_runs(dr_ctl: Shell, text: str) -> None:
    done(folder(dr_ctl, ENDED))
    done(folder(dr_ctl, OPEN))
    (dr_ctl.state / "runs" / ENDED / "result.json").write_bytes(text.encode(errors="surrogateescape"))

    told = dr_ctl("runs", "list", "--json").document["data"]["runs"]

    assert [row["outcome"] for row in told] == ["unknown", "ok"]
    assert "result.json cannot be read" in told[0]["summary"]


def test_a_run_says_of_which_installation_it_was_and_how_it_was_asked_for(
    dr_ctl: Shell, installation: Installation
) -> None:
    words = ["swapover", "--to", "paris", "--yes", "--reason", "change 4711"]

    run = dr_ctl(*words, "--json").document["run"]

    kept = record(RunFiles(run, dr_ctl.state / "runs" / run))
    [author] = kept.authors
    first = (dr_ctl.state / "runs" / run / "journal.jsonl").read_text("utf-8").splitlines()[0]
    typed = json.loads(first)["evidence"]["by"]["command"]
    assert typed == "dr-ctl swapover --to paris --yes --reason 'change 4711' --json"
    assert author.name == f"{getpass.getuser()}@{socket.gethostname()}"
    digest = hashlib.sha256((dr_ctl.folder / "dr-ctl.yaml").read_bytes()).hexdigest()
    assert kept.about == {
        "name": "orders",
        "topology": "artemis-mirror",
        "settings": {"file": "dr-ctl.yaml", "sha256": digest},
        "brokers": {site: [f"orders-1 at {url}"] for site, url in installation.urls.items()},
        "objectives": None,
    }
    assert kept.let_in is not None
    assert kept.let_in.site == "paris"
    assert (kept.reason, kept.epoch, kept.outcome) == ("change 4711", 1, "ok")


def test_the_index_leads_to_the_reports_beside_it_and_elsewhere_nowhere(dr_ctl: Shell) -> None:
    done(folder(dr_ctl, ENDED))
    assert dr_ctl("runs", "report", ENDED).code == 0
    (dr_ctl.folder / "sent").mkdir()
    index = ("runs", "report", "--index", "--since", "2026-11-01")

    ended, sent = dr_ctl(*index, "--json"), dr_ctl(*index, "--out", "sent/year.html")

    path = dr_ctl.state / "index.html"
    assert (ended.code, ended.document["data"], sent.code) == (0, {"report": str(path)}, 0)
    assert f'href="runs/{ENDED}/report.html"' in path.read_text("utf-8")
    text = (dr_ctl.folder / "sent" / "year.html").read_text("utf-8")
    assert "Swapover from london to paris" in text
    assert "href" not in text
