"""What mirror traffic may never do: lose a message or double one, whatever happens to links, doors and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.system import system
from dr_ctl_lab.twin.broker import ANYCAST
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.mirror.outflow import Link
from dr_ctl_lab.twin.mirror.way import MirrorWay
from dr_ctl_lab.twin.parts import Acceptor
from dr_ctl_lab.twin.way import Mode

QUEUES = ("orders.in", "orders.out")


class NoPorts:
    """Doors without sockets."""

    def open(self, name: str) -> None:
        pass

    def close(self, name: str) -> None:
        pass


@contextmanager
def pair() -> Iterator[tuple[dict[str, MirrorBroker], dict[str, MirrorWay]]]:
    changed = system().condition()
    brokers = {
        site: MirrorBroker(
            site=site,
            pair="orders-1",
            name=site,
            changed=changed,
            acceptors={
                "clients": Acceptor("clients", "STOMP", port=1),
                "mirror": Acceptor("mirror", "AMQP", opens_at_boot=True, port=2),
            },
            link=Link(peer, 2),
            ports=NoPorts(),
        )
        for site, peer in (("london", "paris"), ("paris", "london"))
    }
    for broker in brokers.values():
        with changed:
            for name in QUEUES:
                broker.create_queue({"name": name, "routing-type": ANYCAST}, here_only=True)
            broker.start()
    ways = {
        "london": MirrorWay(brokers["london"], brokers["paris"]),
        "paris": MirrorWay(brokers["paris"], brokers["london"]),
    }
    for way in ways.values():
        way.start()
    try:
        yield brokers, ways
    finally:
        for way in ways.values():
            way.end()


def settle(brokers: dict[str, MirrorBroker]) -> None:
    def quiet() -> bool:
        return all(each.link.attached and not each.outflow.events and not each.pending for each in brokers.values())

    changed = brokers["london"].changed
    with changed:
        for _ in range(2000):
            if quiet():
                return
            changed.wait(0.005)
    raise AssertionError("the links do not empty")


def bodies(broker: MirrorBroker) -> dict[str, list[bytes]]:
    return {name: sorted(each.body for each in broker.queues[name].messages.values()) for name in QUEUES}


sites = st.sampled_from(("london", "paris"))
sends = st.tuples(st.just("send"), sites, st.sampled_from(QUEUES))
takes = st.tuples(st.just("take"), sites, st.sampled_from(QUEUES))
troubles = st.tuples(
    st.sampled_from(("stop", "start", "cut", "hang", "heal", "die", "live", "settle")), sites, st.just("")
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(sends, sends, takes, troubles), max_size=40))
def test_whatever_happens_on_the_way_both_sites_end_with_the_same(acts: list[tuple[str, str, str]]) -> None:
    """Only one site serves at a time, as the product sees to it: what is taken there is gone at both."""
    with pair() as (brokers, ways):
        wanted: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        serving = acts[0][1] if acts else "london"
        for number, (act, site, queue) in enumerate(acts):
            do(act, site, queue, number, serving, brokers, ways, wanted)
        for site, way in ways.items():
            way.set(Mode.OPEN)
            with brokers[site].lock:
                brokers[site].start()
                brokers[site].start_link()
        settle(brokers)

        assert bodies(brokers["london"]) == bodies(brokers["paris"])
        assert bodies(brokers["london"]) == {name: sorted(each) for name, each in wanted.items()}
        for name in QUEUES:
            origins = [
                {each.origin or (broker.node, each.number) for each in broker.queues[name].messages.values()}
                for broker in brokers.values()
            ]
            assert origins[0] == origins[1]


def do(
    act: str,
    site: str,
    queue: str,
    number: int,
    serving: str,
    brokers: dict[str, MirrorBroker],
    ways: dict[str, MirrorWay],
    wanted: dict[str, list[bytes]],
) -> None:
    broker = brokers[site]
    match act:
        case "cut" | "hang" | "heal":
            ways[site].set({"cut": Mode.REFUSE, "hang": Mode.HANG, "heal": Mode.OPEN}[act])
        case "settle":
            if all(each.alive and each.link.started for each in brokers.values()):
                with broker.lock:
                    broker.changed.wait(0.01)
    with broker.lock:
        match act:
            case "send" if brokers[serving].alive:
                body = f"{number}".encode()
                brokers[serving].route(Message(brokers[serving].next_number(), queue, body, text=True, headers={}))
                wanted[queue].append(body)
            case "take" if brokers[serving].alive:
                lying = brokers[serving].queues[queue]
                if (message := next(lying.live(), None)) is not None:
                    brokers[serving].remove(lying, message)
                    wanted[queue].remove(message.body)
            case "stop":
                broker.stop_link()
            case "start":
                broker.start_link()
            case "die":
                broker.kill()
            case "live":
                broker.start()


def test_what_is_shipped_again_after_a_break_is_recognised() -> None:
    with pair() as (brokers, ways):
        settle(brokers)
        ways["london"].delay_s = 0.05
        with brokers["london"].lock:
            for number in range(20):
                there = brokers["london"]
                there.route(Message(there.next_number(), "orders.in", b"%d" % number, text=True, headers={}))
        for _ in range(6):
            with brokers["london"].changed:
                brokers["london"].changed.wait(0.07)
                brokers["london"].stop_link()
                brokers["london"].start_link()
        ways["london"].delay_s = 0.0
        settle(brokers)

        assert bodies(brokers["paris"]) == bodies(brokers["london"])
        assert brokers["paris"].queues["orders.in"].counters.added == 20


def test_the_order_at_the_peer_is_the_order_of_sending() -> None:
    with pair() as (brokers, _):
        settle(brokers)
        with brokers["london"].lock:
            for number in range(200):
                there = brokers["london"]
                there.route(Message(there.next_number(), "orders.in", b"%d" % number, text=True, headers={}))
        settle(brokers)

        order = [int(each.body) for each in brokers["paris"].queues["orders.in"].live()]
        assert order == list(range(200))
