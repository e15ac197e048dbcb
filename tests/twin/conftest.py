"""The same tests for a twin and, with the marker `broker`, for two real brokers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dr_ctl.cli.app import run
from dr_ctl.cli.twins import PlayedTwin
from dr_ctl.lab.lab import Lab
from dr_ctl.twin.kinds import CONTINUITY, MIRROR
from tests.broker.driving import Ended, on_queue, reset
from tests.continuity.plugin import needs_plugin
from tests.patience import impatient
from tests.twin.plugin_subject import FLOWS, PluginSubject
from tests.twin.subject import Subject

Command = Callable[..., Ended]
BOTH = pytest.mark.parametrize("topology", [MIRROR, CONTINUITY])
LATER = pytest.mark.parametrize("topology", [MIRROR, pytest.param(CONTINUITY, marks=pytest.mark.chaos)])


@pytest.fixture(scope="session")
def real_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("contract") / "lab") as lab:
        yield lab


@pytest.fixture
def topology() -> str:
    """What joins the sites of the twin; a test that is for another, or for several, is parametrized by it."""
    return MIRROR


@pytest.fixture
def twin(tmp_path: Path, topology: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedTwin]:
    if topology == CONTINUITY:
        prompt(monkeypatch)
    with PlayedTwin.up(tmp_path / "twin", topology=topology) as twin:
        yield twin


def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what waits for the late confirmations of real bridges wait for those of a twin, which come at once."""
    impatient(monkeypatch, plugin_window_s=0.1, watch_s=0.1, watch_intervals=0, stuck_s=0.3, plugin_left_over_s=0.3)


@pytest.fixture(params=["twin", pytest.param("brokers", marks=pytest.mark.broker)])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "twin":
        return Subject(request.getfixturevalue("twin"))
    lab: Lab = request.getfixturevalue("real_pair")
    for site in ("london", "paris"):
        lab.start(site)
        # What a failed test left closed or paused would fail all that follow.
        lab.admin(site).open_clients("mirror")
        on_queue(lab, site, f"$ACTIVEMQ_ARTEMIS_MIRROR_{lab.state.other(site).name}", "resume()")
    reset(lab)
    return Subject(lab)


@pytest.fixture(scope="session")
def plugin_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("plugin contract") / "lab", topology=CONTINUITY, queues=FLOWS) as lab:
        yield lab


@pytest.fixture(params=["twin", pytest.param("brokers", marks=[pytest.mark.broker, needs_plugin])])
def pair(request: pytest.FixtureRequest) -> PluginSubject:
    if request.param == "twin":
        twin: PlayedTwin = request.getfixturevalue("twin")
        return PluginSubject(twin)
    lab: Lab = request.getfixturevalue("plugin_pair")
    subject = PluginSubject(lab)
    lab.heal()
    subject.reset()
    return subject


@pytest.fixture
def dr_ctl(
    twin: PlayedTwin, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """The command line on the twin, in this process, and without Java: the estimate is a finding."""
    (tmp_path / "no-java").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no-java"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "state"))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def command(*words: str) -> Ended:
        capsys.readouterr()
        code = run([*words, "--json"])
        told = capsys.readouterr()
        return Ended(code, json.loads(told.out), told.err)

    yield command
    for number, handler in before.items():
        signal.signal(number, handler)
