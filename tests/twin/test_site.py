"""Twins come and go, and nothing is left of one, neither threads nor ports nor files; and the demo on it."""

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
from dr_ctl_lab import demonstration
from dr_ctl_lab.twin.site import Twin
from tests.twin.conftest import LATER


@pytest.mark.wire
def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    before, ports = set(threading.enumerate()), list[int]()

    def fail() -> None:
        with Twin.up(tmp_path / "twin") as twin:
            for broker in (twin.host(site).broker for site in twin.sites):
                ports.extend([broker.console_port, *(door.port for door in broker.acceptors.values())])
            assert {path.name for path in twin.directory.rglob("*") if path.stat().st_mode & 0o77} <= {"twin"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (set(threading.enumerate()), (tmp_path / "twin").exists(), len(ports)) == (before, False, 6)
    for port in ports:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


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
    monkeypatch.delenv("JAVA_HOME", raising=False)
    environment = {"PATH": "bin", "DR_CTL_CONFIG": "demo/twin/dr-ctl.yaml", "DR_CTL_STATE_DIR": "demo/state"}
    for name, value in environment.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    for name, less in {"_Teller": InThisProcess, "RECORD_ON_TWIN_S": 0.5, "EVERY_S": 0.1, "AFTER": 150}.items():
        monkeypatch.setattr(demonstration, name, less)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    ended = demonstration.demo(None, tmp_path / "demo", demonstration.On.TWIN, topology)

    for number, handler in signals.items():
        signal.signal(number, handler)
    assert (ended.code, [finding.id for finding in ended.findings]) == (0, ["DR-DEMO-002"]), ended
    assert not (tmp_path / "demo" / "twin").exists()
