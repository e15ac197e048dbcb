"""Room for the journal: reserved before the first call, drawn on when the disk is full, given back at the end."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import ThisMachine, running_on
from dr_ctl.engine import disk
from dr_ctl.engine.disk import PIECE_BYTES, RESERVE, RESERVED_BYTES, NoRoom, Reserve
from dr_ctl.engine.entries import is_held, read
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.runs import RunFiles, Runs, write
from dr_ctl.engine.states import StepEvent
from tests.engine.desk import BY, Clock, Desk, a_plan

FENCE = next(step for step in a_plan().steps if step.verb == "fence")
PLAN = replace(a_plan(), steps=(FENCE,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


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


# On a disk that is really full


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
