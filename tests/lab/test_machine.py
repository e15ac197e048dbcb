"""What labs share on this machine: processes by pid and start time, a directory, locks, distributions and ports."""

import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import daemons, distribution, loads
from dr_ctl_lab.lab.cache import cache_dir, locked
from dr_ctl_lab.lab.distribution import Coordinates
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
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


TOY = Coordinates("org.example", "toy", "1.0")
MAVEN = """#!/bin/sh
echo called >> "$TOY_CALLS"
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) cp "$TOY_ARCHIVE" "${word#*=}/toy-1.0-bin.tar.gz" ;; esac
done
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DR_CTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds a Java, a Maven that copies, and the shell's tools."""
    folder = tmp_path / "programs"
    folder.mkdir()
    _program(folder / "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    _program(folder / "mvn", MAVEN)
    unpacked = tmp_path / "toy-1.0"
    (unpacked / "bin").mkdir(parents=True)
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as archive:
        archive.add(unpacked, "toy-1.0")
    monkeypatch.setenv("TOY_ARCHIVE", str(tmp_path / "toy.tar.gz"))
    monkeypatch.setenv("TOY_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_lock_that_is_held_too_long_is_named() -> None:
    with locked("busy", within_s=1), pytest.raises(EnvironmentFault, match=r"busy\.lock"), locked("busy", within_s=0.1):
        pass


def test_a_distribution_is_fetched_once_by_labs_that_start_at_once(programs: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(max_workers=4) as several:
        homes = {*several.map(lambda _: distribution.obtain(TOY), range(4))}

    assert [(home / "bin").is_dir() for home in homes] == [True]
    assert (tmp_path / "calls").read_text() == "called\n"
    assert [path.name for path in cache_dir().iterdir() if path.is_dir()] == ["toy-1.0"]


def test_a_maven_that_fails_is_quoted_and_leaves_nothing(programs: Path) -> None:
    _program(programs / "mvn", "#!/bin/sh\necho 'Could not find artifact'\nexit 1\n")

    with pytest.raises(EnvironmentFault, match="Could not find artifact"):
        distribution.obtain(TOY)

    assert [path for path in cache_dir().iterdir() if path.is_dir()] == []


def test_what_is_missing_or_too_old_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    (programs / "mvn").unlink()
    with pytest.raises(EnvironmentFault, match="no `mvn` on the PATH"):
        distribution.obtain(TOY)
    _program(programs / "java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    with pytest.raises(EnvironmentFault, match="Java 11 is too old"):
        distribution.obtain(TOY)
    (programs / "java").unlink()
    with pytest.raises(EnvironmentFault, match="no `java` on the PATH"):
        distribution.obtain(TOY)


def test_a_cache_that_cannot_be_made_is_an_environment_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DR_CTL_CACHE", os.devnull + "/cache")

    with pytest.raises(EnvironmentFault, match="cannot be made"):
        cache_dir()


def test_ports_of_a_lab_are_its_own_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dr_ctl_lab.lab.ports._range", lambda: (20_000, 20_006))
    monkeypatch.setattr("dr_ctl_lab.lab.ports._is_free", lambda _: True)  # nobody listens yet
    lab = tmp_path / "lab"
    lab.mkdir()
    reserve_ports(6, lab)
    with pytest.raises(EnvironmentFault, match="free ports"):
        reserve_ports(1, tmp_path)
    lab.rmdir()

    assert len(reserve_ports(6, tmp_path)) == 6
    release_ports(tmp_path)
    assert len(reserve_ports(6, tmp_path)) == 6


def test_a_port_in_use_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr("dr_ctl_lab.lab.ports._range", lambda: (port, port + 1))

        with pytest.raises(EnvironmentFault):
            reserve_ports(1, tmp_path)
