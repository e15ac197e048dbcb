"""What follows from one look without asking again: roles, links, doors, strangers; what is not known stays unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.errors import BrokerError, LoginRefused, Sick, TimedOut, Unreachable
from dr_ctl.core.model import Role
from dr_ctl.topologies.artemis.group import Group
from dr_ctl.topologies.common.gate import clients_of
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Consumer
from dr_ctl.topologies.mirror.view import BrokerView, Link, MirrorSeen
from tests.topologies.mirror.views import (
    ADMIN,
    CLIENTS,
    MIRROR,
    PAIR,
    broker,
    connection,
    consumer,
    door,
    doors,
    link_connection,
    outflow,
    queue,
    seen,
    with_queue,
)  # fmt: skip

REFUSED = Unreachable("connection refused", refused=True)
SILENT = Silent(PAIR, "paris", REFUSED)
SERVING, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN
MORE = Config(("clients", "more"), None, None)


@pytest.mark.parametrize(
    ("view", "role"),
    [
        (broker("london"), SERVING),
        (broker("london", serving=False), STANDBY),
        (broker("london", acceptors=()), UNKNOWN),
        (broker("london", serving=False, config=MORE), UNKNOWN),
        (broker("london", config=MORE), SERVING),
    ],
    ids=["open", "closed", "no doors", "closed, one door missing", "open, one door missing"],
)
def test_a_brokers_role_is_what_its_doors_show(view: BrokerView, role: Role) -> None:
    assert view.role is role


@pytest.mark.parametrize(
    ("error", "ports_refuse", "role"),
    [
        (REFUSED, True, DOWN),
        (REFUSED, False, UNKNOWN),
        (Unreachable("no route", refused=False), True, UNKNOWN),
        (TimedOut("no answer"), True, SICK),
        (Sick("out of memory"), True, SICK),
        (LoginRefused("no"), True, UNKNOWN),
    ],
)
def test_silence_is_down_only_where_every_port_refuses(error: BrokerError, ports_refuse: bool, role: Role) -> None:
    assert Silent(PAIR, "paris", error, ports_refuse=ports_refuse).role is role


@pytest.mark.parametrize(
    ("first", "second", "role"),
    [
        (broker("paris"), broker("paris"), STANDBY),
        (broker("paris"), broker("paris", serving=True), SERVING),
        (SILENT, broker("paris", serving=True), SERVING),
        (SILENT, broker("paris"), UNKNOWN),
        (Silent(PAIR, "paris", TimedOut("no answer")), broker("paris"), SICK),
        (Silent(PAIR, "paris", REFUSED, ports_refuse=True), broker("paris", serving=False), DOWN),
    ],
)
def test_a_sites_brokers_must_agree_or_its_role_is_unknown(first: Any, second: BrokerView, role: Role) -> None:
    assert MirrorSeen({"paris": {"orders-1": first, "orders-2": second}}).roles == {"paris": role}


def links(*names: str, protocol: str = "AMQP") -> tuple[Link, ...]:
    return tuple(Link(each, started=True, connected=True, protocol=protocol) for each in names)


LYON = replace(outflow("london"), name=outflow("london").name.replace("paris", "lyon"))


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (broker("london", links=links("paris")), "paris"),
        (broker("london", links=links("paris", "lyon")), "paris"),
        (broker("london", links=links("lyon")), "lyon"),
        (broker("london", links=links("lyon", "nice")), None),
        (broker("london", links=()), None),
        (broker("london", links=links("paris", "lyon"), config=Config(("clients",), None, "lyon")), "lyon"),
        (broker("london", links=links("paris"), config=Config(("clients",), None, "lyon")), None),
        (broker("london", LYON, links=links("paris", "lyon")), None),  # both ship
        (broker("london", links=links("paris", protocol="CORE")), None),
    ],
)
def test_the_link_is_the_one_set_or_the_only_one_that_ships(view: BrokerView, name: str | None) -> None:
    assert (view.broker_connection.name if view.broker_connection is not None else None) == name
    assert view.outflow is None or name is not None or not view.links or view.config.link


@pytest.mark.parametrize(("connected", "consumers", "attached"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_it_is_attached_when_it_is_connected_and_takes_from_its_outflow(
    connected: bool, consumers: int, attached: bool
) -> None:
    one = (Link("paris", started=True, connected=connected, protocol="AMQP"),)
    view = broker("london", links=one, queues=(outflow("london", consumers=consumers),))
    assert view.link.attached is attached


CORE_ADMIN = door("admin", ADMIN, protocols=frozenset({"CORE"}))


@pytest.mark.parametrize(
    ("more", "config", "names"),
    [
        ((), None, ["mirror"]),
        ((door("admin", ADMIN),), None, []),
        ((CORE_ADMIN,), None, ["mirror"]),
        ((door("admin", ADMIN),), ("mirror",), ["mirror"]),
        ((), ("missing",), []),
    ],
)
def test_the_links_door_is_the_one_set_or_the_only_one_left(
    more: tuple[Acceptor, ...], config: tuple[str, ...] | None, names: list[str]
) -> None:
    acceptors = (*doors("london", serving=True), *more)
    view = broker("london", acceptors=acceptors, config=Config(("clients",), config, None))
    assert [each.name for each in view.link.doors] == names


@pytest.mark.parametrize(
    ("name", "internal", "business"),
    [
        ("orders.in", False, True),
        ('größe, "neu" <1>', False, True),
        ("$mine", False, True),
        ("orders.in", True, False),
        ("dr-ctl.probe.london", False, False),
        ("rehearsal.dr-ctl.1", False, False),
        # The broker says which queues are its own, whatever they are called.
        ("activemq.notifications", False, True),
        ("$.artemis.mine", False, True),
        ("$sys.mine", False, True),
        ("$sys.mqtt.sessions", True, False),
        ("$ACTIVEMQ_ARTEMIS_MIRROR_paris", True, False),
        # And what MQTT retains is told by itself.
        ("$sys.mqtt.retain.plant.1.state", False, False),
    ],
)
def test_queues_of_clients_are_told_from_those_of_broker_and_tool(name: str, internal: bool, business: bool) -> None:
    assert queue(name, internal=internal).business is business


@pytest.mark.parametrize(
    ("ports", "consumed", "words"),
    [
        ((CLIENTS,), (), []),
        ((MIRROR,), (), []),
        ((None,), (), []),
        ((ADMIN,), (), ["10.1.2.3:50412", "admin", "billing"]),
        ((), (("orders.in", MIRROR),), []),
        ((), (("$ACTIVEMQ_ARTEMIS_MIRROR_paris", MIRROR),), []),
        ((), (("orders.in", CLIENTS),), []),
    ],
)
def test_strangers_are_clients_on_doors_that_a_fence_leaves_open(ports: Any, consumed: Any, words: list[str]) -> None:
    view = broker(
        "london",
        acceptors=(*doors("london", serving=True), door("admin", ADMIN)),
        connections=tuple(connection(port) for port in ports),
        consumers=tuple(consumer(name, port) for name, port in consumed),
    )
    told = view.fence.strangers()
    assert len(told) == bool(words)
    assert all(word in told[0] for word in words)


ALIEN = replace(connection(MIRROR), protocol="AMQP", client="proton-1", remote="10.7.7.7:1")
OUTBOUND = Connection("5f0e", 40123, "10.1.2.4/10.1.2.4:61617", "node-paris", "", "AMQP")
INBOUND = link_connection("london")


@pytest.mark.parametrize(
    ("connections", "peer", "guests"),
    [
        ((INBOUND,), True, []),
        ((INBOUND, OUTBOUND), False, []),
        ((INBOUND,), False, []),
        ((INBOUND, ALIEN), True, ["proton-1"]),
        ((INBOUND, OUTBOUND, ALIEN), False, ["proton-1"]),
        ((ALIEN,), True, ["proton-1"]),
        ((ALIEN,), False, []),  # whatever speaks AMQP may be the peer of which nothing is known
        ((connection(MIRROR),), False, ["billing"]),
    ],
)
def test_whoever_is_not_the_peer_at_the_door_of_its_link_is_a_client(
    connections: tuple[Connection, ...], *, peer: bool, guests: list[str]
) -> None:
    view = broker("london", connections=connections)
    assert [each.client for each in view.link.guests(broker("paris") if peer else None)] == guests


def core(user: str, remote: str = "10.1.2.5:5000", port: int = ADMIN) -> Connection:
    return Connection("c", port, remote, "", user, "CORE")


def test_brokers_of_the_same_site_are_no_clients_and_whoever_else_comes_by_their_door_is() -> None:
    group = Group("Primary Only", at=f"10.1.2.3:{ADMIN}", cluster=("10.1.2.5:61618",))
    alone = broker("london", acceptors=(*doors("london", serving=True), door("cluster", ADMIN)), group=group)
    takes = Consumer("notif.1", ADMIN, "", "10.1.2.5:5001", "cu", 0)
    queues = (*alone.queues, queue("notif.1", internal=True))
    view = replace(alone, connections=(core(""), core("cu", "10.1.2.5:5001")), consumers=(takes,), queues=queues)

    assert view.fence.strangers() == []
    closed = (door("clients", CLIENTS, started=False), *view.acceptors[1:])
    assert list(clients_of(replace(view, acceptors=closed))) == []
    # One with a user that consumes nothing of the broker's own, and one that speaks otherwise.
    assert [len(replace(alone, connections=(c,)).fence.strangers()) for c in (core("app"), connection(ADMIN))] == [1, 1]
    # At another door nobody is a broker of the site.
    at_link = core("", port=MIRROR)
    assert replace(alone, connections=(at_link,)).link.guests(None) == [at_link]


BEFORE = broker("london", queue(added=100, acked=90))
NOW = broker("london", queue(added=150, acked=100), connections=(connection(), connection(), INBOUND))
PORTLESS = (door("clients", None), door("mirror", MIRROR))


@pytest.mark.parametrize(
    ("now", "clients", "traffic"),
    [
        (NOW, 2, (25.0, 5.0)),
        (replace(NOW, start="1795251000001"), 2, None),  # another start
        (with_queue(NOW, queue(depth=-1)), 2, None),  # a figure below zero
        (replace(NOW, acceptors=PORTLESS), None, (25.0, 5.0)),  # a port is not told
    ],
)
def test_clients_and_what_came_and_went_between_two_looks(now: BrokerView, clients: Any, traffic: Any) -> None:
    london = seen(now, broker("paris"), before=seen(BEFORE, broker("paris")), took_s=2.0).brokers[0]
    assert (london.clients, london.traffic) == (clients, traffic)
    alone = seen(now, broker("paris")).brokers[0]
    assert (alone.clients, alone.traffic) == (clients, None)
