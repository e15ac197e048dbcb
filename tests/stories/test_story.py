"""A service's life under load, once for each topology, on the twin and on real brokers: moved there and back, a command
killed on the way, a site lost, replaced, taken in again. The ledger of the clients judges."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.model import ExitCode
from dr_ctl.settings.loader import load
from dr_ctl.stomp_io.address import Closed, Connected
from dr_ctl.stomp_io.client import try_login
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Counts, Verdict
from dr_ctl_lab.lab.stage import LoadOptions
from dr_ctl_lab.lab.traffic import Load
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from tests.broker.driving import Ended, Operator, Stage, accepting, killed_at, recorded, until
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.conftest import prompt

RATE, WORK_MS = 24, 50.0  # one consumer, which falls behind: whenever a site is lost, messages lie there
EVERY_S = 0.2
# A new topology is one more line: what its brokers need that may not be here.
TOPOLOGIES: dict[str, tuple[pytest.MarkDecorator, ...]] = {
    "artemis-mirror": (),
    "artemis-continuity": (needs_plugin,),
    "artemis-bridges": (),
    "classic-brokersync": (),
    "classic-fanout": (),
    "classic-shared-store": (),
}
# Beside the versions that labs have by themselves: which stories are told on which.
VERSIONS = {
    "2.31.2": ("artemis-bridges",),
    "2.40.0": ("artemis-mirror", "artemis-bridges"),
    "6.3.1": ("classic-brokersync", "classic-fanout", "classic-shared-store"),
}
KEEP_HISTORY = ("artemis-bridges",)  # nothing takes out of the standby what was processed
WITH_AGENT = ("classic-brokersync",)  # beside real brokers it runs as a service; a twin has it inside
TRIMMED = ("classic-fanout",)  # a command does, which is asked for
# Both sites had what was confirmed, or it lies in the store of both, so that no failure loses any of it.
SAFE = ("classic-fanout", "classic-shared-store")
LINKLESS = ("classic-fanout", "classic-shared-store")  # nothing is shipped that could be cut
# Of several flows at once the plugin loses acknowledgements, and what that leaves staged at times refuses a return;
# several are tested in tests/topologies/continuity.
ONE_FLOW = ("artemis-continuity",)
BY_ITSELF = ("classic-shared-store",)  # who waits takes over, asked or not: then nothing is owed
BY_QUEUE = ("artemis-bridges",)  # clients are kept out of queues, and no listener is closed
# Where the site that is left is asked to let clients in at the other: by which of its requests that begin so.
HANDED_OVER = {"classic-shared-store": ("stop", 2)}


def lane(topology: str) -> pytest.MarkDecorator:
    """Two of them run side by side, each on brokers of its own: alone they would take most of the time of all tests."""
    return pytest.mark.xdist_group("stories of Classic" if topology.startswith("classic-") else "broker")


STAGES = [
    *(
        # Each runs on real brokers too: there a change has to pass, and on all twins at night.
        pytest.param((topology, False, ""), id=f"{topology} on its twin", marks=pytest.mark.deep)
        for topology in TOPOLOGIES
    ),
    *(
        pytest.param(
            (topology, True, ""), id=f"{topology} on brokers", marks=(pytest.mark.broker, lane(topology), *needs)
        )
        for topology, needs in TOPOLOGIES.items()
    ),
    *(
        pytest.param(
            (topology, True, version), id=f"{topology} {version}", marks=(pytest.mark.broker, pytest.mark.deep)
        )
        for version, topologies in VERSIONS.items()
        for topology in topologies
    ),
]


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    topology, real, version = request.param
    if not real:
        prompt(monkeypatch)
    more: dict[str, Any] = {"queues": ("orders.in",)} if real and topology in ONE_FLOW else {}
    more |= {"version": version} if version else {}
    with (Lab if real else PlayedTwin).up(tmp_path / "stage", topology=topology, **more) as stage:
        yield stage


def test_a_service_moves_there_and_back_loses_a_site_and_takes_it_in_again(
    stage: Stage, operator: Operator, tmp_path: Path
) -> None:
    topology = load(stage.settings_path).settings.topology
    beside = Agents(operator) if topology in WITH_AGENT and isinstance(stage, Lab) else nullcontext()
    with beside, stage.load(RATE, **clients(stage, topology)) as traffic:
        more(traffic)
        remote = operator.run("swapover", "--to", "paris", "--yes")
        assert remote.code == 0, remote.told
        more(traffic)
        back = killed_on_the_way(stage, operator, tmp_path / "recorded")
        assert back.code == 0, back.told
        assert back.document["data"]["pairs"][0]["serving"] == "london", back.told
        more(traffic)
        moved = traffic.ledger.verdict(drained=False)

        refused, taken_over = lose(stage, operator, traffic)
        assert taken_over.code == 0, taken_over.told
        more(traffic)
        lost = came_to_rest(stage, traffic)
        if topology not in LINKLESS:
            stage.heal()
        stage.start("london")
        owed = operator.run("status").document["debts"]
        planned = operator.run("plan", "failback", "--to", "london").document
        traffic.resume_producing()
        returned = fail_back(operator, topology)
        assert returned.code == 0, returned.told
        more(traffic)
        # What was consumed before may lie there once more: the ledger alone does not tell that all is consumed.
        came_to_rest(stage, traffic)
        verdict = traffic.stop(drain_s=60)
        if topology in TRIMMED:
            assert operator.run("trim", "paris", "--yes").code == 0
        # All that was sent was consumed: nothing of it is left; an agent may take a moment.
        until(lambda: not left(stage, topology), why=f"nothing is left: {left(stage, topology)}")
    bounds = refused.document["data"]["bounds"]
    print(document(verdict), bounds, len(lost.lost), len(lost.duplicates))

    assert remote.document["data"]["pairs"][0]["serving"] == "paris", remote.told
    assert (moved.duplicates, moved.redelivered, moved.unexpected) == ((), (), ())
    # What is lost and what comes twice is within what was said beforehand, and was agreed to.
    first = (0, "ok") if topology in SAFE else (11, "loss_refused")
    assert (refused.code, refused.document["outcome"]) == first, refused.told
    assert (topology not in SAFE) <= len(lost.lost) <= bounds["lost"]["at_most"]
    assert len(lost.duplicates) <= bounds["duplicates"]["at_most"]
    assert {debt["site"] for debt in owed} == {"london"} or (topology in BY_ITSELF and owed == [])
    # The return brings back what was lost, and doubles no more than it said.
    assert verdict.lost == ()
    assert verdict.drained
    doubled = set(verdict.duplicates) - set(lost.duplicates)
    assert len(doubled) <= planned["data"].get("residue", {}).get("duplicates_at_most", 0)
    london, paris = (stage.site(site) for site in ("london", "paris"))
    assert isinstance(try_login(london.stomp, london.app, None, timeout_s=5), Connected)
    assert isinstance(
        try_login(paris.stomp, paris.app, None, timeout_s=5), Connected if topology in BY_QUEUE else Closed
    )
    roles = {site: item["role"] for site, item in operator.run("status").document["data"]["sites"].items()}
    assert roles == {"london": "serving", "paris": "standby"}
    # No site owes anything, each run is sealed.
    assert operator.run("status").document["debts"] == []
    assert operator.run("runs", "verify").code == 0


def clients(stage: Stage, topology: str) -> LoadOptions:
    """Clients of every protocol that is spoken there. One consumer, or one of each queue: it speaks another protocol at
    each new connection."""
    target = stage.target()
    work_ms = WORK_MS * (len(stage.queues) if topology in BY_QUEUE else 1)
    return {
        "producers": len(target.protocols) + 1,
        "consumers": 1,
        "work_ms": work_ms,
        "protocols": target.protocols,
        "variations": target.variations,
    }


def left(stage: Stage, topology: str) -> set[str]:
    """Where something lies that should not."""
    return {name for name in depths(stage) if topology not in KEEP_HISTORY or name.startswith("london/")}


def depths(stage: Stage) -> dict[str, int]:
    """What lies in the clients' queues of either site, by site and queue; nothing of those that are empty."""
    result = {}
    for site in ("london", "paris"):
        by_queue = stage.admin(site).depths() if isinstance(stage, Lab) else None
        for queue in stage.queues:
            depth = by_queue.get(queue, 0) if by_queue is not None else stage.depth(site, queue)
            if depth:
                result[f"{site}/{queue}"] = depth
    return result


def more(traffic: Load) -> None:
    """Let clients work for a second."""
    traffic.wait_for(traffic.counts().sent + RATE)


def killed_on_the_way(stage: Stage, operator: Operator, folder: Path) -> Ended:
    """Move back to London: the command is killed right before London lets clients in, and gone on with."""
    asked = HANDED_OVER.get(load(stage.settings_path).settings.topology)
    site = "london" if asked is None else "paris"
    operation, nth = asked or ("", 1)
    # One that stands before the console of a broker that refuses would not refuse.
    with recorded(stage, folder, [site]) as (settings, recorders):
        cut = Operator(stage, operator.state, settings)
        killed_at(cut, recorders, site, nth, "swapover", "--to", "london", "--yes", operation=operation)
    return operator.run("resume", "--yes")


def lose(stage: Stage, operator: Operator, traffic: Load) -> tuple[Ended, Ended]:
    """Kill London after a second in which it shipped nothing; the failover that is refused for its price, and the one
    that is agreed to."""
    failover = ("failover", "--to", "paris", "--yes")
    topology = load(operator.settings).settings.topology
    with recording(load(operator.settings), every_s=EVERY_S):
        # Without a few readings no pace is known, and after the death it is too late for more.
        until(lambda: topology in SAFE or exposure(operator.run("status")) is not None)
        more(traffic)
        if topology not in LINKLESS:
            stage.cut("london")
        more(traffic)
        stage.kill("london")
        # Once the monitor has seen the death the price grows no more.
        dry = (*failover, "--dry-run")
        until(lambda: (told := exposure(operator.run(*dry))) is not None and exposure(operator.run(*dry)) == told)
    refused = operator.run(*failover)
    return refused, operator.run(*failover, *accepting(refused))


def fail_back(operator: Operator, topology: str) -> Ended:
    """Where ids tell what was done, what consumers had in hand when their site was lost is agreed to."""
    failback = ("failback", "--to", "london", "--yes")
    ended = operator.run(*failback)
    asked = topology in BY_QUEUE and ended.code == ExitCode.PRECHECK_FAILED
    return operator.run(*failback, *accepting(ended)) if asked else ended


def exposure(refused: Ended) -> int | None:
    """How many messages may be lost; None where that is not known, or not yet that the site is down."""
    at_most: int | None = refused.document["data"].get("bounds", {}).get("lost", {}).get("at_most")
    return at_most


def came_to_rest(stage: Stage, traffic: Load) -> Verdict:
    """What became of all messages once nothing lies any more in the queues of the site that serves."""
    traffic.pause_producing()

    def idle(counts: Counts) -> bool:
        return counts.received == counts.consumed + counts.ack_in_doubt and stage.target().remaining(stage.queues) == 0

    traffic.slow_down(0)
    while not idle(counts := traffic.counts()):
        consumed = counts.consumed
        traffic.wait_until(lambda now: idle(now) or now.consumed > consumed, goal="one more is consumed")  # noqa: B023
    traffic.slow_down(WORK_MS)
    return traffic.ledger.verdict()


class Agents:
    """The agent as a service manager keeps it: it ends when its site serves no more, and is started again."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._over = threading.Event()
        self._now: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep, name="agents")
        self.ends: list[int] = []

    def _keep(self) -> None:
        while not self._over.is_set():
            self._now = self._operator.start("sync")
            self._now.communicate()
            self.ends.append(self._now.returncode)
            self._over.wait(0.2)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._now is not None:
            self._now.terminate()
        self._thread.join(30)
