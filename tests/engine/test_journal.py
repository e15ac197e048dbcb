"""The journal: written before it is done, sealed, opened again wherever a crash left it; its room on disk."""

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode, Json
from dr_ctl.core.system import ThisMachine, running_on
from dr_ctl.engine import disk
from dr_ctl.engine.disk import PIECE_BYTES, RESERVE, RESERVED_BYTES, NoRoom, Reserve
from dr_ctl.engine.entries import Entry, JournalDamaged, is_held, read
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.runs import RunFiles, Runs, write
from dr_ctl.engine.states import IllegalMove, StepEvent
from tests.engine.desk import BY, Clock, Desk, a_plan

FENCE = next(step for step in a_plan().steps if step.verb == "fence")
PLAN = replace(a_plan(), steps=(FENCE,))
KEYS = ["seq", "time", "kind", "step", "call", "outcome", "evidence", "previous", "hash"]


def short(path: Path) -> list[Entry]:
    """Six lines, one of each kind that matters: a fence whose door closes."""
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        journal.step(FENCE, StepEvent.STARTED, {"about": "Türen zu"})
        [intent] = journal.intents(FENCE, FENCE.calls[:1])
        journal.results(FENCE, [(intent, "done", {"text": "answered"})])
        journal.step(FENCE, StepEvent.SUCCEEDED, {"took_s": 0.25})
        journal.sample(FENCE, {"outflow": 3})
    return read(path)


LINES = range(1, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def spans(path: Path) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends, its newline included."""
    begin = 0
    for line in path.read_bytes().splitlines(keepends=True):
        yield begin, begin + len(line)
        begin += len(line)


def test_every_line_has_the_nine_fields_and_follows_the_line_before(path: Path) -> None:
    entries = short(path)
    told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [list(line) for line in told] == [KEYS] * 6
    assert [line["seq"] for line in told] == list(LINES)
    assert [line["kind"] for line in told] == ["run", "step", "intent", "result", "step", "sample"]
    assert [line["previous"] for line in told] == ["0" * 64, *(line["hash"] for line in told[:-1])]
    assert told[3]["evidence"] == {"text": "answered", "intent": 3}
    assert [entry.hash() for entry in entries] == [line["hash"] for line in told]
    # A run says its plan and who runs it.
    assert entries[0].evidence == {"plan": json.loads(json.dumps(PLAN.as_json())), "by": BY}


def test_nothing_of_a_run_is_kept_but_what_the_plan_the_calls_and_the_outcomes_say(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.go()

    entries = desk.entries()

    allowed: dict[str, set[str]] = {
        "run": {"plan", "by"},
        "step": {"about", "text", "took_s", "findings"},
        "intent": set(),
        "result": {"text", "intent"},
        "sample": {"outflow"},
    }
    assert {entry.kind for entry in entries} == set(allowed)
    assert [entry for entry in entries if not set(entry.evidence) <= allowed[entry.kind]] == []
    call = {"site", "pair", "goal", "thing", "part", "about", "when", "at_most"}
    assert all(set(entry.call or call) == call for entry in entries)


def test_only_its_owner_may_read_it_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        short(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_intents_are_on_disk_before_the_call_goes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(len(desk.entries())))
    at_the_call: list[tuple[list[str], bool]] = []

    def during(number: int) -> None:
        last = desk.entries()[-1]
        at_the_call.append(([entry.kind for entry in desk.entries()][-2:], synced[-1] == last.seq))

    desk.machine.during = during

    desk.go()

    assert at_the_call == [(["intent", "intent"], True)] * 8


def test_a_move_that_the_table_does_not_know_is_not_written(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        with pytest.raises(IllegalMove):
            journal.step(FENCE, StepEvent.SUCCEEDED, {})
        journal.step(FENCE, StepEvent.STARTED, {})
    assert [entry.outcome for entry in read(path)] == [None, "started"]


def full(file: int, block: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def half(file: int, block: bytes) -> int:
    return os.pwrite(file, block[: len(block) // 2], os.fstat(file).st_size)


@pytest.mark.parametrize(("write", "why"), [(full, "No space left on device"), (half, "in full: the disk is full")])
def test_a_line_that_cannot_be_written_is_told_and_the_journal_can_be_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[int, bytes], int], why: str
) -> None:
    before = short(path)
    with closing(Journal(path, Clock())) as journal, monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(EnvironmentFault, match=why):
            journal.signal("interrupted")
        assert (journal.count, journal.last_hash) == (6, before[-1].hash())
    assert continued(path) == before


def continued(path: Path) -> list[Entry]:
    """Open, write one more line, read all; the lines that were there before."""
    with closing(Journal(path, Clock())) as journal:
        journal.signal("interrupted")
    *before, last = read(path)
    assert (last.kind, last.seq) == ("signal", len(before) + 1)
    assert path.read_text(encoding="utf-8") == "".join(entry.to_line() for entry in (*before, last))
    return before


@pytest.mark.parametrize("line", LINES)
def test_cut_off_anywhere_in_a_line_it_goes_on_after_the_line_before(path: Path, line: int) -> None:
    entries = short(path)
    whole = path.read_bytes()
    begin, end = list(spans(path))[line - 1]
    for cut in range(begin, end + 1):  # at its end nothing is lost
        path.write_bytes(whole[:cut])
        assert continued(path) == entries[: line - (cut < end)], cut


def test_a_last_line_whose_middle_never_reached_the_disk_is_left_out(path: Path) -> None:
    entries = short(path)
    whole = path.read_bytes()
    begin, end = list(spans(path))[-1]
    path.write_bytes(whole[: begin + 20] + bytes(end - begin - 40) + whole[end - 20 :])
    assert continued(path) == entries[:-1]


def read_or_why_not(path: Path) -> tuple[list[Entry] | None, str]:
    try:
        return read(path), ""
    except JournalDamaged as damaged:
        return None, str(damaged)


@pytest.mark.parametrize("line", LINES)
def test_an_altered_byte_names_its_line(path: Path, line: int) -> None:
    """Of the last line, and of the end of the one before it, an alteration can also look like a crash's torn end."""
    entries = short(path)
    whole = path.read_bytes()
    begin, end = list(spans(path))[line - 1]
    torn = list(spans(path))[-1][0] - 1

    for at in range(begin, end):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        left, why = read_or_why_not(path)
        if left is None:
            assert f"line {line} " in why, at
        else:
            assert at >= torn
            assert left == entries[: len(left)]
            assert len(left) < len(entries)


Lines = list[bytes]


def told_anew(line: int, *, sealed: bool, **more: Json) -> Callable[[Lines], Lines]:
    """One line with other values, and where it is `sealed` with a hash of its own."""

    def alter(lines: Lines) -> Lines:
        told: dict[str, Any] = json.loads(lines[line - 1]) | more
        if sealed:
            told.pop("hash")
        text = Entry(**told).to_line().encode() if sealed else json.dumps(told).encode() + b"\n"
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
        (lambda lines: [line.replace(b'"seq":2', b'"seq":3') for line in lines], "line 2 "),
        # Of another shape: which part does not fit.
        (told_anew(2, sealed=False, evidence=[]), NO_LINE + "evidence: Input should be a valid dictionary"),
        (told_anew(2, sealed=False, kind=None), NO_LINE + "kind: Input should be a valid string"),
        (told_anew(2, sealed=False, seq="two"), NO_LINE + "seq: Input should be a valid integer"),
        (told_anew(2, sealed=False, more=1), NO_LINE + "more: Unexpected keyword argument"),
        # Written anew with a hash of its own.
        (told_anew(3, sealed=True, outcome="done"), "line 4 "),
        (told_anew(5, sealed=True, time=""), "line 6 "),
        (told_anew(6, sealed=True, seq=7), "line 6 "),
    ],
)
def test_what_does_not_fit_is_named_and_left_as_it_is_and_not_held(
    path: Path, alter: Callable[[Lines], Lines], why: str
) -> None:
    short(path)
    altered = b"".join(alter(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(altered)
    with pytest.raises(JournalDamaged, match=why):
        read(path)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=why):
            Journal(path, Clock())
    assert path.read_bytes() == altered


def test_a_second_writer_is_refused_until_the_first_has_ended(path: Path) -> None:
    entries = short(path)
    with closing(Journal(path, Clock())):
        with path.open("ab") as file:
            file.write(b'{"seq":7')  # what the first has under way
        with pytest.raises(EnvironmentFault, match="is being written by another process"):
            Journal(path, Clock())
        assert path.read_bytes().endswith(b'{"seq":7')
    assert continued(path) == entries


def test_half_a_letter_out_of_a_brokers_answer_does_not_end_a_run(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        journal.sample(PLAN.steps[0], {"queue": "half \ud800 of a letter"})
    assert read(path)[-1].evidence == {"queue": "half \ud800 of a letter"}


def test_samples_are_written_and_not_kept_in_memory(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        for number in range(3):
            journal.sample(PLAN.steps[0], {"outflow": number})
        kept = [entry.kind for entry in journal.entries()]
    with closing(Journal(path, Clock())) as again:
        kept_again = [entry.kind for entry in again.entries()]

    assert (kept, kept_again) == (["run"], ["run"])
    assert [entry.kind for entry in read(path)] == ["run", "sample", "sample", "sample"]


@pytest.fixture
def reserve(tmp_path: Path) -> Path:
    return tmp_path / RESERVE


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def full_above(reserve: Path, size: int) -> Callable[[int, bytes], int]:
    """A disk that has room again once the reserve is no larger than this."""
    write = os.write
    return lambda file, block: no_room() if reserve.exists() and reserve.stat().st_size > size else write(file, block)


@pytest.fixture
def begun(path: Path) -> Iterator[Journal]:
    """A journal with its first line."""
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        yield journal


def begins(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)


def kinds(path: Path) -> list[str]:
    return [entry.kind for entry in read(path)]


def test_room_is_taken_up_before_the_first_line_and_given_back_with_the_last(path: Path, reserve: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        assert not reserve.exists()
        journal.run(PLAN, BY)
        room = reserve.stat()
        journal.end({"outcome": "ok"})
    assert (room.st_size, room.st_blocks * 512 >= RESERVED_BYTES) == (RESERVED_BYTES, True)
    assert room.st_mode & 0o777 == 0o600  # nobody else may read it
    assert not reserve.exists()


def test_a_process_that_dies_leaves_the_room_to_the_one_that_goes_on(path: Path, reserve: Path) -> None:
    begins(path)
    Journal(path, Clock()).close()
    assert reserve.stat().st_size == RESERVED_BYTES


def test_a_full_disk_refuses_the_run_before_its_first_line_and_leaves_no_open_run(
    path: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(NoRoom, match="nothing was changed") as refused:
        begins(path)
    assert refused.value.exit_code is ExitCode.PRECHECK_FAILED
    assert not reserve.exists()
    assert not RunFiles("run", path.parent).open()
    (path.parent / "desk").mkdir()
    desk = Desk(path.parent / "desk")
    with pytest.raises(NoRoom):
        desk.go()
    assert desk.machine.calls == 0


def test_a_full_disk_refuses_to_go_on_with_a_run_and_leaves_it_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(NoRoom):
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
    begins(path)
    assert len(read(path)) == 1


def test_a_line_that_finds_no_room_takes_a_piece_of_the_reserve(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", full_above(reserve, RESERVED_BYTES - 3 * PIECE_BYTES))
    begun.step(FENCE, StepEvent.STARTED, {})
    assert reserve.stat().st_size == RESERVED_BYTES - 3 * PIECE_BYTES
    assert kinds(path) == ["run", "step"]


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


def test_a_figure_is_given_up_rather_than_room_for_what_is_done(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun.step(FENCE, StepEvent.STARTED, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        begun.sample(FENCE, {"outflow": 3})
    begun.step(FENCE, StepEvent.SUCCEEDED, {})
    assert reserve.stat().st_size == RESERVED_BYTES
    assert kinds(path) == ["run", "step", "step"]


def test_when_nothing_is_left_the_line_is_not_there_and_the_caller_is_told(
    path: Path, reserve: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    monkeypatch.setattr(os, "write", no_room)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        begun.step(FENCE, StepEvent.STARTED, {})
    assert (path.read_bytes(), reserve.stat().st_size) == (before, 0)


def test_half_a_line_is_taken_back_before_it_is_tried_again(
    path: Path, begun: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, halves = os.write, iter([True, False])
    monkeypatch.setattr(os, "write", lambda file, block: write(file, block[:20] if next(halves) else block))
    begun.step(FENCE, StepEvent.STARTED, {})
    assert kinds(path) == ["run", "step"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_plan_that_finds_no_room_refuses_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    files = RunFiles("run", tmp_path)

    def full(_: int) -> None:
        raise OSError(code, "full")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(NoRoom):
        files.begin({"a": 1})


def test_the_names_of_new_files_are_put_on_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    files = Runs(tmp_path / "state", Clock()).create("swapover", "paris")
    assert [*map(str, (tmp_path, tmp_path / "state", tmp_path / "state" / "runs"))] == synced
    synced.clear()

    Journal(files.journal, Clock()).close()
    write(files.result, {})

    assert synced.count(str(files.folder)) == 2


def test_a_journal_is_held_as_long_as_its_writer_lives(path: Path) -> None:
    assert not is_held(path)
    with closing(Journal(path, Clock())):
        assert is_held(path)
    assert not is_held(path)


def test_who_only_asks_whether_it_is_held_does_not_keep_a_writer_out(path: Path) -> None:
    """The one who asks holds the lock for a moment: here exactly when the writer comes."""
    import fcntl  # noqa: PLC0415

    path.touch()
    asking = os.open(path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)

    class Meanwhile(ThisMachine):
        def sleep(self, seconds: float) -> None:
            os.close(asking)

    with running_on(Meanwhile()):
        Journal(path, Clock()).close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many bytes; skipped where that is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "dr-ctl-test", str(place)]
        with suppress(OSError):
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return place
        pytest.skip("mounting is not allowed here")

    yield mount
    with suppress(OSError):
        subprocess.run(["umount", str(place)], check=False, capture_output=True)


def test_a_run_goes_to_its_end_on_a_disk_that_fills_up_meanwhile(small_disk: Callable[[int], Path]) -> None:
    place = small_disk(RESERVED_BYTES + 512 * 1024)
    path = place / "journal.jsonl"
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        with suppress(OSError), (place / "another.log").open("wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))

        for _ in range(200):
            journal.signal("interrupted")
            journal.sample(FENCE, {"text": "x" * 4096})
        journal.end({"outcome": "ok", "text": "x" * 300_000})
        write(place / "result.json", {"outcome": "ok"})

    kinds = [entry.kind for entry in read(path)]
    assert (kinds[0], kinds[-1], kinds.count("signal")) == ("run", "end", 200)
    assert (place / "result.json").exists()


def test_what_was_taken_is_as_much_as_it_says(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve")
    reserve.take()

    pieces = 0
    while reserve.give_back():
        pieces += 1

    assert pieces * disk.PIECE_BYTES == RESERVED_BYTES
    reserve.release()
    assert not reserve.give_back()
