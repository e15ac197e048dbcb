"""What STATE keeps. The journal: written before it is done, sealed, opened again wherever a crash left it, its room on
disk; what it says of its run, and that every alteration of it is found. Run directories, one run at a time; and
debts."""

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.application.standing import pending_debts
from dr_ctl.core.document import document
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.core.system import ThisMachine, running_on
from dr_ctl.engine.debts import Debt, DebtKind, known, merged, only_lost_site, remember
from dr_ctl.engine.disk import PIECE_BYTES, RESERVE, RESERVED_BYTES, CannotWrite
from dr_ctl.engine.journal import (
    GENESIS,
    Entry,
    IllegalMove,
    Journal,
    JournalDamaged,
    StepEvent,
    is_held,
    outage_s,
    read_entries,
    replay,
)
from dr_ctl.engine.plan import Plan, Spec
from dr_ctl.engine.record import Verdict, check
from dr_ctl.engine.runs import Locked, RunFiles, Runs, write, write_text
from tests.clocks import FixedClock
from tests.engine.desk import BY, Desk, a_plan
from tests.engine.machine import Fault
from tests.report.scribe import Scribe, cut_off, done, plan, resumed, undone

WHOLE_PLAN = a_plan()
FENCE = next(step for step in WHOLE_PLAN.steps if step.verb == "fence")
PLAN = replace(WHOLE_PLAN, steps=(FENCE,))
KEYS = ["seq", "time", "kind", "step", "call", "outcome", "evidence", "previous", "hash"]


def begins(path: Path, *plans: Plan) -> list[Entry]:
    with closing(Journal(path)) as journal:
        for item in plans or (PLAN,):
            journal.run(item, BY)
    return read_entries(path)


def short(path: Path) -> list[Entry]:
    """Six lines, one of each kind that matters: a fence whose listener closes."""
    with closing(Journal(path)) as journal:
        journal.run(PLAN, BY)
        journal.step(FENCE, StepEvent.STARTED, {"about": "Türen zu"})
        [intent] = journal.intents(FENCE, FENCE.calls[:1])
        journal.results(FENCE, [(intent, "done", {"text": "answered"})])
        journal.step(FENCE, StepEvent.SUCCEEDED, {"took_s": 0.25})
        journal.sample(FENCE, {"outflow": 3})
    return read_entries(path)


def continued(path: Path) -> list[Entry]:
    """Open, write one more line, read all; the lines that were there before."""
    with closing(Journal(path)) as journal:
        journal.signal("interrupted")
    *before, last = read_entries(path)
    assert (last.kind, last.seq) == ("signal", len(before) + 1)
    assert path.read_text(encoding="utf-8") == "".join(entry.to_line() for entry in (*before, last))
    return before


def kinds(path: Path) -> list[str]:
    return [entry.kind for entry in read_entries(path)]


@pytest.fixture
def begun(path: Path) -> Iterator[Journal]:
    """A journal with its first line."""
    with closing(Journal(path)) as journal:
        journal.run(PLAN, BY)
        yield journal


@pytest.fixture
def small(tmp_path: Path) -> RunFiles:
    """A short run that has ended: few bytes, every kind of line."""
    scribe = Scribe(tmp_path, plan=plan(steps=plan().steps[5:6])).begin()
    scribe.start("fence").sample("fence", {"outflow": 3}).stop("fence", text="Türen zu", took_s=0.25)
    scribe.journal.signal("interrupted")
    return scribe.end(0, "ok", "paris serves", pairs=[]).files


def test_every_line_has_the_nine_fields_and_follows_the_line_before(path: Path) -> None:
    entries = short(path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [list(line) for line in rows] == [KEYS] * 6
    assert [line["seq"] for line in rows] == list(range(1, 7))
    assert [line["kind"] for line in rows] == ["run", "step", "intent", "result", "step", "sample"]
    assert [line["previous"] for line in rows] == [GENESIS, *(line["hash"] for line in rows[:-1])]
    assert rows[3]["evidence"] == {"text": "answered", "intent": 3}
    assert [entry.hash() for entry in entries] == [line["hash"] for line in rows]
    # A run says its plan and who runs it.
    assert entries[0].evidence == {"plan": json.loads(json.dumps(document(PLAN))), "by": BY}


def test_nothing_of_a_run_is_kept_but_what_the_plan_the_calls_and_the_outcomes_say(at: Desk) -> None:
    at.go()

    allowed: dict[str, set[str]] = {
        "run": {"plan", "by"},
        "step": {"about", "text", "took_s", "findings"},
        "intent": set(),
        "result": {"text", "intent"},
        "sample": {"outflow"},
    }
    assert {entry.kind for entry in at.entries()} == set(allowed)
    assert [entry for entry in at.entries() if not set(entry.evidence) <= allowed[entry.kind]] == []
    call = {"site", "pair", "goal", "thing", "part", "about", "when", "at_most"}
    assert all(set(entry.call or call) == call for entry in at.entries())


def test_intents_are_on_disk_before_the_call_goes_out(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(len(at.entries())))
    at_the_call: list[tuple[list[str], bool]] = []
    at.machine.during = lambda _: at_the_call.append((kinds(at.path)[-2:], synced[-1] == at.entries()[-1].seq))

    at.go()

    assert at_the_call == [(["intent", "intent"], True)] * 8


def test_a_move_that_the_table_does_not_know_is_not_written(path: Path, begun: Journal) -> None:
    with pytest.raises(IllegalMove, match="succeeded"):
        begun.step(FENCE, StepEvent.SUCCEEDED, {})
    begun.step(FENCE, StepEvent.STARTED, {})
    assert [entry.outcome for entry in read_entries(path)] == [None, "started"]


def test_half_a_letter_out_of_a_brokers_answer_does_not_end_a_run(path: Path, begun: Journal) -> None:
    begun.sample(FENCE, {"queue": "half \ud800 of a letter"})
    assert read_entries(path)[-1].evidence == {"queue": "half \ud800 of a letter"}


def test_samples_are_written_and_not_kept_in_memory(path: Path) -> None:
    short(path)
    with closing(Journal(path)) as again:
        again.sample(FENCE, {"outflow": 2})
        assert "sample" not in {entry.kind for entry in again.entries()}
    assert kinds(path)[-2:] == ["sample", "sample"]


def line_read(path: Path) -> tuple[list[Entry] | None, str]:
    try:
        return read_entries(path), ""
    except JournalDamaged as damaged:
        return None, str(damaged)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_cut_off_anywhere_it_goes_on_and_altered_it_names_the_line(
    small: RunFiles, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Its reader forgives what a crash may leave at its end; who checks a run that has ended forgives nothing."""
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda file: None)
    path, whole, entries, line = small.journal, small.journal.read_bytes(), read_entries(small.journal), 1
    torn = len(whole) - len(entries[-1].to_line().encode()) - 1
    for place, byte in enumerate(whole):
        at_end = b"\n" in whole[place - 1 : place + 2]
        if place % every and not at_end:
            continue
        path.write_bytes(whole[:place])
        checked = check(small)
        assert (checked.verdict, checked.line) == (Verdict.ALTERED, line), place
        if place % 10 == 0 or at_end:
            assert continued(path) == entries[: line - 1], place
        bits = (0x01, 0x20)[place % 2]
        path.write_bytes(whole[:place] + bytes([byte ^ bits]) + whole[place + 1 :])
        checked = check(small)
        assert (checked.verdict, checked.line) == (Verdict.ALTERED, line), (place, bits)
        left, why = line_read(path)
        assert f"line {line} " in why if left is None else place >= torn and left == entries[: len(left)] != entries
        line += byte == ord("\n")
    path.write_bytes(whole)
    assert (line, continued(path)) == (7, entries)


def test_a_last_line_whose_middle_never_reached_the_disk_is_left_out(path: Path) -> None:
    entries, whole = short(path), path.read_bytes()
    end = len(whole)
    begin = end - len(entries[-1].to_line().encode())
    path.write_bytes(whole[: begin + 20] + bytes(end - begin - 40) + whole[end - 20 :])
    assert continued(path) == entries[:-1]


Lines = list[bytes]


def told_anew(line: int, *, sealed: bool, **more: Json) -> Callable[[Lines], Lines]:
    """One line with other values, and where it is `sealed` with a hash of its own."""

    def alter(lines: Lines) -> Lines:
        options: dict[str, Any] = json.loads(lines[line - 1]) | more
        if sealed:
            options.pop("hash")
        text = Entry(**options).to_line().encode() if sealed else json.dumps(options).encode() + b"\n"
        return [*lines[: line - 1], text, *lines[line:]]

    return alter


NO_LINE = "line 2 is not a journal line: "


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (lambda lines: [lines[0], *lines[2:]], "line 2 "),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "line 2 "),
        (lambda lines: [*lines, lines[-1]], "line 7 "),
        (lambda lines: lines[1:], "line 1 "),
        (lambda lines: [*lines[:3], b"\n", *lines[3:]], "line 4 "),
        (lambda lines: [*lines[:2], b"[]\n", *lines[3:]], "line 3 "),
        # Of another shape: which part does not fit.
        (told_anew(2, sealed=False, evidence=[]), NO_LINE + "evidence: Input should be a valid dictionary"),
        (told_anew(2, sealed=False, seq="two"), NO_LINE + "seq: Input should be a valid integer"),
        (told_anew(2, sealed=False, more=1), NO_LINE + "more: Unexpected keyword argument"),
        # Written anew with a hash of its own.
        (told_anew(3, sealed=True, outcome="done"), "line 4 "),
        (told_anew(5, sealed=True, time=""), "line 6 "),
        (told_anew(6, sealed=True, seq=7), "line 6 "),
    ],
)
def test_what_does_not_fit_is_named_and_left_as_it_is(path: Path, alter: Callable[[Lines], Lines], why: str) -> None:
    short(path)
    altered = b"".join(alter(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(altered)
    for reader in (read_entries, Journal, Journal):
        with pytest.raises(JournalDamaged, match=why):
            reader(path)
    assert path.read_bytes() == altered


def test_a_second_writer_is_refused_until_the_first_has_ended(path: Path) -> None:
    entries = short(path)
    assert not is_held(path)
    with closing(Journal(path)):
        with path.open("ab") as file:
            file.write(b'{"seq":7')  # what the first has under way
        with pytest.raises(EnvironmentFault, match="is being written by another process"):
            Journal(path)
        assert path.read_bytes().endswith(b'{"seq":7')
        assert is_held(path)
    assert not is_held(path)
    assert continued(path) == entries


def test_who_only_asks_whether_it_is_held_does_not_keep_a_writer_out(path: Path) -> None:
    """The one who asks holds the lock for a moment: here exactly when the writer comes."""
    path.touch()
    asking = os.open(path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)

    class Meanwhile(ThisMachine):
        def sleep(self, seconds: float) -> None:
            os.close(asking)

    with running_on(Meanwhile()):
        Journal(path).close()


@pytest.fixture
def reserve(tmp_path: Path) -> Path:
    return tmp_path / RESERVE


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def half(file: int, block: bytes) -> int:
    return os.pwrite(file, block[: len(block) // 2], os.fstat(file).st_size)


def test_room_is_taken_up_before_the_first_line_and_given_back_with_the_last(path: Path, reserve: Path) -> None:
    Journal(path).close()
    assert not reserve.exists()
    begins(path)
    room = reserve.stat()  # a process that dies leaves it to the one that goes on
    assert (room.st_size, room.st_blocks * 512 >= RESERVED_BYTES) == (RESERVED_BYTES, True)
    assert room.st_mode & 0o777 == 0o600  # nobody else may read it
    with closing(Journal(path)) as journal:
        journal.end({"outcome": "ok"})
    assert not reserve.exists()


def test_a_full_disk_refuses_a_run_and_changes_none(
    path: Path, reserve: Path, at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(CannotWrite, match="nothing was changed") as refused:
        at.go()
    assert refused.value.exit_code is ExitCode.PRECHECK_FAILED
    assert (at.machine.calls, reserve.exists(), RunFiles("run", path.parent).open()) == (0, False, False)
    monkeypatch.undo()
    begins(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(CannotWrite):
        begins(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("lacks", [False, True], ids=["its file system", "the system, and fdatasync"])
def test_what_cannot_reserve_is_no_obstacle(path: Path, monkeypatch: pytest.MonkeyPatch, *, lacks: bool) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot)
    if lacks:
        monkeypatch.delattr(os, "posix_fallocate")
        monkeypatch.delattr(os, "fdatasync")
    assert len(begins(path)) == 1


def test_a_line_that_finds_no_room_takes_pieces(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, enough = os.write, RESERVED_BYTES - 3 * PIECE_BYTES
    monkeypatch.setattr(
        os, "write", lambda file, block: no_room() if reserve.stat().st_size > enough else write(file, block)
    )
    begun.step(FENCE, StepEvent.STARTED, {})
    assert (reserve.stat().st_size, kinds(path)) == (enough, ["run", "step"])


def test_a_disk_that_is_found_full_at_the_sync_draws_on_the_reserve(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system, or a quota: the write went well, and only the sync says that there is no room."""
    sync, refusals = os.fdatasync, [errno.ENOSPC, errno.EDQUOT]

    def refusing(file: int) -> None:
        if refusals:
            raise OSError(refusals.pop(), "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fdatasync", refusing)
    begun.step(FENCE, StepEvent.STARTED, {})
    assert (refusals, reserve.stat().st_size) == ([], RESERVED_BYTES - 2 * PIECE_BYTES)
    assert kinds(path) == ["run", "step"]


def test_a_figure_is_given_up_on_a_full_disk(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.step(FENCE, StepEvent.STARTED, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        begun.sample(FENCE, {"outflow": 3})
    begun.step(FENCE, StepEvent.SUCCEEDED, {})
    assert (reserve.stat().st_size, kinds(path)) == (RESERVED_BYTES, ["run", "step", "step"])


@pytest.mark.parametrize(("write", "why"), [(no_room, "No space left on device"), (half, "in full: the disk is full")])
def test_when_nothing_is_left_the_line_is_not_there_and_the_caller_is_told(
    path: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., int], why: str
) -> None:
    before = short(path)
    with closing(Journal(path)) as journal, monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(EnvironmentFault, match=why):
            journal.signal("interrupted")
        assert (journal.count, journal.last_hash, reserve.stat().st_size) == (6, before[-1].hash(), 0)
    assert continued(path) == before


def test_half_a_line_is_taken_back_and_tried_again(path: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    write, halves = os.write, iter([True, False])
    monkeypatch.setattr(os, "write", lambda file, block: write(file, block[:20] if next(halves) else block))
    begun.step(FENCE, StepEvent.STARTED, {})
    assert kinds(path) == ["run", "step"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_plan_that_cannot_be_written_refuses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(_: int) -> None:
        raise OSError(code, "full")

    (tmp_path / "link").symlink_to("nowhere")
    runs = Runs(tmp_path / "link")
    with pytest.raises(CannotWrite, match="link cannot be written: File exists; nothing was changed"), runs.lock("x"):
        pass
    assert runs.unwritable() == f"{tmp_path / 'link'} cannot be written"
    assert Runs(tmp_path / "new").unwritable() is None

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite):
        RunFiles("run", tmp_path).begin({"a": 1})


def test_a_document_is_on_disk_before_it_takes_its_name_and_the_names_of_new_files_are_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool, bool]] = []
    fsync, state = os.fsync, tmp_path / "state"

    def note(file: int) -> None:
        fsync(file)
        place = Path(f"/proc/self/fd/{file}").readlink()
        synced.append((place, os.fstat(file).st_size > 0, any(state.rglob("result.json"))))

    monkeypatch.setattr(os, "fsync", note)
    files = Runs(state).create("swapover", "paris")
    assert [place for place, *_ in synced] == [tmp_path, state, state / "runs"]
    Journal(files.journal).close()
    write(files.result, {"outcome": "ok"})

    [*_, document, folder] = synced
    assert (document[0].parent, *document[1:]) == (files.folder, True, False)
    assert (folder[0], folder[2]) == (files.folder, True)
    assert [place for place, *_ in synced[3:]].count(files.folder) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of little more than the reserve; skipped where mounting is not allowed."""
    place, size = tmp_path / "disk", RESERVED_BYTES + 512 * 1024
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "dr-ctl-test", str(place)]
    with suppress(OSError):
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            yield place
            subprocess.run(["umount", str(place)], check=False, capture_output=True)
            return
    pytest.skip("mounting is not allowed here")


def test_a_run_goes_to_its_end_on_a_disk_that_fills_up_meanwhile(small_disk: Path) -> None:
    path = small_disk / "journal.jsonl"
    with closing(Journal(path)) as journal:
        journal.run(PLAN, BY)
        with suppress(OSError), (small_disk / "another.log").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))

        for _ in range(200):
            journal.signal("interrupted")
            journal.sample(FENCE, {"text": "x" * 4096})
        journal.end({"outcome": "ok", "text": "x" * 300_000})
        write(small_disk / "result.json", {"outcome": "ok"})

    assert (kinds(path)[0], kinds(path)[-1], kinds(path).count("signal")) == ("run", "end", 200)
    assert (small_disk / "result.json").exists()


def test_a_plan_comes_back_as_it_was_whatever_a_later_one_says(path: Path) -> None:
    asked = Spec("swapover", "paris", 90.0, cut_in_flight=True, accept_difference={"q": 3}, expect_serving="london")
    first = replace(WHOLE_PLAN, spec=asked)
    past = replay(begins(path, first))
    assert (tuple(step.step for step in past.steps), past.last_number) == (first.steps, 11)
    later = replay(begins(path, replace(WHOLE_PLAN, source="rome", baseline={})))
    assert (past.plan, later.plan) == (first, first)


def test_a_resumed_run_keeps_the_source_and_baseline_of_the_first_and_adds_its_steps(at: Desk) -> None:
    at.machine.faults = {5: Fault.KILLED_AFTER}
    assert at.killed()
    at.go()
    past = replay(at.entries())
    assert (past.plan, past.last_number) == (WHOLE_PLAN, 22)
    assert [step.step.number for step in past.steps] == list(range(1, 23))


@pytest.mark.parametrize(
    ("events", "activation"),
    [
        ((), False),
        ((None,), True),
        ((None, StepEvent.SUCCEEDED), True),
        ((None, StepEvent.UNKNOWN), True),
        ((None, StepEvent.FAILED), False),
        ((StepEvent.FAILED,), False),
    ],
    ids=["none", "intent", "done", "unknown", "disproved", "refused"],
)
def test_an_activation_counts_from_its_intent(
    path: Path, events: tuple[StepEvent | None, ...], activation: bool
) -> None:
    activate = next(step for step in WHOLE_PLAN.steps if step.verb == "activate")
    with closing(Journal(path)) as journal:
        journal.run(WHOLE_PLAN, BY)
        journal.step(activate, StepEvent.STARTED, {})
        for event in events:
            if event is None:
                journal.intents(activate, activate.calls)
            else:
                journal.step(activate, event, {})

    assert replay(read_entries(path)).activation_sent is activation


def test_a_journal_without_a_run_says_that_nothing_was_changed(path: Path) -> None:
    Journal(path).close()
    with pytest.raises(JournalDamaged, match="holds no plan") as damaged:
        replay(read_entries(path))
    assert damaged.value.remedy == "The run never began: nothing was changed by it."


@pytest.mark.parametrize(
    ("kind", "step", "outcome", "evidence"),
    [
        *(("run", None, None, case) for case in ({}, {"plan": None}, {"plan": {"steps": [{"number": 1}]}})),
        ("run", None, None, {"plan": {"steps": [], "ask": {}, "source": "london", "baseline": {}}}),
        ("step", "99-none", "started", {}),
        ("step", "06-fence", "flew", {}),
    ],
)
def test_a_sealed_line_that_does_not_fit_is_a_clear_error(
    kind: str, step: str | None, outcome: str | None, evidence: dict[str, Json], path: Path
) -> None:
    entry = Entry(1, "2026-11-21T02:00:00.000Z", kind, step, None, outcome, evidence, GENESIS)
    with pytest.raises(JournalDamaged, match="holds no run that can be read"):
        replay([*(begins(path) if kind == "step" else ()), entry])


def moment(second: int, kind: str, step: str, outcome: str | None = None, **evidence: Json) -> Entry:
    return Entry(1, f"2026-11-21T02:00:{second:02d}.000Z", kind, step, None, outcome, evidence, GENESIS)


STEPS = ("05-quiesce", "06-fence", "10-activate", "11-probe", "17-fence", "21-activate")
STARTED = moment(1, "step", "06-fence", "started")
FENCED = moment(2, "intent", "06-fence")
OPENED = moment(9, "step", "10-activate", "succeeded")


@pytest.mark.parametrize(
    ("entries", "seconds"),
    [
        ([STARTED], None),
        ([STARTED, FENCED], None),
        ([STARTED, OPENED], None),
        ([STARTED, FENCED, OPENED], 7),
        ([STARTED, FENCED, moment(3, "intent", "06-fence"), OPENED], 7),
        ([FENCED, moment(5, "step", "17-fence", "unneeded"), moment(30, "step", "21-activate", "unneeded")], 28),
        ([FENCED, moment(8, "step", "10-activate", "failed"), moment(12, "step", "06-fence", "undone")], 10),
        ([FENCED, moment(8, "step", "06-fence", "undo-failed")], None),
        ([FENCED, moment(8, "step", "05-quiesce", "undone")], None),
        ([FENCED, OPENED, moment(40, "step", "11-probe", "succeeded")], 7),
        ([FENCED, moment(5, "takeover", "06-fence", out_again_s=2.0), OPENED], 7),
        ([FENCED, OPENED, moment(14, "takeover", "11-probe", out_again_s=2.5004)], 9.5),
    ],
)
def test_clients_are_out_from_the_fence_until_a_site_lets_them_in(entries: list[Entry], seconds: float | None) -> None:
    assert outage_s(entries) == seconds


@pytest.mark.parametrize("write_run", [done, undone, resumed])
def test_a_run_that_ended_is_whole(tmp_path: Path, write_run: Callable[[Path], Scribe]) -> None:
    files = write_run(tmp_path).files
    checked = check(files)
    assert (checked.verdict, checked.lines) == (Verdict.WHOLE, len(files.journal.read_bytes().splitlines()))


def test_every_byte_of_the_result_counts(small: RunFiles) -> None:
    whole = small.result.read_bytes()
    for place, byte in enumerate(whole):
        small.result.write_bytes(whole[:place] + bytes([byte ^ 0x01]) + whole[place + 1 :])
        assert check(small).verdict is Verdict.ALTERED, whole[place : place + 1]


def chained(files: RunFiles, line: int, **more: Any) -> None:
    """Write a line anew, and with it every hash after it: the chain fits in itself."""
    previous, text = GENESIS, ""
    for number, value in enumerate(map(json.loads, files.journal.read_bytes().splitlines()), start=1):
        value |= {"previous": previous, **(more if number == line else {})}
        value.pop("hash")
        previous, text = Entry(**value).hash(), text + Entry(**value).to_line()
    files.journal.write_text(text, encoding="utf-8")


def added(files: RunFiles) -> None:
    last = json.loads(files.journal.read_bytes().splitlines()[-1])
    entry = Entry(7, last["time"], "signal", None, None, "interrupted", {}, last["hash"])
    files.journal.write_bytes(files.journal.read_bytes() + entry.to_line().encode())


def otherwise(old: bytes, new: bytes) -> Callable[[RunFiles], object]:
    return lambda files: files.journal.write_bytes(files.journal.read_bytes().replace(old, new))


def says_else(key: str) -> Callable[[RunFiles], None]:
    return lambda files: write(files.result, json.loads(files.result.read_bytes()) | {key: "something else"})


NOTHING_SEALED = ["", "{", "[]", "null", "{}", '{"journal": {}}', '{"journal": {"count": "x"}}']


@pytest.mark.parametrize(
    ("alter", "line", "words"),
    [
        # A chain that was re-created.
        *((partial(chained, line=n, time="2026-11-21T02:00:00.001Z"), 6, "the last, and result.json do not fit")
          for n in range(1, 7)),
        (added, 7, "line 7 of journal.jsonl was added"),
        (otherwise(b'{"seq":2,', b'{"seq": 2,'), 2, ""),  # the same entry in other bytes
        *((says_else(key), None, "result.json does not say what line 6")
          for key in ("outcome", "exit_code", "summary", "findings", "data")),
        *((partial(lambda files, text: files.result.write_text(text), text=text), None, "") for text in NOTHING_SEALED),
        (lambda files: files.journal.unlink(), 1, ""),
        (lambda files: files.journal.write_bytes(b""), 1, ""),
    ],
)  # fmt: skip
def test_what_was_altered_is_named(small: RunFiles, alter: Callable[[RunFiles], object], line: Any, words: str) -> None:
    alter(small)
    checked = check(small)
    assert checked.verdict is Verdict.ALTERED
    assert line is None or checked.line == line
    assert words in checked.text


SO_FAR = "its 7 line(s) so far fit together; line 8 is torn, "


@pytest.mark.parametrize(
    ("alter", "verdict", "line", "lines", "words"),
    [
        (lambda files: None, Verdict.OPEN, None, 7, SO_FAR + "or being written"),
        # A crash may leave a whole line that is none.
        (lambda files: files.journal.write_bytes(files.journal.read_bytes() + b"\0\0\n"), Verdict.OPEN, 8, 7,
         SO_FAR + "as a crash leaves it"),
        (lambda files: files.journal.write_bytes(b"garbage\n"), Verdict.ALTERED, 1, 0, ""),
        (otherwise(b'"seq":3', b'"seq":4'), Verdict.ALTERED, 3, 2, ""),
        (lambda files: files.journal.unlink(), Verdict.NOT_BEGUN, None, 0, ""),
    ],
)  # fmt: skip
def test_an_open_run_is_checked_as_far_as_it_came(
    tmp_path: Path, alter: Callable[[RunFiles], object], verdict: Verdict, line: int | None, lines: int, words: str
) -> None:
    files = cut_off(tmp_path).files
    alter(files)
    checked = check(files)
    assert (checked.verdict, checked.line, checked.lines) == (verdict, line, lines)
    assert checked.text.endswith(words)


HOLDER = """\
import sys
from pathlib import Path
from dr_ctl.engine.runs import Runs
with Runs(Path(sys.argv[1])).lock("swapover to paris"):
    print("held", flush=True)
    sys.stdin.read()
"""


class Minutes(FixedClock):
    """A clock on which every reading is a minute after the last."""

    def now(self) -> datetime:
        self.moment += timedelta(minutes=1)
        return self.moment


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "dr-ctl"


@pytest.fixture
def runs(state: Path) -> Runs:
    Minutes(datetime(2026, 11, 21, 2, 0, tzinfo=UTC))
    return Runs(state)


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
            data = json.loads((state / "lock").read_text(encoding="utf-8"))

    assert refused.value.exit_code is ExitCode.LOCKED
    holder = rf"swapover to paris \(process {other.pid} on \S+, since \d{{4}}-\S+Z\)"
    assert re.fullmatch(f"another run is under way: {holder}", str(refused.value))
    assert (data["what"], data["pid"]) == ("resume", os.getpid())


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
            Journal(files.journal).close()
            remember(state / "debts.json", [OWED])
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
    assert step is not None or [path.name for path in tmp_path.iterdir()] == ["result.json"]


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
    for name, case in (("20261121", "2 runs with the"), ("2025", "no run with the"), ("swapover", "no run with the")):
        with pytest.raises(UsageError, match=f"{case} name {name}"):
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


OWED = Debt(DebtKind.FENCE, "london", "paris", "2026-11-21T02:00:00Z")
QUARANTINE = replace(OWED, kind=DebtKind.QUARANTINE)
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
    by_key = {(debt.kind, debt.lost_site, debt.kept_at): debt for debt in wanted}
    assert sorted(left, key=repr) == sorted(by_key.values(), key=repr)
    assert merged(left, seen, answered) == left


@given(debts=MANY)
def test_what_is_remembered_is_known_again(debts: list[Debt], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state") / "not" / "yet" / "debts.json"
    remember(path, debts)
    assert known(path) == debts
    assert path.exists() is bool(debts)


def test_the_file_is_there_only_while_something_is_owed(state: Path) -> None:
    for seen, silent, debts in (([OWED], [None], [OWED]), ([], [None, "it is away"], [OWED]), ([], [None, None], [])):
        brokers = [SimpleNamespace(site="paris", silent=why) for why in silent]
        caller, snapshot = Mock(state=lambda: state), Mock(debts=seen, brokers=brokers)
        assert pending_debts(caller, snapshot).debts == debts
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
        json.dumps([document(OWED) | {"kind": "taxes"}]),
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
    assert "the brokers store the same debts" in fault.value.remedy


def test_which_of_two_sites_was_lost_last_no_debt_tells() -> None:
    theirs = replace(QUARANTINE, lost_site=OWED.kept_at, kept_at=OWED.lost_site)
    assert only_lost_site([OWED, QUARANTINE]) == OWED.lost_site
    assert only_lost_site([QUARANTINE, theirs]) is None
    assert only_lost_site([]) is None
