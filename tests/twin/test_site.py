"""Twins come and go: kinds are registered by one line and loaded when named, and nothing is left of one, neither
threads nor ports nor files; what names and filters mean there; its time, and the demo on it."""

import contextlib
import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from dr_ctl.cli.app import run
from dr_ctl.core.errors import UsageError
from dr_ctl_lab import demonstration
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.kinds import KINDS
from dr_ctl_lab.twin.mirror.kind import KIND
from dr_ctl_lab.twin.names import canonical, matches
from dr_ctl_lab.twin.parts import Acceptor
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


@pytest.mark.wire
def test_a_kind_that_is_registered_makes_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = (Acceptor("side", "STOMP", opens_at_boot=True), *KIND.doors)
    kind = replace(KIND, topology="folders", settings=lambda host: {"port": host.stomp[1]}, doors=doors)
    monkeypatch.setitem(KINDS.modules, "folders", "folders")
    monkeypatch.setitem(sys.modules, "folders", SimpleNamespace(KIND=kind))

    with Twin.up(tmp_path / "twin", topology="folders") as twin:
        told = yaml.safe_load(twin.settings_path.read_text())
        started = {each.name: each.started for each in twin.host("paris").broker.acceptors.values()}

    assert told["topology"] == "folders"
    [broker] = told["sites"]["london"]["brokers"]
    assert (sorted(broker), broker["name"]) == (["name", "password", "port"], "orders-1")
    assert started == {"side": True, "clients": False, "mirror": True}


def test_a_twin_is_made_of_no_other_and_of_no_folder_that_is_used(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    with pytest.raises(UsageError, match="no twin is made of pigeons") as caught:
        KINDS.named("pigeons")
    with pytest.raises(UsageError, match="is not empty"):
        Twin.up(tmp_path)

    assert caught.value.remedy.startswith("There are artemis-mirror, artemis-continuity, artemis-bridges, classic-")
    assert (tmp_path / "mine").exists()


def test_a_kind_is_loaded_when_it_is_named() -> None:
    program = (
        "import sys; import dr_ctl_lab.twin.site; from dr_ctl_lab.twin.kinds import KINDS; before = {*sys.modules};"
        "KINDS.named('artemis-mirror'); kinds = ('twin.mirror', 'twin.continuity', 'twin.artemis');"
        "print([each for each in before if each.removeprefix('dr_ctl.').startswith(kinds)],"
        "[each for each in sys.modules if 'continuity' in each])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[] []\n"


@pytest.mark.wire
def test_time_passes_as_fast_as_a_twin_is_told(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin", clock=Clock(pace=20), delay_ms=2000) as twin:
        before_s, before_ms = twin.clock.now_s(), twin.host("paris").broker.now_ms()
        began_s = time.monotonic()
        twin.wait_mirrored(within_s=60)
        twin.kill("london")
        twin.start("london")
        twin.wait_mirrored(within_s=60)  # what is announced again takes two seconds each way
        really_s = time.monotonic() - began_s
        took_ms = twin.host("paris").broker.now_ms() - before_ms
        took_s = twin.clock.now_s() - before_s

    assert 4000 <= took_ms <= took_s * 1000 + 1
    assert took_s >= really_s * 20


def test_secrets_are_their_owners_and_a_pair_of_several_has_names_of_its_own(tmp_path: Path) -> None:
    with Twin.up(tmp_path / "twin", pairs=("orders-1", "orders-2"), serving=None) as twin:
        modes = {path.name: path.stat().st_mode & 0o77 for path in twin.directory.rglob("*")}
        names = {twin.host(site, pair).broker.name for site in twin.sites for pair in twin.pairs}
        twin.kill("london", "orders-2")
        alive = {name: told["alive"] for name, told in twin.settable().items()}

    assert {name for name, mode in modes.items() if mode and name != "twin"} == set()
    assert names == {"london-orders-1", "london-orders-2", "paris-orders-1", "paris-orders-2"}
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


TRUE = ("a = 'x'", "b IS NULL AND a = 'x'", "\"a\" = 'x'", "")
FALSE = ("a <> 'x'", "a IS NULL", "b <> 'x'")


@pytest.mark.parametrize("text", [*TRUE, *FALSE])
def test_filters_mean_what_they_mean(text: str) -> None:
    assert compiled(text)({"a": "x"}.get) is (text in TRUE)


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
