"""What a scenario cannot say of a move: files, locks, torn journals, full disks, the way out."""

import errno
import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.runbook import shipped
from dr_ctl.engine.runs import Runs
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.jolokia import failed
from tests.cli.conftest import Shell, Terminal
from tests.cli.installation import Installation, Site
from tests.cli.moving import MOVE, begun, swapover
from tests.report.scribe import NAME


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


def test_a_journal_that_cannot_be_written_behind_the_fence_says_who_may_be_locked_out(
    dr_ctl: Shell, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync

    def failing(file: int) -> None:
        if not installation.london.open:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        ended = swapover(dr_ctl, "--yes")

    assert (ended.code, ended.ids) == (1, ["DR-RUN-002"])
    assert ended.document["run"] in ended.document["summary"]
    assert "clients may be locked out of both sites" in ended.document["summary"]
    assert "`dr-ctl resume` or `dr-ctl abort`" in ended.document["findings"][0]["remedy"]
    assert not installation.london.open
    assert dr_ctl("abort", "--yes").code == 0
    assert installation.london.open


class TestDamaged:
    """A run whose process died behind its fence, and whose journal has one bad byte since."""

    @pytest.fixture(autouse=True)
    def _damaged(self, dr_ctl: Shell, installation: Installation) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")
        path = dr_ctl.state / "runs" / NAME / "journal.jsonl"
        lines = path.read_bytes().split(b"\n")
        lines[1] = lines[1].replace(b"started", b"startet", 1)
        path.write_bytes(b"\n".join(lines))

    def test_status_says_who_is_served_after_it(self, dr_ctl: Shell, installation: Installation) -> None:
        nobody = dr_ctl("status", "--json").document["data"]["ways_out"]
        installation.london.let_in()
        london = dr_ctl("status", "--json").document["data"]["ways_out"]

        assert ([each["serves"] for each in nobody], [each["serves"] for each in london]) == ([None], ["london"])


@pytest.mark.parametrize("text", ["{", '[{"kind": "of another version"}]', '{"a": 1}'])
def test_debts_that_this_version_cannot_read_end_no_command(
    dr_ctl: Shell, installation: Installation, text: str
) -> None:
    dr_ctl.state.mkdir(exist_ok=True)
    (dr_ctl.state / "debts.json").write_text(text, encoding="utf-8")

    status, moved = dr_ctl("status", "--json"), swapover(dr_ctl, "--yes")

    assert (status.code, moved.code) == (0, 0)
    assert "DR-DEBT-001" in status.ids
    assert "DR-DEBT-001" in moved.ids
    assert (dr_ctl.state / "debts.json").read_text(encoding="utf-8") == text


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
def test_a_disk_without_room_refuses_the_run(dr_ctl: Shell, installation: Installation, is_full: bool) -> None:
    before = installation.settable
    if is_full:
        with suppress(OSError), (dr_ctl.state / "another.log").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))

    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json", "--quiet")

    assert ended.code == 10, ended.document
    assert "no room on disk" in ended.document["summary"]
    assert "--state-dir" in ended.document["findings"][0]["remedy"]
    assert [told["doors"] for told in installation.settable] == [told["doors"] for told in before]
    assert {operation.partition("(")[0] for operation in installation.changes} <= {
        "createQueue",
        "updateQueue",
        "destroyQueue",
    }
    assert [row["outcome"] for row in dr_ctl("runs", "list", "--json").document["data"]["runs"] if row] in (
        [],
        ["none"],
    )


NOW = 1795251263227  # what the clocks of both brokers say
OTHER = LockDocument(
    epoch=4,
    run="20261121T020000Z-swapover-paris-beef",
    what="swapover to paris",
    holder="grace",
    host="ops-2",
    pid=4711,
    state="another",
    start_ms=NOW - 30_000,
    expires_ms=NOW + 30_000,
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of the brokers stand still."""
    monkeypatch.setattr(Broker, "now_ms", lambda self: NOW)


def hold(site: Site, document: LockDocument = OTHER) -> None:
    """Put a lock at a broker, as a run elsewhere would."""
    name = f"dr-ctl.lock.{site.name}.{document.epoch}"
    site.queue(name, address=f"dr-ctl.lock.{site.name}", internal=True, user=document.to_text())


def locks(installation: Installation) -> list[dict[str, Any]]:
    """The newest lock of each broker."""
    found = []
    for site in installation.sites:
        told = [site.document(f"dr-ctl.lock.{site.name}.{epoch}") for epoch in range(1, 9)]
        found += [each for each in told if each is not None][-1:]
    return found


def of_this_state(dr_ctl: Shell) -> LockDocument:
    return replace(OTHER, run=NAME, state=Runs(dr_ctl.state, SystemClock()).identity())


def noted(dr_ctl: Shell, run: str) -> dict[str, Any]:
    """The lock as the last lines of the journal have it."""
    for line in reversed(dr_ctl.journal(run)):
        if line["kind"] in ("lock", "run"):
            told: dict[str, Any] = line["evidence"] if line["kind"] == "lock" else line["evidence"]["by"]["lock"]
            return told
    pytest.fail("no line of the journal has the lock")


class TestTaken:
    def test_it_is_released_and_kept_with_the_end_of_the_journal(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        ended = swapover(dr_ctl, "--yes")

        sealed = json.loads((dr_ctl.state / "runs" / ended.document["run"] / "result.json").read_text("utf-8"))[
            "journal"
        ]
        told = locks(installation)
        assert [(each["run"], each["released"], each["epoch"]) for each in told] == [
            (ended.document["run"], True, 1)
        ] * 2
        assert [(each["last_hash"], each["count"]) for each in told] == [(sealed["last_hash"], sealed["count"])] * 2
        assert noted(dr_ctl, ended.document["run"])["at"] == ["london/orders-1", "paris/orders-1"]

    def test_pauses_stand_in_it_before_they_are_made(self, dr_ctl: Shell, installation: Installation) -> None:
        installation.london.queue("orders.held", paused=True)
        installation.paris.queue("orders.held")
        seen: list[Any] = []
        installation.london.before_change = lambda operation: (
            seen.append(locks(installation)[0]) if operation == "pause()" else None
        )

        run = swapover(dr_ctl, "--yes").document["run"]

        assert seen[0]["paused"] == {run: ["orders.audit", "orders.in"]}
        assert seen[0]["paused_before"] == ["orders.held"]
        assert seen[0]["released"] is False

    def test_where_it_may_not_be_created_the_run_goes_on_and_says_so(
        self, dr_ctl: Shell, installation: Installation
    ) -> None:
        installation.london.instead["document"] = failed("java.lang.Exception", "not allowed", 403)
        installation.london.instead["canInvoke"] = {"value": False, "status": 200}

        checked, ended = dr_ctl("validate", "--json"), swapover(dr_ctl, "--yes")

        assert (checked.code, checked.ids.count("DR-LOCK-001")) == (0, 1)
        assert (ended.code, ended.ids.count("DR-LOCK-001"), installation.changes) == (0, 1, MOVE)
        assert [each["run"] for each in locks(installation)] == [ended.document["run"]]


class TestTakenOver:
    @pytest.mark.parametrize("verb", ["resume", "abort"])
    def test_a_copy_of_the_state_is_another_one(self, dr_ctl: Shell, installation: Installation, verb: str) -> None:
        begun(dr_ctl, installation, "quiesce", "fence")
        hold(installation.london, of_this_state(dr_ctl))
        path = dr_ctl.state / "id"
        copied = path.read_bytes()
        path.rename(dr_ctl.state / "before")
        path.write_bytes(copied)

        kept_out = dr_ctl(verb, "--yes", "--json")
        ended = dr_ctl(verb, "--yes", "--json", "--break-lock", "--reason", "that host burnt down")

        assert kept_out.code == 13
        assert ended.code == 0, ended.document
        assert noted(dr_ctl, NAME)["reason"] == "that host burnt down"


BREAK = ("--break-lock", "--reason", "forged")
FORGED = ("", OTHER.to_text(), "ERROR: no such attribute (class a.B)", '{"start": 1e999}', "[" * 100_000)


@pytest.mark.parametrize(("number", "text"), [("5", each) for each in FORGED] + [("9" * 400, FORGED[1])])
def test_a_queue_that_a_client_can_have_made_is_no_lock_and_keeps_nobody_out(
    dr_ctl: Shell, installation: Installation, number: str, text: str
) -> None:
    name = f"dr-ctl.lock.london.{number}"
    installation.london.queue(name, address=name, user=text)
    installation.london.queue("dr-ctl.debt.london.quarantine.paris", user=text)

    validated, ended = dr_ctl("validate", "--json"), swapover(dr_ctl, "--yes")

    assert name in next(each["text"] for each in validated.document["findings"] if each["id"] == "DR-LOCK-004")
    assert ended.code == 0, ended.document
    assert ended.document["debts"] == []


@pytest.mark.parametrize("start", ["1e999", "9" * 5000, "[" * 100_000])
def test_a_lock_whose_text_is_nothing_to_read_ends_no_command(
    dr_ctl: Shell, installation: Installation, start: str
) -> None:
    text = OTHER.to_text().replace(str(OTHER.start_ms), start)
    installation.london.queue("dr-ctl.lock.london.4", address="dr-ctl.lock.london", internal=True, user=text)

    status, kept_out, broken = dr_ctl("status"), swapover(dr_ctl, "--yes"), swapover(dr_ctl, "--yes", *BREAK)

    assert (status.code, kept_out.code, broken.code) == (0, 13, 0)
