"""The estimate beside a run's checks, as a process that hangs: it is ended before the run goes on, and nothing of it
stays; a run that ends early takes it along."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from dr_ctl.application.preflight import Preflight
from dr_ctl.core.clock import SystemClock
from dr_ctl.core.model import Finding, Severity
from dr_ctl.engine import executor
from dr_ctl.engine.outcome import Done, NotNeeded
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.history.files import write
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import Place
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.moving import begun as killed_after
from tests.rpo.test_estimate import history
from tests.rpo.test_stored import answer

pytestmark = pytest.mark.wire

WITHIN_S = 60.0
DEAF = """
import os, signal, subprocess, sys, time
if os.getpgrp() != os.getpid():
    os.setpgid(0, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import signal, time\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
                  "open({ready!r}, 'w').close()\\ntime.sleep(600)", {ready!r}])
time.sleep(600)
"""


def running(word: Path) -> list[int]:
    """Every process whose command line holds a word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(word).encode() in (folder / "cmdline").read_bytes() and "Z" not in state(folder):
                found.append(int(folder.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def state(folder: Path) -> str:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def until_gone(word: Path) -> None:
    end = time.monotonic() + WITHIN_S
    while running(word):
        assert time.monotonic() < end, running(word)
        time.sleep(0.02)  # of processes that are not its own children nothing can be waited for


@pytest.fixture
def deaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the worker's place, a process that hangs and hears no SIGTERM, with a child that does not either."""
    ready = tmp_path / "ready"
    script = DEAF.format(ready=str(ready))
    monkeypatch.setattr(request, "command", lambda: [sys.executable, "-c", script])
    monkeypatch.setattr(executor, "ESTIMATE_WITHIN_S", 2.0)
    return ready


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def begun(dr_ctl: Shell, ready: Path) -> Preflight:
    write(history("london"), dr_ctl.folder / "history")
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london", SystemClock())
    preflight.begin()
    end = time.monotonic() + WITHIN_S
    while not ready.exists():
        assert time.monotonic() < end
        wait(0.02)
    return preflight


def test_one_that_hangs_is_ended_in_time_and_is_a_finding(
    dr_ctl: Shell, installation: Installation, deaf: Path
) -> None:
    preflight = begun(dr_ctl, deaf)
    assert len(running(deaf)) == 2
    began = time.monotonic()

    outcome = preflight.end(within_s=0.2, wait=wait)

    assert isinstance(outcome, NotNeeded)
    assert [finding.id for finding in outcome.findings] == ["DR-RPO-008"]
    assert time.monotonic() - began < 10
    until_gone(deaf)


def test_a_run_that_ends_early_takes_it_along(dr_ctl: Shell, installation: Installation, deaf: Path) -> None:
    preflight = begun(dr_ctl, deaf)

    preflight.abandon()
    preflight.abandon()

    until_gone(deaf)


def test_without_history_none_is_started(dr_ctl: Shell, installation: Installation, deaf: Path) -> None:
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london", SystemClock())
    preflight.begin()

    outcome = preflight.end(within_s=0, wait=wait)

    assert isinstance(outcome, NotNeeded)
    assert [finding.id for finding in outcome.findings] == ["DR-RPO-001"]


def test_a_swapover_takes_a_fresh_stored_estimate_at_once(
    dr_ctl: Shell, installation: Installation, deaf: Path
) -> None:
    write(history("london"), dr_ctl.folder / "history")
    store(Place.at(dr_ctl.folder / "history"), answer(lost=7), datetime.now(UTC) - timedelta(minutes=3))

    moved = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert moved.code == 0, moved.document
    assert "DR-RPO-008" not in moved.ids
    assert "as stored 3 min" in dr_ctl("runs", "show", moved.document["run"]).out
    assert not deaf.exists()


@pytest.mark.parametrize("minutes_ago", [16, -10])
def test_a_stored_estimate_that_is_old_or_of_a_clock_ahead_is_not_taken(
    dr_ctl: Shell, installation: Installation, deaf: Path, minutes_ago: int
) -> None:
    (dr_ctl.folder / "history").mkdir()
    store(Place.at(dr_ctl.folder / "history"), answer(lost=7), datetime.now(UTC) - timedelta(minutes=minutes_ago))

    preflight = begun(dr_ctl, deaf)

    assert isinstance(preflight.end(within_s=0.1, wait=wait), NotNeeded)
    until_gone(deaf)


def test_what_a_stored_estimate_found_is_told_with_it(dr_ctl: Shell, installation: Installation, deaf: Path) -> None:
    (dr_ctl.folder / "history").mkdir()
    told = Finding("DR-RPO-002", Severity.WARNING, "two files were not read", "See them.")
    store(Place.at(dr_ctl.folder / "history"), replace(answer(lost=7), findings=(told,)), datetime.now(UTC))
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london", SystemClock())
    preflight.begin()

    outcome = preflight.end(within_s=0, wait=wait)

    assert isinstance(outcome, Done)
    assert outcome.findings == (told,)


@pytest.mark.parametrize("verbs", [("quiesce", "fence"), ("quiesce", "fence", "drain")], ids=" ".join)
def test_a_run_that_is_gone_on_with_behind_its_fence_waits_for_none(
    dr_ctl: Shell, installation: Installation, deaf: Path, verbs: tuple[str, ...]
) -> None:
    write(history("london"), dr_ctl.folder / "history")
    killed_after(dr_ctl, installation, *verbs)

    resumed = dr_ctl("resume", "--yes", "--json")

    assert resumed.code == 0, resumed.document
    assert "DR-RPO-008" not in resumed.ids
    assert "skipped: clients are out since this run's fence" in dr_ctl("runs", "show", resumed.document["run"]).out
    assert not deaf.exists()


def test_a_run_that_died_before_its_fence_is_estimated(dr_ctl: Shell, installation: Installation, deaf: Path) -> None:
    write(history("london"), dr_ctl.folder / "history")
    killed_after(dr_ctl, installation, "quiesce")

    resumed = dr_ctl("resume", "--yes", "--json")

    assert (resumed.code, "DR-RPO-008" in resumed.ids) == (0, True), resumed.document
    until_gone(deaf)


@pytest.fixture
def silent_master() -> Iterator[str]:
    """A Spark master that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"spark://127.0.0.1:{listener.getsockname()[1]}"


def settings_with(dr_ctl: Shell, **more: object) -> None:
    path = dr_ctl.folder / "dr-ctl.yaml"
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**told, **more}), encoding="utf-8")


@pytest.mark.spark
@pytest.mark.deep
def test_a_swapover_whose_spark_hangs_ends_it_before_it_quiesces(
    dr_ctl: Shell, installation: Installation, silent_master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(dr_ctl.folder / "scratch"))
    (dr_ctl.folder / "scratch").mkdir()
    write(history("london"), dr_ctl.folder / "history")
    settings_with(dr_ctl, spark={"master": silent_master, "conf": {"spark.driver.host": "127.0.0.1"}})
    runbooks = dr_ctl.folder / "runbooks"
    assert dr_ctl("runbook", "show", "swapover").code == 0
    shipped = Path(__file__).parents[2] / "runbooks"
    runbooks.mkdir()
    for book in shipped.glob("*.yaml"):
        text = book.read_text(encoding="utf-8")
        (runbooks / book.name).write_text(text.replace("- estimate: {}", "- estimate: {within: 8s}"), encoding="utf-8")
    settings_with(dr_ctl, runbooks="runbooks")
    seen: list[list[int]] = []
    installation.london.before_change = lambda operation: seen.append(running(dr_ctl.folder / "scratch"))

    moved = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert moved.code == 0, moved.document
    assert "DR-RPO-008" in moved.ids
    assert seen
    assert not any(seen), "Java ran on while clients were kept out"
    assert running(dr_ctl.folder / "scratch") == []


@pytest.mark.spark
@pytest.mark.deep
def test_ctrl_c_ends_an_estimate_and_its_java(dr_ctl: Shell, installation: Installation) -> None:
    write(history("london"), dr_ctl.folder / "history")
    scratch = dr_ctl.folder / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "dr_ctl", "--config", str(dr_ctl.folder / "dr-ctl.yaml"), "rpo", "estimate"]
    asked = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True)
    end = time.monotonic() + WITHIN_S
    while not any(scratch.glob("dr-ctl-spark-*/blockmgr-*")):
        assert time.monotonic() < end
        assert asked.poll() is None
        wait(0.02)

    os.killpg(asked.pid, signal.SIGINT)  # as a terminal does

    assert asked.wait(WITHIN_S) == 130
    until_gone(scratch)
    assert not any(scratch.glob("dr-ctl-spark-*"))


@pytest.mark.parametrize(
    "words", [("escalate", "--accept-loss", "unknown", "--accept-duplicates", "unknown"), ("abort",)], ids=" ".join
)
def test_what_else_ends_a_run_behind_its_fence_makes_none_either(
    dr_ctl: Shell, installation: Installation, deaf: Path, words: tuple[str, ...]
) -> None:
    write(history("london"), dr_ctl.folder / "history")
    killed_after(dr_ctl, installation, "quiesce", "fence")

    ended = dr_ctl(*words, "--yes", "--json")

    assert ended.code == 0, ended.document
    assert not deaf.exists()
