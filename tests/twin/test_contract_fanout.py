"""Two Classic brokers that producers write to side by side, real or simulated: what tells two messages to be the same,
and what of a message is left when it is read at one site and put down at the other."""

from dr_ctl.stomp_io.address import Address
from dr_ctl.topologies.common.access import Gate
from dr_ctl.topologies.fanout.copying import put, read
from dr_ctl_lab.twin.kinds import FANOUT
from tests.twin.classic_subject import ORDERS, TEXT, FanoutSubject
from tests.twin.subject import SITES, until

TOPOLOGY = FANOUT

ID = "order_id"


def own(pair: FanoutSubject, site: str) -> Gate:
    """dr-ctl's own way in."""
    place = pair.place(site)
    return Gate(Address("127.0.0.1", place.ports["sync"]), place.login("agent"), None)


def send(pair: FanoutSubject, *ids: str, to: tuple[str, ...] = SITES, body: str = "body", **headers: str) -> None:
    for site in to:
        with pair.client(site, "producers") as client:
            for ident in ids:
                client.send(ORDERS, body, **{ID: ident, **headers})


def rows(pair: FanoutSubject, site: str, queue: str = ORDERS) -> dict[str, dict[str, object]]:
    told = pair.done(site, pair.queue(site, queue), "browse()")
    return {row["StringProperties"][ID]: row for row in told}


def test_what_is_sent_to_both_is_the_same_by_the_producers_id_only(pair: FanoutSubject) -> None:
    send(pair, "a", "b")

    told = {site: rows(pair, site) for site in SITES}

    assert [list(each) for each in told.values()] == [["a", "b"], ["a", "b"]]
    assert len({row["JMSMessageID"] for each in told.values() for row in each.values()}) == 4
    assert all(row["JMSDeliveryMode"] == "PERSISTENT" for each in told.values() for row in each.values())


def test_messages_are_removed_by_the_producers_id(pair: FanoutSubject) -> None:
    send(pair, "a", "b'c", "d")

    selector = f"{ID} IN ('a','b''c','gone')"
    removed = pair.done("paris", pair.queue("paris", ORDERS), f"removeMatchingMessages({TEXT})", selector)

    assert (removed, list(rows(pair, "paris")), list(rows(pair, "london"))) == (2, ["d"], ["a", "b'c", "d"])


def test_a_message_that_is_read_and_put_down_keeps_all_that_its_producer_said(pair: FanoutSubject) -> None:
    said = {"priority": "7", "correlation-id": "c:1", "type": "order", "region": "north\\1"}
    said |= {"expires": "4102444800000", "timestamp": "1700000000000"}
    send(pair, "a", "b", to=("london",), body="ä: text", **{"reply-to": "/queue/answers", **said})

    found = read(own(pair, "london"), ORDERS, ID, {"a"})
    put(own(pair, "paris"), ORDERS, [*found.values()])

    [here, there] = [rows(pair, site)["a"] for site in SITES]
    same = ("Text", "JMSPriority", "JMSCorrelationID", "JMSType", "JMSExpiration", "JMSTimestamp", "JMSReplyTo")
    assert [there[name] for name in same] == [here[name] for name in same]
    assert [there[name] for name in same[:5]] == ["ä: text", 7, "c:1", "order", 4102444800000]
    assert there["StringProperties"] == here["StringProperties"]
    assert there["JMSTimestamp"] == "2023-11-14T22:13:20Z"
    assert there["JMSDeliveryMode"] == "PERSISTENT"
    assert list(rows(pair, "london")) == ["a", "b"]


def test_bytes_stay_bytes(pair: FanoutSubject) -> None:
    send(pair, "a", to=("london",), body="four", **{"content-length": "4"})

    put(own(pair, "paris"), ORDERS, [*read(own(pair, "london"), ORDERS, ID, {"a"}).values()])

    assert ["Text" in rows(pair, site)["a"] for site in SITES] == [False, False]
    with pair.client("paris", "producers") as client:
        client.subscribe(ORDERS)
        message = client.message()
        assert (message.body, message.headers["content-length"]) == (b"four", "4")
        client.ack(message)
    until(lambda: not rows(pair, "paris"))


def test_a_browse_of_its_own_leaves_a_queue_as_it_was(pair: FanoutSubject) -> None:
    send(pair, "a", "b", to=("london",))

    read(own(pair, "london"), ORDERS, ID, {"a"})

    bean = pair.queue("london", ORDERS)
    until(lambda: pair.read("london", bean, "ConsumerCount")["ConsumerCount"] == 0)
    assert pair.read("london", bean, "QueueSize", "DequeueCount")["QueueSize"] == 2
    assert list(rows(pair, "london")) == ["a", "b"]
