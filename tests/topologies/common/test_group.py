"""A broker with several nodes: which is active, what they make of the broker, and that no passive one counts; that a
wanted state is sent until nothing of it is missing, once to each broker, and again where another node serves; and which
texts are of one start of a broker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dr_ctl.core.errors import BrokerError, LoginRefused, Passive, TimedOut, Unreachable
from dr_ctl.core.model import Role
from dr_ctl.engine.plan import Call, Spec
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import Answer, Wire
from dr_ctl.rpo.core.starts import first_texts, same_start
from dr_ctl.stomp_io.address import Closed, Connected, LoginResult
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.reading import NODE_FAMILY
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.group import Group, GroupWire, InactivityRecord, NobodyActive, Process, may_take_over
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl.topologies.topology import NodeReading, NodeState
from tests.clocks import FixedClock
from tests.topologies.mirror.views import broker

ACTIVE, PASSIVE, REFUSES, SICK, UNKNOWN = NodeState
DEAD, AWAY = Unreachable("refused", refused=True), Unreachable("no route", refused=False)


@pytest.mark.parametrize(
    ("states", "left_s", "taken_over", "down"),
    [
        ((UNKNOWN, ACTIVE), 0, False, False),
        ((REFUSES, PASSIVE), 0, True, False),
        ((PASSIVE, PASSIVE), 30, True, False),
        ((REFUSES, REFUSES), 1, True, False),
        ((SICK, REFUSES), 1, True, False),
        ((REFUSES, REFUSES), 0, False, True),
        ((REFUSES,), 0, False, True),
        ((REFUSES, UNKNOWN), 0, False, False),
        ((SICK,), 0, False, False),
    ],
)
def test_what_a_broker_is_by_its_nodes(
    states: Sequence[NodeState], left_s: float, taken_over: bool, down: bool
) -> None:
    nodes = tuple(NodeReading(state.value, state) for state in states)
    silent = Silent("main", "london", DEAD, ports_refuse=True, nodes=nodes, left_s=left_s)

    assert (may_take_over(states, left_s), silent.role is Role.DOWN) == (taken_over, down)


@dataclass
class Server:
    """A node, as its console answers."""

    name: str
    active: bool = False
    began_ms: int = 5_000
    error: BrokerError | None = None
    login_result: LoginResult = field(default_factory=lambda: Closed("refused"))
    hangs: Event | None = None
    got: list[str] = field(default_factory=list)

    def post(self, bodies: Sequence[dict[str, Any]], timeout_s: float) -> list[Answer]:
        if self.hangs is not None:
            self.hangs.wait(timeout_s / 2)
            raise TimedOut("no answer")
        if self.error is not None:
            raise self.error
        own = {"Name": self.name, "Active": self.active, "Backup": False, "NodeID": "X", "Version": "2.56.0"}
        itself = {**own, "CurrentTimeMillis": 90_000, "UptimeMillis": 90_000 - self.began_ms}
        asked = [str(body["mbean"]) for body in bodies]
        self.got += [request for request in asked if request != beans.ANY_SERVER]
        answers = (
            {beans.server(self.name): itself} if request == beans.ANY_SERVER else {request: {}} for request in asked
        )
        return [Answer(None, answer) for answer in answers]


@dataclass
class Site:
    folder: Path
    a: Server = field(default_factory=lambda: Server("la", active=True))
    b: Server = field(default_factory=lambda: Server("lb"))
    clock: FixedClock = field(default_factory=FixedClock)

    def group(self) -> Group:
        """As a new command has it."""
        nodes = {"a": self.a, "b": self.b}
        processes = [Process(name, f"http://{name}", None) for name in nodes]
        inactivity = InactivityRecord(self.folder / "note")
        return Group(
            "london/orders-1",
            processes,
            lambda process: cast("Wire", nodes[process.name]),
            lambda process, _: nodes[process.name].login_result,
            NODE_FAMILY,
            90.0,
            inactivity,
        )

    def role(self, group: Group | None = None) -> Role:
        """What a reading makes of it, where none is active."""
        group = group or self.group()
        with pytest.raises(NobodyActive) as caught:
            group.active_nodes()
        refuses = all(reading.state is REFUSES for reading in group.readings)
        return Silent("orders-1", "london", caught.value, refuses, group.readings, group.left_s).role


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def ask(wire: GroupWire, of: str = "la") -> str:
    [bean] = wire.post([{"mbean": f'{beans.DOMAIN}:address="x",broker="{of}",component=addresses'}], 1.0)[0].value()
    return str(bean)


def test_whatever_is_asked_goes_to_the_node_that_is_active_by_the_name_it_has_there(site: Site) -> None:
    group = site.group()
    wire = GroupWire(group)
    known = ask(wire)
    first = group.activation

    site.a.error, site.b.active = DEAD, True
    with pytest.raises(Unreachable):
        ask(wire)
    assert (ask(wire), site.b.got[-1]) == (known, known.replace('"la"', '"lb"'))
    assert group.activation != first
    site.a.error, site.a.active, site.a.began_ms, site.b.active = None, True, 60_000, False
    with pytest.raises(Passive):
        ask(wire)
    assert (ask(wire), site.a.got[-1]) == (known, known)
    assert group.activation not in (first, "")  # the same process, and all counters begin anew


def test_a_refusal_of_every_node_is_no_end_before_the_time_of_a_takeover_is_over(site: Site) -> None:
    """It is counted from the first reading in a row that shows it, whichever command made that."""
    site.a.error = site.b.error = DEAD
    assert (site.role(), site.group().left_s) == (Role.UNKNOWN, 0.0)
    site.clock.moment += timedelta(seconds=89)
    with pytest.raises(NobodyActive, match=r"a refuses, b refuses; within 1 s another one may become active") as caught:
        site.group().active_nodes()
    assert caught.value.refused
    site.clock.moment += timedelta(seconds=1)
    assert site.role() is Role.DOWN

    site.b.error = AWAY
    assert site.role() is Role.UNKNOWN
    site.b.error = DEAD
    assert site.role() is Role.UNKNOWN  # it may have been active while nothing was known of it
    site.clock.moment += timedelta(minutes=11)
    assert site.role() is Role.UNKNOWN  # and while nobody looked
    site.clock.moment += timedelta(seconds=90)
    assert site.role() is Role.DOWN
    site.b.error, site.b.active = None, True
    site.group().active_nodes()
    site.b.error = DEAD
    assert site.role() is Role.UNKNOWN


@pytest.mark.parametrize(
    ("error", "login_result", "role"),
    [
        (None, Closed("refused"), Role.UNKNOWN),  # a passive one may take over for ever
        (DEAD, Connected("artemis", "1.2"), Role.SICK),  # it serves before its console answers
        (TimedOut("no answer"), Closed("refused"), Role.SICK),
        (LoginRefused("no"), Closed("refused"), Role.UNKNOWN),
        (AWAY, Closed("refused"), Role.UNKNOWN),
    ],
)
def test_any_sign_of_a_second_node_keeps_the_broker_from_being_down(
    site: Site, error: BrokerError | None, login_result: LoginResult, role: Role
) -> None:
    site.a.error, site.b.error, site.b.login_result = DEAD, error, login_result
    site.role()
    site.clock.moment += timedelta(seconds=200)

    assert site.role() is role


def test_two_active_nodes_are_seen_and_both_get_what_is_changed(site: Site) -> None:
    site.b.active = True
    group = site.group()

    assert len(group.active_nodes()) == 2
    GroupWire(group, every=True).post([{"mbean": beans.server("la")}], 1.0)

    assert (site.a.got, site.b.got) == ([beans.server("la")], [beans.server("lb")])


def test_a_node_that_hangs_does_not_slow_the_active_one_down(site: Site) -> None:
    site.b.hangs = Event()
    group = site.group()
    group.active_nodes()
    began = monotonic()
    for _ in range(20):
        group.ask_nodes(group.last_active)
        ask(GroupWire(group), "la")
        group.collect_answers(group.last_active)

    took_s = monotonic() - began
    site.b.hangs.set()
    assert took_s < 1.5
    assert [reading.state for reading in group.readings] == [ACTIVE, SICK]


MOVE = Move(Spec("fence", "paris"), "london", {})
WANTS = ((wants.clients_kept_out, wants.SOURCE),)


class World(Tools[Any]):
    """A broker that is told to close its listener: what it says before, and after each time."""

    def __init__(self, *readings: tuple[str, bool]) -> None:
        self.rules: Any = None
        self.observer: Any = SimpleNamespace(read_at=lambda site: [self.view])
        self.sent = list[str]()
        self._readings = [broker("london", start=start, serving=is_open) for start, is_open in readings]

    @property
    def view(self) -> BrokerView:
        return self._readings[min(len(self.sent), len(self._readings) - 1)]

    def change(self, calls: Sequence[Call], context: Any) -> list[Any]:
        self.sent += [call.summary for call in calls]
        return []


def reached(world: World) -> None:
    world.send_calls(WANTS, MOVE, object())  # type: ignore[arg-type]


def sent(world: World) -> None:
    send = world.sending(wants.clients_kept_out, MOVE, object())  # type: ignore[arg-type]
    for _ in range(3):
        send([world.view])


@pytest.mark.parametrize("by", [reached, sent])
@pytest.mark.parametrize(
    ("readings", "count"),
    [
        ([("1", False)], 0),
        ([("1", True), ("1", False)], 1),
        ([("1", True), ("1", True)], 1),
        ([("1", True), ("2", True), ("2", False)], 2),
        ([("1", True), ("2", True), ("2", True)], 2),
    ],
    ids=["it holds", "it is sent", "in vain", "another node is active", "in vain there too"],
)
def test_it_is_sent_once_to_each_node_until_nothing_is_missing(
    by: Callable[[World], None], readings: Sequence[tuple[str, bool]], count: int
) -> None:
    world = World(*readings)
    by(world)
    assert world.sent == ["close acceptor clients at london"] * count


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("b/178/9", "b/178/9", True),
        ("b/178/9", "b/179/9", True),  # an activation is read a moment earlier or later, on either side of a step
        ("b/99/9", "b/100/9", True),
        ("b/178/9", "b/180/9", False),
        ("b/178/9", "a/178/9", False),
        ("b/178/9", "b/178/8", False),
        ("178", "179", False),  # a single process has one start
        ("b/178/9", "178", False),
        (None, "178", False),
        (None, None, True),
    ],
)
def test_the_moment_of_an_activation_has_a_tolerance(one: str | None, other: str | None, is_same: bool) -> None:
    assert same_start(one, other) is same_start(other, one) is is_same
    if one is not None and other is not None:
        assert (len({*first_texts([other, "b", one]).values()} - {"b"}) == 1) is is_same
