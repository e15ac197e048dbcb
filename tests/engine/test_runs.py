"""What STATE keeps: run directories, one run at a time; and debts, seen and remembered."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.application.standing import owed
from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.debts import Debt, DebtKind, known, lost_alone, merged, remember
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.runs import Locked, RunFiles, Runs, write, write_text

HOLDER = """\
import sys
from pathlib import Path
from dr_ctl.core.system import SystemClock
from dr_ctl.engine.runs import Runs
with Runs(Path(sys.argv[1]), SystemClock()).lock("swapover to paris"):
    print("held", flush=True)
    sys.stdin.read()
"""


class Minutes:
    """A clock on which every look is a minute after the last."""

    def __init__(self) -> None:
        self._at = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self._at += timedelta(minutes=1)
        return self._at

    def monotonic(self) -> float:
        return self._at.timestamp()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "dr-ctl"


@pytest.fixture
def runs(state: Path) -> Runs:
    return Runs(state, Minutes())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.communicate], ids=["killed", "ended"])
def test_a_second_run_is_told_who_holds_the_lock(
    runs: Runs, state: Path, end: Callable[[subprocess.Popen[str]], object]
) -> None:
    command = [sys.executable, "-c", HOLDER, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(Locked) as refused, runs.lock("swapover to london"):
                pass
        finally:
            end(other)
        other.wait()
        with runs.lock("resume"):
            told = json.loads((state / "lock").read_text(encoding="utf-8"))

    assert refused.value.exit_code is ExitCode.LOCKED
    holder = rf"swapover to paris \(process {other.pid} on \S+, since \d{{4}}-\S+Z\)"
    assert re.fullmatch(f"another run is under way: {holder}", str(refused.value))
    assert (told["what"], told["pid"]) == ("resume", os.getpid())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_a_lock_ends_with_its_block_and_needs_no_name_of_its_holder(runs: Runs, state: Path, text: str) -> None:
    with pytest.raises(ZeroDivisionError), runs.lock("first, which takes long"):
        raise ZeroDivisionError
    with runs.lock("second"):
        before = (state / "lock").read_bytes()
        with pytest.raises(Locked, match="second"), runs.lock("third"):
            pass
        assert (state / "lock").read_bytes() == before
        (state / "lock").write_text(text, encoding="utf-8")
        with pytest.raises(Locked, match="its name could not be read"), runs.lock("abort"):
            pass


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_but_the_owner_may_read_anything_whatever_the_umask(runs: Runs, state: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with runs.lock("swapover to paris"):
            files = runs.create("swapover", "paris")
            write(files.plan, {"a": 1})
            write_text(files.report, "<html>")
            Journal(files.journal, Minutes()).close()
            owed(state, [FENCE], ["paris"])
    finally:
        os.umask(before)

    assert [mode(folder) for folder in (state, state / "runs", files.folder)] == [0o700] * 3
    kept = (state / "lock", state / "debts.json", files.plan, files.report, files.journal)
    assert [mode(file) for file in kept] == [0o600] * len(kept)


def test_a_run_is_named_by_its_time_its_operation_and_its_target(runs: Runs, state: Path) -> None:
    files = runs.create("swapover", "paris")
    assert re.fullmatch(r"20261121T020100Z-swapover-paris-[0-9a-f]{4}", files.name)
    assert files.folder == state / "runs" / files.name
    names = [path.name for path in (files.plan, files.journal, files.result, files.report)]
    assert names == ["plan.json", "journal.jsonl", "result.json", "report.html"]


@pytest.mark.parametrize("step", [None, "fsync", "replace"])
def test_a_document_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    path, old, new = tmp_path / "result.json", {"outcome": "ok", "text": "Größe"}, {"outcome": "unknown"}
    write(path, old)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    if step is not None:
        monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with nullcontext() if step is None else pytest.raises(OSError, match="the disk is full"):
        write(path, new)

    assert json.loads(path.read_text(encoding="utf-8")) == (new if step is None else old)
    assert step is not None or [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_document_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    synced: list[tuple[bool, bool]] = []
    fsync = os.fsync

    def note(file: int) -> None:
        fsync(file)
        synced.append((os.fstat(file).st_size > 0, path.exists()))

    monkeypatch.setattr(os, "fsync", note)

    write(path, {"outcome": "ok"})

    # The first is the document's, before it has its name; the second the directory's, after.
    assert synced == [(True, False), (True, True)]


def test_a_run_is_found_by_its_name_by_a_beginning_of_it_or_as_the_last_one(runs: Runs) -> None:
    assert (runs.all(), runs.unfinished()) == ([], None)
    with pytest.raises(UsageError, match="there is no run yet"):
        runs.find(None)
    first, second = (runs.create("swapover", site) for site in ("paris", "london"))
    assert [run.name for run in runs.all()] == [first.name, second.name]  # they come by time
    assert (runs.find(first.name), runs.find("20261121T0201")) == (first, first)
    assert (runs.find("20261121T0202"), runs.find(None)) == (second, second)
    (first.folder.parent / f"{second.name[:16]}-fence-paris-1").mkdir()
    write(second.plan, {})  # of one second, the one that began earlier comes first
    write(runs.all()[1].plan, {})
    assert [run.name for run in runs.all()][:2] == [first.name, second.name]
    shutil.rmtree(runs.all()[2].folder)
    for name, told in (("20261121", "2 runs with the"), ("2025", "no run with the"), ("swapover", "no run with the")):
        with pytest.raises(UsageError, match=f"{told} name {name}"):
            runs.find(name)


def test_the_unfinished_run_is_the_newest_that_began_and_has_not_ended(runs: Runs) -> None:
    def started(*, ended: bool = False) -> RunFiles:
        files = runs.create("swapover", "paris")
        files.journal.touch()
        if ended:
            write(files.result, {"outcome": "ok"})
        return files

    assert not started(ended=True).open()
    assert runs.unfinished() is None
    started()
    newest = started()
    started(ended=True)
    runs.create("swapover", "paris")  # it never began: there is no journal
    assert runs.unfinished() == newest


FENCE = Debt(DebtKind.FENCE, "london", "paris", "2026-11-21T02:00:00Z")
QUARANTINE = replace(FENCE, kind=DebtKind.QUARANTINE)
ELSEWHERE = replace(FENCE, about="paris", kept_at="london")
DEBTS = st.builds(
    Debt,
    st.sampled_from(DebtKind),
    st.sampled_from(["london", "paris"]),
    st.sampled_from(["london", "paris"]),
    st.text(),
    st.booleans(),
)
MANY = st.lists(DEBTS, max_size=6)


@given(remembered=MANY, seen=MANY, answered=st.sets(st.sampled_from(["london", "paris"])))
def test_a_site_that_answers_says_what_is_owed_there(
    remembered: list[Debt], seen: list[Debt], answered: set[str]
) -> None:
    left = merged(remembered, seen, answered)
    wanted = [*(debt for debt in remembered if debt.kept_at not in answered), *seen]
    # What is seen counts, not what is remembered; nothing is told twice.
    by_key = {(debt.kind, debt.about, debt.kept_at): debt for debt in wanted}
    assert sorted(left, key=repr) == sorted(by_key.values(), key=repr)
    assert merged(left, seen, answered) == left


@given(debts=MANY)
def test_what_is_remembered_is_known_again(debts: list[Debt], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state") / "not" / "yet" / "debts.json"
    remember(path, debts)
    assert known(path) == debts
    assert path.exists() is bool(debts)


def test_the_file_is_there_only_while_something_is_owed(state: Path) -> None:
    for seen, answered, debts in (([FENCE], ["paris"], [FENCE]), ([], ["london"], [FENCE]), ([], ["paris"], [])):
        assert owed(state, seen, answered).debts == debts
    assert list(state.iterdir()) == []


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        "",
        "[",
        "{}x",
        '"debts"',
        "7",
        "[7]",
        '[{"kind": "fence"}]',
        json.dumps([document(FENCE) | {"kind": "taxes"}]),
    ],
)
def test_a_damaged_file_is_a_fault_of_this_machine_with_what_to_do(tmp_path: Path, damaged: str | None) -> None:
    path = tmp_path / "debts.json"
    if damaged is None:
        path.mkdir()  # it may not be read: that is never nothing
    else:
        path.write_text(damaged, encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"debts\.json cannot be read") as fault:
        known(path)
    assert "the brokers hold the same debts" in fault.value.remedy


@pytest.mark.parametrize(("lasting", "words"), [(True, "does not end that"), (False, "ends that")])
def test_a_quarantine_says_whether_a_restart_lifts_it(lasting: bool, words: str) -> None:
    debt = replace(QUARANTINE, lasting=lasting)
    assert debt.text.endswith(f"is kept out of {debt.kept_at}; a restart of {debt.kept_at}'s broker {words}")


def test_which_of_two_sites_was_lost_last_no_debt_tells() -> None:
    theirs = replace(QUARANTINE, about=FENCE.kept_at, kept_at=FENCE.about)
    assert lost_alone([FENCE, QUARANTINE]) == FENCE.about
    assert lost_alone([QUARANTINE, theirs]) is None
    assert lost_alone([]) is None
