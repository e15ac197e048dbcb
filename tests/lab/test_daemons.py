"""Processes by pid and start time; a lab that goes down takes along whoever loads it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import daemons, loads
from tests.broker.driving import until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[daemons.Process]:
    process = daemons.launch([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path, log=tmp_path / "log")
    yield process
    daemons.kill(process)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_process_is_ended(sleeper: daemons.Process, frozen: bool) -> None:
    assert sleeper.alive()
    if frozen:
        daemons.send(sleeper, signal.SIGSTOP)
        until(sleeper.frozen)

    daemons.end(sleeper, within_s=5)

    assert not sleeper.alive()


def test_one_that_does_not_heed_is_killed(tmp_path: Path) -> None:
    process = daemons.launch([sys.executable, "-c", STUBBORN], cwd=tmp_path, log=tmp_path / "log")
    until(lambda: "deaf" in (tmp_path / "log").read_text())

    daemons.end(process, within_s=0.1)

    assert not process.alive()


def test_a_stranger_with_the_same_pid_is_left_alone(sleeper: daemons.Process) -> None:
    namesake = replace(sleeper, started=sleeper.started - 1)

    assert not namesake.alive()
    assert not daemons.send(namesake, signal.SIGKILL)
    daemons.end(namesake, within_s=1)
    assert sleeper.alive()


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no-such-program"):
        daemons.launch(["no-such-program"], cwd=tmp_path, log=tmp_path / "log")


def test_one_that_cannot_be_named_again_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without /proc: what was started would outlive every `lab down`."""
    monkeypatch.setattr(daemons, "_stat", lambda pid: None)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, **more: started.append(popen(*words, **more)) or started[-1]
    )

    with pytest.raises(EnvironmentFault, match="has no entry under /proc"):
        daemons.launch(["sleep", "600"], cwd=tmp_path, log=tmp_path / "log")

    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


LOADING = """
import sys, time
from pathlib import Path
from dr_ctl_lab.lab import loads
with loads.running(Path(sys.argv[1])):
    time.sleep(60)
"""


def test_a_load_in_another_process_is_ended_and_no_other(tmp_path: Path) -> None:
    def noted() -> list[Path]:
        return list((tmp_path / loads.FOLDER).glob("*"))

    with loads.running(tmp_path):
        loads.end_all(tmp_path)
        assert noted(), "this process is left alone"
    assert not noted(), "one that ended by itself is named no more"
    loading = subprocess.Popen([sys.executable, "-c", LOADING, str(tmp_path)])
    try:
        until(noted)
        (tmp_path / loads.FOLDER / "1").write_text("{")  # names nobody

        loads.end_all(tmp_path)

        assert loading.wait(timeout=5) != 0
    finally:
        loading.kill()
        loading.wait()
