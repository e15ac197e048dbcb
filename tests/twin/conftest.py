"""Fixtures for tests that run on a twin and, with the marker `broker`, on two real brokers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.topologies.continuity.tools import PluginTimeouts
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.nodes import Layout
from tests.timeouts import impatient
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.matrix import without_agents
from tests.twin.subject import (
    BridgesSubject,
    ClassicGroupSubject,
    ClassicSubject,
    FanoutSubject,
    GroupSubject,
    PluginSubject,
    StoreSubject,
    Subject,
)

OTHERS = (CONTINUITY, BRIDGES, BROKERSYNC, FANOUT, SHARED_STORE)
BOTH = pytest.mark.parametrize("topology", [MIRROR, *OTHERS])


def at_night(*cases: str) -> list[object]:
    """These cases in `make deep` only."""
    return [pytest.param(case, marks=pytest.mark.deep) for case in cases]


LATER = pytest.mark.parametrize("topology", [MIRROR, *at_night(*OTHERS)])


@pytest.fixture(autouse=True)
def simulated(system_of_test: None) -> None:
    """Every test here."""


@pytest.fixture
def topology(request: pytest.FixtureRequest) -> str:
    """The topology of the twin: TOPOLOGY of the module, unless a test is parametrized."""
    return str(getattr(request.module, "TOPOLOGY", MIRROR))


@pytest.fixture
def layout() -> Layout:
    """The nodes of each broker."""
    return Layout()


@pytest.fixture
def twin(tmp_path: Path, topology: str, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedTwin]:
    if topology == CONTINUITY:
        prompt(monkeypatch)
    with PlayedTwin.up(tmp_path / "twin", topology=topology, layout=layout) as twin:
        yield twin


def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten waits for confirmations: those of a twin's bridges come at once."""
    impatient(
        monkeypatch,
        PluginTimeouts,
        window_s=0.1,
        watch_s=0.1,
        watch_intervals=0,
        stuck_s=0.3,
        refused_s=0.6,
        left_over_s=0.3,
    )


BROKERS = pytest.param("brokers", marks=[pytest.mark.broker, pytest.mark.deep])
# The same twin behind real sockets too, which checks the simulated network.
ON_THE_WIRE_TOO = pytest.mark.parametrize(
    "subject", ["twin", pytest.param("sockets", marks=pytest.mark.wire), BROKERS], indirect=True
)
SUBJECTS: Mapping[str, Callable[[PlayedTwin | Lab], Any]] = {
    MIRROR: Subject,
    CONTINUITY: PluginSubject,
    BRIDGES: BridgesSubject,
    BROKERSYNC: ClassicSubject,
    FANOUT: FanoutSubject,
    SHARED_STORE: StoreSubject,
}
GROUPS: Mapping[str, Callable[[PlayedTwin | Lab], Any]] = {MIRROR: GroupSubject, BROKERSYNC: ClassicGroupSubject}


@pytest.fixture(scope="session")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Layout], Lab]]:
    """Real brokers of one topology at a time, shared by its tests."""
    with ExitStack() as stack:
        up: dict[tuple[str, Layout], Lab] = {}

        def of(topology: str, layout: Layout) -> Lab:
            if (topology, layout) not in up:
                stack.close()
                up.clear()
                folder = tmp_path_factory.mktemp("contract") / "lab"
                nodes = {"nodes": layout.nodes, "replicates": layout.replicates}
                lab = Lab.up(folder, topology=topology, edit=None if layout.fails_back else staying, **nodes)
                up[topology, layout] = stack.enter_context(lab)
            for site in ("london", "paris"):
                up[topology, layout].start(site)
            return up[topology, layout]

        yield of


def staying(xml: str) -> str:
    """Configure no fail-back: an active backup stays active when its primary returns."""
    return xml.replace("<backup>", "<backup><allow-failback>false</allow-failback>", 1)


@pytest.fixture
def made_of(request: pytest.FixtureRequest, topology: str, layout: Layout) -> Callable[[str], Any]:
    """Makes the subject of a contract test, on a twin or on brokers; without agents."""
    kind = SUBJECTS[topology] if layout.nodes == 1 else GROUPS[topology]

    def made(of: str) -> Any:
        if of != "brokers":
            twin: PlayedTwin = request.getfixturevalue("twin")
            without_agents(twin)
            return kind(twin)
        if topology == CONTINUITY and needs_plugin.args[0]:
            pytest.skip(needs_plugin.kwargs["reason"])
        subject = kind(request.getfixturevalue("labs")(topology, layout))
        subject.reset()
        return subject

    return made


@pytest.fixture(params=["twin", BROKERS])
def subject(request: pytest.FixtureRequest, made_of: Callable[[str], Any]) -> Any:
    return made_of(request.param)


@pytest.fixture
def pair(subject: Any) -> Any:
    return subject
