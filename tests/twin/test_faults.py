"""Every fault, through the product's own client: what the client sees, and what was done nevertheless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dr_ctl.core.clock import growing_s
from dr_ctl.core.errors import BrokerError, Sick, TimedOut, Unreachable
from dr_ctl.jolokia.client import Account, Change, Changer, Read, Reader, Wire
from dr_ctl.jolokia.errors import NotJolokia
from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Closed, Connected, Silent
from dr_ctl.stomp_io.client import greet
from dr_ctl.topologies.artemis import beans
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, Faults, When
from dr_ctl_lab.twin.host import Host
from tests.twin.subject import until

PAUSE = Change(beans.queue("london", "orders.in", "anycast", "orders.in"), "pause()")
ASK = Read(beans.server("london"), ("PendingMirrorAcks", "CurrentTimeMillis"))
CHANGING = When(changing=True)


@pytest.fixture
def host(twin: PlayedTwin) -> Host:
    return twin.host("london")


@pytest.fixture
def wire(host: Host) -> Iterator[Wire]:
    wire = Wire(Account(host.jolokia, *host.admin, "http://127.0.0.1"))
    yield wire
    wire.close()


def change(wire: Wire, timeout_s: float = 5.0) -> None:
    for answer in Changer(wire).change([PAUSE], timeout_s=timeout_s):
        answer.value()


def paused(host: Host) -> bool:
    with host.broker.lock:
        return host.broker.queues["orders.in"].paused


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Fault(FaultKind.ERROR, CHANGING), Sick, False),
        (Fault(FaultKind.PAGE, CHANGING), NotJolokia, False),
        (Fault(FaultKind.RESET, CHANGING), Unreachable, False),
        (Fault(FaultKind.SILENT, CHANGING), TimedOut, False),
        (Fault(FaultKind.UNANSWERED, CHANGING), Unreachable, True),
    ],
    ids=lambda told: told.kind.value if isinstance(told, Fault) else "",
)
def test_a_fault_strikes_as_often_as_it_says(
    host: Host, wire: Wire, fault: Fault, error: type[BrokerError], done: bool
) -> None:
    host.faults.add(fault)
    Reader(wire).look([ASK])[0].value()  # it is not meant

    with pytest.raises(error):
        change(wire, timeout_s=0.3)

    assert paused(host) is done
    assert len(host.changes) == done
    change(wire)
    assert paused(host)


def test_an_operation_can_say_yes_and_do_nothing(host: Host, wire: Wire) -> None:
    host.faults.add(Fault(FaultKind.IDLE, When(operation="pause"), times=None))

    change(wire)

    assert not paused(host)
    assert [each.operation for each in host.changes] == ["pause()"]


def test_an_attribute_can_be_reported_as_it_is_not(host: Host, wire: Wire) -> None:
    host.faults.add(Fault(FaultKind.LIE, times=2, attribute="PendingMirrorAcks", value=7))
    host.faults.add(Fault(FaultKind.LIE, When(bean="acceptors"), attribute="Started", value=False))

    lies = [Reader(wire).look([ASK])[0].value()["PendingMirrorAcks"] for _ in range(3)]
    doors = Reader(wire).look([Read(beans.all_acceptors("london"), ("Started",))])[0].value()

    assert lies == [7, 7, 0]
    assert [row["Started"] for row in doors.values()] == [False, False]


def test_an_answer_can_be_late_and_a_clock_can_jump(host: Host, wire: Wire) -> None:
    before = Reader(wire).look([ASK])[0].value()["CurrentTimeMillis"]
    host.faults.add(Fault(FaultKind.LATE, seconds=0.2))
    host.faults.add(Fault(FaultKind.CLOCK, seconds=60))

    began = growing_s()
    after = Reader(wire).look([ASK])[0].value()["CurrentTimeMillis"]

    assert 0.2 <= growing_s() - began < 2
    assert 60_000 <= after - before < 65_000


@pytest.mark.parametrize(("kind", "done"), [(FaultKind.DIES_BEFORE, False), (FaultKind.DIES_AFTER, True)])
def test_a_broker_can_die_at_its_second_change_and_come_back(
    twin: PlayedTwin, host: Host, wire: Wire, kind: FaultKind, done: bool
) -> None:
    link = Change(beans.server("london"), "stopBrokerConnection(java.lang.String)", ("paris",))
    lasting = Change(PAUSE.bean, "pause(boolean)", (True,))
    host.faults.add(Fault(kind, When(changing=True, after=1), back_after_s=0.2))
    Changer(wire).change([link])

    with pytest.raises(Unreachable) as lost:
        Changer(wire).change([lasting])

    assert not lost.value.refused
    with pytest.raises(Unreachable) as gone:
        Reader(wire).look([ASK])
    assert gone.value.refused
    until(lambda: host.broker.alive)
    assert paused(host) is done
    assert Reader(wire).look([ASK])[0].error is None
    assert host.broker.settable["link"]
    twin.wait_mirrored()


def test_a_sick_broker_serves_its_clients(twin: PlayedTwin, host: Host, wire: Wire) -> None:
    twin.sicken("london")

    with pytest.raises(Sick):
        Reader(wire).look([ASK])

    assert isinstance(greet(Address(*host.stomp), Login(*host.app), None, timeout_s=2), Connected)


def test_a_frozen_broker_takes_connections_and_says_nothing_until_it_thaws(
    twin: PlayedTwin, host: Host, wire: Wire
) -> None:
    twin.freeze("london")

    with pytest.raises(TimedOut):
        Reader(wire).look([ASK], timeout_s=0.2)
    assert isinstance(greet(Address(*host.stomp), Login(*host.app), None, timeout_s=0.2), Silent)

    twin.thaw("london")
    assert Reader(wire).look([ASK])[0].error is None
    assert isinstance(greet(Address(*host.stomp), Login(*host.app), None, timeout_s=2), Connected)


def test_a_dead_broker_refuses_and_keeps_its_ports(twin: PlayedTwin, host: Host, wire: Wire) -> None:
    before = (host.jolokia, host.stomp)
    twin.kill("london")

    with pytest.raises(Unreachable) as gone:
        Reader(wire).look([ASK])
    assert gone.value.refused
    assert isinstance(greet(Address(*host.stomp), Login(*host.app), None, timeout_s=2), Closed)

    twin.start("london")
    assert Reader(wire).look([ASK])[0].error is None
    assert (host.jolokia, host.stomp) == before


def test_faults_from_a_seed_are_the_same_for_the_same_seed() -> None:
    def told(seed: int) -> list[Fault]:
        return [fault for fault, _ in Faults.from_seed(seed)._armed]

    assert told(7) == told(7)
    assert {fault.kind for seed in range(60) for fault in told(seed)} == set(FaultKind) - {FaultKind.LIE}


def test_the_dump_tells_every_change_and_is_the_same_where_it_was_undone(twin: PlayedTwin, wire: Wire) -> None:
    start = twin.dump()

    change(wire)
    twin.close_clients("london")
    changed = twin.dump()
    Changer(wire).change([Change(PAUSE.bean, "resume()")])
    twin.open_clients("london")

    assert changed != start
    assert twin.dump() == start
    assert [(each.site, each.operation, each.status) for each in twin.changes()] == [
        ("london", "pause()", 200),
        ("london", "resume()", 200),
    ]
