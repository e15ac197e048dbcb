"""The same tests for a twin and, with the marker `broker`, for two real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from tests.broker.driving import on_queue, reset
from tests.conftest import Command
from tests.patience import impatient
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.plugin_subject import FLOWS, PluginSubject
from tests.twin.subject import Subject

OTHERS = (CONTINUITY, BRIDGES, BROKERSYNC, FANOUT, SHARED_STORE)
BOTH = pytest.mark.parametrize("topology", [MIRROR, *OTHERS])
LATER = pytest.mark.parametrize("topology", [MIRROR, *(pytest.param(each, marks=pytest.mark.deep) for each in OTHERS)])


@pytest.fixture(autouse=True)
def simulated(system_of_test: None) -> None:
    """Every test here."""


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
    impatient(
        monkeypatch,
        PluginPatience,
        window_s=0.1,
        watch_s=0.1,
        watch_intervals=0,
        stuck_s=0.3,
        refused_s=0.6,
        left_over_s=0.3,
    )


BROKERS = pytest.param("brokers", marks=[pytest.mark.broker, pytest.mark.deep])
# What keeps the wire honest: the same twin behind sockets, asked the same.
ON_THE_WIRE_TOO = pytest.mark.parametrize(
    "subject", ["twin", pytest.param("sockets", marks=pytest.mark.wire), BROKERS], indirect=True
)


@pytest.fixture(params=["twin", BROKERS])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param in ("twin", "sockets"):
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


@pytest.fixture(params=["twin", pytest.param("brokers", marks=[pytest.mark.broker, pytest.mark.deep, needs_plugin])])
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
def dr_ctl(twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line on the twin."""
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    return inside
