"""One look becomes a view of what the broker said; what it did not say is an error and never a number or a nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.errors import BadValue, NoSuchBean, OperationFailed
from dr_ctl.settings.topologies.artemis import LastingFence
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.look import COUNTS, MOVING, PAUSES, dispatch, find_broker
from dr_ctl.topologies.common.view import Config, Connection, Consumer
from dr_ctl.topologies.mirror.look import Size, look, look_again, look_at_flow, look_at_rights
from dr_ctl.topologies.mirror.origins import browsed
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.pair import NO_BEAN, PAIR, Management, connection, consumer, failed, mirrored_pair

CONFIG = Config(("clients",), ("mirror",), None)
MISSING = {".error": True, "error_type": "javax.management.AttributeNotFoundException", "error": "No such attribute"}
OLDER_MISSING = "ERROR: No such attribute: MessageCount (class javax.management.AttributeNotFoundException)"
NO_NUMBER = pytest.mark.parametrize("told", [MISSING, OLDER_MISSING, None, "3", True, 3.0, []])


@pytest.fixture
def london() -> Management:
    return mirrored_pair()[0]


def seen(broker: Management) -> BrokerView:
    return look(broker.reader(), pair=PAIR, site=broker.site, config=CONFIG, broker=broker.broker)


def ok(value: object) -> dict[str, Any]:
    return {"value": value, "status": 200}


def rights(role: str) -> dict[str, Any]:
    """The answer in which one role may send."""
    return ok(json.dumps([{"name": role, "send": True}]))


def test_what_the_broker_says_stands_in_the_view(london: Management) -> None:
    london.server |= {"PendingMirrorAcks": 276, "Version": "2.40.0"}
    london.outflow |= {"MessageCount": 1285, "DeliveringCount": 700}
    london.queue("held", MessageCount=9, DeliveringCount=4, ScheduledCount=2, Paused=True, MessagesAdded=20)

    view = seen(london)

    assert (view.version, view.node, view.link.unapplied, view.start) == ("2.40.0", "node-london", 276, "1795251000000")
    assert view.outflow is not None
    assert (view.outflow.depth, view.outflow.delivering) == (1285, 700)
    held = view.business["held"]
    assert (held.depth, held.delivering, held.scheduled, held.paused, held.added) == (9, 4, 2, True, 20)
    assert [(door.name, door.port, door.started, door.opens_at_boot) for door in view.acceptors] == [
        ("clients", 61616, True, False),
        ("mirror", 61617, True, False),
    ]


@pytest.mark.parametrize(
    ("told", "oldest_ms"),
    [
        ({"FirstMessageTimestamp": 1795251263227 - 1500}, 1500),
        ({"FirstMessageTimestamp": 1795251263227 + 20}, 0),  # a client's clock may be ahead
        ({"FirstMessageTimestamp": 0}, None),
        ({"FirstMessageTimestamp": None}, None),
        ({}, None),
        ({"FirstMessageTimestamp": 1795251263227 - 1500, "DeliveringCount": 1}, None),
        ({"FirstMessageTimestamp": 1795251263227 - 1500, "MessageCount": 0}, None),
    ],
    ids=["message", "ahead", "acknowledgement", "nothing", "not told", "older ones are under way", "empty"],
)
def test_an_outflow_is_as_old_as_its_first_message_where_that_is_known(
    london: Management, told: dict[str, Any], oldest_ms: int | None
) -> None:
    london.outflow |= {"MessageCount": 3, **told}

    view = seen(london)

    assert view.outflow is not None
    assert view.outflow.oldest_ms == oldest_ms
    assert {queue.oldest_ms for queue in view.business.values()} <= {None}


def test_what_left_a_queue_is_counted_whatever_the_reason(london: Management) -> None:
    london.queue("busy", MessagesAcknowledged=5, MessagesExpired=3, MessagesKilled=2)

    busy = seen(london).business["busy"]

    assert (busy.acked, busy.removed) == (5, 10)


def test_clients_stand_in_the_view_with_the_door_they_came_through(london: Management) -> None:
    london.connections = [connection(61616), {**connection(0, user="", client=""), "localAddress": "invm:0"}]
    london.consumers = [consumer("orders.in", 61616, holds=7)]

    view = seen(london)

    assert view.connections == (
        Connection("5f0c", 61616, "10.1.2.3:50412", "billing", "app", "STOMP"),
        Connection("5f0c", 0, "10.1.2.3:50412", "", "", "STOMP"),
    )
    assert view.consumers == (Consumer("orders.in", 61616, "billing", "10.1.2.3:50412", "app", 7),)


def test_an_address_without_a_port_gives_none(london: Management) -> None:
    london.connections = [{**connection(0), "localAddress": "in-vm"}]

    assert seen(london).connections[0].port is None


def test_an_acceptor_that_names_no_protocol_speaks_them_all_and_opens_at_boot(london: Management) -> None:
    london.acceptors["clients"]["Parameters"] = {"host": "127.0.0.1"}

    clients = next(door for door in seen(london).acceptors if door.name == "clients")

    assert {"AMQP", "STOMP", "CORE"} <= clients.protocols
    assert clients.opens_at_boot
    assert clients.port is None


def test_attributes_that_older_brokers_lack_have_their_meaning_from_the_rest(london: Management) -> None:
    for told in london.queues.values():
        for name in ("InternalQueue", "RingSize", "LastValue", "DeadLetterAddress", "ExpiryAddress"):
            del told[name]

    view = seen(london)

    assert set(view.business) == {"orders.in", "orders.audit"}
    assert view.outflow is not None
    assert not any(queue.ring or queue.last_value for queue in view.queues)


@pytest.mark.parametrize(("size", "ring"), [(-1, False), (0, True), (100, True)])
def test_a_ring_is_told_by_its_size(london: Management, size: int, ring: bool) -> None:
    london.queue("latest", RingSize=size)

    assert seen(london).business["latest"].ring is ring


@NO_NUMBER
@pytest.mark.parametrize("name", ["MessageCount", "DeliveringCount", "MessagesAdded", "MessagesKilled"])
def test_a_queues_figure_that_is_not_told_is_an_error_and_never_zero(
    london: Management, name: str, told: object
) -> None:
    london.queue("odd", **{name: told})

    with pytest.raises(BadValue, match=name):
        seen(london)


@NO_NUMBER
def test_pending_acknowledgements_that_are_not_told_are_an_error_and_never_zero(
    london: Management, told: object
) -> None:
    london.server["PendingMirrorAcks"] = told
    view = seen(mirrored_pair()[0])

    with pytest.raises(BadValue, match="PendingMirrorAcks"):
        seen(london)
    with pytest.raises(BadValue, match="PendingMirrorAcks"):
        look_at_flow(london.reader(), view, timeout_s=1)


@pytest.mark.parametrize("told", [MISSING, "ERROR: No such attribute", None, "true", 1])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda broker, told: broker.acceptors["clients"].update(Started=told),
        lambda broker, told: broker.links["paris"].update(Connected=told),
        lambda broker, told: broker.server.update(Active=told),
        lambda broker, told: broker.outflow.update(Paused=told),
    ],
    ids=["a door", "a link", "the broker", "a pause"],
)
def test_a_flag_that_is_not_told_is_an_error_and_never_a_no(
    london: Management, spoil: Callable[[Management, object], None], told: object
) -> None:
    spoil(london, told)

    with pytest.raises(BadValue):
        seen(london)


@pytest.mark.parametrize(
    ("kind", "told", "error"),
    [
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
        ("listConsumers", ok('{"data": [], "count": 3}'), BadValue),
        ("listConsumers", failed("not now", status=500), OperationFailed),
        ("listPreparedTransactionDetailsAsJSON", ok("{}"), BadValue),
        ("listPreparedTransactionDetailsAsJSON", ok(None), BadValue),
        ("listPreparedTransactionDetailsAsJSON", failed("boom", status=500), OperationFailed),
        ("listLockCoordinatorsAsJSON", ok("[{}]"), BadValue),
        ("listLockCoordinatorsAsJSON", failed("boom", status=500), OperationFailed),
    ],
)
def test_a_part_that_is_missing_is_never_taken_for_empty(
    london: Management, kind: str, told: dict[str, Any], error: type[BrokerError]
) -> None:
    london.instead[kind] = told

    with pytest.raises(error):
        seen(london)


@pytest.mark.parametrize(
    ("told", "ids"), [("", ()), ("[]", ()), ('[{"xid_as_base64": "AQID"}]', ("AQID",)), ('["x1", "x2"]', ("x1", "x2"))]
)
def test_prepared_transactions_are_listed(london: Management, told: str, ids: tuple[str, ...]) -> None:
    london.instead["listPreparedTransactionDetailsAsJSON"] = ok(told)

    assert seen(london).prepared == ids


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (ok('[{"name": "site-lock"}]'), ("site-lock",)),
        (failed("No operation listLockCoordinatorsAsJSON() found on MBean"), ()),
    ],
)
def test_lock_coordinators_are_listed_where_the_version_has_them(
    london: Management, told: dict[str, Any], names: tuple[str, ...]
) -> None:
    london.instead["listLockCoordinatorsAsJSON"] = told

    assert seen(london).lock_coordinators == names


def test_a_broker_without_queues_links_or_doors_is_seen_so(london: Management) -> None:
    london.queues, london.links, london.acceptors = {}, {}, {}

    view = seen(london)

    assert (view.queues, view.links, view.acceptors) == ((), (), ())
    assert view.missing_doors == ("clients",)


def test_the_brokers_own_name_is_found(london: Management) -> None:
    assert find_broker(london.reader()) == "broker-london"


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
def test_a_name_that_cannot_be_found_is_an_error(
    london: Management, told: dict[str, Any], error: type[BrokerError]
) -> None:
    london.instead["search"] = told

    with pytest.raises(error):
        find_broker(london.reader())


class TestAgain:
    """A look that asks for less of the queues, where the rest is known."""

    def test_the_counts_that_the_gate_rests_on_are_as_they_are_now(self, london: Management) -> None:
        london.queue("held", MessageCount=9, MessagesAdded=20)
        known = seen(london)
        london.queue("held", MessageCount=3, DeliveringCount=2, MessagesAdded=21)
        london.outflow |= {"MessageCount": 5, "ConsumerCount": 0}
        london.acceptors["clients"]["Started"] = False

        view = look_again(london.reader(), known, Size(COUNTS), timeout_s=1)

        held = view.business["held"]
        assert (held.depth, held.delivering, held.added) == (3, 2, 21)
        assert (view.link.to_ship, view.link.attached, view.open) == (5, False, False)
        assert view.business.keys() == known.business.keys()

    def test_pauses_are_as_they_are_now(self, london: Management) -> None:
        london.queue("held", Paused=True)
        known = seen(london)
        london.queue("held", MessageCount=3)
        london.queue("orders.in", Paused=True)

        view = look_again(london.reader(), known, Size(PAUSES), timeout_s=1)

        assert (view.paused, view.business["held"].depth) == (("orders.in",), 0)

    def test_the_rest_of_a_queue_is_not_asked_for(self, london: Management) -> None:
        london.queue("held", RingSize=5)
        known = seen(london)
        london.queue("held", RingSize=-1)

        assert look_again(london.reader(), known, Size(COUNTS), timeout_s=1).business["held"].ring

    def test_what_the_history_keeps_is_as_it_is_now(self, london: Management) -> None:
        london.queue("held", MessageCount=9, MessagesAdded=20)
        known = seen(london)
        london.queue("held", MessageCount=3, MessagesAdded=21, MessagesAcknowledged=11, MessagesExpired=4)

        view = look_again(london.reader(), known, Size(MOVING), timeout_s=1)

        held, still = view.business["held"], view.business["orders.in"]
        assert (held.depth, held.added, held.acked, held.removed) == (3, 21, 11, 15)
        assert still is known.business["orders.in"]  # ten thousand queues that stand still take no room again

    @pytest.mark.parametrize("many", [1, 150])
    def test_queues_that_clients_have_made_since_are_told_whole(self, london: Management, many: int) -> None:
        known = seen(london)
        for number in range(many):
            london.queue(f"new.{number}", MessagesAcknowledged=2, MessagesKilled=3, RingSize=5)

        view = look_again(london.reader(), known, Size(MOVING), timeout_s=1)

        new = [view.business[f"new.{number}"] for number in range(many)]
        assert {(each.removed, each.ring) for each in new} == {(5, True)}

    def test_a_queue_that_its_client_has_removed_by_then_is_not_told(self, london: Management) -> None:
        known = seen(london)
        london.queue("temporary", MessageCount=1)
        london.instead["one"] = failed("No MBean found", NO_BEAN, 404)

        assert "temporary" not in look_again(london.reader(), known, Size(COUNTS), timeout_s=1).business

    def test_without_counts_only_the_outflow_is_read_again(self, london: Management) -> None:
        london.queue("held", MessageCount=9)
        known = seen(london)
        london.queue("held", MessageCount=3)
        london.outflow |= {"MessageCount": 5}
        london.acceptors["clients"]["Started"] = False

        view = look_again(london.reader(), known, Size(()), timeout_s=1)

        assert (view.business["held"].depth, view.link.to_ship, view.open) == (9, 5, False)

    def test_clients_and_rights_that_are_not_asked_for_stay_as_they_were(self, london: Management) -> None:
        config = Config(("clients",), ("mirror",), None, LastingFence(roles=("apps",)))
        london.connections.append(connection(61616))
        london.instead |= {"getRolesAsJSON": rights("apps"), "listUser": ok("[]")}
        known = look(london.reader(), pair=PAIR, site=london.site, config=config, broker=london.broker)
        london.connections.clear()
        london.instead["getRolesAsJSON"] = rights("others")

        sizes = (Size(COUNTS), Size(COUNTS, clients=False), Size(COUNTS, rights=False))
        views = [look_again(london.reader(), known, size, timeout_s=1) for size in sizes]
        views = [known, *views, look_at_rights(london.reader(), known)]

        assert [len(each.connections) for each in views] == [1, 0, 1, 0, 1]
        assert [each.lets_in("#") for each in views] == [True, False, False, True, False]

    @pytest.mark.parametrize("attributes", [COUNTS, PAUSES, ()], ids=["counts", "pauses", "doors"])
    def test_of_a_broker_that_was_restarted_everything_is_asked_for(
        self, london: Management, attributes: tuple[str, ...]
    ) -> None:
        london.queue("held", RingSize=5, MessageCount=9)
        known = seen(london)
        london.queue("held", RingSize=-1, MessageCount=1)
        london.instead["runtime"] = ok({"StartTime": 1795251999000})

        held = look_again(london.reader(), known, Size(attributes), timeout_s=1).business["held"]

        assert (held.ring, held.depth) == (False, 1)

    def test_a_queue_that_is_new_is_told_whole_and_one_that_is_gone_is_not_told(self, london: Management) -> None:
        london.queue("gone", MessageCount=9)
        known = seen(london)
        del london.queues[known.business["gone"].bean]
        london.queue("new", RingSize=5, MessagesKilled=2)

        view = look_again(london.reader(), known, Size(COUNTS), timeout_s=1)

        assert (view.business["new"].ring, view.business["new"].removed) == (True, 2)
        assert "gone" not in view.business

    @pytest.mark.parametrize(("attributes", "told"), [(COUNTS, {"MessageCount": None}), (PAUSES, {"Paused": None})])
    def test_what_was_not_told_is_an_error(
        self, london: Management, attributes: tuple[str, ...], told: dict[str, Any]
    ) -> None:
        known = seen(london)
        london.queue("orders.in", **told)

        with pytest.raises(BadValue):
            look_again(london.reader(), known, Size(attributes), timeout_s=1)


class TestFlow:
    """The gate's own numbers, asked where a look told they are."""

    def test_it_is_what_the_broker_says_now(self, london: Management) -> None:
        view = seen(london)
        london.outflow |= {"MessageCount": 12, "DeliveringCount": 2, "MessagesAdded": 90}
        london.links["paris"]["Connected"] = False

        flow = look_at_flow(london.reader(), view, timeout_s=1)

        assert (flow.to_ship, flow.outflow_delivering, flow.outflow_added, flow.unapplied) == (12, 2, 90, 0)
        assert (flow.doors_open, flow.mirror_open, flow.attached, flow.empty) == (("clients",), True, False, False)

    @pytest.mark.parametrize(
        ("outflow", "pending", "empty"),
        [
            ({}, 0, True),
            ({"MessageCount": 1}, 0, False),
            ({"DeliveringCount": 1}, 0, False),
            ({}, 1, False),
        ],
    )
    def test_it_is_empty_when_nothing_is_under_way_anywhere(
        self, london: Management, outflow: dict[str, int], pending: int, empty: bool
    ) -> None:
        london.outflow |= outflow
        london.server["PendingMirrorAcks"] = pending

        assert look_at_flow(london.reader(), seen(london), timeout_s=1).empty is empty

    def test_an_outflow_that_nobody_takes_from_is_not_attached(self, london: Management) -> None:
        london.outflow["ConsumerCount"] = 0

        assert not look_at_flow(london.reader(), seen(london), timeout_s=1).attached

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda broker: broker.acceptors.pop("clients"),
            lambda broker: broker.acceptors.pop("mirror"),
            lambda broker: broker.links.clear(),
            lambda broker: broker.queues.clear(),
        ],
        ids=["its door", "the mirror's door", "its link", "its outflow"],
    )
    def test_what_has_gone_since_the_look_is_an_error(
        self, london: Management, spoil: Callable[[Management], None]
    ) -> None:
        view = seen(london)
        spoil(london)

        with pytest.raises(NoSuchBean):
            look_at_flow(london.reader(), view, timeout_s=1)

    def test_a_broker_without_a_link_has_nothing_to_ship_and_its_acknowledgements_still_count(
        self, london: Management
    ) -> None:
        london.links, london.server["PendingMirrorAcks"] = {}, 3

        flow = look_at_flow(london.reader(), seen(london), timeout_s=1)

        assert (flow.linked, flow.attached, flow.to_ship, flow.unapplied, flow.empty) == (False, True, 0, 3, False)

    def test_a_link_that_cannot_be_told_has_no_flow(self, london: Management) -> None:
        view = replace(seen(london), config=replace(seen(london).config, link="mistyped"))

        with pytest.raises(NoSuchBean, match="no link"):
            look_at_flow(london.reader(), view, timeout_s=1)


def test_the_poll_of_a_quiesce_sees_what_is_held_and_what_is_paused(london: Management) -> None:
    london.queue('a, "b"', DeliveringCount=4, Paused=True)

    told = dispatch(london.reader(), seen(london))

    assert told['a, "b"'] == (4, True)
    assert told["orders.in"] == (0, False)


def test_a_message_has_the_same_identity_at_both_sites(london: Management) -> None:
    view = seen(london)
    london.instead["browse"] = ok(
        [
            {"messageID": "69", "protocol": "CORE", "StringProperties": {}, "LongProperties": None},
            {
                "messageID": 72,
                "protocol": "CORE",
                "StringProperties": {"x-opt-amq-bkr-id": "node-paris"},
                "LongProperties": {"x-opt-amq-mr-id": 8},
            },
        ]
    )

    [found] = browsed(london.reader(), view, [view.business["orders.in"]], limit=1000)

    assert found.numbers == {("node-london", 69): 69, ("node-paris", 8): 72}


@pytest.mark.parametrize("row", [{}, {"messageID": "x"}, "text", None])
def test_a_browsed_message_that_cannot_be_told_apart_is_an_error(london: Management, row: object) -> None:
    view = seen(london)
    london.instead["browse"] = ok([row])

    with pytest.raises(BadValue):
        browsed(london.reader(), view, [view.business["orders.in"]], limit=1000)
