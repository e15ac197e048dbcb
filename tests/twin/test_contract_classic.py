"""Two Classic brokers that copy to each other, real or simulated: console, connectors, messages and what is told of
them, the bridge."""

import json

import pytest

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.answers import Connected, Refused
from dr_ctl.stomp_io.client import greet
from dr_ctl.stomp_io.connection import ConnectionLost
from dr_ctl_lab.twin.kinds import BROKERSYNC
from tests.twin.classic_subject import CONSUMED, DLQ, INVOICES, ORDERS, TEXT, ClassicSubject
from tests.twin.subject import SITES, comes, until

TOPOLOGY = BROKERSYNC

BY_IDS = f"removeMatchingMessages({TEXT})"


def test_the_console_wants_an_origin_and_a_login(pair: ClassicSubject) -> None:
    nobody = pair.post("london", {"type": "version"})
    wrong = pair.post("london", {"type": "version"}, password="wrong", Origin="http://x")
    right = pair.post("london", {"type": "version"}, Referer="http://x")

    assert (nobody.status_code, nobody.json()["status"]) == (200, 403)
    assert nobody.json()["error"] == "java.lang.Exception : Origin null is not allowed to call this agent"
    assert (wrong.status_code, wrong.headers["WWW-Authenticate"]) == (401, 'basic realm="ActiveMQRealm"')
    assert wrong.text.startswith("<html>")
    assert right.json()["value"]["info"] == {"product": "activemq", "vendor": "Apache", "version": "5.18.3"}


def test_an_attribute_that_is_not_there_fails_the_whole_read(pair: ClassicSubject) -> None:
    bean = pair.queue("london", ORDERS)
    request = {"type": "read", "mbean": bean, "attribute": ["QueueSize", "NetworkEnqueues"]}

    refused = pair.ask("london", **request)
    told = pair.ask("london", **request, config={"ignoreErrors": True})["value"]
    missing = pair.ask("london", type="read", mbean=pair.queue("london", "nobody"), attribute=["QueueSize"])

    assert (refused["status"], refused["error_type"]) == (404, "javax.management.AttributeNotFoundException")
    kind = "javax.management.AttributeNotFoundException"
    assert told == {"QueueSize": 0, "NetworkEnqueues": f"ERROR: No such attribute: NetworkEnqueues (class {kind})"}
    assert (missing["status"], missing["error_type"]) == (404, "javax.management.InstanceNotFoundException")


def test_nobody_may_call_an_operation_by_a_pattern(pair: ClassicSubject) -> None:
    told = pair.execute("london", pair.queue("london", "*"), "resume()")

    assert (told["status"], "Operation resume() forbidden for MBean" in told["error"]) == (403, True)


def test_a_bean_has_a_name_that_loses_letters(pair: ClassicSubject) -> None:
    pair.done("london", pair.server("london"), f"addQueue({TEXT})", "a:b,c=d*e'f")

    bean = pair.queue("london", "a_b_c&amp;d&ast;e_f")

    assert pair.read("london", bean, "Name", "QueueSize") == {"Name": "a:b,c=d*e'f", "QueueSize": 0}
    pair.done("london", pair.server("london"), f"removeQueue({TEXT})", "a:b,c=d*e'f")


def test_a_connector_that_is_stopped_says_so_and_nothing_more(pair: ClassicSubject) -> None:
    bean = pair.connector("london", "stomp")
    with pair.client("london") as client:
        for _ in range(2):
            pair.done("london", bean, "stop()")
        with pytest.raises(ConnectionLost):
            client.frame("GOODBYE")
    whole = pair.ask("london", type="read", mbean=bean)

    assert pair.read("london", bean, "Started") == {"Started": False}
    assert (whole["status"], whole["error_type"]) == (500, "java.lang.NullPointerException")
    assert pair.bridges("london") != []
    for _ in range(2):
        pair.done("london", bean, "start()")
    with pair.client("london") as client:
        assert client.greeting == Connected("ActiveMQ/5.18.3", "1.2")
        assert pair.done("london", bean, "connectionCount()") == 1


def test_a_login_that_is_wrong_is_refused(pair: ClassicSubject) -> None:
    place = pair.place("london")
    told = greet(Address("127.0.0.1", place.ports["clients"]), Login("app", "wrong"), None, timeout_s=5)

    assert isinstance(told, Refused)
    assert "User name [app] or password is invalid." in told.because


def test_a_message_has_the_same_id_at_both_sites_and_is_copied_once(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        for number in range(3):
            client.send(ORDERS, f"body {number}", n=str(number))
    pair.settled()
    comes(lambda: pair.depth("paris", ORDERS), 3)
    here, there = ([*pair.done(site, pair.queue(site, ORDERS), "browse()")] for site in SITES)

    assert [row["JMSMessageID"] for row in here] == [row["JMSMessageID"] for row in there]
    assert [row["Text"] for row in there] == ["body 0", "body 1", "body 2"]
    assert {(row["BrokerPath"], row["OriginalDestination"]) for row in here} == {("null", None)}
    assert {row["OriginalDestination"] for row in there} == {"queue://orders.in.to-paris"}
    assert {row["BrokerPath"][:4] for row in there} == {"[ID:"}
    assert pair.depth("paris", pair.copied("paris")) == 0
    attributes = ("QueueSize", "EnqueueCount", "DequeueCount", "InFlightCount", "Paused", "DLQ")
    told = pair.read("paris", pair.queue("paris", pair.copied("london")), *attributes)
    assert (told["QueueSize"], told["EnqueueCount"]) == (0, 0)  # it passes on what comes, and counts none of it


def test_what_is_done_with_is_told_by_the_id_of_its_copy(pair: ClassicSubject) -> None:
    with pair.client("london") as client, pair.client("london", "sync") as agent:
        agent.subscribe(f"{CONSUMED}{ORDERS}", ack="auto")
        for number in range(5):
            client.send(ORDERS, n=str(number))
        ids = pair.ids("london")
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "1"})
        client.ack(client.message())
        heard = [agent.message()]
        client.ack(client.message(), "NACK")
        heard.append(agent.message())
        assert pair.done("london", pair.queue("london", ORDERS), f"removeMessage({TEXT})", ids[2]) is True
        assert pair.done("london", pair.queue("london", ORDERS), f"removeMessage({TEXT})", ids[2]) is False
        heard.append(agent.message())
        moved = f"moveMatchingMessagesTo({TEXT},{TEXT})"
        assert pair.done("london", pair.queue("london", ORDERS), moved, "n = '3'", "parked") == 1
        heard.append(agent.message())
        pair.done("london", pair.queue("london", ORDERS), "purge()")
        heard.append(agent.message())

        assert [each.headers["orignalMessageId"] for each in heard] == ids
        assert {each.headers["orignalDestination"] for each in heard} == {f"queue://{ORDERS}"}
        assert {each.headers["destination"] for each in heard} == {f"{CONSUMED}{ORDERS}"}
        assert pair.ids("london", DLQ) == ids[1:2]
        assert pair.ids("london", "parked") == ids[3:4]
        assert pair.read("london", pair.queue("london", DLQ), "DLQ") == {"DLQ": True}


def test_who_subscribes_late_hears_nothing_of_before(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        client.send(ORDERS)
        client.subscribe(ORDERS)
        client.ack(client.message())
        until(lambda: pair.depth("london", ORDERS) == 0)
        with pair.client("london", "sync") as agent:
            agent.subscribe(f"{CONSUMED}>", ack="auto")
            agent.nothing_for(0.3)
            client.send(INVOICES, "one")
            client.subscribe(INVOICES, "t")
            [sent] = pair.ids("london", INVOICES)
            client.ack(client.message())

            assert {agent.consumed(INVOICES), agent.consumed(f"{INVOICES}.to-paris")} == {sent}


def test_what_a_client_holds_counts_and_comes_again_when_it_is_gone(pair: ClassicSubject) -> None:
    bean = pair.queue("london", ORDERS)
    with pair.client("london") as client:
        for _ in range(3):
            client.send(ORDERS)
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "2"})
        first = client.message()
        comes(lambda: pair.read("london", bean, "QueueSize", "InFlightCount"), {"QueueSize": 3, "InFlightCount": 2})
        assert len(pair.ids("london")) == 3
    comes(lambda: pair.read("london", bean, "InFlightCount", "ConsumerCount"), {"InFlightCount": 0, "ConsumerCount": 0})

    with pair.client("london") as client:
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "1"})
        again = client.message()
        assert (again.headers["message-id"], again.headers["redelivered"]) == (first.headers["message-id"], "true")


def test_no_listing_shows_what_is_acknowledged_in_an_open_transaction(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        for _ in range(3):
            client.send(ORDERS)
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "1"})
        first = client.message()
        client.confirmed("BEGIN", transaction="t")
        client.confirmed("ACK", id=first.headers["ack"], transaction="t")

        shown = pair.ids("london")
        with pair.client("london") as other:
            other.subscribe(ORDERS, "b", browser="true", ack="auto")
            browsed = [other.message().headers["message-id"] for _ in range(2)]
            assert other.message().headers["browser"] == "end"
        assert (pair.depth("london", ORDERS), len(shown), sorted(browsed)) == (3, 2, sorted(shown))
        assert first.headers["message-id"] not in shown

        client.confirmed("ABORT", transaction="t")
        assert first.headers["message-id"] in pair.ids("london")


def test_a_transaction_is_done_when_it_is_committed(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        client.send(ORDERS, "first")
        client.subscribe(ORDERS)
        first = client.message()
        client.confirmed("BEGIN", transaction="t")
        client.confirmed("SEND", "second", destination=f"/queue/{INVOICES}", persistent="true", transaction="t")
        client.confirmed("ACK", id=first.headers["ack"], transaction="t")
        assert (pair.depth("london", ORDERS), pair.depth("london", INVOICES)) == (1, 0)
        client.confirmed("COMMIT", transaction="t")
        assert (pair.depth("london", ORDERS), pair.depth("london", INVOICES)) == (0, 1)
        client.confirmed("BEGIN", transaction="u")
        client.confirmed("SEND", "third", destination=f"/queue/{INVOICES}", transaction="u")
        client.confirmed("ABORT", transaction="u")
        assert pair.depth("london", INVOICES) == 1


def test_what_a_client_does_wrong_it_is_told(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        assert "Unexpected ACK received" in client.complaint("ACK", id="nonsense")
        assert "Invalid transaction id: nope" in client.complaint("COMMIT", transaction="nope")
        assert "No subscription matched" in client.complaint("UNSUBSCRIBE", id="nope")
        assert "a = " in client.complaint("SUBSCRIBE", id="b", destination=f"/queue/{ORDERS}", selector="a = (")
        client.send(ORDERS)  # and may go on
        assert "Unknown STOMP action: FOO" in client.complaint("FOO")
        with pytest.raises(ConnectionLost):
            client.frame("GOODBYE")


@pytest.mark.parametrize(("ack", "held"), [("auto", 0), ("client-individual", 3)])
def test_browsing_takes_nothing_and_has_an_end(pair: ClassicSubject, ack: str, held: int) -> None:
    bean = pair.queue("london", ORDERS)
    with pair.client("london") as client:
        for number in range(3):
            client.send(ORDERS, f"body {number}")
        dequeued = pair.read("london", bean, "DequeueCount")
        client.subscribe(ORDERS, "b", browser="true", ack=ack)
        shown = [client.message() for _ in range(4)]

        assert [each.headers["message-id"] for each in shown[:3]] == pair.ids("london")
        assert (shown[3].headers["browser"], shown[3].headers["message-id"]) == ("end", "0")
        counted = ("QueueSize", "InFlightCount", "ConsumerCount")
        told = {"QueueSize": 3, "InFlightCount": held, "ConsumerCount": 1}
        comes(lambda: pair.read("london", bean, *counted), told)
        client.confirmed("UNSUBSCRIBE", id="b")
        comes(lambda: pair.read("london", bean, *counted), {"QueueSize": 3, "InFlightCount": 0, "ConsumerCount": 0})
        assert pair.read("london", bean, "DequeueCount") == dequeued


def test_what_is_sent_again_after_it_was_a_dead_letter_has_no_copy(pair: ClassicSubject) -> None:
    """Its id was at the peer before."""
    with pair.client("london") as client:
        client.send(ORDERS)
        pair.settled()
        comes(lambda: pair.depth("paris", ORDERS), 1)
        client.subscribe(ORDERS)
        client.ack(client.message(), "NACK")
        client.confirmed("UNSUBSCRIBE", id="s")
        comes(lambda: pair.depth("london", DLQ), 1)
    [ident] = pair.ids("london", DLQ)
    assert pair.done("paris", pair.queue("paris", ORDERS), f"removeMessage({TEXT})", ident) is True
    bridged = [row["EnqueueCounter"] for row in pair.bridges("london")]

    assert pair.done("london", pair.queue("london", DLQ), f"retryMessage({TEXT})", ident) is True

    comes(lambda: [row["DequeueCounter"] for row in pair.bridges("london")], [bridged[0] + 1])
    assert (pair.ids("london"), pair.ids("paris")) == ([ident], [])


def test_messages_go_by_their_ids(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        for _ in range(4):
            client.send(ORDERS)
    ids = pair.ids("london")
    listed = ",".join(f"'{each}'" for each in (*ids[1:3], "ID:nobody:1"))

    assert pair.done("london", pair.queue("london", ORDERS), BY_IDS, f"JMSMessageID IN ({listed})") == 2
    assert pair.ids("london") == [ids[0], ids[3]]
    bad = pair.execute("london", pair.queue("london", ORDERS), BY_IDS, "JMSMessageID IN (")
    assert (bad["status"], bad["error_type"]) == (500, "javax.jms.InvalidSelectorException")


def test_a_pause_stops_dispatch_and_nothing_else(pair: ClassicSubject) -> None:
    bean = pair.queue("london", ORDERS)
    with pair.client("london") as client:
        client.subscribe(ORDERS)
        pair.done("london", bean, "pause()")
        client.send(ORDERS)
        client.nothing_for(0.3)
        assert pair.read("london", bean, "Paused", "QueueSize") == {"Paused": True, "QueueSize": 1}
        pair.done("london", bean, "resume()")
        client.ack(client.message())


def test_figures_come_over_stomp_too(pair: ClassicSubject) -> None:
    asked = "/queue/ActiveMQ.Statistics.Destination."
    with pair.client("london", "sync") as client:
        client.send(ORDERS)
        client.subscribe("/temp-queue/figures", ack="auto", transformation="jms-map-json")
        for number, name in enumerate((ORDERS, "nobody")):
            told = {"reply-to": "/temp-queue/figures", "correlation-id": f"c{number}"}
            client.confirmed("SEND", destination=asked + name, **told)
        told = client.message()
        client.nothing_for(0.3)

    assert told.headers["correlation-id"] == "c0"
    entries = json.loads(told.body)["map"]["entry"]
    assert {"string": "size", "long": 1} in entries
    assert {"string": ["destinationName", f"queue://{ORDERS}"]} in entries


def test_without_its_bridge_copies_pile_up_and_its_counters_begin_anew(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        client.send(ORDERS)
        pair.settled()
        [before] = pair.bridges("london")
        for _ in range(2):
            pair.done("london", pair.network("london"), "stop()")
        comes(lambda: pair.bridges("london"), [])
        client.send(ORDERS)

    bean = pair.queue("london", pair.copied("london"))
    assert pair.read("london", bean, "QueueSize", "ConsumerCount") == {"QueueSize": 1, "ConsumerCount": 0}
    pair.done("london", pair.network("london"), "start()")
    pair.settled()
    [after] = pair.bridges("london")
    assert before["EnqueueCounter"] >= 1
    assert (after["EnqueueCounter"], after["DequeueCounter"], after["RemoteBrokerName"]) == (1, 1, "paris")
    comes(lambda: pair.depth("paris", ORDERS), 2)


def test_a_broker_that_died_has_its_durable_messages_and_counts_from_zero(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        for number in range(3):
            client.send(ORDERS, n=str(number))
        client.send(INVOICES, durable=False)
        pair.settled()
        pair.done("london", pair.queue("london", ORDERS), "pause()")
    pair.stage.kill("london")
    pair.stage.start("london")
    until(lambda: pair.bridges("london"), within_s=30)

    names = ("QueueSize", "EnqueueCount", "DequeueCount", "ForwardCount", "Paused")
    told = pair.read("london", pair.queue("london", ORDERS), *names)
    assert told == {"QueueSize": 3, "EnqueueCount": 0, "DequeueCount": 0, "ForwardCount": 0, "Paused": False}
    assert pair.depth("london", INVOICES) == 0
    assert pair.read("london", pair.connector("london", "openwire"), "Started") == {"Started": True}
    assert pair.depth("paris", ORDERS) == 3
