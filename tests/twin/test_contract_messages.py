"""Messages at a mirrored pair, real or simulated: sent, shipped, delivered, acknowledged, given back."""

from contextlib import closing
from typing import Any

import pytest

from dr_ctl.stomp_io.answers import Closed, Connected, Refused
from dr_ctl.stomp_io.client import greet
from dr_ctl.stomp_io.connection import ConnectionLost
from dr_ctl.stomp_io.stream import connected
from dr_ctl.topologies.mirror.origins import browsed
from tests.stomp_io.doors import encode
from tests.twin.conftest import ON_THE_WIRE_TOO
from tests.twin.subject import SITES, Subject, comes, until

pytestmark = ON_THE_WIRE_TOO


def test_what_is_sent_appears_at_the_peer_under_the_same_origin(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in", "one", order_id="a")
        client.send("orders.in", "two", durable=False)

    comes(lambda: subject.depth("paris", "orders.in"), 2)
    views = {site: subject.view(site) for site in SITES}
    ids = {}
    for site, view in views.items():
        with subject.reader(site) as reader:
            ids[site] = browsed(reader, view, [view.business["orders.in"]], limit=10)[0].ids
    assert ids["london"] == ids["paris"]
    assert {born for born, _ in ids["london"]} == {views["london"].node}
    assert [subject.counts(site, "orders.in") for site in SITES] == [(2, 0, 2), (2, 0, 2)]


def test_an_acknowledgement_leaves_at_both_sites(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
        comes(lambda: subject.depth("paris", "orders.in"), 1)
        client.subscribe("orders.in")
        message = client.message()
        assert subject.counts("london", "orders.in")[:2] == (1, 1)

        client.ack(message)

        comes(lambda: subject.depth("paris", "orders.in"), 0)
        assert subject.depth("london", "orders.in") == 0
        assert [subject.counters(site, "orders.in") for site in SITES] == [(1, 1, 0), (1, 1, 0)]


def test_a_message_says_what_it_was_sent_with_and_where_it_was_born(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in", "the body", order_id="a:b")
        client.subscribe("orders.in")
        here = client.message()
    comes(lambda: subject.depth("paris", "orders.in"), 1)
    subject.stage.close_clients("london")
    subject.stage.open_clients("paris")
    with subject.client("paris") as client:
        client.subscribe("orders.in")
        there = client.message()

    for message in (here, there):
        assert message.headers["destination"] == "orders.in"
        assert message.headers["order_id"] == "a:b"
        assert message.headers["persistent"] == "true"
        assert message.headers["priority"] == "4"
        assert message.headers["receipt"] == "r"
        assert message.body in ("the body", b"the body")
    assert "x-opt-amq-bkr-id" not in here.headers
    assert there.headers["x-opt-amq-bkr-id"] == subject.view("london").node
    assert there.headers["x-opt-amq-mr-id"] == here.headers["message-id"].partition(",")[2]
    assert here.headers["ack"] == here.headers["message-id"]


def test_what_a_client_does_not_finish_comes_again_at_its_place(subject: Subject) -> None:
    with subject.client("london") as client:
        for name in ("first", "second"):
            client.send("orders.in", name)
        client.subscribe("orders.in")
        first = client.message()
    comes(lambda: subject.counts("london", "orders.in"), (2, 0, 2))
    with subject.client("london") as client:
        client.subscribe("orders.in")
        again = client.message()

    assert (first.headers["redelivered"], again.headers["redelivered"]) == ("false", "true")
    assert again.headers["message-id"].partition(",")[2] == first.headers["message-id"].partition(",")[2]


def test_a_nack_is_taken_for_an_acknowledgement(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
        client.subscribe("orders.in")

        client.ack(client.message(), "NACK")

        assert subject.depth("london", "orders.in") == 0


def test_a_window_bounds_what_a_client_holds_and_browsing_does_not_see_that(subject: Subject) -> None:
    with subject.client("london") as client:
        for _ in range(4):
            client.send("orders.in", "x" * 200)
        client.subscribe("orders.in", consumer_window_size="600")
        held = [client.message() for _ in range(2)]
        client.nothing_for(0.1)

        queue = subject.queue("london", "orders.in")
        assert subject.counts("london", "orders.in") == (4, 2, 4)
        seen = subject.execute("london", queue, "browse(int,int)", 1, 10)["value"]
        assert len(seen) == 2
        assert subject.execute("london", queue, "countMessages(java.lang.String)", "receipt = 'r'")["value"] == 2
        assert subject.execute("london", queue, "countMessages()")["value"] == 4
        client.ack(held[0])
        client.message()


def test_a_selector_leaves_the_others_where_they_are(subject: Subject) -> None:
    with subject.client("london") as client:
        client.subscribe("orders.in", selector="dr_ctl_probe = 'mine'")
        client.send("orders.in", "theirs")
        client.send("orders.in", "mine", dr_ctl_probe="mine")

        assert client.message().body in ("mine", b"mine")
        assert subject.counts("london", "orders.in")[:2] == (2, 1)


@pytest.mark.parametrize("durable", [True, False])
def test_a_bytes_message_keeps_its_bytes(subject: Subject, durable: bool) -> None:
    told = {"destination": "orders.in", "destination-type": "ANYCAST", "content-length": "3", "receipt": "r"}
    told |= {"persistent": "true"} if durable else {}

    def rows_there() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = subject.execute(
            "london", subject.queue("london", "orders.in"), "browse(int,int)", 1, 10
        )["value"]
        return found

    with subject.client("london") as client:
        client.connection.stomp.send_frame("SEND", told, "abc")
        client.frame("RECEIPT")
        until(rows_there)  # what has just been received is counted at once, and browsed a moment later
        rows = rows_there()

    assert (rows[0]["type"], rows[0]["BodyPreview"], rows[0]["durable"]) == (4, [97, 98, 99], durable)


def test_a_refused_login_says_why_and_closes(subject: Subject) -> None:
    place = subject.place("london")

    told = greet(place.stomp, type(place.app)("app", "wrong"), None, timeout_s=5)
    nobody = greet(place.stomp, None, None, timeout_s=5)
    right = greet(place.stomp, place.app, None, timeout_s=5)

    assert isinstance(told, Refused)
    assert told.because == "Security Error occurred: User name [app] or password is invalid"
    assert isinstance(nobody, Refused)
    assert nobody.because == "Security Error occurred: User name [null] or password is invalid"
    assert isinstance(right, Connected)
    assert right.version == "1.2"
    assert right.server.startswith("ActiveMQ-Artemis/")


@pytest.mark.parametrize(
    ("command", "headers", "said"),
    [
        ("ACK", {"id": "99,99"}, "AMQ339025 failed to ack because no message with id 99,99"),
        ("UNSUBSCRIBE", {"id": "zz"}, "Cannot unsubscribe as no subscription exists for id: zz"),
        ("SUBSCRIBE", {"id": "s", "destination": "orders.in"}, "There already is a subscription for: s"),
        ("SUBSCRIBE", {"id": "t", "destination": "orders.in", "selector": "a = = b"}, 'Invalid selector "a = = b"'),
        ("SEND", {}, 'Cannot invoke "Object.hashCode()"'),
        ("ZORK", {}, "AMQ339023 Invalid STOMP frame"),
    ],
    ids=lambda told: told if isinstance(told, str) and told.isupper() else "",
)
def test_a_wrong_frame_is_answered_with_an_error_and_the_end(
    subject: Subject, command: str, headers: dict[str, str], said: str
) -> None:
    with subject.client("london") as client:
        client.subscribe("orders.in")
        client.connection.stomp.send_frame(command, {**headers, "receipt": "r"})

        with pytest.raises(ConnectionLost) as lost:
            client.frame("RECEIPT")

    assert said in str(lost.value)


@pytest.mark.parametrize(("asked", "told"), [(None, None), ("0,0", "0,30000"), ("100,100", "500,500")])
def test_heart_beats_are_agreed_upon(subject: Subject, asked: str | None, told: str | None) -> None:
    at = subject.place("london")
    hello = {"accept-version": "1.2", "host": "x", "login": at.app.user, "passcode": at.app.password}
    with closing(connected(at.stomp, None, within_s=5)) as stream:
        stream.send(encode("CONNECT", {**hello, **({"heart-beat": asked} if asked else {})}), 5)
        said = (stream.receive(5) or b"").decode()

    assert said.startswith("CONNECTED\n")
    assert (f"\nheart-beat:{told}\n" in said) if told else ("heart-beat" not in said)


def test_an_unknown_address_is_made_for_anycast_and_swallows_otherwise(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("made.by.sending")
        client.confirmed("SEND", "lost", destination="swallowed", persistent="true")

    until(lambda: subject.ask("paris", type="read", mbean=subject.queue("paris", "made.by.sending"),
                              attribute="MessageCount").get("value") == 1)  # fmt: skip
    assert "made.by.sending" in subject.view("london").business
    assert "swallowed" not in subject.view("london").business
    for site in SITES:
        subject.execute(site, subject.server(site), "destroyQueue(java.lang.String)", "made.by.sending")


def test_after_ten_deliveries_a_message_is_a_dead_letter_at_both_sites(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.out", order_id="dead")
    for _ in range(10):
        with subject.client("london") as client:
            client.subscribe("orders.out")
            client.message()
        comes(lambda: subject.counts("london", "orders.out")[1], 0)

    comes(lambda: [subject.depth(site, "DLQ") for site in SITES], [1, 1])
    assert [subject.depth(site, "orders.out") for site in SITES] == [0, 0]
    for site in SITES:
        assert subject.counters(site, "orders.out") == (1, 0, 1)
        row = subject.execute(site, subject.queue(site, "DLQ"), "browse(int,int)", 1, 10)["value"][0]
        assert row["StringProperties"]["_AMQ_ORIG_QUEUE"] == "orders.out"
        assert row["address"] == "DLQ"


def test_what_a_consumer_at_the_peer_holds_cannot_be_acknowledged_there(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
        comes(lambda: subject.depth("paris", "orders.in"), 1)
        subject.stage.open_clients("paris")
        with subject.client("paris") as there:
            there.subscribe("orders.in")
            there.message()
            client.subscribe("orders.in")
            client.ack(client.message())

            comes(lambda: subject.pending("paris"), 1, within_s=2)
            comes(lambda: subject.pending("paris"), 0, within_s=5)

            assert subject.counts("paris", "orders.in")[:2] == (1, 1)
    assert subject.depth("london", "orders.in") == 0
    comes(lambda: subject.counts("paris", "orders.in")[:2], (1, 0))  # for ever


def test_a_message_is_moved_out_of_the_mirror_into_a_queue_of_its_own(subject: Subject) -> None:
    move, kept = "moveMessage(long,java.lang.String)", "dr-ctl.kept.paris"
    subject.put("london", "orders.in", 2)
    subject.settled()
    comes(lambda: subject.depth("paris", "orders.in"), 2)
    subject.create("paris", kept, internal=True)
    queue = subject.queue("paris", "orders.in")
    number = int(subject.execute("paris", queue, "browse(int,int)", 1, 10)["value"][0]["messageID"])

    told = [subject.execute("paris", queue, move, number, kept)["value"] for _ in range(2)]
    nowhere = subject.execute("paris", queue, move, number, "nowhere")

    assert told == [True, False]
    kind = "java.lang.IllegalArgumentException"
    text = f"{kind} : AMQ229049: No queue found for nowhere"
    assert nowhere == {"error_type": kind, "error": text, "status": 400}
    comes(lambda: subject.depth("london", "orders.in"), 1)
    assert [subject.counters(site, "orders.in") for site in SITES] == [(2, 1, 0), (2, 1, 0)]
    row = subject.execute("paris", subject.queue("paris", kept), "browse(int,int)", 1, 10)["value"][0]
    assert row["StringProperties"]["_AMQ_ORIG_QUEUE"] == "orders.in"
    assert row["LongProperties"] == {"_AMQ_ORIG_MESSAGE_ID": number}
    assert "x-opt-amq-bkr-id" not in row["StringProperties"]
    subject.execute("paris", subject.server("paris"), "destroyQueue(java.lang.String)", kept)


def test_an_acknowledgement_under_way_names_whose_message_it_was(subject: Subject) -> None:
    subject.put("london", "orders.in")
    subject.settled()
    comes(lambda: subject.depth("paris", "orders.in"), 1)
    link = "stopBrokerConnection(java.lang.String)"
    subject.execute("paris", subject.server("paris"), link, "london")
    try:
        subject.execute("paris", subject.queue("paris", "orders.in"), "removeAllMessages()")
        comes(lambda: subject.shipping("paris")["MessageCount"], 1)
        row = subject.execute("paris", subject.outflow("paris"), "browse(int,int)", 1, 10)["value"][0]
    finally:
        subject.execute("paris", subject.server("paris"), link.replace("stop", "start"), "london")

    node = subject.view("london").node
    annotated = "messageAnnotations.x-opt-amq-mr-"
    assert row["StringProperties"] == {
        f"{annotated}adr": "orders.in",
        "messageAnnotations.x-opt-amq-bkr-id": node,
        "extraProperties._AMQ_AD": "$ACTIVEMQ_ARTEMIS_MIRROR_london",
        f"{annotated}qu": "orders.in",
    }
    assert row["ByteProperties"] == {f"{annotated}ack-reason": 1}
    assert row["PropertiesText"].startswith(f"{{{annotated}adr=orders.in, {annotated}ev-type=postAck, ")
    assert row["text"].isdecimal()
    assert (row["type"], row["protocol"], row["timestamp"]) == (4, "AMQP", 0)


def test_closing_a_door_cuts_its_clients_and_takes_back_what_they_hold(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
        client.subscribe("orders.in")
        client.message()

        told = subject.execute("london", subject.acceptor("london", "clients"), "stop()")

        assert told == {"value": None, "status": 200}
        assert subject.counts("london", "orders.in")[:2] == (1, 0)
        assert subject.read("london", subject.queue("london", "orders.in"), "ConsumerCount") == {"ConsumerCount": 0}
        with pytest.raises(ConnectionLost):
            client.frame("RECEIPT")
    at, waiting = subject.place("london"), subject.place("paris")
    assert isinstance(greet(at.stomp, at.app, None, timeout_s=5), Closed)
    assert isinstance(greet(waiting.stomp, waiting.app, None, timeout_s=5), Closed)
    assert subject.execute("london", subject.acceptor("london", "clients"), "stop()")["status"] == 200
    for _ in range(2):
        assert subject.execute("london", subject.acceptor("london", "clients"), "start()")["status"] == 200
    assert isinstance(greet(at.stomp, at.app, None, timeout_s=5), Connected)


@pytest.mark.parametrize(
    ("command", "headers", "said"),
    [
        ("SEND", {"destination": "orders.in", "destination-type": "ANYCAST"}, "AMQ339011 Error sending message"),
        (
            "SEND",
            {"destination": "new.one", "destination-type": "ANYCAST"},
            "AMQ229032:? User:? app does not have permission=.CREATE_ADDRESS",
        ),
        (
            "SUBSCRIBE",
            {"id": "1", "destination": "orders.in", "subscription-type": "ANYCAST"},
            "AMQ339016 Error creating subscription 1",
        ),
    ],
)
def test_a_client_whose_role_is_kept_out_is_greeted_and_may_do_nothing(
    subject: Subject, command: str, headers: dict[str, str], said: str
) -> None:
    server, kinds = subject.server("london"), ",".join(["java.lang.String"] * 11)
    told = subject.execute("london", server, f"addSecuritySettings({kinds})", "#", *["amq"] * 6, "", *["amq"] * 3)
    assert told["status"] == 200
    try:
        with subject.client("london") as client:
            client.connection.stomp.send_frame(command, {**headers, "receipt": "r"}, "")
            with pytest.raises(ConnectionLost, match=said):
                client.frame("RECEIPT")
        # What the mirror ships is not kept out.
        subject.put("paris", "orders.in")
        comes(lambda: subject.depth("london", "orders.in"), 1)
    finally:
        subject.execute("london", server, "removeSecuritySettings(java.lang.String)", "#")
        subject.execute("london", server, "reloadConfigurationFile()")


def test_what_a_transaction_sends_lies_nowhere_until_it_is_committed(subject: Subject) -> None:
    with subject.client("london") as client:
        for name in ("t", "u"):
            client.confirmed("BEGIN", transaction=name)
            client.send("orders.in", name, transaction=name)
        assert subject.counts("london", "orders.in") == (0, 0, 0)

        client.confirmed("COMMIT", transaction="t")
        client.confirmed("ABORT", transaction="u")

        comes(lambda: [subject.counts(site, "orders.in") for site in SITES], [(1, 0, 1), (1, 0, 1)])


def test_an_acknowledgement_does_not_wait_for_its_transaction(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
        client.subscribe("orders.in")
        client.confirmed("BEGIN", transaction="t")
        client.confirmed("ACK", id=client.message().headers["ack"], transaction="t")

        comes(lambda: [subject.depth(site, "orders.in") for site in SITES], [0, 0])
        client.confirmed("ABORT", transaction="t")
        assert [subject.depth(site, "orders.in") for site in SITES] == [0, 0]


def test_a_transaction_that_nobody_ends_sends_nothing(subject: Subject) -> None:
    with subject.client("london") as client:
        client.confirmed("BEGIN", transaction="t")
        client.send("orders.in", "never", transaction="t")
    with subject.client("london") as client:
        client.send("orders.in", "at once")
        client.subscribe("orders.in")
        assert client.message().body == b"at once"
        client.nothing_for(0.2)
