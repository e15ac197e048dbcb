"""Hooks, run for real, told what they need and ended when they take too long; what a service manager is told."""

import json
import os
import signal
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from dr_ctl.agents import exposing
from dr_ctl.core.model import Json
from dr_ctl.engine.ports import Done, Failed, Outcome
from dr_ctl.processes.hooks import run_hook
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.loader import load
from dr_ctl.settings.model import Installation, Settings
from dr_ctl.settings.parts import Secret
from tests.cli.conftest import Shell

RUN = "20261121T020000Z"
FACTS: dict[str, Json] = {
    "run": "20261121T020000Z",
    "source": "london",
    "target": "paris",
    "undoable": True,
    "nothing": None,
}


def script(folder: Path, text: str) -> Path:
    path = folder / "hook.sh"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(folder: Path, *words: str, timeout: str = "10s", name: str = "tell") -> Outcome:
    written = settings(folder, {"run": list(words or ("./hook.sh",)), "timeout": timeout})
    return run_hook(Installation(settings=written, file=folder / "dr-ctl.yaml"), name, FACTS)


def settings(folder: Path, hook: Mapping[str, Any], password: Mapping[str, str] | None = None) -> Settings:
    shell = Shell(folder, cast("Any", None))
    hooks = {"tell": {"run": ["./hook.sh"], **hook}}
    return load(shell.settings(password=password or {"plain": "p"}, hooks=hooks)).settings


def test_it_is_told_by_its_environment_and_its_input(tmp_path: Path) -> None:
    script(tmp_path, 'echo "$DR_CTL_RUN $DR_CTL_SOURCE $DR_CTL_UNDOABLE ${DR_CTL_NOTHING-unset}" > told; cat >> told')

    outcome = run(tmp_path)

    assert isinstance(outcome, Done), outcome
    words, document = (tmp_path / "told").read_text(encoding="utf-8").split("\n")
    assert words == f"{RUN} london true unset"
    assert json.loads(document) == {**FACTS, "hook": "tell"}


@pytest.mark.parametrize(
    ("text", "words", "refusal"),
    [
        ("exec 0<&-; exit 0", (), None),  # it does not read its input
        ("", ("/bin/sh", "-c", 'test "$0" = "a b;c*"', "a b;c*"), None),  # no shell comes between
        ("echo first; echo no route; exit 3", (), "hook tell ended with 3: no route"),
        ("kill -9 $$", (), "hook tell ended with -9"),
        ("", ("./is-not-there",), "hook tell could not be started: "),
        ("", ("./dr-ctl.yaml",), "hook tell could not be started: "),
    ],
)
def test_one_that_fails_or_cannot_be_started_is_refused_with_its_last_words(
    tmp_path: Path, text: str, words: tuple[str, ...], refusal: str | None
) -> None:
    script(tmp_path, text)
    outcome = run(tmp_path, *words)
    assert isinstance(outcome, Done if refusal is None else Failed), outcome
    assert refusal is None or outcome.text.startswith(refusal)
    assert not words or refusal is None or words[0] in outcome.text


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script(tmp_path, "sleep 300 & echo $! > child; wait")
    began = time.monotonic()

    outcome = run(tmp_path, timeout="300ms")

    assert isinstance(outcome, Failed)
    assert outcome.text == "hook tell took longer than 0.3 s and was ended"
    assert time.monotonic() - began < 5
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    until = time.monotonic() + 5
    while (state := alive(child)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not state


def alive(child: int) -> bool:
    try:
        return (Path(f"/proc/{child}") / "stat").read_text(encoding="utf-8").split()[2] not in "ZX"
    except OSError:
        return False


def test_one_that_the_settings_do_not_have_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path, name="other") == Failed("the settings have no hook other")


def test_it_has_no_password_and_none_that_it_prints_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONDON_PASSWORD", "b1rd-song")
    monkeypatch.setenv("OTHER", "kept")
    script(tmp_path, 'echo "${LONDON_PASSWORD-unset} $OTHER b1rd-song"; exit 3')
    written = settings(tmp_path, {}, password={"env": "LONDON_PASSWORD"})
    assert resolve(Secret(env="LONDON_PASSWORD"), tmp_path) == "b1rd-song"

    outcome = run_hook(Installation(settings=written, file=tmp_path / "dr-ctl.yaml"), "tell", FACTS)

    assert isinstance(outcome, Failed)
    assert outcome.evidence["said"] == "unset kept ***\n"
    assert outcome.text == "hook tell ended with 3: unset kept ***"


@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_PASSWORD", "s3cr3t-of-the-database"), ("DATABASE_URL", "postgresql://app:s3cr3t-of-the-database@db/orders")],
)
def test_what_its_environment_holds_as_a_secret_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    script(tmp_path, "set; exit 1")

    outcome = run(tmp_path)

    assert isinstance(outcome, Failed)
    assert "DR_CTL_SOURCE" in str(outcome.evidence["said"])
    assert "s3cr3t" not in str(outcome.evidence)


def test_one_that_leaves_a_daemon_with_its_output_is_over_when_it_is_and_the_daemon_lives(tmp_path: Path) -> None:
    script(tmp_path, "sleep 300 & echo $! > child; echo started")
    began = time.monotonic()

    outcome = run(tmp_path, timeout="20s")

    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    try:
        assert outcome == Done("hook tell succeeded", {"exit_code": 0, "said": "started\n"})
        assert time.monotonic() - began < 10
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("address", ["{}/notify", "@dr-ctl-{}"])
def test_a_service_manager_that_listens_is_told(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = address.format(tmp_path if address.startswith("{") else tmp_path.name)
    monkeypatch.setenv("NOTIFY_SOCKET", text)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(text.replace("@", "\0"))
        manager.settimeout(5)

        assert exposing.notify(exposing.READY, exposing.ALIVE, "STATUS=london serves")

        assert manager.recv(1000).decode().splitlines() == ["READY=1", "WATCHDOG=1", "STATUS=london serves"]


@pytest.mark.parametrize("place", [None, "", "relative", "/nowhere/notify"])
def test_without_one_nothing_is_sent(place: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if place is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", place)

    assert not exposing.notify(exposing.READY)
