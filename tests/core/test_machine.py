"""Which machine this is, and what of it lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dr_ctl.core import machine
from dr_ctl.core.clock import SystemClock
from dr_ctl.engine.runs import Runs


def test_a_process_lives_until_it_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert machine.process_lives(os.getpid())
    assert machine.process_lives(1)
    assert not any(machine.process_lives(pid) for pid in (ended.pid, 0, -1, 10**30))


def test_the_same_state_on_two_machines_is_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a home that both mount, or on a copy of the whole disk."""
    told = tmp_path / "machine-id"
    monkeypatch.setattr(machine, "MACHINE", told)
    found = []
    for name in ("one", "two", "two"):
        told.write_text(f"{name}\n", encoding="utf-8")
        found.append(Runs(tmp_path / "state", SystemClock()).identity())

    assert found[0] != found[1] == found[2]
    assert "one" not in found[0]


def test_a_system_that_does_not_say_has_no_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MACHINE", tmp_path / "nothing")
    monkeypatch.setattr(machine, "BOOT", tmp_path / "nothing")

    assert (machine.machine_id(), machine.boot_id()) == ("", "")


def test_time_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = {time.CLOCK_MONOTONIC: 100.0, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC): 700.0}
    monkeypatch.setattr(time, "clock_gettime", slept.get)

    assert SystemClock().monotonic() == 700.0
