"""What every layer shares: exit codes, moments, errors, memory, the machine, what may be printed, work beside work."""

import ctypes
import os
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core import machine
from dr_ctl.core.document import stamp
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import line, page, shell_command
from dr_ctl.core.system import ThisMachine, all_ended, in_background, in_parallel, running_on, system
from dr_ctl.engine.runs import Runs

OUTCOMES = """0 ok, 1 internal, 2 usage, 3 missing, 10 precheck_failed, 11 loss_refused, 12 serving_site_alive,
13 locked, 14 declined, 20 reverted, 21 incomplete, 22 unknown, 23 stranded, 24 drain_timeout, 30 warnings,
130 interrupted, 143 interrupted"""


def test_each_exit_code_has_its_word() -> None:
    assert ", ".join(f"{int(entry)} {entry.outcome}" for entry in ExitCode) == OUTCOMES.replace("\n", " ")


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (datetime(2026, 11, 21, 9, 15, 12, 84_900, UTC), "2026-11-21T09:15:12.084Z"),
        (datetime(2026, 11, 21, 9, 0, tzinfo=timezone(timedelta(hours=2))), "2026-11-21T07:00:00.000Z"),
    ],
)
def test_a_moment_is_written_in_utc_with_milliseconds(at: datetime, written: str) -> None:
    assert stamp(at) == written


@pytest.mark.parametrize(("before", "pool"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_what_a_person_has_set_for_arrow_stays_and_a_c_library_that_has_no_such_options_too(
    monkeypatch: pytest.MonkeyPatch, before: str | None, pool: str
) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", before or "")
    if before is None:
        monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL")
    value: list[tuple[int, int]] = []
    libraries = SimpleNamespace(mallopt=lambda *option: value.append(option)), SimpleNamespace()
    for library in libraries:
        monkeypatch.setattr(ctypes, "CDLL", lambda _, library=library: library)
        machine.give_back()

    assert (os.environ["ARROW_DEFAULT_MEMORY_POOL"], len(value)) == (pool, 3)


def test_a_process_lives_until_it_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert machine.process_lives(os.getpid())
    assert machine.process_lives(1)
    assert not any(machine.process_lives(pid) for pid in (ended.pid, 0, -1, 10**30))


def test_the_same_state_on_two_machines_is_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a home that both mount, or on a copy of the whole disk; and so is a copy of it on one."""
    items, kept = tmp_path / "machine-id", tmp_path / "state" / "id"
    monkeypatch.setattr(machine, "MACHINE", items)
    expected = []
    for name in ("one", "two", "two"):
        items.write_text(f"{name}\n", encoding="utf-8")
        expected.append(Runs(tmp_path / "state").identity())

    assert expected[0] != expected[1] == expected[2]
    assert "one" not in expected[0]
    monkeypatch.setattr(machine, "BOOT", tmp_path / "nothing")
    assert machine.boot_id() == ""
    kept.rename(tmp_path / "before")
    kept.write_bytes((tmp_path / "before").read_bytes())
    assert Runs(tmp_path / "state").identity() != expected[2]


def test_time_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = {time.CLOCK_MONOTONIC: 100.0, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC): 700.0}
    monkeypatch.setattr(time, "clock_gettime", slept.get)

    assert ThisMachine().monotonic() == 700.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders.in", "orders.in"),
        ("größe → 3 €", "größe → 3 €"),
        ("\x1b[2J\x1b]0;paris serves\x07", r"\x1b[2J\x1b]0;paris serves\x07"),
        ("orders\nparis serves\r\n", r"orders\nparis serves\r\n"),
        ("a\x85b\u2028c\u2029d", r"a\x85b\u2028c\u2029d"),
        ("\u202eni.sredro", r"\u202eni.sredro"),
        ("half \ud800 of a letter", r"half \ud800 of a letter"),
        ("\x9b2J", r"\x9b2J"),
    ],
)
def test_what_a_terminal_would_obey_stands_there_as_its_escape(text: str, shown: str) -> None:
    assert line(text) == shown


def test_a_shell_takes_a_command_of_several_lines_from_one() -> None:
    words = ["printf", "%s|", "x\ny'z\\n", "\x1b[0m é", "a b"]
    shown = subprocess.run(["sh", "-c", shell_command(words)], capture_output=True, text=True, check=True).stdout
    assert (shown, line(shell_command(words))) == ("x\ny'z\\n|\x1b[0m é|a b|", shell_command(words))


@given(st.text(st.characters()))
def test_a_line_stays_one_and_can_be_written(text: str) -> None:
    shown = line(text)

    assert len(shown.splitlines()) <= 1
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not [row for row in shown if unicodedata.category(row).startswith("C") and row.isascii()]
    assert page(["one\ntwo", "three"]) == "one\\ntwo\nthree"


def test_work_gives_its_result_or_raises_what_ended_it() -> None:
    assert in_background(lambda: 3, "three").result() == 3
    with pytest.raises(ValueError, match="no"):
        in_background(lambda: int("no"), "fails").result()


def test_who_waits_for_a_while_is_told_whether_it_has_ended() -> None:
    gate = threading.Event()
    work = in_background(partial(gate.wait, 10), "gate")

    assert not work.wait(0)
    assert not all_ended([work], 0.01)
    gate.set()
    assert work.wait(10)
    assert all_ended([work], 0)


def test_all_is_done_at_the_same_time_and_in_order_and_the_first_error_is_raised_once_all_have_ended() -> None:
    both, done = threading.Barrier(2), []

    def meet(number: int) -> int:
        both.wait(10)  # nobody passes alone
        return number

    def work(number: int) -> None:
        done.append(number)
        if number:
            raise ValueError(str(number))

    assert in_parallel([partial(meet, number) for number in range(4)], "meet", most=2) == [0, 1, 2, 3]
    assert in_parallel([], "nothing", most=2) == []
    with pytest.raises(ValueError, match="1"):
        in_parallel([partial(work, number) for number in range(3)], "work", most=2)
    assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize(("error", "is_told"), [(ValueError("a defect"), True), (OSError("away"), False)])
def test_a_defect_nobody_asks_for_is_told(error: Exception, is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    value: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: value.append(args.exc_value))

    def fails() -> None:
        raise error

    work = in_background(fails, "fails")
    work.wait()
    del work

    assert value == ([error] if is_told else [])


def test_the_system_that_stands_in_is_gone_after_the_block() -> None:
    class Other(ThisMachine):
        def start(self, work: Callable[[], object], name: str) -> object:  # type: ignore[override]
            raise RuntimeError(name)

    before, other = system(), Other()
    with running_on(other), pytest.raises(RuntimeError, match="work"):
        in_background(lambda: None, "work")
    assert system() is before
