"""What labs share: a directory, locks, distributions and ports."""

import os
import socket
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.cache import cache_dir, locked
from dr_ctl_lab.lab.distribution import Coordinates
from dr_ctl_lab.lab.ports import release_ports, reserve_ports

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
