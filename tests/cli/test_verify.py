"""`runs verify`: for an auditor who was not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.report.scribe import NAME, done


def last_line(folder: Path) -> None:
    path = folder / "journal.jsonl"
    head, _, last = path.read_bytes().rstrip(b"\n").rpartition(b"\n")
    path.write_bytes(head + b"\n" + last.replace(b"paris serves", b"paris served") + b"\n")


def cut_at_the_end(folder: Path) -> None:
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))


def middle(folder: Path) -> None:
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"paused":1', b'"paused":2'))


def result(folder: Path) -> None:
    path = folder / "result.json"
    path.write_bytes(path.read_bytes().replace(b'"outage_s": 4.0', b'"outage_s": 0.4'))


@pytest.mark.parametrize(
    ("alter", "names"),
    [
        (last_line, "line {last} of journal.jsonl was altered"),
        (cut_at_the_end, "line {cut} of journal.jsonl is missing: result.json counts {last}"),
        (middle, "of journal.jsonl was altered"),
        (result, "result.json does not say what line {last} of journal.jsonl says of the end"),
    ],
)
def test_what_was_altered_ends_10_and_names_the_line(dr_ctl: Shell, alter: Callable[[Path], None], names: str) -> None:
    run, never_begun = (dr_ctl.state / "runs" / name for name in (NAME, "20261123T020000Z-swapover-paris-9d0e"))
    for folder in (run, never_begun):
        folder.mkdir(parents=True)
    done(run)
    last = len((run / "journal.jsonl").read_bytes().splitlines())
    alter(run)

    one, all_ = dr_ctl("runs", "verify", NAME, "--json"), dr_ctl("runs", "verify")

    assert (one.code, all_.code) == (10, 10)
    assert one.ids == ["DR-JOURNAL-001"]
    assert names.format(last=last, cut=last - 1) in one.document["findings"][0]["text"]
    assert one.document["run"] == NAME
    assert "1 altered" in all_.out
    assert "not begun" in all_.out
