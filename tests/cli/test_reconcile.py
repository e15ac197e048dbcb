"""`rpo reconcile` as it is typed: exit codes, the document, what is refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.cli import reconciling
from dr_ctl.core.model import Finding, Severity
from dr_ctl.rpo.ledgers.reconcile import KINDS, Part, Reconciled
from tests.cli.conftest import Shell


def found(tmp_path: Path, events: int = 9, **counts: int) -> Reconciled:
    parts = {
        kind: Part(counts.get(kind, 0), tmp_path / f"{kind}.jsonl", {"q": counts[kind]} if kind in counts else {})
        for kind in KINDS
    }
    return Reconciled(parts, {"sent": events} if events else {}, (Finding("DR-RPO-015", Severity.INFO, "x"),))


@pytest.mark.parametrize(
    ("counts", "code", "summary"),
    [
        ({}, 0, "nothing lost, nothing doubled"),
        ({"recovered": 2}, 0, "2 recovered"),
        ({"unexpected": 2}, 0, "2 unexpected"),
        ({"unknown": 1}, 22, "1 unknown"),
        ({"lost": 3, "unknown": 1}, 11, "3 lost, 1 unknown"),
        ({"doubled": 4}, 11, "4 doubled"),
    ],
)
def test_its_end_says_what_was_found(
    dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], code: int, summary: str
) -> None:
    monkeypatch.setattr(reconciling, "make", lambda *given, **more: found(dr_ctl.folder, **counts))

    ended = dr_ctl("rpo", "reconcile", "x.jsonl", "--json")

    document = ended.document
    assert (ended.code, document["exit_code"], document["summary"]) == (code, code, summary)
    assert document["command"] == "rpo reconcile"
    for kind in KINDS:
        assert document["data"][kind]["count"] == counts.get(kind, 0)
        assert document["data"][kind]["file"].endswith(f"{kind}.jsonl")
    assert ("DR-RPO-016" in ended.ids) == ("unexpected" in counts)


def test_the_ids_go_under_the_state_unless_told_otherwise(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(reconciling, "make", lambda told, out, **more: asked.append(out) or found(dr_ctl.folder))

    dr_ctl("rpo", "reconcile", "x.jsonl")
    dr_ctl("rpo", "reconcile", "x.jsonl", "--out", "here")

    assert asked[0].parent == dr_ctl.state / "reconcile"
    assert asked[1] == Path("here")


def test_what_is_no_ledger_ends_it_before_spark(dr_ctl: Shell) -> None:
    (dr_ctl.folder / "a.txt").write_text("queue,id\n")

    missing, wrong = dr_ctl("rpo", "reconcile", "none.jsonl", "--json"), dr_ctl("rpo", "reconcile", "a.txt", "--json")

    assert (missing.code, wrong.code) == (2, 2)
    assert "none.jsonl" in missing.document["findings"][0]["text"]
    assert "a.txt: line 1" in wrong.document["findings"][0]["text"]
    assert wrong.document["findings"][0]["remedy"]
