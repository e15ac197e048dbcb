"""What only a twin of Classic brokers can be made to do: its agent, its policy, a browse that stops short, doors that
open by themselves; and that no message vanishes between its sites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dr_ctl.core.system import system
from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.settings.loader import load
from dr_ctl.settings.topologies.classic_brokersync import ClassicBrokerSync
from dr_ctl.topologies.classic import look
from dr_ctl.topologies.classic.operations import PAUSES, REMOVES, REMOVES_QUEUES, RESUMES, STOPS
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.agent import Agent
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.classic.brokersync.way import BrokerSyncWay
from dr_ctl_lab.twin.classic.policy import HARDENED
from dr_ctl_lab.twin.classic.topics import matches
from dr_ctl_lab.twin.kinds import BROKERSYNC
from dr_ctl_lab.twin.messages import Message, Reason
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.way import Mode
from tests.twin.classic_subject import CONSUMED, DLQ, ORDERS, ClassicSubject
from tests.twin.subject import comes, until
from tests.twin.test_invariants import NoPorts

TOPOLOGY = BROKERSYNC

ANY = st.sampled_from(("london", "paris"))


@pytest.fixture
def pair(twin: PlayedTwin) -> ClassicSubject:
    return ClassicSubject(twin)


def broker(twin: PlayedTwin, site: str) -> BrokerSyncBroker:
    found = twin.host(site).broker
    assert isinstance(found, BrokerSyncBroker)
    return found


def agent(twin: PlayedTwin, site: str) -> Agent:
    """The one that cleans a site."""
    found = broker(twin, site).agent
    assert found is not None
    return found


def depths(twin: PlayedTwin, queue: str = ORDERS) -> tuple[int, int]:
    return twin.depth("london", queue), twin.depth("paris", queue)


def sent(pair: ClassicSubject, twin: PlayedTwin, count: int, site: str = "london") -> None:
    with pair.client(site) as client:
        for number in range(count):
            client.send(ORDERS, n=str(number))
    twin.wait_mirrored()


def taken(pair: ClassicSubject, count: int, site: str = "london") -> None:
    with pair.client(site) as client:
        client.subscribe(ORDERS)
        for _ in range(count):
            client.ack(client.message())


# settings and console


def test_the_settings_of_a_twin_are_those_of_the_topology(twin: PlayedTwin) -> None:
    found = load(twin.settings_path).settings

    assert isinstance(found, ClassicBrokerSync)
    [told] = found.sites["london"].brokers
    assert (told.clients, told.copies, told.network) == (("stomp",), "{queue}.to-paris", "to-paris")
    assert told.sync is not None
    assert (told.sync.connector, told.sync.username) == ("sync", "agent")


@contextmanager
def reader(twin: PlayedTwin, site: str) -> Iterator[Reader]:
    """The product's own way to look."""
    host = twin.host(site)
    wire = Wire(Account(f"{host.jolokia}/", *host.admin, "http://127.0.0.1"))
    try:
        yield Reader(wire)
    finally:
        wire.close()


def test_a_look_finds_what_there_is(twin: PlayedTwin) -> None:
    with reader(twin, "london") as asked:
        told = look.ask(asked, look.find_broker(asked))

    assert {(each.name, each.started) for each in told.connectors} == {
        ("stomp", True),
        ("openwire", True),
        ("sync", True),
    }
    assert [(each.name, each.to) for each in told.networks] == [("to-paris", "paris")]
    assert {each.name for each in told.queues} >= {ORDERS, f"{ORDERS}.to-paris"}
    assert [network for _, network in told.connections] == [True]
    assert told.denied == frozenset()


def test_a_policy_refuses_what_it_denies_before_it_looks_for_a_bean(twin: PlayedTwin, pair: ClassicSubject) -> None:
    broker(twin, "london").policy = HARDENED

    with reader(twin, "london") as asked:
        denied = look.ask(asked, "london").denied
    paused = pair.execute("london", pair.queue("london", ORDERS), "pause()")
    whole = pair.ask("london", type="read", mbean=pair.network("london"))
    named = pair.read("london", pair.network("london"), "Name")

    assert denied == {PAUSES, RESUMES, REMOVES, REMOVES_QUEUES, STOPS}
    assert paused["status"] == 403
    assert "Operation pause() forbidden for MBean org.apache.activemq:brokerName=london," in paused["error"]
    assert (whole["status"], "Password is forbidden" in whole["error"]) == (403, True)
    assert named == {"Name": "to-paris"}
    assert twin.settable()["london/orders-1"]["queues"][ORDERS]["paused"] is False


def test_a_browse_stops_short_without_a_word(twin: PlayedTwin, pair: ClassicSubject) -> None:
    broker(twin, "london").browse_page = 2
    sent(pair, twin, 3)
    last = pair.ids("paris")[2]

    assert pair.ids("london") == pair.ids("paris")[:2]
    assert (
        pair.done("london", pair.queue("london", ORDERS), "browse(java.lang.String)", f"JMSMessageID = '{last}'") == []
    )
    with pair.client("london") as client:
        client.subscribe(ORDERS, "b", browser="true", ack="auto")
        assert [client.message().headers.get("browser") for _ in range(3)] == [None, None, "end"]
        client.subscribe(ORDERS, "c", browser="true", ack="auto", selector="n = '2'")
        client.nothing_for(0.2)


@pytest.mark.parametrize(
    ("wanted", "heard"),
    [
        (f"{CONSUMED}>", True),
        (f"{CONSUMED}orders.*", True),
        (f"{CONSUMED}orders", False),
        (f"/topic/other,{CONSUMED}{ORDERS}", True),
        (f"{CONSUMED}*", False),
    ],
)
def test_topics_are_heard_by_pattern(wanted: str, heard: bool) -> None:
    assert matches(wanted, f"{CONSUMED}{ORDERS}") is heard


# brokers


def test_what_expires_is_a_dead_letter_once_the_broker_looks(twin: PlayedTwin, pair: ClassicSubject) -> None:
    london = broker(twin, "london")
    with pair.client("london") as client:
        client.send(ORDERS, expires=str(london.now_ms() + 50))
    twin.wait_mirrored()
    assert depths(twin) == (1, 1)

    with twin.still():
        london.looks_every_s = 0.01
        london.look_soon()

    comes(lambda: (depths(twin), twin.depth("london", DLQ)), ((0, 0), 1))


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_start_opens_what_opens_by_itself(twin: PlayedTwin, *, by_itself: bool) -> None:
    london = broker(twin, "london")
    london.acceptors["stomp"].opens_at_boot = by_itself
    twin.kill("london")

    twin.start("london")

    doors = {door.name: door.started for door in london.acceptors.values()}
    assert doors == {"stomp": by_itself, "openwire": True, "sync": True}
    twin.wait_mirrored()


def test_a_bridge_that_does_not_start_by_itself_keeps_what_it_has(twin: PlayedTwin, pair: ClassicSubject) -> None:
    twin.cut("london")
    until(lambda: not pair.bridges("london"))
    with pair.client("london") as client:
        client.send(ORDERS)
    broker(twin, "london").network.auto_start = False
    twin.kill("london")
    twin.heal()

    twin.start("london")

    assert pair.bridges("london") == []
    assert depths(twin, f"{ORDERS}.to-paris") == (1, 0)
    pair.done("london", pair.network("london"), "start()")
    twin.wait_mirrored()
    assert depths(twin) == (1, 1)


# the agent


def test_the_agent_deletes_the_copies_of_what_was_consumed(twin: PlayedTwin, pair: ClassicSubject) -> None:
    sent(pair, twin, 5)
    taken(pair, 2)

    twin.wait_mirrored()

    assert depths(twin) == (3, 3)
    assert pair.ids("london") == pair.ids("paris")


def test_a_copy_that_comes_late_is_waited_for(twin: PlayedTwin, pair: ClassicSubject) -> None:
    twin.cut("london", mode="hang")
    with pair.client("london") as client:
        client.send(ORDERS)
    taken(pair, 1)
    until(lambda: not agent(twin, "paris").idle)

    twin.heal()
    twin.wait_mirrored()

    assert depths(twin) == (0, 0)


def test_an_agent_that_was_away_compares_when_it_comes_back(twin: PlayedTwin, pair: ClassicSubject) -> None:
    agent(twin, "paris").stop()
    sent(pair, twin, 5)
    taken(pair, 2)
    assert depths(twin) == (3, 5)

    with twin.still():
        agent(twin, "paris").start()

    comes(lambda: depths(twin), (3, 3))


def test_without_its_connector_the_agent_deletes_nothing(twin: PlayedTwin, pair: ClassicSubject) -> None:
    sent(pair, twin, 2)
    pair.done("paris", pair.connector("paris", "sync"), "stop()")
    taken(pair, 1)
    assert depths(twin) == (1, 2)

    pair.done("paris", pair.connector("paris", "sync"), "start()")

    comes(lambda: depths(twin), (1, 1))


def test_what_was_never_shipped_from_the_waiting_site_is_no_residue(twin: PlayedTwin, pair: ClassicSubject) -> None:
    twin.close_clients("london")
    twin.open_clients("paris")
    twin.cut("paris")
    until(lambda: not pair.bridges("paris"))
    with pair.client("paris") as client:
        client.send(ORDERS)

    twin.close_clients("paris")
    twin.open_clients("london")
    with twin.still():
        agent(twin, "paris").start()

    assert depths(twin) == (0, 1)
    twin.heal()
    twin.wait_mirrored()
    assert depths(twin) == (1, 1)


def test_what_a_lost_site_comes_back_with_is_left_to_a_person(twin: PlayedTwin, pair: ClassicSubject) -> None:
    sent(pair, twin, 3)
    twin.kill("london")
    twin.open_clients("paris")
    taken(pair, 2, "paris")

    twin.start("london")
    twin.wait_mirrored()
    assert depths(twin) == (3, 1)
    with twin.still():
        agent(twin, "london").start()

    comes(lambda: depths(twin), (1, 1))


# no message vanishes


class Sites:
    """Two brokers without sockets and the ways between them. `done` is what was consumed at London. With that broker
    die its counters, and what the agent has heard and not yet deleted: then copies of it may stay."""

    def __init__(self) -> None:
        self.done, self.has_died = set[bytes](), False
        changed = system().condition()
        self.brokers = {
            site: BrokerSyncBroker(
                site=site,
                pair="orders-1",
                name=site,
                peer=peer,
                changed=changed,
                acceptors={
                    "stomp": Acceptor("stomp", "STOMP", port=1),
                    "openwire": Acceptor("openwire", "OPENWIRE", opens_at_boot=True, port=2),
                    "sync": Acceptor("sync", "STOMP", opens_at_boot=True, port=3),
                },
                ports=NoPorts(),
            )
            for site, peer in (("london", "paris"), ("paris", "london"))
        }
        self.ways = {
            site: BrokerSyncWay(self.brokers[site], self.brokers[peer])
            for site, peer in (("london", "paris"), ("paris", "london"))
        }

    @contextmanager
    def up(self) -> Iterator[None]:
        with self.brokers["london"].lock:
            for each in self.brokers.values():
                each.installed((ORDERS,))
                each.start()
            self.brokers["london"].let_clients_in()
        for way in self.ways.values():
            way.start()
        try:
            yield
        finally:
            for way in self.ways.values():
                way.end()

    def settle(self) -> None:
        changed = self.brokers["london"].changed
        with changed:
            for _ in range(2000):
                if all(each.attached and each.even for each in self.brokers.values()):
                    return
                changed.wait(0.005)
        raise AssertionError("the bridges do not empty")

    def bodies(self, site: str) -> list[bytes]:
        return sorted(each.body for each in self.brokers[site].queues[ORDERS].messages.values())

    def do(self, act: str, site: str, number: int, wanted: set[bytes]) -> None:
        """London serves; whatever happens to either site, to the ways and to the agent."""
        there, london = self.brokers[site], self.brokers["london"]
        match act:
            case "cut" | "hang" | "heal":
                self.ways[site].set({"cut": Mode.REFUSE, "hang": Mode.HANG, "heal": Mode.OPEN}[act])
            case "send" if london.alive:
                body = str(number).encode()
                london.route(Message(london.next_number(), ORDERS, body, text=True, headers={}))
                wanted.add(body)
            case "take" if london.alive:
                queue = london.queues[ORDERS]
                if (message := next(queue.live(), None)) is not None:
                    london.remove(queue, message, Reason.NORMAL)
                    wanted.discard(message.body)
                    self.done.add(message.body)
            case "stop":
                there.network.stop()
            case "start":
                there.network.start()
            case "die":
                there.kill()
                self.has_died |= there is london
            case "live":
                there.start()
                london.let_clients_in()
            case _:
                there.changed.wait(0.003)


ACTS = ("send", "send", "take", "cut", "hang", "heal", "stop", "start", "die", "live", "wait")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), ANY), max_size=40))
@example([("cut", "london"), ("send", "london"), ("take", "london"), ("die", "london")])
@example([("cut", "london"), ("send", "london"), ("take", "london")])
def test_whatever_happens_on_the_way_both_sites_end_with_the_same(acts: list[tuple[str, str]]) -> None:
    sites, wanted = Sites(), set[bytes]()
    with sites.up():
        for number, (act, site) in enumerate(acts):
            with sites.brokers[site].lock:
                sites.do(act, site, number, wanted)
            system().sleep(0.001)  # what an agent is told at once it hears before anything else happens
        for site, way in sites.ways.items():
            way.set(Mode.OPEN)
            with sites.brokers[site].lock:
                sites.do("live", site, 0, wanted)
                sites.do("start", site, 0, wanted)
        with sites.brokers["london"].lock:
            for each in sites.brokers.values():
                assert each.agent is not None
                each.agent.start()
        sites.settle()

        assert sites.bodies("london") == sorted(wanted)
        may_stay = sites.done if sites.has_died else set[bytes]()
        assert [each for each in sites.bodies("paris") if each not in may_stay] == sorted(wanted)
