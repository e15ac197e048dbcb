"""What the agent of a Classic standby asks of two brokers: in memory as in its own tests, simulated, and real."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.patience import Patience
from dr_ctl.settings.loader import load
from dr_ctl.topologies.brokersync.access import Observer
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Primary, Standby
from dr_ctl.topologies.brokersync.sync.primary import RealPrimary
from dr_ctl.topologies.brokersync.sync.standby import RealStandby
from dr_ctl.topologies.common.consumed import Consumed, Word
from dr_ctl_lab.twin.kinds import BROKERSYNC
from tests.topologies.brokersync.sync.fakes import Q, Sites
from tests.twin.conftest import BROKERS
from tests.twin.subject import IN, ClassicSubject, until

TOPOLOGY = BROKERSYNC


NOBODY = {"InFlightCount": 0, "ConsumerCount": 0}


class InMemory(Sites):
    """Two brokers, and what clients and operators do there."""

    def shipping(self, *, on: bool) -> None:
        self.ships = on
        self.ship()

    def serves(self, *, on: bool) -> None:
        self.is_open = on

    def lying(self) -> int:
        return len(self.copies)


class Brokers:
    def __init__(self, subject: ClassicSubject, observer: Observer) -> None:
        self.pair, pair = subject, observer.at("london")[0].pair
        installation = load(subject.stage.settings_path)
        self.primary: Primary = RealPrimary(End(installation, observer.brokers["london"][pair]))
        self.standby: Standby = RealStandby(End(installation, observer.brokers["paris"][pair]))

    def send(self, count: int) -> object:
        return self.pair.send(count)

    def consume(self, count: int) -> None:
        with self.pair.client("london") as client:
            client.subscribe(IN, **{"activemq.prefetchSize": "1"})
            for _ in range(count):
                client.ack(client.message())
        # What it held besides goes back to the queue once the broker has noticed that it is gone.
        until(lambda: self.pair.shows("london", *NOBODY) == NOBODY)

    def purge(self) -> None:
        self.pair.on("london", "purge()")

    def shipping(self, *, on: bool) -> None:
        self.pair.done("london", self.pair.network("london"), "start()" if on else "stop()")

    def serves(self, *, on: bool) -> None:
        (self.pair.stage.open_clients if on else self.pair.stage.close_clients)("london")

    def lying(self) -> int:
        return self.pair.depth("paris", IN)


Scene = InMemory | Brokers


@pytest.fixture(params=["memory", "twin", BROKERS])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "memory":
        yield InMemory()
        return
    subject: ClassicSubject = request.getfixturevalue("made_of")(request.param)
    with closing(Observer(load(subject.stage.settings_path), SystemClock(), Patience(), tmp_path)) as observer:
        real = Brokers(subject, observer)
        yield real
        real.primary.close()
        real.standby.close()


def unacknowledged(scene: Scene) -> int:
    return scene.primary.glance().queues[Q].unacknowledged


def heard(scene: Scene, count: int) -> list[tuple[str, str]]:
    """So many announcements."""
    found: list[tuple[str, str]] = []
    until(lambda: found.extend(scene.primary.heard(0.1)) or len(found) >= count)
    return found


def arrived(scene: Scene, count: int) -> frozenset[str]:
    """So many copies: their ids."""
    until(lambda: scene.lying() == count)
    listed = scene.standby.listed(Q, scene.standby.counts().copies[Q])
    assert listed.whole is not None
    assert len(listed.ids) == count
    return listed.ids


def of(*ids: str) -> Consumed:
    return Consumed(frozenset(ids), Word(frozenset(ids), "a test's"))


def test_a_look_tells_whether_clients_are_let_in(scene: Scene) -> None:
    assert scene.primary.glance().is_open

    scene.serves(on=False)

    glance = scene.primary.glance()
    assert not glance.is_open
    assert glance.start
    scene.serves(on=True)


def test_the_counters_tell_a_client_from_an_operator(scene: Scene) -> None:
    scene.send(6)
    before = unacknowledged(scene)

    scene.consume(2)
    after = unacknowledged(scene)
    assert after <= before

    scene.purge()
    assert unacknowledged(scene) == after + 4


def test_what_leaves_is_announced_whoever_took_it(scene: Scene) -> None:
    assert scene.primary.listen([Q]) == [Q]
    assert scene.primary.listen([Q]) == []
    scene.send(3)
    copies = arrived(scene, 3)

    scene.consume(2)
    by_client = heard(scene, 2)
    scene.purge()
    by_operator = heard(scene, 1)

    assert {queue for queue, _ in by_client + by_operator} == {Q}
    assert {id_ for _, id_ in by_client + by_operator} == copies
    scene.primary.deaf()
    with pytest.raises(BrokerError):
        scene.primary.heard(0.1)
    assert scene.primary.listen([Q]) == [Q]


def test_a_browse_finds_what_is_missing_and_is_counted(scene: Scene) -> None:
    scene.send(5)
    copies = arrived(scene, 5)
    scene.consume(2)
    before = unacknowledged(scene)

    told = scene.primary.listed(Q, scene.primary.glance().counts[Q])

    assert told.whole is not None
    assert (told.whole.before, len(copies - told.ids), told.shown) == (3, 2, 3)
    until(lambda: unacknowledged(scene) == before - told.shown)


def test_copies_on_their_way_have_the_ids_they_arrive_with(scene: Scene) -> None:
    scene.shipping(on=False)
    scene.send(4)

    on_their_way = scene.primary.unshipped(Q, scene.primary.glance().to_ship[Q])
    scene.shipping(on=True)

    assert on_their_way.whole is not None
    assert arrived(scene, 4) == on_their_way.ids


def test_deletion_is_by_id_and_says_how_many_were_there(scene: Scene) -> None:
    scene.send(5)
    copies = sorted(arrived(scene, 5))

    assert scene.standby.remove(Q, of(*copies[:2], "ID:no-such-1:1:1:1:1")) == 2
    assert [scene.standby.remove(queue, of(*copies[:2])) for queue in (Q, "no.such.queue")] == [0, 0]

    assert sorted(scene.standby.listed(Q, scene.standby.counts().copies[Q]).ids) == copies[2:]


def test_the_depths_of_both_sites_are_told(scene: Scene) -> None:
    scene.shipping(on=False)
    scene.send(3)
    before = scene.primary.glance()
    assert (before.counts[Q].depth, before.to_ship[Q].depth) == (3, 3)

    scene.shipping(on=True)
    arrived(scene, 3)

    assert scene.primary.glance().to_ship[Q].depth == 0
    there = scene.standby.counts()
    assert (there.copies[Q].depth, Q in there.unshipped and there.unshipped[Q].depth) == (3, 0)
