"""A twin of diverts and bridges behaves as two real brokers were seen to: what each oddity does to messages, counters,
beans and clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.system import system
from dr_ctl.settings.loader import load
from dr_ctl.settings.topologies.artemis_bridges import BridgesBroker as Told
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.bridges.kind import KIND
from dr_ctl_lab.twin.bridges.way import BridgesWay
from dr_ctl_lab.twin.kinds import BRIDGES
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.way import Mode
from tests.twin.subject import SITES, Subject, comes

TEXT = "java.lang.String"
IN, OUT = "orders.in", "orders.out"
IDS = "notification.idempotent-consumer"
ORIGIN = "ARTEMIS_MESSAGE_ORIGIN"
FENCED = ["amq,bridge", *["amq"] * 9]
ADD, REMOVE = f"addSecuritySettings({','.join([TEXT] * 11)})", f"removeSecuritySettings({TEXT})"


@pytest.fixture
def topology() -> str:
    return BRIDGES


@pytest.fixture
def pair(twin: PlayedTwin) -> Subject:
    return Subject(twin)


def at(twin: PlayedTwin, site: str) -> BridgesBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, BridgesBroker)
    return broker


def put(twin: PlayedTwin, queue: str, count: int, site: str = "london") -> None:
    with twin.still():
        broker = at(twin, site)
        for number in range(count):
            broker.route(Message(broker.next_number(), queue, b"%d" % number, text=True, headers={"n": str(number)}))


def bodies(twin: PlayedTwin, site: str, queue: str) -> list[int]:
    with twin.still():
        return sorted(int(each.body) for each in at(twin, site).queues[queue].messages.values())


def bridge(pair: Subject, address: str = IN, site: str = "london", peer: str = "paris") -> str:
    return f'{pair.server(site)},component=bridges,name="bridge.mirror.{peer}.{address}"'


def state(pair: Subject, address: str = IN) -> tuple[bool, bool]:
    told = pair.read("london", bridge(pair, address), "Started", "Connected")
    return told["Started"], told["Connected"]


def buffer(pair: Subject, address: str = IN, site: str = "london", peer: str = "paris") -> str:
    return pair.queue(site, f"mirror.{peer}.{address}", f"mirror.{address}", "anycast")


def waiting(pair: Subject, address: str = IN) -> tuple[int, int]:
    """How deep a buffer is, and who consumes it."""
    told = pair.read("london", buffer(pair, address), "MessageCount", "ConsumerCount")
    return told["MessageCount"], told["ConsumerCount"]


def address_bean(pair: Subject, site: str, address: str) -> str:
    return f'{pair.server(site)},component=addresses,address="{address}"'


def unrouted(pair: Subject, site: str, address: str = IN) -> int:
    told = pair.read(site, address_bean(pair, site, address), "UnRoutedMessageCount")
    return int(told["UnRoutedMessageCount"])


def names(pair: Subject, site: str = "london") -> list[str]:
    return list(pair.read(site, pair.server(site), "BridgeNames")["BridgeNames"])


def done(told: dict[str, Any]) -> Any:
    assert told["status"] == 200, told
    return told["value"]


def fence(pair: Subject, site: str, queue: str = IN) -> None:
    done(pair.execute(site, pair.server(site), ADD, queue, *FENCED))


def test_its_settings_are_those_of_the_topology(twin: PlayedTwin) -> None:
    read = load(twin.settings_path).settings

    assert read.topology == BRIDGES
    told = read.sites["paris"].brokers[0]
    assert isinstance(told, Told)
    assert (told.clients, told.link_doors) == (("clients",), ("bridge",))
    assert told.lasting_fence is not None
    assert told.lasting_fence.roles == ("app",)


def test_what_a_client_gives_an_origin_of_its_own_is_never_copied(pair: Subject, twin: PlayedTwin) -> None:
    with pair.client("london") as client:
        for origin in ("paris", "elsewhere", "london"):
            client.send(IN, origin, **{ORIGIN: origin})
    twin.wait_mirrored()

    assert (pair.depth("london", IN), pair.depth("paris", IN)) == (3, 1)
    assert unrouted(pair, "london") == 0


def test_a_dead_peer_is_seen_in_the_connection_and_gets_all_when_it_is_back(pair: Subject, twin: PlayedTwin) -> None:
    twin.kill("paris")
    comes(lambda: state(pair), (True, False))
    put(twin, IN, 30)
    assert waiting(pair) == (30, 0)

    twin.start("paris")

    comes(lambda: waiting(pair), (0, 1))
    assert bodies(twin, "paris", IN) == list(range(30))


@pytest.mark.parametrize("loses", [False, True])
def test_what_is_refused_stays_in_its_buffer_or_is_acknowledged_and_never_arrives(
    pair: Subject, twin: PlayedTwin, loses: bool
) -> None:
    at(twin, "london").loses_refused = loses
    done(pair.execute("paris", pair.server("paris"), ADD, IN, *["amq"] * 10))
    put(twin, IN, 1)
    comes(lambda: names(pair), [])

    assert waiting(pair) == (0 if loses else 1, 0)

    fence(pair, "paris")
    twin.kill("london")
    twin.start("london")
    twin.wait_mirrored()
    assert (pair.depth("london", IN), pair.depth("paris", IN)) == (1, 0 if loses else 1)


def made(twin: PlayedTwin, address: str = IN, **more: Any) -> str:
    """What a bridge of London is made with, in JSON."""
    return json.dumps(
        {**at(twin, "london").told_bridges[f"bridge.mirror.paris.{IN}"], "forwarding-address": address, **more}
    )


def test_a_bad_login_poisons_every_boot_until_it_is_destroyed_while_the_peer_is_down(
    pair: Subject, twin: PlayedTwin
) -> None:
    server = pair.server("london")
    destroy = (f"destroyBridge({TEXT})", "bad")
    done(pair.execute("london", server, f"createBridge({TEXT})", made(twin, name="bad", password="wrong")))
    comes(lambda: names(pair), [])

    done(pair.execute("london", server, *destroy))  # says that it did
    twin.kill("london")
    twin.start("london")
    comes(lambda: names(pair), [])

    twin.kill("london")
    twin.kill("paris")
    twin.start("london")
    assert "bad" in names(pair)
    done(pair.execute("london", server, *destroy))
    twin.start("paris")
    comes(lambda: state(pair), (True, True))
    assert len(names(pair)) == 3


@pytest.mark.parametrize(
    "more", [{"name": f"bridge.mirror.paris.{IN}"}, {"queue-name": "none"}, {"static-connectors": []}]
)
def test_a_bridge_that_cannot_be_deployed_is_passed_over_without_a_word(
    pair: Subject, twin: PlayedTwin, more: dict[str, Any]
) -> None:
    before = names(pair)

    done(pair.execute("london", pair.server("london"), f"createBridge({TEXT})", made(twin, **{"name": "one", **more})))

    assert names(pair) == before


def test_a_pause_that_lasts_lets_the_copy_grow_and_delivers_nothing(pair: Subject, twin: PlayedTwin) -> None:
    done(pair.execute("paris", pair.server("paris"), REMOVE, IN))
    with pair.client("paris") as stray:
        stray.subscribe(IN)
        put(twin, IN, 10)
        comes(lambda: pair.counts("paris", IN), (10, 0, 10))
        stray.nothing_for(0.1)

        done(pair.execute("paris", pair.queue("paris", IN), "resume()"))
        stray.message()


def test_ids_are_told_to_the_peer_alone_and_its_consumers_skip_them(twin: PlayedTwin, pair: Subject) -> None:
    put(twin, IN, 5)
    twin.wait_mirrored()
    with twin.still():
        worked = work_off(at(twin, "london"), IN, most=3)
        assert work_off(at(twin, "paris"), IN) == []  # it is closed
    twin.wait_mirrored()

    assert at(twin, "paris").ids.every() == {(IN, each) for each in worked} == at(twin, "london").ids.every()
    assert [pair.counters(site, IDS) for site in SITES] == [(0, 0, 0), (3, 3, 0)]
    twin.close_clients("london")
    twin.open_clients("paris")
    assert twin.left([IN]) == 2
    with twin.still():
        rest = work_off(at(twin, "paris"), IN)
    assert len({*worked, *rest}) == len(worked) + len(rest) == 5


def test_a_processor_can_be_stopped_slow_and_cut_off_and_loses_nothing(twin: PlayedTwin, pair: Subject) -> None:
    processor = at(twin, "paris").processor
    arrived = pair.queue("paris", IDS)

    with twin.still():
        processor.stop()
    put(twin, IN, 20)
    with twin.still():
        work_off(at(twin, "london"), IN)
    comes(
        lambda: pair.read("paris", arrived, "MessageCount", "ConsumerCount"), {"MessageCount": 20, "ConsumerCount": 0}
    )

    with twin.still():
        processor.each_s = 0.02
        processor.start()
    comes(lambda: pair.read("paris", arrived, "DeliveringCount")["DeliveringCount"] > 0, True)
    [row] = json.loads(done(pair.execute("paris", arrived, "listConsumersAsJSON()")))
    done(pair.execute("paris", pair.server("paris"), f"closeConnectionWithID({TEXT})", row["connectionID"]))
    twin.kill("paris")
    twin.start("paris")
    with twin.still():
        processor.each_s = 0.0

    comes(lambda: len(at(twin, "paris").ids.every()), 20)
    comes(lambda: pair.read("paris", arrived, "MessageCount", "ConsumerCount"), {"MessageCount": 0, "ConsumerCount": 1})


def test_a_queue_that_is_made_at_run_time_is_copied_and_outlives_a_restart(twin: PlayedTwin, pair: Subject) -> None:
    for site, peer in (SITES, SITES[::-1]):
        server = pair.server(site)
        done(pair.create(site, "new"))
        done(pair.create(site, f"mirror.{peer}.new", address="mirror.new", **{"routing-type": "MULTICAST"}))
        told = json.loads(made(twin, "new", name="new bridge", **{"queue-name": f"mirror.{peer}.new"}))
        headers = {**told["transformer-configuration"], "properties": {ORIGIN: site}}
        told |= {"static-connectors": [peer], "transformer-configuration": headers}
        done(pair.execute(site, server, f"createBridge({TEXT})", json.dumps(told)))
        divert = {"name": "new divert", "address": "new", "forwarding-address": "mirror.new"}
        divert["filter-string"] = f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL"
        done(pair.execute(site, server, f"createDivert({TEXT})", json.dumps(divert)))
        twin.kill(site)
        twin.start(site)
    twin.wait_mirrored()

    put(twin, "new", 2)

    comes(lambda: pair.depth("paris", "new"), 2)
    for verb in ("Divert", "Bridge"):
        done(pair.execute("london", pair.server("london"), f"destroy{verb}({TEXT})", f"new {verb.lower()}"))
    twin.kill("london")
    twin.start("london")
    put(twin, "new", 2)
    twin.wait_mirrored()
    assert (pair.depth("paris", "new"), len(names(pair))) == (2, 3)


def test_a_site_that_comes_back_lets_nobody_in_and_holds_what_it_had(twin: PlayedTwin, pair: Subject) -> None:
    twin.cut()
    comes(lambda: state(pair), (True, False))
    put(twin, IN, 4)
    with twin.still():
        work_off(at(twin, "london"), IN, most=1)
    before = twin.settable()
    for site in SITES:
        twin.kill(site)
        twin.start(site)

    after = twin.settable()
    for told in before.values():
        told["doors"]["clients"] = False
    assert after == before
    assert not at(twin, "london").serves
    assert (waiting(pair), waiting(pair, IDS)) == ((4, 0), (1, 0))
    assert pair.read("london", buffer(pair), "MessagesAcknowledged")["MessagesAcknowledged"] == 0
    assert pair.read("london", bridge(pair), "MessagesPendingAcknowledgement")["MessagesPendingAcknowledgement"] == 0
    twin.heal()
    twin.wait_mirrored()
    assert (bodies(twin, "paris", IN), bodies(twin, "london", IN)) == ([0, 1, 2, 3], [1, 2, 3])
    assert len(at(twin, "paris").ids.every()) == 1


class NoPorts:
    """Doors without sockets."""

    def open(self, name: str) -> None:
        pass

    def close(self, name: str) -> None:
        pass


@contextmanager
def bare() -> Iterator[tuple[dict[str, BridgesBroker], dict[str, BridgesWay]]]:
    """Two brokers and the ways between them, without a wire."""
    changed = system().condition()
    users = dict.fromkeys(KIND.roles, "secret")
    brokers = {
        site: BridgesBroker(
            site=site,
            pair="orders-1",
            name=site,
            peer=peer,
            changed=changed,
            acceptors={door.name: replace(door, port=1) for door in KIND.doors},
            ports=NoPorts(),
            users=users,
            roles=KIND.roles,
        )
        for site, peer in (SITES, SITES[::-1])
    }
    ways = {site: BridgesWay(brokers[site], brokers[peer]) for site, peer in (SITES, SITES[::-1])}
    with changed:
        for broker in brokers.values():
            broker.installed((IN, OUT))
            broker.start()
    for way in ways.values():
        way.start()
    try:
        yield brokers, ways
    finally:
        for way in ways.values():
            way.end()
        for broker in brokers.values():
            broker.ended()


def settle(brokers: dict[str, BridgesBroker]) -> None:
    changed = brokers["london"].changed
    with changed:
        for _ in range(800):
            if all(each.attached and each.even for each in brokers.values()):
                return
            changed.wait(0.005)
    raise AssertionError("the bridges do not empty their buffers")


sites, queues = st.sampled_from(SITES), st.sampled_from((IN, OUT))
sends, takes = (st.tuples(st.just(act), sites, queues) for act in ("send", "take"))
moves = st.tuples(st.just("move"), sites, queues)
TROUBLES = ("stop", "start", "cut", "hang", "heal", "die", "live", "idle", "busy", "settle")
troubles = st.tuples(st.sampled_from(TROUBLES), sites, queues)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(sends, sends, takes, moves, troubles), max_size=40))
def test_whatever_happens_on_the_way_every_message_lies_at_both_sites_or_was_worked_there(
    acts: list[tuple[str, str, str]],
) -> None:
    """Nothing is lost, nothing is copied twice, and what was settled between is worked on once."""
    with bare() as (brokers, ways):
        sent: dict[str, list[bytes]] = {IN: [], OUT: []}
        done_at: dict[tuple[str, str], list[bytes]] = {(site, queue): [] for site in SITES for queue in sent}
        for number, (act, site, queue) in enumerate(acts):
            do(act, site, queue, number, brokers, ways, sent, done_at)
        restored(brokers, ways)
        settle(brokers)

        for queue, every in sent.items():
            for site, broker in brokers.items():
                lying = [each.body for each in broker.queues[queue].messages.values()]
                assert sorted(lying + done_at[site, queue]) == sorted(every)
        assert brokers["london"].ids.every() == brokers["paris"].ids.every()
        with brokers["paris"].lock:
            serve(brokers, "paris")
            worked = [ident for queue in sent for ident in work_off(brokers["paris"], queue)]
        known = len(brokers["paris"].ids.every())
        assert len(worked) + known_before(done_at) == known == sum(map(len, sent.values()))


def known_before(done_at: dict[tuple[str, str], list[bytes]]) -> int:
    return len({(queue, body) for (_, queue), bodies_ in done_at.items() for body in bodies_})


def serve(brokers: dict[str, BridgesBroker], site: str) -> None:
    for name, broker in brokers.items():
        if name != site:
            broker.keep_clients_out()
    if brokers[site].alive:
        brokers[site].let_clients_in()


def restored(brokers: dict[str, BridgesBroker], ways: dict[str, BridgesWay]) -> None:
    for way in ways.values():
        way.set(Mode.OPEN)
    with brokers["london"].lock:
        for broker in brokers.values():
            broker.start()
            broker.processor.start()
            for bridge_ in broker.bridges.values():
                bridge_.started = True


def do(
    act: str,
    site: str,
    queue: str,
    number: int,
    brokers: dict[str, BridgesBroker],
    ways: dict[str, BridgesWay],
    sent: dict[str, list[bytes]],
    done_at: dict[tuple[str, str], list[bytes]],
) -> None:
    broker = brokers[site]
    match act:
        case "cut" | "hang" | "heal":
            ways[site].set({"cut": Mode.REFUSE, "hang": Mode.HANG, "heal": Mode.OPEN}[act])
        case "move":
            restored(brokers, ways)
            settle(brokers)
    with broker.lock:
        match act:
            case "settle":
                broker.changed.wait(0.01)
            case "move":
                serve(brokers, site)
            case "send" if broker.serves_queue(queue):
                body = b"%d" % number
                broker.route(Message(broker.next_number(), queue, body, text=True, headers={}))
                sent[queue].append(body)
            case "take":
                before = {each.number: each.body for each in broker.queues[queue].messages.values()}
                work_off(broker, queue, most=1)
                gone = before.keys() - broker.queues[queue].messages.keys()
                done_at[site, queue] += [before[each] for each in gone]
            case "stop" | "start":
                for each in [*broker.bridges.values()]:
                    each.stop() if act == "stop" else setattr(each, "started", True)
            case "die":
                broker.kill()
            case "live":
                broker.start()
            case "idle":
                broker.processor.stop()
            case "busy":
                broker.processor.start()
