"""What the story of tests/stories leaves out: acknowledgements that the plugin loses, several pairs, brokers that fail
at random, a site in a black hole. The ledger judges. And the demo on a twin, of which nothing is left."""

import contextlib
import io
import json
import os
import signal
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.cli.app import run
from dr_ctl.core.system import boottime_s
from dr_ctl_lab import demonstration
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.faults import Faults
from dr_ctl_lab.twin.kinds import CONTINUITY
from dr_ctl_lab.twin.site import Twin
from tests.conftest import Command
from tests.timeouts import impatient
from tests.twin.conftest import LATER
from tests.twin.matrix import ACCEPTED, done, serving
from tests.twin.subject import until

RATE = 300
SAMPLE = (1, 3, 8)
SEEDS = range(int(os.environ.get("DR_CTL_INCIDENTS", "40")))  # a thousand: python -m bench incidents


@pytest.mark.parametrize("topology", [CONTINUITY])
def test_acknowledgements_that_the_plugin_loses_double_nothing(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.load(RATE, work_ms=1) as traffic:
        for broker in twin.brokers(ContinuityBroker):
            broker.ack_loss = 0.2  # where those of several flows come at once, as after a link that hung
        twin.cut("london", "hang")
        traffic.wait_for(200)
        twin.heal()
        done(dr_ctl("swapover", "--to", "paris", "--yes"))
        traffic.wait_for(traffic.counts().sent + 50)
        verdict = traffic.stop()

    removed = [change.bean for change in twin.changes() if change.operation.startswith("removeMessages(")]
    assert any(f"{queue}.in.mirror" in bean for bean in removed for queue in twin.queues)
    assert (verdict.clean, verdict.lost, verdict.duplicates) == (True, (), ())


@pytest.mark.parametrize(
    "seed", [*SAMPLE, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in SEEDS if seed not in SAMPLE)]
)
def test_whatever_fails_nothing_is_lost_and_never_do_both_sites_serve(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    impatient(monkeypatch, fence_s=2.0, undo_s=4.0, activate_s=2.0, store_taken_s=2.0)
    with twin.load(100, work_ms=1) as traffic:
        traffic.wait_for(30)
        for number, site in enumerate(twin.sites):
            twin.host(site).faults = Faults.from_seed(2 * seed + number, count=2)
        lives = {site: twin.host(site).broker.start_ms for site in twin.sites}

        ended = dr_ctl("swapover", "--to", "paris", "--yes")

        for site in twin.sites:
            twin.host(site).faults.clear()
        until(lambda: all(twin.host(site).broker.alive for site in twin.sites))
        served = serving(twin)
        # One that dies when the lock is given back is closed by its boot, after the end was verified.
        unharmed = {site for site in twin.sites if twin.host(site).broker.start_ms == lives[site]}
        if not served:
            dr_ctl("unfence", "london", "--yes")  # beyond its listeners a fence keeps clients' roles out
        if not serving(twin):
            twin.open_clients("london")
        verdict = traffic.stop(drain_s=10)

    assert len(served) <= 1
    assert ended.code != 1, ended.document
    assert "paris" in served or "paris" not in unharmed or ended.code != 0
    assert "london" in served or "london" not in unharmed or ended.code in (0, 21, 22, 23)
    assert (verdict.lost, verdict.duplicates) == ((), ())


def test_a_site_in_a_black_hole_adds_no_more_than_it_is_given(
    tmp_path: Path, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five seconds over all readings, beside what the same command takes where the site is seen to be down."""
    words, took_s = ("failover", "--to", "paris", "--yes", *ACCEPTED), {}
    for how in ("down", "swallowed"):
        with PlayedTwin.up(tmp_path / how) as twin:
            monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
            monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / f"state of {how}"))
            if how == "down":
                twin.kill("london")
            else:
                twin.swallow("london")
                twin.cut()
                refused = dr_ctl(*words)
            began = boottime_s()
            ended = done(dr_ctl(*words, "--presume-down", "london", "--reason", "its rack is dark"))
            took_s[how] = boottime_s() - began

            assert [debt["kind"] for debt in ended.document["debts"]] == ["fence", "quarantine"]
            assert "paris" in serving(twin)

    assert (refused.code, refused.document["findings"][0]["id"]) == (10, "DR-ALIVE-002")
    assert took_s["swallowed"] - took_s["down"] < 5 + 1, took_s


@pytest.mark.wire
def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    before, ports = set(threading.enumerate()), list[int]()

    def fail() -> None:
        with Twin.up(tmp_path / "twin") as twin:
            for broker in (twin.host(site).broker for site in twin.sites):
                ports.extend([broker.console_port, *(listener.port for listener in broker.acceptors.values())])
            assert {path.name for path in twin.directory.rglob("*") if path.stat().st_mode & 0o77} <= {"twin"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (set(threading.enumerate()), (tmp_path / "twin").exists(), len(ports)) == (before, False, 6)
    for port in ports:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", port))


class InThisProcess(demonstration._Console):
    """Runs the demo's commands without a process for each."""

    def run(self, *words: str) -> int:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return run(list(words))

    def bounds(self, *words: str) -> Mapping[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run([*words, "--json", "--quiet"])
        mapping: Mapping[str, Any] = json.loads(out.getvalue())["data"]["bounds"]
        return mapping


@LATER
def test_the_demo_runs_on_a_twin_where_there_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    environment = {"PATH": "bin", "DR_CTL_CONFIG": "demo/twin/dr-ctl.yaml", "DR_CTL_STATE_DIR": "demo/state"}
    for name, value in environment.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    for name, stub in {"_Console": InThisProcess, "RECORD_ON_TWIN_S": 0.5, "EVERY_S": 0.1, "SENDS": 150}.items():
        monkeypatch.setattr(demonstration, name, stub)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    ended = demonstration.demo(None, tmp_path / "demo", demonstration.On.TWIN, topology)

    for number, handler in signals.items():
        signal.signal(number, handler)
    assert (ended.code, [finding.id for finding in ended.findings]) == (0, ["DR-DEMO-002"]), ended
    assert not (tmp_path / "demo" / "twin").exists()
