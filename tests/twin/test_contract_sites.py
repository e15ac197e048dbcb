"""Doors, links, pauses and deaths of a mirrored pair, real or simulated."""

from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.mirror.origins import residue
from tests.twin.subject import SITES, Subject, comes, until

STOP = "stopBrokerConnection(java.lang.String)"
START = "startBrokerConnection(java.lang.String)"


def paused(subject: Subject, site: str, queue: str) -> tuple[bool, bool]:
    told = subject.read(site, subject.queue(site, queue), "Paused", "PersistedPause")
    return told["Paused"], told["PersistedPause"]


def attached(subject: Subject, site: str) -> bool:
    return bool(subject.link(site)["Connected"] and subject.shipping(site)["ConsumerCount"])


def test_a_stopped_link_keeps_what_happens_and_a_started_one_ships_it(subject: Subject) -> None:
    subject.put("london", "orders.in", 2)
    comes(lambda: subject.depth("paris", "orders.in"), 2)
    subject.settled()

    assert subject.execute("london", subject.server("london"), STOP, "paris")["status"] == 200
    assert subject.link("london") == {"Started": False, "Connected": False}
    assert attached(subject, "paris")
    subject.put("london", "orders.in", 3)
    subject.execute("london", subject.queue("london", "orders.in"), "removeMessages(java.lang.String)", "n = '1'")

    comes(lambda: subject.shipping("london"), {"MessageCount": 5, "DeliveringCount": 0, "ConsumerCount": 0})
    with subject.reader("london") as reader:
        left = residue(reader, subject.view("london"))
    # Both were acknowledged; of one the message itself has not been shipped either.
    assert (left.messages, left.acks) == (3, 2)
    assert left.acked is not None
    assert {queue: len(origins) for queue, origins in left.acked.items()} == {"orders.in": 1}
    assert subject.depth("paris", "orders.in") == 2

    for _ in range(2):
        assert subject.execute("london", subject.server("london"), START, "paris")["status"] == 200
    until(lambda: attached(subject, "london"))
    subject.settled()
    comes(lambda: [subject.depth(site, "orders.in") for site in SITES], [3, 3])
    told = subject.read("london", subject.outflow("london"), "MessagesAdded", "MessagesAcknowledged")
    assert told["MessagesAdded"] == told["MessagesAcknowledged"]


def test_an_outflow_tells_how_old_its_first_message_is_and_nothing_of_an_acknowledgement(subject: Subject) -> None:
    def first(site: str = "london") -> tuple[object, int | None]:
        outflow = subject.view(site).outflow
        assert outflow is not None
        return subject.read(site, outflow.bean, "FirstMessageTimestamp")["FirstMessageTimestamp"], outflow.oldest_ms

    subject.put("london", "orders.in")
    comes(lambda: subject.depth("paris", "orders.in"), 1)
    subject.settled()
    assert first() == (None, None)
    subject.execute("london", subject.server("london"), STOP, "paris")

    before_ms = subject.view("london").now_ms
    subject.put("london", "orders.in", 2)
    sent_ms, oldest_ms = first()
    after_ms = subject.view("london").now_ms
    assert isinstance(sent_ms, int)
    assert before_ms <= sent_ms <= after_ms
    assert oldest_ms is not None
    assert 0 <= oldest_ms <= after_ms - before_ms
    until(lambda: (first()[1] or 0) > oldest_ms)

    subject.execute("london", subject.server("london"), START, "paris")
    subject.settled()
    subject.execute("london", subject.server("london"), STOP, "paris")
    subject.execute("london", subject.queue("london", "orders.in"), "removeMessages(java.lang.String)", "n = '0'")
    until(lambda: subject.shipping("london")["MessageCount"] > 0)
    assert first() == (0, None)
    subject.execute("london", subject.server("london"), START, "paris")


def test_a_link_goes_with_the_peers_door_and_comes_back_with_it(subject: Subject) -> None:
    subject.execute("paris", subject.acceptor("paris", "mirror"), "stop()")

    comes(lambda: subject.link("london"), {"Started": True, "Connected": False})
    until(lambda: not attached(subject, "london"))
    assert attached(subject, "paris")
    subject.put("london", "orders.in")
    comes(lambda: subject.shipping("london")["MessageCount"], 1)

    subject.execute("paris", subject.acceptor("paris", "mirror"), "start()")
    comes(lambda: subject.depth("paris", "orders.in"), 1)
    assert attached(subject, "london")


def test_a_link_over_a_way_that_hangs_seems_attached_and_ships_nothing(subject: Subject) -> None:
    subject.stage.cut("london", "hang")
    subject.put("london", "orders.in")

    comes(lambda: subject.shipping("london")["DeliveringCount"], 1)
    assert subject.shipping("london") == {"MessageCount": 1, "DeliveringCount": 1, "ConsumerCount": 1}
    assert subject.link("london") == {"Started": True, "Connected": True}

    for operation in (STOP, START):
        subject.execute("london", subject.server("london"), operation, "paris")
    comes(lambda: subject.shipping("london")["ConsumerCount"], 0)
    until(lambda: subject.link("london")["Connected"])  # by its flag: the handshake hangs
    assert subject.shipping("london") == {"MessageCount": 1, "DeliveringCount": 0, "ConsumerCount": 0}

    subject.stage.heal()
    comes(lambda: subject.depth("paris", "orders.in"), 1)


def test_a_cut_way_takes_the_link_down_and_healing_brings_it_back(subject: Subject) -> None:
    subject.stage.cut("london")
    until(lambda: not attached(subject, "london"))
    subject.put("london", "orders.in")

    subject.stage.heal()

    comes(lambda: subject.depth("paris", "orders.in"), 1)


def test_a_pause_stops_delivery_and_a_lasting_one_stays(subject: Subject) -> None:
    queue = subject.queue("london", "orders.in")
    with subject.client("london") as client:
        client.subscribe("orders.in")
        assert subject.execute("london", queue, "pause()") == {"value": None, "status": 200}
        client.send("orders.in")

        client.nothing_for(0.2)
        assert paused(subject, "london", "orders.in") == (True, False)
        assert paused(subject, "paris", "orders.in") == (False, False)
        subject.execute("london", queue, "pause(boolean)", True)
        subject.execute("london", queue, "pause(boolean)", False)
        assert paused(subject, "london", "orders.in") == (True, True)

        subject.execute("london", queue, "resume()")
        client.message()
    assert paused(subject, "london", "orders.in") == (False, False)


def test_every_queue_is_paused_by_one_pattern(subject: Subject) -> None:
    every = beans.all_queues(subject.broker["london"])

    told = subject.execute("london", every, "pause()")

    assert {beans.parts(bean)["queue"] for bean in told["value"]} >= {"orders.in", "orders.out", "DLQ"}
    assert set(told["value"].values()) == {None}
    assert paused(subject, "london", "$ACTIVEMQ_ARTEMIS_MIRROR_paris") == (True, False)
    subject.put("london", "orders.in")
    comes(lambda: subject.shipping("london"), {"MessageCount": 1, "DeliveringCount": 0, "ConsumerCount": 1})
    assert subject.depth("paris", "orders.in") == 0
    subject.execute("london", every, "resume()")
    comes(lambda: subject.depth("paris", "orders.in"), 1)


def test_a_death_takes_what_is_volatile_and_leaves_what_is_durable(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in", "kept")
        client.send("orders.in", "gone", durable=False)
        client.subscribe("orders.in", consumer_window_size="1")
        client.message()
        subject.execute("london", subject.queue("london", "orders.in"), "pause(boolean)", True)
        subject.execute("london", subject.queue("london", "orders.out"), "pause()")
        subject.create("london", "dr-ctl.contract.london", internal=True, user="what it says")
        subject.settled()
        was = subject.view("london")
        subject.execute("paris", subject.acceptor("paris", "mirror"), "stop()")
        until(lambda: not attached(subject, "london"))
        # With receipts: what management sends may not be on disk yet when it says so.
        for _ in range(2):
            client.send("orders.out")
        subject.stage.kill("london")
        until(lambda: not subject.link("paris")["Connected"])
        assert subject.shipping("paris")["ConsumerCount"] == 0

    subject.stage.start("london")

    now = subject.view("london")
    assert (now.node, now.version, now.broker) == (was.node, was.version, was.broker)
    assert int(now.start) > int(was.start)
    assert {door.name: door.started for door in now.acceptors} == {"clients": False, "mirror": True}
    assert [paused(subject, "london", queue) for queue in ("orders.in", "orders.out")] == [(True, True), (False, False)]
    assert now.documents["dr-ctl.contract.london"] == "what it says"
    kept, outflow = now.business["orders.in"], now.outflow
    assert (kept.depth, kept.delivering, kept.added, kept.acked, kept.removed) == (1, 0, 1, 0, 0)
    assert now.business["orders.out"].added == 2
    assert outflow is not None
    assert outflow.depth == outflow.added > 2  # every address and queue is announced again
    with subject.reader("london") as reader:
        left = residue(reader, now)
    assert (left.messages, left.acks, left.acked) == (2, 0, {}), "announcements are no acknowledgements"
    until(lambda: attached(subject, "paris"))

    subject.execute("paris", subject.acceptor("paris", "mirror"), "start()")
    subject.settled()
    comes(lambda: subject.depth("paris", "orders.out"), 2)
    assert subject.depth("paris", "orders.in") == 2  # the other lives at the peer
    subject.execute("london", subject.server("london"), "destroyQueue(java.lang.String)", "dr-ctl.contract.london")


def test_new_messages_after_a_death_have_new_numbers(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send("orders.in")
    comes(lambda: subject.depth("paris", "orders.in"), 1)
    subject.stage.kill("london")
    subject.stage.start("london")
    until(lambda: attached(subject, "london"))

    subject.put("london", "orders.in")

    comes(lambda: subject.depth("paris", "orders.in"), 2)


def test_the_listings_tell_clients_and_links(subject: Subject) -> None:
    with subject.billing("london"):
        view = subject.view("london")

    port = subject.place("london").stomp.port
    mine = [each for each in view.connections if each.port == port]
    assert [(each.client, each.user, each.protocol) for each in mine] == [("billing", "app", "STOMP")]
    links = [(each.protocol, each.client) for each in view.connections if each.port != port]
    assert links == [("AMQP", subject.view("paris").node)] * 2  # both directions name the peer
    assert {(each.queue, each.port == port, each.client, each.user, each.holds) for each in view.consumers if
            each.queue == "orders.in"} == {("orders.in", True, "billing", "app", 1)}  # fmt: skip
    assert len([each for each in view.consumers if each.queue == "$ACTIVEMQ_ARTEMIS_MIRROR_paris"]) == 1
    assert mine[0].remote == next(each.remote for each in view.consumers if each.port == port)
    assert view.fence.strangers() == []
    comes(lambda: [each for each in subject.view("london").connections if each.port == port], [])
