"""One reading becomes a view of what the broker said, and browsed rows say whose they are; the rest is an error."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dr_ctl.core.errors import BrokerError, TooOld
from dr_ctl.core.model import Role
from dr_ctl.engine.roles import no_answer
from dr_ctl.jolokia.http import BadValue, NoSuchBean, OperationFailed, Vanished
from dr_ctl.settings.artemis import LastingFence
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import Coordinator
from dr_ctl.topologies.artemis.reading import dispatch, find_broker
from dr_ctl.topologies.common.session import FOR_GATE, FOR_HISTORY, FOR_OPENING, FOR_PAUSES, ReadScope
from dr_ctl.topologies.common.view import Config, Connection, Consumer, Residue
from dr_ctl.topologies.mirror.reading import RESIDUE_UP_TO, BrowsedQueue, browse, read, read_residue, refresh, reread
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.pair import NO_BEAN, PAIR, Management, broker_of, connection, consumer, failed
from tests.topologies.mirror.views import broker, outflow, with_queue

CONFIG = Config(("clients",), ("mirror",), None)
MISSING = {".error": True, "error_type": "javax.management.AttributeNotFoundException", "error": "No such attribute"}
OLDER_MISSING = "ERROR: No such attribute: MessageCount (class javax.management.AttributeNotFoundException)"
NOW = 1795251263227
SPOIL = Callable[[Management], object]


@pytest.fixture
def london() -> Management:
    return broker_of("london")


def snapshot(broker: Management, config: Config = CONFIG) -> BrokerView:
    return read(broker.reader(), pair=PAIR, site=broker.site, config=config, broker=broker.broker)


def again(broker: Management, known: BrokerView, scope: ReadScope = ReadScope.STATE | ReadScope.COUNTS) -> BrokerView:
    return reread(broker.reader(), known, scope, timeout_s=1)


def flow(broker: Management, view: BrokerView | None = None) -> BrokerView:
    return refresh(broker.reader(), view or snapshot(broker), timeout_s=1)


def ok(value: object) -> dict[str, Any]:
    return {"value": value, "status": 200}


def test_what_the_broker_says_stands_in_the_view(london: Management) -> None:
    london.server |= {"PendingMirrorAcks": 276, "Version": "2.40.0"}
    london.outflow |= {"MessageCount": 1285, "DeliveringCount": 700}
    counts = {"MessageCount": 9, "DeliveringCount": 4, "ScheduledCount": 2, "MessagesAdded": 20}
    gone = {"MessagesAcknowledged": 5, "MessagesExpired": 3, "MessagesKilled": 2}
    london.queue("held", Paused=True, **counts, **gone)
    london.connections = [connection(61616), {**connection(0, user="", client=""), "localAddress": "invm:0"}]
    london.connections.append({**connection(0), "localAddress": "in-vm"})
    london.consumers = [consumer("orders.in", 61616, holds=7)]

    view = snapshot(london)

    assert (view.version, view.node, view.link.unapplied, view.start) == ("2.40.0", "node-london", 276, "1795251000000")
    assert view.outflow is not None
    assert (view.outflow.depth, view.outflow.delivering) == (1285, 700)
    held = view.business["held"]
    assert (held.depth, held.delivering, held.scheduled, held.paused, held.added) == (9, 4, 2, True, 20)
    assert (held.acked, held.removed) == (5, 10)  # what left is counted whatever the reason
    listeners = [
        (listener.name, listener.port, listener.started, listener.opens_at_boot) for listener in view.acceptors
    ]
    assert listeners == [("clients", 61616, True, False), ("mirror", 61617, True, False)]
    assert view.connections == (
        Connection("5f0c", 61616, "10.1.2.3:50412", "billing", "app", "STOMP"),
        Connection("5f0c", 0, "10.1.2.3:50412", "", "", "STOMP"),
        Connection("5f0c", None, "10.1.2.3:50412", "billing", "app", "STOMP"),
    )
    assert view.consumers == (Consumer("orders.in", 61616, "billing", "10.1.2.3:50412", "app", 7),)


def test_what_older_brokers_do_not_tell_has_its_meaning_from_the_rest(london: Management) -> None:
    london.acceptors["clients"]["Parameters"] = {"host": "127.0.0.1"}
    for item in london.queues.values():
        for name in ("InternalQueue", "RingSize", "LastValue", "DeadLetterAddress", "ExpiryAddress"):
            del item[name]

    view = snapshot(london)

    clients = next(listener for listener in view.acceptors if listener.name == "clients")
    assert {"AMQP", "STOMP", "CORE"} <= clients.protocols
    assert (clients.opens_at_boot, clients.port) == (True, None)
    assert set(view.business) == {"orders.in", "orders.audit"}
    assert view.outflow is not None
    assert not any(queue.ring or queue.last_value for queue in view.queues)


def test_a_version_that_does_not_tell_what_is_to_ship_and_to_apply_is_named_with_what_follows(
    london: Management,
) -> None:
    london.server["Version"] = "2.31.2"

    with pytest.raises(
        TooOld, match=r"Artemis 2\.31\.2 does not report .*: no proof is possible. 2\.40 is the first version that does"
    ) as raises:
        snapshot(london)

    assert "Bring its brokers to that version" in raises.value.remedy
    assert no_answer("london/orders-1", Role.UNKNOWN, raises.value).id == "DR-SITE-003"
    kept = replace(broker("london"), version="2.31.2").requests.create("dr-ctl.x", "text")["arguments"]
    assert json.loads(str(kept[0]))["internal"] is False, "its management shows no internal queue"


@pytest.mark.parametrize(("size", "ring"), [(-1, False), (0, True), (100, True)])
def test_a_ring_is_told_by_its_size(london: Management, size: int, ring: bool) -> None:
    london.queue("latest", RingSize=size)
    assert snapshot(london).business["latest"].ring is ring


PREPARED, COORDINATORS = "listPreparedTransactionDetailsAsJSON", "listLockCoordinatorsAsJSON"
UNLOCKED = Coordinator("site-lock", "a", "Unlocked")


NO_NUMBER = [MISSING, OLDER_MISSING, None, "3", True, 3.0, []]
NO_FLAG = [MISSING, "ERROR: No such attribute", None, "true", 1]
PARTS = [
    ("server", failed("no such broker", NO_BEAN, 404), NoSuchBean),
    ("runtime", ok({}), BadValue),
    ("queues", failed("out of memory", "java.lang.OutOfMemoryError", 500), OperationFailed),
    ("queues", ok([]), BadValue),
    ("queues", ok({"no bean at all": {}}), BadValue),
    ("acceptors", ok(None), BadValue),
    ("links", ok({beans.broker_connection("b", "l"): 5}), BadValue),
    ("listConnections", ok("no JSON"), BadValue),
    ("listConnections", ok(None), BadValue),
    ("listConnections", ok("[]"), BadValue),
    ("listConnections", ok('{"data": [{}], "count": 1}'), BadValue),
    ("listConsumers", ok('{"data": [], "count": 3}'), Vanished),
    ("listConsumers", failed("not now", status=500), OperationFailed),
    (PREPARED, ok("{}"), BadValue),
    (PREPARED, ok(None), BadValue),
    (PREPARED, failed("boom", status=500), OperationFailed),
    (COORDINATORS, ok("[{}]"), BadValue),
    (COORDINATORS, failed("boom", status=500), OperationFailed),
]


def odd() -> Iterator[tuple[SPOIL, type[BrokerError]]]:
    """Answers in which a figure or a flag is not told, or a part is missing."""
    for item in NO_NUMBER:
        for name in ("MessageCount", "DeliveringCount", "MessagesAdded", "MessagesKilled"):
            yield (lambda broker, name=name, told=item: broker.queue("odd", **{name: told})), BadValue
        yield (lambda broker, told=item: broker.server.update(PendingMirrorAcks=told)), BadValue
    for item in NO_FLAG:
        yield (lambda broker, told=item: broker.acceptors["clients"].update(Started=told)), BadValue
        yield (lambda broker, told=item: broker.links["paris"].update(Connected=told)), BadValue
        yield (lambda broker, told=item: broker.server.update(Active=told)), BadValue
        yield (lambda broker, told=item: broker.outflow.update(Paused=told)), BadValue
    for kind, answer, error in PARTS:
        yield (lambda broker, kind=kind, answer=answer: broker.instead.update({kind: answer})), error


@pytest.mark.parametrize(("spoil", "error"), [*odd()])
def test_what_is_not_told_is_an_error_and_never_zero_no_or_empty(
    london: Management, spoil: SPOIL, error: type[BrokerError]
) -> None:
    spoil(london)
    with pytest.raises(error):
        snapshot(london)


@pytest.mark.parametrize("told", NO_NUMBER)
def test_a_flow_whose_pending_acknowledgements_are_not_told_is_an_error(london: Management, told: object) -> None:
    view = snapshot(london)
    london.server["PendingMirrorAcks"] = told
    with pytest.raises(BadValue, match="PendingMirrorAcks"):
        flow(london, view)


@pytest.mark.parametrize(
    ("kind", "told", "names"),
    [
        (PREPARED, ok(""), ()),
        (PREPARED, ok("[]"), ()),
        (PREPARED, ok('[{"xid_as_base64": "AQID"}]'), ("AQID",)),
        (PREPARED, ok('["x1", "x2"]'), ("x1", "x2")),
        (COORDINATORS, ok('[{"name": "site-lock", "lockId": "a", "status": "Unlocked"}]'), (UNLOCKED,)),
        # A version that has none.
        (COORDINATORS, failed("No operation listLockCoordinatorsAsJSON() found on MBean"), ()),
    ],
)
def test_prepared_transactions_and_lock_coordinators_are_listed(
    london: Management, kind: str, told: dict[str, Any], names: tuple[object, ...]
) -> None:
    london.instead[kind] = told
    view = snapshot(london)
    assert (view.prepared if kind == PREPARED else view.coordinators) == names


def test_a_broker_without_queues_links_or_listeners_is_seen_so(london: Management) -> None:
    london.queues, london.links, london.acceptors = {}, {}, {}
    view = snapshot(london)
    assert (view.queues, view.links, view.acceptors, view.missing_listeners) == ((), (), (), ("clients",))


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (ok([]), NoSuchBean),
        (ok([beans.server("a"), beans.server("b")]), NoSuchBean),
        (ok(["java.lang:type=Runtime"]), NoSuchBean),
        (ok(None), BadValue),
        (ok(["no bean at all"]), BadValue),
    ],
)
def test_the_brokers_own_name_is_found_or_it_is_an_error(london: Management, told: Any, error: Any) -> None:
    assert find_broker(london.reader()) == "broker-london"
    london.instead["search"] = told
    with pytest.raises(error):
        find_broker(london.reader())


class TestAgain:
    """A reading that asks for less of the queues, where the rest is known."""

    @pytest.fixture
    def known(self, london: Management) -> BrokerView:
        """After it a queue, the outflow and a listener are otherwise."""
        london.queue("held", MessageCount=9, MessagesAdded=20, RingSize=5, Paused=True)
        known = snapshot(london)
        counts = {"MessageCount": 3, "DeliveringCount": 2, "MessagesAdded": 21}
        london.queue("held", MessagesAcknowledged=11, MessagesExpired=4, RingSize=-1, **counts)
        london.outflow |= {"MessageCount": 5, "ConsumerCount": 0}
        london.acceptors["clients"]["Started"] = False
        return known

    def test_what_is_asked_for_is_as_it_is_now_and_the_rest_as_it_was(
        self, london: Management, known: BrokerView
    ) -> None:
        counted, paused, moved, none = (
            again(london, known, case) for case in (FOR_GATE, FOR_PAUSES, FOR_HISTORY, ReadScope.STATE)
        )
        held = [case.business["held"] for case in (counted, paused, moved, none)]

        assert [queue.depth for queue in held] == [3, 9, 3, 9]
        assert [queue.paused for queue in held[1:2]] == [False]
        assert (held[0].delivering, held[0].added, held[0].ring) == (2, 21, True)
        assert (held[2].added, held[2].acked, held[2].removed) == (21, 11, 15)
        assert (counted.link.to_ship, counted.link.attached, counted.open) == (5, False, False)
        assert (none.link.to_ship, none.open) == (5, False)
        assert counted.business.keys() == known.business.keys()
        # Ten thousand queues that stand still take no room again.
        assert moved.business["orders.in"] is known.business["orders.in"]

    def test_a_queue_that_its_client_has_removed_by_then_is_not_told(self, london: Management) -> None:
        known = snapshot(london)
        london.queue("temporary", MessageCount=1)
        london.instead["one"] = failed("No MBean found", NO_BEAN, 404)
        assert "temporary" not in again(london, known).business

    def test_clients_and_rights_that_are_not_asked_for_stay_as_they_were(self, london: Management) -> None:
        london.connections.append(connection(61616))
        may = {role: ok(json.dumps([{"name": role, "send": True}])) for role in ("apps", "others")}
        london.instead |= {"getRolesAsJSON": may["apps"], "listUser": ok("[]")}
        known = snapshot(london, Config(("clients",), ("mirror",), None, LastingFence(roles=("apps",))))
        london.connections.clear()
        london.instead["getRolesAsJSON"] = may["others"]

        wanted = (FOR_HISTORY, FOR_OPENING, FOR_GATE, ReadScope.RIGHTS)
        views = [known, *(again(london, known, scope) for scope in wanted)]

        assert [len(view.connections) for view in views] == [1, 0, 1, 0, 1]
        assert [view.lets_in("#") for view in views] == [True, False, False, True, False]

    @pytest.mark.parametrize("asked", [FOR_GATE, FOR_PAUSES, ReadScope.STATE], ids=["counts", "pauses", "listeners"])
    def test_of_a_broker_that_was_restarted_everything_is_asked_for(
        self, london: Management, known: BrokerView, asked: ReadScope
    ) -> None:
        london.instead["runtime"] = ok({"StartTime": 1795251999000})
        held = again(london, known, asked).business["held"]
        assert (held.ring, held.depth) == (False, 3)

    @pytest.mark.parametrize(("asked", "told"), [(FOR_GATE, {"MessageCount": None}), (FOR_PAUSES, {"Paused": None})])
    def test_what_was_not_told_is_an_error(self, london: Management, asked: ReadScope, told: dict[str, Any]) -> None:
        known = snapshot(london)
        london.queue("orders.in", **told)
        with pytest.raises(BadValue):
            again(london, known, asked)


class TestFlow:
    """What is under way, asked where a reading told it is."""

    @pytest.mark.parametrize(
        ("outflow", "pending", "empty"),
        [({}, 0, True), ({"MessageCount": 1}, 0, False), ({"DeliveringCount": 1}, 0, False), ({}, 1, False)],
    )
    def test_it_is_empty_when_nothing_is_under_way_anywhere(
        self, london: Management, outflow: dict[str, int], pending: int, empty: bool
    ) -> None:
        london.outflow |= outflow
        london.server["PendingMirrorAcks"] = pending
        one_flow = flow(london)
        assert ((one_flow.under_way, one_flow.link.unapplied) == (0, 0), one_flow.link.attached) == (empty, True)
        london.outflow["ConsumerCount"] = 0
        assert not flow(london).link.attached

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda broker: broker.acceptors.pop("clients"),
            lambda broker: broker.acceptors.pop("mirror"),
            lambda broker: broker.links.clear(),
            lambda broker: broker.queues.clear(),
        ],
        ids=["its listener", "the mirror's listener", "its link", "its outflow"],
    )
    def test_what_has_gone_since_the_look_is_an_error(self, london: Management, spoil: SPOIL) -> None:
        view = snapshot(london)
        spoil(london)
        with pytest.raises(NoSuchBean):
            flow(london, view)

    def test_without_a_link_there_is_nothing_to_ship_and_one_that_cannot_be_told_has_no_flow(
        self, london: Management
    ) -> None:
        one_flow = flow(london, replace(snapshot(london), config=replace(CONFIG, link="mistyped")))
        assert (one_flow.link.missing, one_flow.under_way) == (False, None)
        london.links, london.server["PendingMirrorAcks"] = {}, 3
        one_flow = flow(london)
        assert (one_flow.link.missing, one_flow.under_way, one_flow.link.unapplied) == (True, 0, 3)


def test_the_poll_of_a_quiesce_sees_what_is_held_and_what_is_paused(london: Management) -> None:
    london.queue('a, "b"', DeliveringCount=4, Paused=True)
    by_queue = dispatch(london.reader(), snapshot(london))
    assert (by_queue['a, "b"'], by_queue["orders.in"]) == ((4, True), (0, False))


@pytest.mark.parametrize("row", [{}, {"messageID": "x"}, "text", None])
def test_a_browsed_message_that_cannot_be_told_apart_is_an_error(london: Management, row: object) -> None:
    view = snapshot(london)
    london.instead["browse"] = ok([row])
    with pytest.raises(BadValue):
        browse(london.reader(), view, [view.business["orders.in"]], limit=1000)


LONDON = broker("london", outflow("london"))


def message(number: int, born: str | None = None, remote: int = 0) -> dict[str, Any]:
    texts = {"order_id": "x", "receipt": "x"} | ({"x-opt-amq-bkr-id": born} if born else {})
    longs = {"x-opt-amq-mr-id": remote} if born else None
    return {
        "messageID": str(number),
        "protocol": "CORE",
        "text": "7",
        "StringProperties": texts,
        "LongProperties": longs,
    }


def event(queue: str, text: str, *, born: str | None = None) -> dict[str, Any]:
    texts = {"messageAnnotations.x-opt-amq-mr-qu": queue, "messageAnnotations.x-opt-amq-mr-adr": queue}
    texts |= {"messageAnnotations.x-opt-amq-bkr-id": born} if born else {}
    return {"messageID": "999", "text": text, "StringProperties": texts, "LongProperties": None}


def holding(*rows: dict[str, Any], acks: int, counted: int | None = None) -> tuple[Management, Any]:
    london = broker_of("london")
    london.instead["browse"] = {"value": list(rows), "status": 200}
    london.outflow["MessageCount"], london.acks = len(rows) if counted is None else counted, acks
    view = read(london.reader(), pair=PAIR, site="london", config=LONDON.config, broker=london.broker)
    return london, view


def test_an_outflow_is_told_message_by_message() -> None:
    rows = (
        message(7),
        event("orders.in", "7"),  # it lies there too: sent and acknowledged before either was shipped
        event("orders.in", "5"),
        event("orders.in", "3", born="node-paris"),
        event("orders.out", "6"),
        event("orders.new", '{"name": "orders.new"}'),
    )
    london, view = holding(*rows, acks=5)

    result = read_residue(london.reader(), view)

    assert (result.messages, result.acks) == (1, 4)
    assert result.acked == {
        "orders.in": frozenset({(view.node, 5), ("node-paris", 3)}),
        "orders.out": frozenset({(view.node, 6)}),
    }
    assert result.consumed == {**result.acked, "orders.in": result.acked["orders.in"] | {(view.node, 7)}}


STARTED = event("orders.in", '{"name": "orders.in"}')


@pytest.mark.parametrize(
    "rows",
    [
        [event("orders.in", "5"), event("orders.out", "6"), STARTED, event("orders.in", "7")],
        # Of two starts what was done between them was before the last.
        [STARTED, event("orders.in", "5"), event("orders.out", "6"), STARTED, event("orders.in", "7")],
    ],
)
def test_what_was_acknowledged_behind_the_announcement_of_a_start_is_of_that_start(rows: list[Any]) -> None:
    london, view = holding(*rows, acks=len(rows))
    result = read_residue(london.reader(), view)
    assert result.since == {"orders.in": frozenset({(view.node, 7)})}
    done = {"orders.in": frozenset({(view.node, 5), (view.node, 7)}), "orders.out": frozenset({(view.node, 6)})}
    assert result.consumed == done


@pytest.mark.parametrize("counted", [2, RESIDUE_UP_TO + 1], ids=["moved meanwhile", "too deep"])
def test_what_was_not_read_as_a_whole_is_not_known_by_id(counted: int) -> None:
    london, view = holding(event("orders.in", "5"), acks=1, counted=counted)
    assert read_residue(london.reader(), view) == Residue(counted - 1, 1)


def test_a_message_without_an_identity_is_an_error() -> None:
    london, view = holding({"StringProperties": {}, "LongProperties": None}, acks=0)
    with pytest.raises(BadValue, match="an event of the outflow is not as expected"):
        read_residue(london.reader(), view)


def test_messages_are_the_same_at_both_sites_and_have_their_own_numbers() -> None:
    london, view = holding(message(7), message(8, "node-paris", 3), acks=0)
    queue = view.business["orders.in"]
    [listing] = browse(london.reader(), view, [queue], limit=10)
    assert listing == BrowsedQueue({(view.node, 7): 7, ("node-paris", 3): 8})
    assert listing.ids == frozenset({(view.node, 7), ("node-paris", 3)})


# Rows as a browse of Artemis 2.56.0 gave them, of messages of every protocol: where each was born, of its copy at the
# other site, and of that copy after a restart of its broker (none where it was not durable). 2.40.0 gives the same.
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("browsed.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", RECORDED, ids=[f"{item['client']}: {item['message']}" for item in RECORDED])
def test_a_copy_of_any_protocol_is_known_by_its_origin(one: dict[str, Any]) -> None:
    born = BrowsedQueue({origin_of(one["copy"]): int(one["born"]["messageID"])})
    at = next(iter(born.numbers))[0]
    assert copied(one["born"], at) == born
    other = "node-paris" if at == "node-london" else "node-london"
    for copy in filter(None, (one["copy"], one["after a restart"])):
        assert copied(copy, other) == BrowsedQueue({origin: int(copy["messageID"]) for origin in born.numbers})


def origin_of(copy: dict[str, Any]) -> tuple[str, int]:
    """What the broker wrote into a copy, by eye."""
    prefix = "extraProperties." if copy["protocol"] == "AMQP" else ""
    return copy["StringProperties"][f"{prefix}x-opt-amq-bkr-id"], copy["LongProperties"][f"{prefix}x-opt-amq-mr-id"]


def copied(row: dict[str, Any], node: str) -> BrowsedQueue:
    london, view = holding(row, acks=0)
    [listing] = browse(london.reader(), replace(view, node=node), [view.business["orders.in"]], limit=10)
    return listing


@pytest.mark.parametrize(
    "row",
    [
        {**message(8, "node-paris", 3), "protocol": "HORNETQ"},
        {name: value for name, value in message(8, "node-paris", 3).items() if name != "protocol"},
        {**message(8, "node-paris", 3), "LongProperties": None},
        {**message(8), "LongProperties": {"x-opt-amq-mr-id": 3}},
    ],
    ids=["another protocol", "no protocol", "no number", "no node"],
)
def test_a_message_that_does_not_show_its_origin_is_counted_and_not_named(row: dict[str, Any]) -> None:
    assert copied(row, "node-london") == BrowsedQueue({}, unnamed=1)
    # Of an outflow with such a message nothing is known by id: it may be one that is acknowledged there too.
    london, view = holding(row, event("orders.in", "5"), acks=1)
    assert read_residue(london.reader(), view) == Residue(1, 1)


def test_an_outflow_is_given_the_time_to_be_counted_and_an_empty_one_has_no_residue() -> None:
    london, view = holding(acks=0)
    assert read_residue(london.reader(), view) == Residue(0, 0, acked={}, consumed={})
    reader: Any = Mock(wraps=london.reader())
    read_residue(reader, with_queue(view, outflow("london", depth=1_000_000)))
    assert reader.read.call_args_list[0].kwargs["timeout_s"] > 40
