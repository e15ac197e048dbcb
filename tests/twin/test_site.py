"""The twin comes and goes: nothing of it is left, neither threads nor ports nor files, also after a failure."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.cli.app import run
from dr_ctl.core.errors import UsageError
from dr_ctl.settings.loader import load
from dr_ctl_lab import demonstration
from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.names import canonical, matches
from dr_ctl_lab.twin.site import Twin
from tests.twin.conftest import LATER


@pytest.mark.wire
def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    ports: list[int] = []

    with pytest.raises(ZeroDivisionError):
        _fail_in(tmp_path / "twin", ports)

    assert set(threading.enumerate()) == before
    assert not (tmp_path / "twin").exists()
    assert len(ports) == 6
    for port in ports:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


def _fail_in(directory: Path, ports: list[int]) -> None:
    with Twin.up(directory) as twin:
        ports += [twin.host(site).broker.console_port for site in twin.sites]
        ports += [door.port for site in twin.sites for door in twin.host(site).broker.acceptors.values()]
        assert load(twin.settings_path).settings.name == "twin"
        raise ZeroDivisionError


def test_it_does_not_move_into_a_directory_that_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(UsageError, match="is not empty"):
        Twin.up(tmp_path)

    assert (tmp_path / "mine").exists()


def test_secrets_are_their_owners(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin") as twin:
        modes = {path.name: path.stat().st_mode & 0o77 for path in twin.directory.rglob("*")}

        assert {name for name, mode in modes.items() if mode and name != "twin"} == set()


def test_a_pair_of_several_has_names_of_its_own(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin", pairs=("orders-1", "orders-2"), serving=None) as twin:
        names = {twin.host(site, pair).broker.name for site in twin.sites for pair in twin.pairs}
        assert names == {"london-orders-1", "london-orders-2", "paris-orders-1", "paris-orders-2"}
        twin.kill("london", "orders-2")

        alive = {name: told["alive"] for name, told in twin.settable().items()}
        assert [name for name, lives in alive.items() if not lives] == ["london/orders-2"]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("d:broker=*", 'd:broker="a"', True),
        ("d:broker=*", 'd:broker="a",component=acceptors,name="x"', False),
        ('d:broker="a",*', 'd:broker="a",component=acceptors,name="x"', True),
        ('d:name="dr-ctl.*",broker="a"', 'd:broker="a",name="dr-ctl.lock"', True),
        ('d:broker="a",name="who\\\\?"', 'd:broker="a",name="who\\\\?"', True),
        ('d:broker="a",name="who\\\\?"', 'd:broker="a",name="whom"', False),
    ],
)
def test_patterns_mean_what_they_mean(pattern: str, name: str, found: bool) -> None:
    assert matches(pattern, name) is found
    assert canonical('d:b="2",a="1"') == 'd:a="1",b="2"'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 'x'", True),
        ("a <> 'x'", False),
        ("b IS NULL AND a = 'x'", True),
        ("a IS NULL", False),
        ("\"a\" = 'x'", True),
        ("b <> 'x'", False),
        ("", True),
    ],
)
def test_filters_mean_what_they_mean(text: str, found: bool) -> None:
    assert compiled(text)({"a": "x"}.get) is found


class InThisProcess(demonstration._Teller):
    """Runs the demo's commands without a process for each."""

    def run(self, *words: str) -> int:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return run(list(words))

    def bounds(self, *words: str) -> Mapping[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run([*words, "--json", "--quiet"])
        told: Mapping[str, Any] = json.loads(out.getvalue())["data"]["bounds"]
        return told


@LATER
def test_the_demo_runs_on_a_twin_where_there_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("DR_CTL_CONFIG", str(tmp_path / "demo" / "twin" / "dr-ctl.yaml"))
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "demo" / "state"))
    monkeypatch.setattr(demonstration, "_Teller", InThisProcess)
    monkeypatch.setattr(demonstration, "RECORD_ON_TWIN_S", 0.5)
    monkeypatch.setattr(demonstration, "EVERY_S", 0.1)
    monkeypatch.setattr(demonstration, "AFTER", 150)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    ended = demonstration.demo(None, tmp_path / "demo", demonstration.On.TWIN, topology)

    for number, handler in signals.items():
        signal.signal(number, handler)
    assert ended.code == 0, ended
    assert [finding.id for finding in ended.findings] == ["DR-DEMO-002"]
    assert not (tmp_path / "demo" / "twin").exists()
