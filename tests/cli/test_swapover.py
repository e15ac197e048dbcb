"""What a scenario cannot say of a move: files, locks, torn journals, full disks, the way out."""

import errno
import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from dr_ctl.engine.runbook import shipped
from tests.cli.conftest import Shell, Terminal, begun, swapover
from tests.cli.sites import Sites
from tests.report.scribe import NAME


def test_what_it_wrote_is_the_owners_alone(dr_ctl: Shell, sites: Sites) -> None:
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
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    before = sites.settable
    monkeypatch.setattr("dr_ctl.topologies.artemis.look.dispatch", lambda reader, view: told)
    books = dr_ctl.folder / "runbooks"
    books.mkdir()
    text = (shipped() / "swapover.yaml").read_text(encoding="utf-8")
    (books / "swapover.yaml").write_text(text.replace("within: 5s", "within: 200ms"), encoding="utf-8")
    sites.settings(runbooks=str(books))

    ended = swapover(dr_ctl, "--yes")

    assert (ended.code, "DR-QUEUE-003" in ended.ids) == (20, True), ended.document
    assert sites.settable == before


def test_a_dry_run_shows_the_very_plan_and_looking_leaves_no_trace(
    dr_ctl: Shell, sites: Sites, person: Callable[[str], Terminal]
) -> None:
    person("").at_question = pytest.fail

    assert [dr_ctl(word).code for word in ("status", "validate")] == [0, 0]
    dry = swapover(dr_ctl, "--dry-run")
    shown = dr_ctl("plan", "swapover", "--to", "paris", "--json", "--out", "plan.json")

    assert (dry.code, sites.changes, dr_ctl.state.exists()) == (0, [], False)
    assert dry.document["data"]["plan"] == shown.document["data"]["plan"]
    assert json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8")) == dry.document["data"]["plan"]


def test_a_run_that_lives_is_under_way_and_keeps_others_out(dr_ctl: Shell, sites: Sites) -> None:
    begun(dr_ctl, sites, "quiesce", "fence")
    holder = {"what": "swapover to paris", "pid": 4711, "host": "ops-1", "since": "02:00"}
    with (
        (dr_ctl.state / "runs" / NAME / "journal.jsonl").open("ab") as journal,
        (dr_ctl.state / "lock").open("w") as lock,
    ):
        fcntl.flock(journal, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX)
        json.dump(holder, lock)
        lock.flush()
        status, moved = dr_ctl("status", "--json"), swapover(dr_ctl, "--yes")

    told = {each["id"]: each for each in status.document["findings"]}
    assert (status.code, status.document["data"]["open_run"], told["DR-RUN-003"]["severity"]) == (0, NAME, "info")
    assert f"{NAME} is under way" in told["DR-RUN-003"]["text"]
    assert all("dr-ctl resume" not in each["remedy"] for each in told.values())
    assert (moved.code, moved.document["outcome"], sites.changes) == (13, "locked", [])
    assert "swapover to paris (process 4711 on ops-1, since 02:00)" in moved.document["summary"]


@pytest.mark.parametrize("verb", ["resume", "abort"])
def test_a_run_that_died_in_its_first_line_changed_nothing(dr_ctl: Shell, sites: Sites, verb: str) -> None:
    begun(dr_ctl, sites, "quiesce", "fence")
    journal = dr_ctl.state / "runs" / NAME / "journal.jsonl"
    os.truncate(journal, 20)

    ended = dr_ctl(verb, "--yes", "--json")

    assert (ended.code, ended.ids, sites.changes) == (10, ["DR-RUN-004"], [])
    assert dr_ctl("status", "--json").document["data"]["open_run"] is None


def test_a_receipt_that_cannot_be_read_fits_nothing(dr_ctl: Shell, sites: Sites) -> None:
    for words in (("fence", "london"), ("drain", "--to", "paris")):
        assert dr_ctl(*words, "--yes").code == 0
    receipt = sites.paris.broker.queues["dr-ctl.receipt.paris"]
    assert receipt.user is not None
    receipt.user = receipt.user[:-20]

    assert dr_ctl("activate", "paris", "--yes", "--json").ids[0] == "DR-RECEIPT-001"


def test_a_journal_that_cannot_be_written_behind_the_fence_says_who_may_be_locked_out(
    dr_ctl: Shell, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync

    def failing(file: int) -> None:
        if not sites.london.open:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.ids) == (1, ["DR-RUN-002"])
    assert ended.document["run"] in ended.document["summary"]
    assert "clients may be locked out of both sites" in ended.document["summary"]
    assert "`dr-ctl resume` or `dr-ctl abort`" in ended.document["findings"][0]["remedy"]
    assert not sites.london.open
    assert dr_ctl("abort", "--yes").code == 0
    assert sites.london.open


def test_a_run_whose_journal_is_damaged_is_given_up_to_who_is_served(dr_ctl: Shell, sites: Sites) -> None:
    begun(dr_ctl, sites, "quiesce", "fence")
    path = dr_ctl.state / "runs" / NAME / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"started", b"startet", 1))

    nobody = dr_ctl("status", "--json").document["data"]["ways_out"]
    sites.london.let_in()
    london = dr_ctl("status", "--json").document["data"]["ways_out"]

    assert ([each["serves"] for each in nobody], [each["serves"] for each in london]) == ([None], ["london"])


@pytest.fixture
def small_state(dr_ctl: Shell) -> Iterator[None]:
    """The state directory on a file system of 1 MiB; skipped where mounting is not allowed."""
    dr_ctl.state.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "dr-ctl-test", str(dr_ctl.state)]
    with suppress(OSError):
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            yield
            subprocess.run(["umount", str(dr_ctl.state)], check=True)
            return
    pytest.skip("mounting is not allowed here")


@pytest.mark.usefixtures("small_state")
@pytest.mark.parametrize("is_full", [False, True], ids=["too small", "full"])
def test_a_disk_without_room_refuses_the_run(dr_ctl: Shell, sites: Sites, is_full: bool) -> None:
    before = [told["doors"] for told in sites.settable]
    if is_full:
        with suppress(OSError), (dr_ctl.state / "another.log").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))

    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json", "--quiet")

    assert ended.code == 10, ended.document
    assert "no room on disk" in ended.document["summary"]
    assert "--state-dir" in ended.document["findings"][0]["remedy"]
    assert ([told["doors"] for told in sites.settable], sites.changes) == (before, [])
    rows = dr_ctl("runs", "list", "--json").document["data"]["runs"]
    assert [row["outcome"] for row in rows] in ([], ["none"])


def test_the_lock_keeps_the_end_of_the_journal_and_the_journal_the_lock(dr_ctl: Shell, sites: Sites) -> None:
    ended = swapover(dr_ctl, "--yes")

    folder = dr_ctl.state / "runs" / ended.document["run"]
    sealed = json.loads((folder / "result.json").read_text("utf-8"))["journal"]
    for site in sites.both:
        kept = site.document(f"dr-ctl.lock.{site.name}.1") or {}
        assert (kept["run"], kept["released"]) == (ended.document["run"], True)
        assert {name: kept[name] for name in sealed} == sealed
    sites.paris.queue("dr-ctl.lock.paris.4", address="dr-ctl.lock.paris", internal=True, user="of another")
    broken = swapover(dr_ctl, "--yes", "--break-lock", "--reason", "that host burnt down", to="london")
    assert broken.code == 0, broken.document
    for run, reason in ((ended.document["run"], None), (broken.document["run"], "that host burnt down")):
        told = dr_ctl.journal(run)[0]["evidence"]["by"]["lock"]
        assert (told["at"], told["reason"]) == (["london/orders-1", "paris/orders-1"], reason)
