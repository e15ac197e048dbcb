"""What follows from one look at a mirrored pair without asking again, and the checks of a move by it."""

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.errors import LoginRefused, Sick, TimedOut, Unreachable
from dr_ctl.core.model import Finding, Role, Severity, some
from dr_ctl.core.patience import Patience
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis.group import Group
from dr_ctl.topologies.common.gate import clients_of
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Consumer
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.checks import of_move
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen
from tests.topologies.mirror import views
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


LONDON, PARIS = views.at_both("orders.in", "orders.audit", depth=3)
CLIENTS_DOOR, LINK_DOOR = PARIS.acceptors
SHUT = (CLIENTS_DOOR, replace(LINK_DOOR, started=False))


def findings(look: MirrorSeen, queues: Queues | None = None, target: str = "paris", **accepted: int) -> list[Finding]:
    asked = Ask("swapover", target, accept_difference={name.replace("_", "."): n for name, n in accepted.items()})
    source = "london" if target == "paris" else "paris"
    return of_move(Rules(queues or Queues(), Drain(), Patience()), look, Move(asked, source, {}))


def london(**more: Any) -> MirrorSeen:
    return seen(replace(LONDON, **more), PARIS)


def paris(**more: Any) -> MirrorSeen:
    return seen(LONDON, replace(PARIS, **more))


def queued(london: Any = None, paris: Any = None) -> MirrorSeen:
    """One queue of one of them, or of both, is otherwise."""
    here = with_queue(LONDON, london) if london else LONDON
    return seen(here, with_queue(PARIS, paris) if paris else PARIS)


def config(*clients: str, mirror: str | None = "mirror", link: str | None = None) -> Config:
    return Config(clients or ("clients",), (mirror,) if mirror else None, link)


def beside(*names: str, site: str = "paris", protocols: str = "CORE", **more: Any) -> tuple[Acceptor, ...]:
    """The doors of a site, and one more."""
    made = (views.door(each, ADMIN, site=site, protocols=frozenset(protocols.split()), **more) for each in names)
    return (*(PARIS if site == "paris" else LONDON).acceptors, *made)


def link(**more: Any) -> Any:
    return (replace(PARIS.links[0], **more),)


# What is wrong, the finding and its severity, words of its text and of its remedy.
ONE_WRONG = [
    (paris(queues=(replace(PARIS.queues[0], delivering=-1), *PARIS.queues[1:])),
     "DR-QUEUE-003 error", "counts below zero; -1 in delivery", "restart"),
    (london(acceptors=beside("mqtt", site="london", started=False), config=config("clients", "mqtt")),
     "DR-DOOR-002 warning", "serves; acceptor mqtt is closed", ""),
    (paris(acceptors=PARIS.acceptors[:1], config=config(mirror=None)),
     "DR-DOOR-003 error", "none but the clients' speaks AMQP", "mirror:"),
    (paris(acceptors=(CLIENTS_DOOR, *beside("north", "south", protocols="AMQP", started=False)[2:]),
           config=config(mirror=None)), "DR-DOOR-003 error", "north, south could all be it", "mirror:"),
    (paris(acceptors=SHUT), "DR-DOOR-004 error", "acceptor mirror of the peer's link is closed", "Start it"),
    (london(consumers=(consumer(port=MIRROR),)), "DR-DOOR-011 error", "orders.in; mirror", "clients:"),
    (paris(connections=(views.link_connection("paris"), views.connection(MIRROR))),
     "DR-DOOR-011 error", "STOMP; billing; acceptor mirror", "an acceptor of its own"),
    (paris(acceptors=(replace(CLIENTS_DOOR, opens_at_boot=True), LINK_DOOR)),
     "DR-DOOR-007 warning", "acceptor clients opens at boot", "autoStart=false"),
    (paris(lock_coordinators=("site-lock",)),
     "DR-DOOR-008 error", "lock coordinator site-lock", "Take the lock coordinator off"),
    (paris(links=()), "DR-LINK-009 warning", "no link from paris to the other site; not configured", "<mirror/>"),
    (london(links=()), "DR-LINK-009 error", "no link from london to the other site", "<mirror/>"),
    (paris(links=(*link(), *link(name="other")), queues=tuple(PARIS.business.values())),
     "DR-LINK-001 error", "cannot tell the link; london, other", "link:"),
    (paris(queues=tuple(PARIS.business.values())), "DR-LINK-002 error", "link london has no outflow", "<mirror/>"),
    (queued(paris=outflow("paris", consumers=0)), "DR-LINK-004 warning", "not attached", "l"),
    (queued(paris=outflow("paris", paused=True)), "DR-LINK-005 error", "outflow of link london is paused", "Resume"),
    (queued(queue("$.artemis.internal.sf.x", 2, internal=True)),
     "DR-LINK-006 warning", "$.artemis.internal.sf.x", ""),
    (paris(prepared=("AQID",)), "DR-TX-001 error", "1 prepared transaction; AQID", "roll them back"),
    (queued(queue(depth=3, paused=True)), "DR-QUEUE-001 info", "london; orders.in", ""),
    (paris(version="2.40.0"), "DR-PAIR-002 warning", "2.56.0 at london; 2.40.0 at paris", ""),
    (paris(consumers=(consumer(),)),
     "DR-STANDBY-001 error", "consumers at the standby; orders.in; billing", "Stop these clients"),
    (queued(paris=queue(depth=1, site="paris")),
     "DR-PARITY-001 error", "orders.in: 3 at london, 1 at paris", "--accept-difference"),
    (queued(queue("new", 2)), "DR-PARITY-001 error", "new: 2 at london, 0 at paris (absent there)",
     "--accept-difference"),
    (queued(queue("DLQ", 2)), "DR-PARITY-002 info", "need not be equal; DLQ: 2 at london", ""),
]  # fmt: skip


@pytest.mark.parametrize(("look", "finding", "words", "remedy"), ONE_WRONG)
def test_one_thing_wrong_gives_exactly_its_finding(look: MirrorSeen, finding: str, words: str, remedy: str) -> None:
    [found] = findings(look)
    assert f"{found.id} {found.severity.value}" == finding
    assert all(word in found.text for word in words.split("; ")), found.text
    assert remedy in found.remedy
    assert found.remedy or found.severity is not Severity.ERROR


@pytest.mark.parametrize(
    ("error", "refuse", "state"),
    [
        (Unreachable("x: connection refused", refused=True), False, " is unknown"),
        (Unreachable("x: connection refused", refused=True), True, " is down"),
        (TimedOut("x: no answer"), False, ""),  # a machine that is busy is late, too
        (Unreachable("x: no route", refused=False), True, " is unknown"),
        (Sick("x: out of memory"), True, " is sick"),
        (LoginRefused("x: the login was refused"), True, " is unknown"),
    ],
)
def test_a_silent_broker_is_an_error_with_what_it_said(error: Any, refuse: bool, state: str) -> None:
    [found] = findings(seen(LONDON, Silent(PAIR, "paris", error, ports_refuse=refuse)))
    assert (found.id, found.severity, found.remedy) == ("DR-SITE-001", Severity.ERROR, error.remedy)
    assert found.text == f"paris/orders-1{state}: {error}"


TEN = with_queue(LONDON, queue(depth=10))
LOCK = LockDocument(7, "a run", paused={"a run": ("orders.in",)}).to_text()
CLOSED = replace(LONDON, acceptors=views.doors("london", serving=False))


@pytest.mark.parametrize(
    "look",
    {
        "a clean pair": seen(LONDON, PARIS),
        "clocks just close enough": paris(now_ms=PARIS.now_ms - 2000),
        "clients at the serving site": london(consumers=(consumer(),), connections=(views.connection(CLIENTS),)),
        "the broker's own consumer": paris(consumers=(consumer("activemq.notifications"),)),
        "the link's consumer": paris(consumers=(consumer("$ACTIVEMQ_ARTEMIS_MIRROR_london", None),)),
        "an empty queue at one site": queued(queue("empty")),
        "dr-ctl's own queue": queued(queue("dr-ctl.probe.london", 1)),
        "a difference that is under way": seen(TEN, with_queue(PARIS, outflow("paris", depth=7))),
        "a difference that moved between two looks": replace(seen(TEN, PARIS), moved={PAIR: {"orders.in": 7}}),
        "what a run paused, which resumes it": seen(
            replace(with_queue(LONDON, queue(depth=3, paused=True)), documents={"dr-ctl.lock.london.7": LOCK}), PARIS
        ),
        "a difference of two closed sites, which the gate asks for": seen(
            views.broker("london", queue(depth=9), serving=False), PARIS
        ),
        "consumers at a target that serves already": seen(
            CLOSED, replace(PARIS, acceptors=views.doors("paris", serving=True), consumers=(consumer(),))
        ),
    }.items(),
    ids=lambda each: each[0],
)
def test_what_belongs_there_gives_no_finding(look: tuple[str, MirrorSeen]) -> None:
    assert findings(look[1]) == []


BAD = replace(PARIS, prepared=("AQID",), version="2.40.0", links=link(started=False), consumers=(consumer(),))


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (queued(paris=queue(depth=3, site="paris", paused=True)), "DR-QUEUE-002 warning; DR-QUEUE-001 info"),
        # Everything that is wrong, errors first.
        (seen(with_queue(LONDON, queue("DLQ", 1)), BAD),
         "DR-TX-001 error; DR-LINK-003 error; DR-STANDBY-001 error; DR-PAIR-002 warning; DR-PARITY-002 info"),
        # Of several pairs each is checked.
        (MirrorSeen({"london": {"a": LONDON, "b": replace(LONDON, prepared=("xid-1",))},
                     "paris": {"a": PARIS, "b": PARIS}}), "DR-TX-001 error"),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_told_at_once_errors_first(look: MirrorSeen, told: str) -> None:
    found = [f"{each.id} {each.severity.value}" for each in findings(look)]
    assert sorted(found) == sorted(told.split("; "))
    assert [each.split()[1] for each in found] == [each.split()[1] for each in told.split("; ")]


def test_what_was_accepted_or_left_out_by_the_settings_is_not_told() -> None:
    look = queued(paris=queue(depth=1, site="paris"))
    assert [[each.id for each in findings(look, orders_in=n)] for n in (2, 1)] == [[], ["DR-PARITY-001"]]
    assert findings(queued(queue("logs", 9)), Queues(include=("orders.#",))) == []
    assert findings(seen(LONDON, PARIS), target="london") == []


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (2, "q0; q1"), (5, "q0; q1; q2; q3; q4"), (7, "q0; q1; q2; q3; q4 and 2 more")]
)
def test_long_lists_are_cut_and_say_so(count: int, told: str) -> None:
    assert some([f"q{number}" for number in range(count)]) == told


def test_a_part_of_a_site_is_refused() -> None:
    part = Move(Ask("swapover", "paris", units=("orders-1",)), "london", {})
    found = procedure.open_.recipe(Queues(), Drain(), Patience()).why_not(seen(LONDON, PARIS), part)
    assert [(each.id, each.severity) for each in found] == [("DR-UNIT-002", Severity.ERROR)]
