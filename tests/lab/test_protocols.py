"""Which protocol a client of a load speaks, which queues it reaches with it, and what is odd about its messages."""

import itertools
import time
from collections import deque

import pytest
from proton.reactor import Container

from dr_ctl_lab.lab.clients import traits
from dr_ctl_lab.lab.clients.amqp import AmqpClient
from dr_ctl_lab.lab.clients.client import Speaks, address_of, body_of, ident_in, is_subscription, name_of
from dr_ctl_lab.lab.clients.traits import Odd
from dr_ctl_lab.lab.traffic import Load, Target
from tests.lab.test_traffic import ME
from tests.stomp_io.doors import closed_port

SHARED = "plant.readings::workers.plant.readings"
QUEUES = ("orders.in", "odd name", SHARED)
ALL = (Speaks.STOMP, Speaks.AMQP, Speaks.CORE, Speaks.MQTT)


def load(*protocols: Speaks) -> Load:
    target = Target((("london", closed_port()),), ME, forwards=frozenset({"orders.in"}))
    return Load(target, QUEUES, 1, protocols=protocols)


def spoken(number: int, *protocols: Speaks, sends: bool = True) -> list[tuple[Speaks, tuple[str, ...]]]:
    """The first five connections of a client."""
    one = load(*protocols)
    target = one._targets[0]
    return list(itertools.islice(one._speaking(number, QUEUES, target.sent_to if sends else target.taken_from), 5))


def test_each_client_begins_with_another_protocol_and_goes_on_with_the_next() -> None:
    assert [spoken(number, *ALL)[0][0] for number in range(4)] == [*ALL]
    assert [each for each, _ in spoken(1, *ALL)] == [Speaks.AMQP, Speaks.CORE, Speaks.STOMP, Speaks.AMQP, Speaks.CORE]


def test_who_speaks_mqtt_stays_with_it_and_reaches_what_takes_it() -> None:
    assert spoken(3, *ALL) == [(Speaks.MQTT, ("orders.in", SHARED))] * 5
    assert spoken(3, *ALL, sends=False) == [(Speaks.MQTT, (SHARED,))] * 5


def test_where_only_mqtt_is_asked_for_what_it_does_not_reach_is_served_all_the_same() -> None:
    target = Target((("london", closed_port()),), ME)
    one = Load(target, ["orders.in"], 1, protocols=[Speaks.MQTT])

    assert next(one._speaking(0, ["orders.in"], target.taken_from)) == (Speaks.STOMP, ("orders.in",))


def test_a_subscription_is_sent_to_by_its_address_and_lies_under_its_own_name() -> None:
    assert (address_of(SHARED), name_of(SHARED)) == ("plant.readings", "workers.plant.readings")
    assert (address_of("orders.in"), name_of("orders.in")) == ("orders.in", "orders.in")
    assert [is_subscription(each) for each in QUEUES] == [False, False, True]


@pytest.mark.parametrize("ident", ["run-producer-0-1", "größer"])
def test_a_body_begins_with_its_id(ident: str) -> None:
    assert ident_in(body_of(ident, 200)) == ident
    assert ident_in("message 5") == ""


def test_all_that_can_be_odd_about_messages_is_among_a_few() -> None:
    numbers = range(1, 200)
    told = [traits.of(number, Odd) for number in numbers]

    assert {each.part for each in told} == {*traits.PARTS}
    assert all(any(getattr(each, name) for each in told) for name in ("group", "delay_ms", "lasts_ms", "urgent"))
    assert max(traits.size(number, 200, Odd) for number in numbers) == traits.LARGE
    # And nothing is odd where nothing may be.
    plain = [traits.of(number, ()) for number in numbers]
    assert not any(each.group or each.delay_ms or each.lasts_ms or each.urgent for each in plain)
    assert {traits.size(number, 200, ()) for number in numbers} == {200}


@pytest.mark.parametrize("before", [0, 1])
def test_a_client_of_amqp_waits_whichever_call_of_its_library_waits(before: int) -> None:
    client = AmqpClient.__new__(AmqpClient)
    client._gone, client._came, client._container = None, deque(), Container()
    client._container.start()
    door = client._container.listen("127.0.0.1:0")
    for _ in range(before):
        client._container.process()
    began = time.monotonic()
    for _ in range(5):
        client._turn(0.05)
    assert time.monotonic() - began >= 0.25
    door.close()
    while client._container.process():
        pass
