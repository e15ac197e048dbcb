"""What follows from one look without asking again: roles, links, doors, strangers; what is not known stays unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.errors import BrokerError, LoginRefused, Sick, TimedOut, Unreachable
from dr_ctl.core.model import Role
from dr_ctl.engine.ports import UnitSeen
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
)

REFUSED = Unreachable("connection refused", refused=True)
SILENT = Silent(PAIR, "paris", REFUSED)


@pytest.mark.parametrize(
    ("view", "role"),
    [
        (broker("london"), Role.SERVING),
        (broker("london", serving=False), Role.STANDBY),
        (broker("london", active=False), Role.UNKNOWN),
        (broker("london", acceptors=()), Role.UNKNOWN),
        (broker("london", serving=False, config=Config(("clients", "more"), None, None)), Role.UNKNOWN),
        (broker("london", config=Config(("clients", "more"), None, None)), Role.SERVING),
    ],
    ids=["open", "closed", "open but passive", "no doors", "closed, one door missing", "open, one door missing"],
)
def test_a_brokers_role_is_what_its_doors_show(view: BrokerView, role: Role) -> None:
    assert view.role is role


@pytest.mark.parametrize(
    ("error", "ports_refuse", "role"),
    [
        (REFUSED, True, Role.DOWN),
        (REFUSED, False, Role.UNKNOWN),
        (Unreachable("no route", refused=False), True, Role.UNKNOWN),
        (TimedOut("no answer"), True, Role.SICK),
        (Sick("out of memory"), True, Role.SICK),
        (LoginRefused("no"), True, Role.UNKNOWN),
    ],
)
def test_silence_is_down_only_where_every_port_refuses(error: BrokerError, ports_refuse: bool, role: Role) -> None:
    assert Silent(PAIR, "paris", error, ports_refuse=ports_refuse).role is role


@pytest.mark.parametrize(
    ("first", "second", "role"),
    [
        (broker("paris"), broker("paris"), Role.STANDBY),
        (broker("paris"), broker("paris", serving=True), Role.SERVING),
        (SILENT, broker("paris", serving=True), Role.SERVING),
        (SILENT, broker("paris"), Role.UNKNOWN),
        (Silent(PAIR, "paris", TimedOut("no answer")), broker("paris"), Role.SICK),
        (Silent(PAIR, "paris", REFUSED, ports_refuse=True), broker("paris", serving=False), Role.DOWN),
    ],
)
def test_a_sites_brokers_must_agree_or_its_role_is_unknown(
    first: BrokerView | Silent, second: BrokerView | Silent, role: Role
) -> None:
    look = MirrorSeen({"paris": {"orders-1": first, "orders-2": second}})

    assert look.roles == {"paris": role}


@pytest.mark.parametrize(
    ("london", "paris", "serving"),
    [(True, False, "london"), (False, True, "paris"), (False, False, None), (True, True, None)],
)
def test_a_pair_is_served_by_one_site_or_by_none(london: bool, paris: bool, serving: str | None) -> None:
    look = seen(broker("london", serving=london), broker("paris", serving=paris))

    open_at = tuple(site for site, is_open in (("london", london), ("paris", paris)) if is_open)
    closed_at = tuple(site for site in ("london", "paris") if site not in open_at)
    assert list(look.units) == [UnitSeen(PAIR, serving, open_at, closed_at)]


def test_a_silent_broker_has_no_view() -> None:
    look = seen(broker("london"), SILENT)

    assert look.view("paris", PAIR) is None
    assert look.views("paris") == []
    assert [view.site for view in look.views("london")] == ["london"]


class TestLink:
    @pytest.mark.parametrize(
        ("links", "config", "name"),
        [
            (["paris"], None, "paris"),
            (["paris", "lyon"], None, "paris"),
            (["lyon"], None, "lyon"),
            (["lyon", "nice"], None, None),
            ([], None, None),
            (["paris", "lyon"], "lyon", "lyon"),
            (["paris"], "lyon", None),
        ],
    )
    def test_it_is_the_one_set_or_the_only_one_that_ships(
        self, links: list[str], config: str | None, name: str | None
    ) -> None:
        view = broker(
            "london",
            links=tuple(Link(each, started=True, connected=True, protocol="AMQP") for each in links),
            config=Config(("clients",), None, config),
        )

        assert (view.broker_connection.name if view.broker_connection is not None else None) == name

    def test_two_that_ship_are_one_too_many(self) -> None:
        lyon = replace(outflow("london"), name=outflow("london").name.replace("paris", "lyon"))
        links = tuple(Link(each, started=True, connected=True, protocol="AMQP") for each in ("paris", "lyon"))
        view = broker("london", lyon, links=links)

        assert view.broker_connection is None
        assert view.outflow is None

    def test_another_protocol_is_not_a_mirror(self) -> None:
        view = broker("london", links=(Link("paris", started=True, connected=True, protocol="CORE"),))

        assert view.broker_connection is None

    @pytest.mark.parametrize(
        ("connected", "consumers", "attached"), [(True, 1, True), (True, 0, False), (False, 1, False)]
    )
    def test_it_is_attached_when_it_is_connected_and_takes_from_its_outflow(
        self, connected: bool, consumers: int, attached: bool
    ) -> None:
        view = broker(
            "london",
            links=(Link("paris", started=True, connected=connected, protocol="AMQP"),),
            queues=(outflow("london", consumers=consumers),),
        )

        assert view.link.attached is attached


@pytest.mark.parametrize(
    ("more", "config", "names"),
    [
        ((), None, ["mirror"]),
        ((door("admin", ADMIN),), None, []),
        ((door("admin", ADMIN, protocols=frozenset({"CORE"})),), None, ["mirror"]),
        ((door("admin", ADMIN),), ("mirror",), ["mirror"]),
        ((), ("missing",), []),
    ],
)
def test_the_links_door_is_the_one_set_or_the_only_one_left(
    more: tuple[Acceptor, ...], config: tuple[str, ...] | None, names: list[str]
) -> None:
    view = broker(
        "london", acceptors=(*doors("london", serving=True), *more), config=Config(("clients",), config, None)
    )

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
def test_strangers_are_clients_on_doors_that_a_fence_leaves_open(
    ports: tuple[int | None, ...], consumed: tuple[tuple[str, int], ...], words: list[str]
) -> None:
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


@pytest.mark.parametrize(
    ("connections", "peer", "guests"),
    [
        ((link_connection("london"),), True, []),
        ((link_connection("london"), OUTBOUND), False, []),
        ((link_connection("london"),), False, []),
        ((link_connection("london"), ALIEN), True, ["proton-1"]),
        ((link_connection("london"), OUTBOUND, ALIEN), False, ["proton-1"]),
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


def in_cluster(*connections: Connection, **more: Any) -> BrokerView:
    """London, whose own connector names its acceptor for other brokers of the site."""
    group = Group("Primary Only", at=f"10.1.2.3:{ADMIN}", cluster=("10.1.2.5:61618",))
    return broker("london", acceptors=(*doors("london", serving=True), door("cluster", ADMIN)),
                  connections=connections, group=group, **more)  # fmt: skip


def core(user: str, remote: str = "10.1.2.5:5000", port: int = ADMIN) -> Connection:
    return Connection("c", port, remote, "", user, "CORE")


def test_brokers_of_the_same_site_are_no_clients_and_whoever_else_comes_by_their_door_is() -> None:
    notes = queue("notif.1", internal=True)
    takes = Consumer("notif.1", ADMIN, "", "10.1.2.5:5001", "cu", 0)
    view = in_cluster(core(""), core("cu", "10.1.2.5:5001"), consumers=(takes,))
    view = replace(view, queues=(*view.queues, notes))

    assert view.fence.strangers() == []
    assert (
        list(clients_of(replace(view, acceptors=(door("clients", CLIENTS, started=False), *view.acceptors[1:])))) == []
    )
    # One with a user that consumes nothing of the broker's own, and one that speaks otherwise.
    assert len(in_cluster(core("app")).fence.strangers()) == 1
    assert len(in_cluster(connection(ADMIN)).fence.strangers()) == 1
    # At another door nobody is a broker of the site.
    assert in_cluster(core("", port=MIRROR)).link.guests(None) == [core("", port=MIRROR)]


class TestAtWork:
    """Whether clients are there, and how much they do."""

    BEFORE = broker("london", queue(added=100, acked=90))
    NOW = broker(
        "london", queue(added=150, acked=100), connections=(connection(), connection(), link_connection("london"))
    )

    def of(self, before: BrokerView, now: BrokerView) -> tuple[int | None, tuple[float, float] | None]:
        both = seen(now, broker("paris"), before=seen(before, broker("paris")), took_s=2.0)
        london = both.brokers[0]
        return london.clients, london.traffic

    def test_clients_are_counted_and_what_came_and_went_between_two_looks(self) -> None:
        assert self.of(self.BEFORE, self.NOW) == (2, (25.0, 5.0))

    def test_of_one_look_or_of_another_start_there_is_no_rate(self) -> None:
        [london, _] = seen(self.NOW, broker("paris")).brokers

        assert (london.clients, london.traffic) == (2, None)
        assert self.of(self.BEFORE, replace(self.NOW, start="1795251000001")) == (2, None)

    def test_where_a_figure_is_below_zero_or_a_port_is_not_told_nothing_is_known(self) -> None:
        doors = (door("clients", None), door("mirror", MIRROR))

        assert self.of(self.BEFORE, with_queue(self.NOW, queue(depth=-1)))[1] is None
        assert self.of(self.BEFORE, replace(self.NOW, acceptors=doors))[0] is None
