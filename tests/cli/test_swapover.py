"""What a scenario cannot say of a move and its resumption: files and their modes, locks of files, torn journals."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

from dr_ctl.engine.runbook import shipped
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.moving import Terminal, begun, person, swapover
from tests.report.scribe import NAME

__all__ = ["person"]  # a fixture


def test_what_it_wrote_is_the_owners_alone(dr_ctl: Shell, installation: Installation) -> None:
    run = swapover(dr_ctl, "--yes").document["run"]

    written = [dr_ctl.state, *dr_ctl.state.rglob("*")]
    assert {path.name for path in (dr_ctl.state / "runs" / run).iterdir()} == {
        "plan.json",
        "journal.jsonl",
        "result.json",
        "report.html",
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in written if path.is_dir()} == {0o700}


@pytest.mark.parametrize(
    "told",
    [{"orders.in": (1, True), "orders.audit": (-1, True)}, {"orders.in": (0, True)}],
    ids=["one below zero beside one that is held", "one that is not named"],
)
def test_what_clients_hold_is_not_told_by_a_sum(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    before = installation.settable
    monkeypatch.setattr("dr_ctl.topologies.artemis.look.dispatch", lambda reader, view: told)
    books = dr_ctl.folder / "runbooks"
    books.mkdir()
    text = (shipped() / "swapover.yaml").read_text(encoding="utf-8")
    (books / "swapover.yaml").write_text(text.replace("within: 5s", "within: 200ms"), encoding="utf-8")
    dr_ctl.settings(installation.london.url, installation.paris.url, runbooks=str(books))

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, "DR-QUEUE-003" in ended.ids) == (20, True), ended.document
    assert installation.settable == before


def test_a_dry_run_shows_the_very_plan_and_leaves_no_trace(
    dr_ctl: Shell, installation: Installation, person: Callable[[str], Terminal]
) -> None:
    person("").at_question = pytest.fail

    dry = swapover(dr_ctl, "--dry-run")
    shown = dr_ctl("plan", "swapover", "--to", "paris", "--json", "--out", "plan.json")

    assert (dry.code, installation.changes, dr_ctl.state.exists()) == (0, [], False)
    assert dry.document["data"]["plan"] == shown.document["data"]["plan"]
    assert json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8")) == dry.document["data"]["plan"]


def test_another_run_under_way_is_named(dr_ctl: Shell, installation: Installation) -> None:
    dr_ctl.state.mkdir()
    with (dr_ctl.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump({"what": "swapover to paris", "pid": 4711, "host": "ops-1", "since": "02:00"}, lock)
        lock.flush()
        ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.document["outcome"], installation.changes) == (13, "locked", [])
    assert "swapover to paris (process 4711 on ops-1, since 02:00)" in ended.document["summary"]


def test_status_says_of_one_that_lives_that_it_is_under_way(dr_ctl: Shell, installation: Installation) -> None:
    begun(dr_ctl, installation, "quiesce", "fence")
    with (dr_ctl.state / "runs" / NAME / "journal.jsonl").open("ab") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)

        ended = dr_ctl("status", "--json")

    told = {each["id"]: each for each in ended.document["findings"]}
    assert (ended.code, ended.document["data"]["open_run"]) == (0, NAME)
    assert told["DR-RUN-003"]["severity"] == "info"
    assert f"{NAME} is under way" in told["DR-RUN-003"]["text"]
    assert all("dr-ctl resume" not in each["remedy"] for each in told.values())


@pytest.mark.parametrize("verb", ["resume", "abort"])
def test_a_run_that_died_in_its_first_line_changed_nothing(
    dr_ctl: Shell, installation: Installation, verb: str
) -> None:
    begun(dr_ctl, installation, "quiesce", "fence")
    journal = dr_ctl.state / "runs" / NAME / "journal.jsonl"
    os.truncate(journal, 20)

    ended = dr_ctl(verb, "--yes", "--json")

    assert (ended.code, ended.ids, installation.changes) == (10, ["DR-RUN-004"], [])
    assert dr_ctl("status", "--json").document["data"]["open_run"] is None


def test_a_receipt_that_cannot_be_read_fits_nothing(dr_ctl: Shell, installation: Installation) -> None:
    for words in (("fence", "london"), ("drain", "--to", "paris")):
        assert dr_ctl(*words, "--yes").code == 0
    receipt = installation.paris.broker.queues["dr-ctl.receipt.paris"]
    assert receipt.user is not None
    receipt.user = receipt.user[:-20]

    assert dr_ctl("activate", "paris", "--yes", "--json").ids[0] == "DR-RECEIPT-001"
