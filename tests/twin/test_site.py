"""Twins come and go: kinds are registered by one line and loaded when named, and nothing is left of one, neither
threads nor ports nor files; what names and filters mean there; its time, and the demo on it."""

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
from dr_ctl_lab import demonstration
from dr_ctl_lab.twin.kinds import KINDS
from dr_ctl_lab.twin.site import Twin
from tests.twin.conftest import LATER


@pytest.mark.wire
def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    before, ports = set(threading.enumerate()), list[int]()

    def fail() -> None:
        with Twin.up(tmp_path / "twin") as twin:
            for broker in (twin.host(site).broker for site in twin.sites):
                ports.extend([broker.console_port, *(door.port for door in broker.acceptors.values())])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (set(threading.enumerate()), (tmp_path / "twin").exists(), len(ports)) == (before, False, 6)
    for port in ports:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


def test_a_twin_is_made_of_no_other_and_of_no_folder_that_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(UsageError, match="no twin is made of pigeons") as caught:
        KINDS.named("pigeons")
    with pytest.raises(UsageError, match="is not empty"):
        Twin.up(tmp_path)

    assert caught.value.remedy.startswith("There are artemis-mirror, artemis-continuity, artemis-bridges, classic-")
    assert (tmp_path / "mine").exists()


def test_secrets_are_their_owners_and_a_pair_of_several_has_names_of_its_own(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin", pairs=("orders-1", "orders-2"), serving=None) as twin:
        modes = {path.name: path.stat().st_mode & 0o77 for path in twin.directory.rglob("*")}
        names = {twin.host(site, pair).broker.name for site in twin.sites for pair in twin.pairs}
        twin.kill("london", "orders-2")
        alive = {name: told["alive"] for name, told in twin.settable().items()}

    assert {name for name, mode in modes.items() if mode and name != "twin"} == set()
    assert names == {"london-orders-1", "london-orders-2", "paris-orders-1", "paris-orders-2"}
    assert [name for name, lives in alive.items() if not lives] == ["london/orders-2"]


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
    for name, value in {
        "PATH": "bin",
        "DR_CTL_CONFIG": "demo/twin/dr-ctl.yaml",
        "DR_CTL_STATE_DIR": "demo/state",
    }.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    for name, less in {"_Teller": InThisProcess, "RECORD_ON_TWIN_S": 0.5, "EVERY_S": 0.1, "AFTER": 150}.items():
        monkeypatch.setattr(demonstration, name, less)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    ended = demonstration.demo(None, tmp_path / "demo", demonstration.On.TWIN, topology)

    for number, handler in signals.items():
        signal.signal(number, handler)
    assert (ended.code, [finding.id for finding in ended.findings]) == (0, ["DR-DEMO-002"]), ended
    assert not (tmp_path / "demo" / "twin").exists()
