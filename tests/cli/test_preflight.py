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
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from dr_ctl.application.preflight import Preflight
from dr_ctl.core.clock import SystemClock
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.system import system
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
from tests.scenarios.stage import NoEstimate

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


@pytest.mark.wire
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


@pytest.mark.wire
def test_a_run_that_ends_early_takes_it_along(dr_ctl: Shell, installation: Installation, deaf: Path) -> None:
    preflight = begun(dr_ctl, deaf)

    preflight.abandon()
    preflight.abandon()

    until_gone(deaf)


class Counted(NoEstimate):
    begun = 0

    def __init__(self, *request: object) -> None:
        super().__init__(*request)
        Counted.begun += 1


MOVE = ("swapover", "--to", "paris")
ESCALATE = ("escalate", "--accept-loss", "unknown", "--accept-duplicates", "unknown")
FENCED = ("quiesce", "fence")


@pytest.mark.parametrize(
    ("minutes_ago", "died_after", "words", "is_made", "says"),
    [
        (None, (), MOVE, True, "no estimate: "),
        (3, (), MOVE, False, "as stored 3 min"),
        (16, (), MOVE, True, "no estimate: "),
        (-10, (), MOVE, True, "no estimate: "),  # of a clock that ran ahead
        (None, ("quiesce",), ("resume",), True, "no estimate: "),
        (None, FENCED, ("resume",), False, "skipped: clients are out since this run's fence"),
        (None, (*FENCED, "drain"), ("resume",), False, "skipped: clients are out since this run's fence"),
        (None, FENCED, ("abort",), False, ""),
        (None, FENCED, ESCALATE, False, ""),
    ],
)
def test_one_is_made_where_none_is_fresh_and_clients_are_not_out(
    dr_ctl: Shell,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    minutes_ago: int | None,
    died_after: tuple[str, ...],
    words: tuple[str, ...],
    is_made: bool,
    says: str,
) -> None:
    monkeypatch.setattr(Counted, "begun", 0)
    monkeypatch.setattr("dr_ctl.application.preflight.Estimating", Counted)
    write(history("london"), dr_ctl.folder / "history")
    if minutes_ago is not None:
        place = Place.at(dr_ctl.folder / "history")
        store(place, answer(lost=7), system().now() - timedelta(minutes=minutes_ago))
    if died_after:
        killed_after(dr_ctl, installation, *died_after)

    ended = dr_ctl(*words, "--yes", "--json")

    assert (ended.code, Counted.begun) == (0, is_made), ended.document
    assert says in dr_ctl("runs", "show", ended.document["run"]).out


def test_what_a_stored_estimate_found_is_told_with_it(dr_ctl: Shell, installation: Installation) -> None:
    (dr_ctl.folder / "history").mkdir()
    told = Finding("DR-RPO-002", Severity.WARNING, "two files were not read", "See them.")
    store(Place.at(dr_ctl.folder / "history"), replace(answer(lost=7), findings=(told,)), system().now())
    preflight = Preflight(load(dr_ctl.folder / "dr-ctl.yaml"), "london", SystemClock())
    preflight.begin()

    outcome = preflight.end(within_s=0, wait=wait)

    assert isinstance(outcome, Done)
    assert outcome.findings == (told,)


@pytest.fixture
def silent_master() -> Iterator[str]:
    """A Spark master that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"spark://127.0.0.1:{listener.getsockname()[1]}"


def settings_with(dr_ctl: Shell, **more: object) -> None:
    path = dr_ctl.folder / "dr-ctl.yaml"
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**told, **more}), encoding="utf-8")


@pytest.mark.wire
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


@pytest.mark.wire
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
