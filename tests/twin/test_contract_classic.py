"""Two Classic brokers, real or simulated, that copy to each other: console, connectors, messages and what is told of
them, the bridge; that share a store: who has it, how it changes hands, what goes with it; and that producers write to
side by side: what tells two messages to be the same, and what of one is left that is read here and put down there.
And what the agent of a standby asks of two brokers: in memory as in its own tests, simulated, and real."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.settings.loader import load
from dr_ctl.stomp_io.address import Address, Closed, Connected, Login, LoginDenied, StompAccount
from dr_ctl.stomp_io.client import ConnectionLost, try_login
from dr_ctl.topologies.brokersync.reading import READS, Observer
from dr_ctl.topologies.brokersync.sync.brokers import Primary, Standby
from dr_ctl.topologies.classic import reading
from dr_ctl.topologies.classic.beans import MOVES, PAUSES, REMOVES, REMOVES_QUEUES, RESUMES, STOPS
from dr_ctl.topologies.common.consumed import Consumed, decided
from dr_ctl.topologies.fanout.reading import put, read
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.policy import HARDENED
from dr_ctl_lab.twin.kinds import BROKERSYNC, FANOUT, SHARED_STORE
from tests.topologies.brokersync.sync.fakes import Q, Sites
from tests.twin.conftest import BROKERS
from tests.twin.subject import DLQ, IN, OUT, SITES, TEXT, ClassicSubject, FanoutSubject, StoreSubject, comes, until

TOPOLOGY = BROKERSYNC
NEXT_TO_EACH_OTHER = pytest.mark.parametrize("topology", [FANOUT])
SHARED = pytest.mark.parametrize("topology", [SHARED_STORE])
BY_SELECTOR = f"removeMatchingMessages({TEXT})"
ONE, TWO = {"activemq.prefetchSize": "1"}, {"activemq.prefetchSize": "2"}
NO_ATTRIBUTE, NO_BEAN = (f"javax.management.{kind}NotFoundException" for kind in ("Attribute", "Instance"))


def test_the_console_wants_an_origin_and_a_login(pair: ClassicSubject) -> None:
    nobody = pair.post("london", {"type": "version"})
    wrong = pair.post("london", {"type": "version"}, password="wrong", Origin="http://x")
    right = pair.post("london", {"type": "version"}, Referer="http://x")

    assert (nobody.status_code, nobody.json()["status"]) == (200, 403)
    assert nobody.json()["error"] == "java.lang.Exception : Origin null is not allowed to call this agent"
    assert (wrong.status_code, wrong.headers["WWW-Authenticate"]) == (401, 'basic realm="ActiveMQRealm"')
    assert wrong.text.startswith("<html>")
    assert right.json()["value"]["info"] == {"product": "activemq", "vendor": "Apache", "version": "5.18.3"}


def test_what_is_not_there_fails_a_read_and_nobody_may_call_by_a_pattern(pair: ClassicSubject) -> None:
    request = {"type": "read", "mbean": pair.queue("london", IN), "attribute": ["QueueSize", "NetworkEnqueues"]}

    refused = pair.ask("london", **request)
    answer = pair.ask("london", **request, config={"ignoreErrors": True})["value"]
    missing = pair.ask("london", type="read", mbean=pair.queue("london", "nobody"), attribute=["QueueSize"])
    by_pattern = pair.execute("london", pair.queue("london", "*"), "resume()")

    assert (refused["status"], refused["error_type"]) == (404, NO_ATTRIBUTE)
    no_such = f"ERROR: No such attribute: NetworkEnqueues (class {NO_ATTRIBUTE})"
    assert answer == {"QueueSize": 0, "NetworkEnqueues": no_such}
    assert (missing["status"], missing["error_type"]) == (404, NO_BEAN)
    assert (by_pattern["status"], "Operation resume() forbidden for MBean" in by_pattern["error"]) == (403, True)


def test_a_bean_has_a_name_that_loses_letters(pair: ClassicSubject) -> None:
    pair.done("london", pair.server("london"), f"addQueue({TEXT})", "a:b,c=d*e'f")

    shown = pair.shows("london", "Name", "QueueSize", queue="a_b_c&amp;d&ast;e_f")

    assert shown == {"Name": "a:b,c=d*e'f", "QueueSize": 0}
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
        assert client.login_result == Connected("ActiveMQ/5.18.3", "1.2")
        assert pair.done("london", bean, "connectionCount()") == 1
    refused = try_login(pair.place("london").stomp, Login("app", "wrong"), None, timeout_s=5)
    assert isinstance(refused, LoginDenied)
    assert "User name [app] or password is invalid." in refused.because


def test_a_login_that_was_given_up_leaves_a_bean_and_no_connection(pair: ClassicSubject) -> None:
    pair.give_up_logins("london")

    place = pair.place("london")
    url, admin = f"http://127.0.0.1:{place.ports['http']}/api/jolokia/", place.admin
    with closing(Wire(Account(url, admin.user, admin.password, "http://localhost"))) as wire, pair.client("london"):
        shown = reading.ask(Reader(wire), place.group).values["connections"]

    assert [connection.protocol for connection in shown] == ["stomp"]


def test_a_policy_refuses_what_it_denies_before_it_looks_for_a_bean(twin: PlayedTwin) -> None:
    pair, host = ClassicSubject(twin), twin.host("london")
    assert isinstance(host.broker, ClassicBroker)
    with closing(Wire(Account(f"{host.jolokia}/", *host.admin, "http://127.0.0.1"))) as wire:
        whole = reading.ask(Reader(wire), reading.find_broker(Reader(wire))).values
        host.broker.policy = HARDENED
        denied = reading.ask(Reader(wire), "london").values["denied"]

    assert {(connector.name, connector.started) for connector in whole["acceptors"]} == {
        (listener, True) for listener in ("stomp", "openwire", "sync")
    }
    assert [(network.name, network.to) for network in whole["networks"]] == [("to-paris", "paris")]
    assert (whole["denied"], denied) == (frozenset(), {PAUSES, RESUMES, REMOVES, REMOVES_QUEUES, STOPS, MOVES})
    paused = pair.execute("london", pair.queue("london", IN), "pause")
    forbidden = "java.lang.Exception : Operation pause forbidden"
    assert (paused["status"], paused["error"].partition(" for MBean")[0]) == (403, forbidden)
    assert pair.execute("london", pair.queue("london", IN), "pause()")["status"] == 200  # named alone it passes
    secret = pair.ask("london", type="read", mbean=pair.network("london"))
    assert (secret["status"], "Password is forbidden" in secret["error"]) == (403, True)
    assert pair.read("london", pair.network("london"), "Name") == {"Name": "to-paris"}


def test_a_message_has_the_same_id_at_both_sites_and_is_copied_once(pair: ClassicSubject) -> None:
    pair.send(3)
    pair.settled()
    comes(lambda: pair.depth("paris", IN), 3)
    local, remote = (pair.on(site, "browse()") for site in SITES)

    assert [row["JMSMessageID"] for row in local] == [row["JMSMessageID"] for row in remote]
    assert [row["Text"] for row in remote] == ["body 0", "body 1", "body 2"]
    assert {(row["BrokerPath"], row["OriginalDestination"]) for row in local} == {("null", None)}
    assert {(row["BrokerPath"][:4], row["OriginalDestination"]) for row in remote} == {
        ("[ID:", "queue://orders.in.to-paris")
    }
    assert pair.depth("paris", pair.copied("paris")) == 0
    shown = pair.shows("paris", "QueueSize", "EnqueueCount", queue=pair.copied("london"))
    assert shown == {"QueueSize": 0, "EnqueueCount": 0}  # it passes on what comes, and counts none of it


def test_what_is_done_with_is_told_by_the_id_of_its_copy(pair: ClassicSubject) -> None:
    with pair.client("london") as client, pair.client("london", "sync") as agent:
        agent.subscribe(f"/topic/ActiveMQ.Advisory.MessageConsumed.Queue.{IN}", ack="auto")
        ids = pair.send(5)
        client.subscribe(IN, **ONE)
        client.ack(client.message())
        heard = [agent.message()]
        client.ack(client.message(), "NACK")
        heard.append(agent.message())
        assert [pair.on("london", f"removeMessage({TEXT})", ids[2]) for _ in range(2)] == [True, False]
        heard.append(agent.message())
        assert pair.on("london", f"moveMatchingMessagesTo({TEXT},{TEXT})", "n = '3'", "parked") == 1
        heard.append(agent.message())
        pair.on("london", "purge()")
        heard.append(agent.message())

        assert [message.headers["orignalMessageId"] for message in heard] == ids
        assert {message.headers["orignalDestination"] for message in heard} == {f"queue://{IN}"}
        assert (pair.ids("london", DLQ), pair.ids("london", "parked")) == (ids[1:2], ids[3:4])
        assert pair.shows("london", "DLQ", queue=DLQ) == {"DLQ": True}


def test_what_a_client_holds_counts_and_comes_again_when_it_is_gone(pair: ClassicSubject) -> None:
    pair.send(3)
    with pair.client("london") as client:
        client.subscribe(IN, **TWO)
        first = client.message()
        comes(lambda: pair.shows("london", "QueueSize", "InFlightCount"), {"QueueSize": 3, "InFlightCount": 2})
        assert len(pair.ids("london")) == 3
    comes(lambda: pair.shows("london", "InFlightCount", "ConsumerCount"), {"InFlightCount": 0, "ConsumerCount": 0})

    with pair.client("london") as client:
        client.subscribe(IN, **ONE)
        again = client.message()
        assert (again.headers["message-id"], again.headers["redelivered"]) == (first.headers["message-id"], "true")


def test_no_listing_shows_what_is_acknowledged_in_an_open_transaction(pair: ClassicSubject) -> None:
    pair.send(3)
    with pair.client("london") as client:
        client.subscribe(IN, **ONE)
        first = client.message()
        client.confirmed("BEGIN", transaction="t")
        client.ack(first, transaction="t")

        shown = pair.ids("london")
        with pair.client("london") as other:
            other.subscribe(IN, "b", browser="true", ack="auto")
            browsed = [other.message().headers["message-id"] for _ in range(2)]
            assert other.message().headers["browser"] == "end"
        assert (pair.depth("london", IN), len(shown), sorted(browsed)) == (3, 2, sorted(shown))
        assert first.headers["message-id"] not in shown

        client.confirmed("ABORT", transaction="t")
        assert first.headers["message-id"] in pair.ids("london")


@pytest.mark.parametrize(("ack", "held"), [("auto", 0), ("client-individual", 3)])
def test_browsing_takes_nothing_and_has_an_end(pair: ClassicSubject, ack: str, held: int) -> None:
    def counts() -> list[int]:
        names = ("QueueSize", "InFlightCount", "ConsumerCount", "DequeueCount")
        result = pair.shows("london", *names)
        return [result[name] for name in names]

    ids = pair.send(3)
    with pair.client("london") as client:
        *_, dequeued = counts()
        client.subscribe(IN, "b", browser="true", ack=ack)
        *shown, last = [client.message() for _ in range(4)]

        assert [message.headers["message-id"] for message in shown] == ids
        assert (last.headers["browser"], last.headers["message-id"]) == ("end", "0")
        comes(counts, [3, held, 1, dequeued])
        client.confirmed("UNSUBSCRIBE", id="b")
        comes(counts, [3, 0, 0, dequeued])


def test_what_is_sent_again_after_it_was_a_dead_letter_has_no_copy(pair: ClassicSubject) -> None:
    """Its id was at the peer before."""
    pair.send(1)
    with pair.client("london") as client:
        pair.settled()
        comes(lambda: pair.depth("paris", IN), 1)
        client.subscribe(IN)
        client.ack(client.message(), "NACK")
        client.confirmed("UNSUBSCRIBE", id="s")
        comes(lambda: pair.depth("london", DLQ), 1)
    [ident] = pair.ids("london", DLQ)
    assert pair.on("paris", f"removeMessage({TEXT})", ident) is True
    bridged = [row["EnqueueCounter"] for row in pair.bridges("london")]

    assert pair.on("london", f"retryMessage({TEXT})", ident, queue=DLQ) is True

    comes(lambda: [row["DequeueCounter"] for row in pair.bridges("london")], [bridged[0] + 1])
    assert (pair.ids("london"), pair.ids("paris")) == ([ident], [])


def test_messages_go_by_their_ids(pair: ClassicSubject) -> None:
    ids = pair.send(4)
    listed = ",".join(f"'{case}'" for case in (*ids[1:3], "ID:nobody:1"))

    assert pair.on("london", BY_SELECTOR, f"JMSMessageID IN ({listed})") == 2
    assert pair.ids("london") == [ids[0], ids[3]]
    bad = pair.execute("london", pair.queue("london", IN), BY_SELECTOR, "JMSMessageID IN (")
    assert (bad["status"], bad["error_type"]) == (500, "javax.jms.InvalidSelectorException")


def test_a_pause_stops_dispatch_and_nothing_else(pair: ClassicSubject) -> None:
    with pair.client("london") as client:
        client.subscribe(IN)
        pair.on("london", "pause()")
        client.send(IN)
        client.nothing_for(0.3)
        assert pair.shows("london", "Paused", "QueueSize") == {"Paused": True, "QueueSize": 1}
        pair.on("london", "resume()")
        client.ack(client.message())


def test_figures_come_over_stomp_too(pair: ClassicSubject) -> None:
    with pair.client("london", "sync") as client:
        client.send(IN)
        client.subscribe("/temp-queue/figures", ack="auto", transformation="jms-map-json")
        for number, name in enumerate((IN, "nobody")):
            options = {"reply-to": "/temp-queue/figures", "correlation-id": f"c{number}"}
            client.confirmed("SEND", destination=f"/queue/ActiveMQ.Statistics.Destination.{name}", **options)
        said = client.message()
        client.nothing_for(0.3)

    assert said.headers["correlation-id"] == "c0"
    entries = json.loads(said.body)["map"]["entry"]
    assert {"string": "size", "long": 1} in entries
    assert {"string": ["destinationName", f"queue://{IN}"]} in entries


def test_without_its_bridge_copies_pile_up_and_its_counters_begin_anew(pair: ClassicSubject) -> None:
    pair.send(1)
    pair.settled()
    [before] = pair.bridges("london")
    for _ in range(2):
        pair.done("london", pair.network("london"), "stop()")
    comes(lambda: pair.bridges("london"), [])
    pair.send(1)

    shown = pair.shows("london", "QueueSize", "ConsumerCount", queue=pair.copied("london"))
    assert shown == {"QueueSize": 1, "ConsumerCount": 0}
    pair.done("london", pair.network("london"), "start()")
    pair.settled()
    [after] = pair.bridges("london")
    assert before["EnqueueCounter"] >= 1
    assert (after["EnqueueCounter"], after["DequeueCounter"], after["RemoteBrokerName"]) == (1, 1, "paris")
    comes(lambda: pair.depth("paris", IN), 2)


def test_a_broker_that_died_has_its_durable_messages_and_counts_from_zero(pair: ClassicSubject) -> None:
    pair.send(3)
    with pair.client("london") as client:
        client.send(OUT, durable=False)
        pair.settled()
        pair.on("london", "pause()")
    pair.stage.kill("london")
    pair.stage.start("london")
    until(lambda: pair.bridges("london"), within_s=30)

    shown = pair.shows("london", "QueueSize", "EnqueueCount", "DequeueCount", "ForwardCount", "Paused")
    assert shown == {"QueueSize": 3, "EnqueueCount": 0, "DequeueCount": 0, "ForwardCount": 0, "Paused": False}
    assert (pair.depth("london", OUT), pair.depth("paris", IN)) == (0, 3)
    assert pair.read("london", pair.connector("london", "openwire"), "Started") == {"Started": True}


def filled(pair: StoreSubject, count: int = 3) -> list[str]:
    """So many messages, and one that is not durable; the ids of all but that."""
    durable = pair.send(count)
    with pair.client("london") as client:
        client.send(IN, durable=False)
    return durable


@SHARED
def test_who_waits_runs_and_has_no_port_and_no_console(pair: StoreSubject) -> None:
    assert (pair.locked(), [pair.runs(site) for site in SITES]) == (True, [True, True])
    assert (pair.probes("london"), pair.probes("paris")) == (Connected, Closed)
    assert (pair.answers("london"), pair.answers("paris")) == (True, False)
    assert pair.read("london", pair.server("london"), "Slave") == {"Slave": False}

    for _ in range(2):
        pair.done("london", pair.connector("london", "stomp"), "stop()")

    assert (pair.probes("london"), pair.probes("paris")) == (Closed, Closed)
    assert (pair.locked(), pair.answers("london"), pair.answers("paris")) == (True, True, False)


@SHARED
def test_what_is_stopped_hands_over_what_is_durable_and_no_pause(pair: StoreSubject) -> None:
    durable = filled(pair)
    pair.on("london", "pause()")
    pair.done("london", pair.connector("london", "stomp"), "stop()")

    pair.stop("london")

    pair.taken("paris")
    shown = pair.shows("paris", "Paused", "QueueSize", "EnqueueCount", "DequeueCount")
    assert (pair.locked(), pair.answers("london"), pair.ids("paris")) == (True, False, durable)
    assert shown == {"Paused": False, "QueueSize": 3, "EnqueueCount": 0, "DequeueCount": 0}
    pair.gone("london")


@SHARED
def test_what_is_killed_leaves_it_to_who_waits_and_waits_itself_when_it_is_back(pair: StoreSubject) -> None:
    durable = filled(pair)

    pair.stage.kill("london")

    assert not pair.runs("london")
    pair.taken("paris")
    pair.stage.start("london")
    assert pair.runs("london")
    assert (pair.ids("paris"), pair.probes("london"), pair.answers("london")) == (durable, Closed, False)
    with pair.client("paris") as client:
        client.subscribe(IN)
        client.ack(client.message())
        until(lambda: pair.depth("paris", IN) == 2)


@SHARED
def test_a_store_that_nobody_has_is_locked_by_nobody(pair: StoreSubject) -> None:
    durable = filled(pair)
    pair.stage.kill("paris")
    pair.stage.kill("london")
    assert not pair.locked()

    pair.stage.start("paris")

    pair.taken("paris")
    assert (pair.locked(), pair.ids("paris")) == (True, durable)


def own(pair: FanoutSubject, site: str) -> StompAccount:
    """dr-ctl's own way in."""
    place = pair.place(site)
    return StompAccount(Address("127.0.0.1", place.ports["sync"]), place.login("agent"), None)


def written(pair: FanoutSubject, *ids: str, to: tuple[str, ...] = SITES, body: str = "body", **headers: str) -> None:
    for site in to:
        with pair.client(site, "producers") as client:
            for ident in ids:
                client.send(IN, body, order_id=ident, **headers)


def rows(pair: FanoutSubject, site: str) -> dict[str, dict[str, object]]:
    return {row["StringProperties"]["order_id"]: row for row in pair.on(site, "browse()")}


@NEXT_TO_EACH_OTHER
def test_what_is_sent_to_both_is_the_same_by_the_producers_id_only(pair: FanoutSubject) -> None:
    written(pair, "a", "b'c", "d")

    by_name = {site: rows(pair, site) for site in SITES}

    assert [list(item) for item in by_name.values()] == [["a", "b'c", "d"]] * 2
    assert len({row["JMSMessageID"] for item in by_name.values() for row in item.values()}) == 6
    assert all(row["JMSDeliveryMode"] == "PERSISTENT" for item in by_name.values() for row in item.values())
    assert pair.on("paris", BY_SELECTOR, "order_id IN ('a','b''c','gone')") == 2
    assert (list(rows(pair, "paris")), list(rows(pair, "london"))) == (["d"], ["a", "b'c", "d"])


@NEXT_TO_EACH_OTHER
def test_a_message_that_is_read_and_put_down_keeps_all_that_its_producer_said(pair: FanoutSubject) -> None:
    said = {"priority": "7", "correlation-id": "c:1", "type": "order", "region": "north\\1"}
    said |= {"expires": "4102444800000", "timestamp": "1700000000000", "reply-to": "/queue/answers"}
    written(pair, "a", "b", to=("london",), body="ä: text", **said)

    answer = read(own(pair, "london"), IN, "order_id", {"a"})
    put(own(pair, "paris"), IN, [*answer.values()])

    [local, remote] = [rows(pair, site)["a"] for site in SITES]
    same = ("Text", "JMSPriority", "JMSCorrelationID", "JMSType", "JMSExpiration", "JMSTimestamp", "JMSReplyTo")
    assert [remote[name] for name in same] == [local[name] for name in same]
    assert [remote[name] for name in same[:5]] == ["ä: text", 7, "c:1", "order", 4102444800000]
    assert remote["StringProperties"] == local["StringProperties"]
    assert (remote["JMSTimestamp"], remote["JMSDeliveryMode"]) == ("2023-11-14T22:13:20Z", "PERSISTENT")
    # Reading it left its queue as it was.
    until(lambda: pair.shows("london", "ConsumerCount")["ConsumerCount"] == 0)
    assert (pair.depth("london", IN), list(rows(pair, "london"))) == (2, ["a", "b"])


@NEXT_TO_EACH_OTHER
def test_bytes_stay_bytes(pair: FanoutSubject) -> None:
    written(pair, "a", to=("london",), body="four", **{"content-length": "4"})

    put(own(pair, "paris"), IN, [*read(own(pair, "london"), IN, "order_id", {"a"}).values()])

    assert ["Text" in rows(pair, site)["a"] for site in SITES] == [False, False]
    with pair.client("paris", "producers") as client:
        client.subscribe(IN)
        message = client.message()
        assert (message.body, message.headers["content-length"]) == (b"four", "4")
        client.ack(message)
    until(lambda: not rows(pair, "paris"))


NOBODY = {"InFlightCount": 0, "ConsumerCount": 0}


class InMemory(Sites):
    """Two brokers, and what clients and operators do there."""

    def shipping(self, *, on: bool) -> None:
        self.ships = on
        self.ship()

    def serves(self, *, on: bool) -> None:
        self.is_open = on

    def lying(self) -> int:
        return len(self.copies)


class Brokers:
    def __init__(self, subject: ClassicSubject, observer: Observer) -> None:
        self.pair, pair = subject, observer.at("london")[0].pair
        self.primary = Primary(observer.brokers["london"][pair])
        self.standby = Standby(observer.brokers["paris"][pair])

    def send(self, count: int) -> object:
        return self.pair.send(count)

    def consume(self, count: int) -> None:
        self.pair.take("london", count)
        # What it held besides goes back to the queue once the broker has noticed that it is gone.
        until(lambda: self.pair.shows("london", *NOBODY) == NOBODY)

    def purge(self) -> None:
        self.pair.on("london", "purge()")

    def shipping(self, *, on: bool) -> None:
        self.pair.done("london", self.pair.network("london"), "start()" if on else "stop()")

    def serves(self, *, on: bool) -> None:
        (self.pair.stage.open_clients if on else self.pair.stage.close_clients)("london")

    def lying(self) -> int:
        return self.pair.depth("paris", IN)


Scene = InMemory | Brokers


@pytest.fixture(params=["memory", "twin", BROKERS])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "memory":
        yield InMemory()
        return
    subject: ClassicSubject = request.getfixturevalue("made_of")(request.param)
    with closing(Observer(READS, load(subject.stage.settings_path), Timeouts(), tmp_path)) as observer:
        real = Brokers(subject, observer)
        yield real
        real.primary.close()
        real.standby.close()


def unacknowledged(scene: Scene) -> int:
    return scene.primary.read().queues[Q].unacknowledged


def heard(scene: Scene, count: int) -> list[tuple[str, str]]:
    """So many announcements."""
    value: list[tuple[str, str]] = []
    until(lambda: value.extend(scene.primary.receive(0.1)) or len(value) >= count)
    return value


def arrived(scene: Scene, count: int) -> frozenset[str]:
    """So many copies: their ids."""
    until(lambda: scene.lying() == count)
    listed = scene.standby.list_queue(Q, scene.standby.read_counts().copies[Q], grows=True)
    assert listed.complete is not None
    assert len(listed.ids) == count
    return listed.ids


def of(*ids: str) -> Consumed:
    return Consumed(frozenset(ids), decided(frozenset(ids), "a test's"))


def test_a_look_tells_whether_clients_are_let_in(scene: Scene) -> None:
    assert scene.primary.read().is_open

    scene.serves(on=False)

    polled = scene.primary.read()
    assert not polled.is_open
    assert polled.start
    scene.serves(on=True)


def test_the_counters_tell_a_client_from_an_operator(scene: Scene) -> None:
    scene.send(6)
    before = unacknowledged(scene)

    scene.consume(2)
    after = unacknowledged(scene)
    assert after <= before

    scene.purge()
    assert unacknowledged(scene) == after + 4


def test_what_leaves_is_announced_whoever_took_it(scene: Scene) -> None:
    assert scene.primary.subscribe([Q]) == [Q]
    assert scene.primary.subscribe([Q]) == []
    scene.send(3)
    copies = arrived(scene, 3)

    scene.consume(2)
    by_client = heard(scene, 2)
    scene.purge()
    by_operator = heard(scene, 1)

    assert {queue for queue, _ in by_client + by_operator} == {Q}
    assert {id_ for _, id_ in by_client + by_operator} == copies
    scene.primary.unsubscribe()
    with pytest.raises(BrokerError):
        scene.primary.receive(0.1)
    assert scene.primary.subscribe([Q]) == [Q]


def test_a_browse_finds_what_is_missing_and_is_counted(scene: Scene) -> None:
    scene.send(5)
    copies = arrived(scene, 5)
    scene.consume(2)
    before = unacknowledged(scene)

    listing = scene.primary.list_queue(Q, None)

    assert listing.complete is not None
    assert (listing.complete.before, len(copies - listing.ids), listing.shown) == (3, 2, 3)
    until(lambda: unacknowledged(scene) == before - listing.shown)


def test_copies_on_their_way_have_the_ids_they_arrive_with(scene: Scene) -> None:
    scene.shipping(on=False)
    scene.send(4)

    on_their_way = scene.primary.unshipped(Q, scene.primary.read().to_ship[Q])
    scene.shipping(on=True)

    assert on_their_way.complete is not None
    assert arrived(scene, 4) == on_their_way.ids


def test_deletion_is_by_id_and_says_how_many_were_there(scene: Scene) -> None:
    scene.send(5)
    copies = sorted(arrived(scene, 5))

    assert scene.standby.remove(Q, of(*copies[:2], "ID:no-such-1:1:1:1:1")) == 2
    assert [scene.standby.remove(queue, of(*copies[:2])) for queue in (Q, "no.such.queue")] == [0, 0]

    assert sorted(scene.standby.list_queue(Q, scene.standby.read_counts().copies[Q], grows=True).ids) == copies[2:]


def test_the_depths_of_both_sites_are_told(scene: Scene) -> None:
    scene.shipping(on=False)
    scene.send(3)
    assert (len(scene.primary.list_queue(Q, None).ids), scene.primary.read().to_ship[Q].depth) == (3, 3)

    scene.shipping(on=True)
    arrived(scene, 3)

    assert scene.primary.read().to_ship[Q].depth == 0
    remote = scene.standby.read_counts()
    assert (remote.copies[Q].depth, Q in remote.unshipped and remote.unshipped[Q].depth) == (3, 0)
