"""What all topologies of Classic brokers read and send alike: names, permits, documents, listings, counters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.jolokia.client import Answer, MayCall
from dr_ctl.jolokia.http import BadValue, NoSuchBean, PolicyRefused
from dr_ctl.topologies.classic import beans, ids, reading, statistics
from dr_ctl.topologies.classic.beans import CLOSES, EVERY, PAUSES, Count, by_ids
from dr_ctl.topologies.common.consumed import IncompleteListing
from dr_ctl_lab.twin.frames import Frame

CONNECTOR = "org.apache.activemq:brokerName=b,connector=clientConnectors,connectorName=stomp,type=Broker"
QUEUE = "org.apache.activemq:brokerName=b,destinationName=q,destinationType=Queue,type=Broker"


class Told:
    """Answers of a console, by what is asked."""

    url = "http://london"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def read(self, asked: Any, *, timeout_s: float = 0.0) -> list[Answer]:
        del asked, timeout_s
        return self.answers


def test_names_and_ids_are_encoded_as_the_broker_does() -> None:
    assert by_ids(["ID:a", "ID:o'b"]) == "JMSMessageID IN ('ID:a','ID:o''b')"
    assert beans.broker('a:b,"c"=*?') == "org.apache.activemq:type=Broker,brokerName=a_b__c_&amp;&ast;&qe;"


def test_whether_an_operation_may_be_called_is_asked_of_a_bean_that_nobody_has() -> None:
    assert all("dr-ctl.nobody" in may.bean for item in EVERY for may in item.tests("b"))
    with pytest.raises(ValueError, match="never exists"):
        MayCall(CONNECTOR, "stop()").body()
    # Only a refusal by the policy denies, of the name alone too, and says the line of the policy to change.
    no, none = Answer(PolicyRefused("no")), Answer(NoSuchBean("none"))
    for both in ((no, no), (none, no), (no, none)):
        answers = [may for item in EVERY for may in (both if item is PAUSES else (none, none))]
        assert reading.denied(answers) == frozenset({PAUSES})
    assert CLOSES.line == (
        "<allow><mbean><name>org.apache.activemq:type=Broker,brokerName=*,connector=clientConnectors,connectorName=*</name>"
        "<operation>stop</operation><operation>stop()</operation></mbean></allow>"
    )


def test_what_a_queue_counts_below_zero_is_told_by_those_who_hold_it() -> None:
    queues = Answer(None, {QUEUE: {"Name": "q", "InFlightCount": -2, "Paused": False}})
    held = {"DestinationName": "q", "MessageCountAwaitingAcknowledge": 3}
    reader: Any = Told(Answer(None, {f"{QUEUE},endpoint=Consumer,clientId=a,consumerId=1": held}), queues)
    assert reading.dispatch(reader, "b") == {"q": (3, False)}


def test_several_brokers_have_to_be_told_apart_and_an_error_in_the_place_of_beans_is_no_empty_listing() -> None:
    reader: Any = Told(Answer(None, [beans.broker("a"), beans.broker("b")]))
    with pytest.raises(NoSuchBean, match="broker:"):
        reading.find_broker(reader)
    assert Answer(NoSuchBean("none")).beans() == []
    with pytest.raises(BadValue):
        Answer(None, "ERROR: …").beans()


def frame(document: dict[str, Any]) -> Frame:
    entries = [
        {"string": [key, value]} if isinstance(value, str) else {"string": key, "long": value}
        for key, value in document.items()
    ]
    return Frame("MESSAGE", {}, json.dumps({"map": {"entry": entries}}))


def test_statistics_tell_queues_bridges_and_no_management() -> None:
    row = {"destinationName": "queue://orders.in", "size": 5, "inflightCount": -1, "enqueueCount": 9}
    row |= {"dequeueCount": 4, "expiredCount": 1, "consumerCount": 2}
    taken = {"clientId": "to-paris_paris_inbound_london", "destinationName": "orders.in.DR", "dispatchedQueueSize": 0}
    broker = {"brokerName": "london", "brokerId": "ID:1", "storePercentUsage": 7}

    answer = statistics.answered(
        [*map(statistics.entries, map(frame, (taken, row, broker)))], {"stomp": True}, "5.18.3"
    )

    values = answer.values
    (queue,) = values["queues"]
    assert (queue.name, queue.depth, queue.delivering, queue.added, queue.acked) == ("orders.in", 5, 0, 9, 3)
    assert [(network.name, network.to) for network in values["networks"]] == [("to-paris", "paris")]
    assert [(connector.name, connector.started) for connector in values["acceptors"]] == [("stomp", True)]
    assert (values["managed"], values["denied"], values["disk_used"]) == (False, frozenset(EVERY), 0.07)


class Listings:
    """A broker whose queue holds so many messages, and shows those of one listing after the other."""

    site = "paris"

    def __init__(self, size: int, *shown: str) -> None:
        self._size, self._shown = size, [*shown]

    def reader(self) -> Listings:
        return self

    def read(self, asked: Sequence[Any], *, timeout_s: float) -> list[Any]:
        assert (len(asked), timeout_s) == (3, ids.BROWSE_S)
        shown = self._shown.pop(0)
        size = SimpleNamespace(value=lambda: {"QueueSize": self._size, "EnqueueCount": 9})
        rows = SimpleNamespace(value=lambda: [{"JMSMessageID": ident} for ident in shown])
        return [size, rows, size]


ORDERS: Any = SimpleNamespace(name="orders.in", bean="a:b=c")


def test_a_listing_that_leaves_out_what_is_on_its_way_to_a_consumer_is_made_again() -> None:
    broker: Any = Listings(3, "ab", "bc", "abd")
    assert ids.listed(broker, ORDERS, tries=ids.TRIES).complete.ids == {"a", "b", "d"}


def test_a_listing_that_is_always_short_shows_nothing_of_what_the_queue_lacks() -> None:
    broker: Any = Listings(3, *["ab"] * ids.TRIES)
    with pytest.raises(IncompleteListing, match="shows 2 of them") as raises:
        ids.listed(broker, ORDERS, tries=ids.TRIES)
    assert "maxBrowsePageSize" in raises.value.remedy


@pytest.mark.parametrize("shown", ["ab", "abcd"])  # a transaction hides one; one came after the depth was read
def test_of_a_queue_that_nobody_works_on_one_listing_tells(shown: str) -> None:
    broker: Any = Listings(3, shown)
    with pytest.raises(IncompleteListing, match="holds 3"):
        ids.listed(broker, ORDERS)


def test_what_comes_to_a_queue_that_nobody_takes_from_hides_nothing() -> None:
    options = {"a": None, "b": None, "c": None}
    listed = ids.complete("london", "orders.in", options, Count(2, 9), Count(4, 11), grows=True)
    assert listed.complete.ids == {"a", "b", "c"}
    for count in (Count(4, 9), Count(2, 9)):
        with pytest.raises(IncompleteListing):
            ids.complete("london", "orders.in", options, count, count, grows=True)
