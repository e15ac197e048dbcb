"""Sites that the continuity plugin joins, real or simulated: what management answers, and what becomes of messages."""

import json
from typing import Any

import pytest

from dr_ctl.stomp_io.address import Closed, Connected, Login
from dr_ctl.stomp_io.client import try_login
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.continuity import copies
from dr_ctl_lab.lab.kinds import CONTINUITY
from tests.twin.subject import ACTIVATE, DEACTIVATE, ID, IN, OUT, QUEUES, SITES, TEXT, PluginSubject, until
from tests.twin.test_contract_mirror import SPOKEN, failed

TOPOLOGY = CONTINUITY

NO_BEAN, ILLEGAL = "javax.management.InstanceNotFoundException", "java.lang.IllegalArgumentException"
DESTROY = f"destroyQueue({TEXT},boolean)"
REMOVE = f"removeMessages({TEXT})"
STAGED, SHIPPED, COMMANDS = f"{IN}.in.mirror", f"{IN}.out.mirror", "continuity.cmd.out"


def test_the_whole_look_of_the_product_reads_the_same_things(pair: PluginSubject) -> None:
    london, paris = (pair.view(site) for site in SITES)

    for view in (london, paris):
        assert (view.version, view.link.attached, view.prepared) == ("2.11.0", True, ())
        assert view.role.value == ("serving" if view is london else "standby")
        assert {listener.name: listener.protocols for listener in view.acceptors if listener.port is not None} == {
            "clients": SPOKEN,
            "mirror": frozenset({"CORE", "AMQP"}),
        }
        assert [listener.name for listener in view.link.listeners] == ["mirror"]
        assert {*view.business} & {flow.queue for flow in view.flows} >= {*QUEUES, "DLQ", "ExpiryQueue"}
        assert view.service is not None
        assert (view.service.site_id, view.service.staging_ms, view.service.interval_ms) == (view.site, 500, 500.0)
        assert view.service.prefix == "continuity.cmd"
        assert all(view.link.links_started.values())
        assert (list(view.link.unsettled()), view.fence.clients_elsewhere()) == ([], [])
        for flow in view.flows:
            assert (flow.out_mirror.routing, flow.staging.routing) == ("anycast", "anycast")
            assert (flow.out_mirror.consumers, flow.in_acks.consumers) == (1, 1)
            # What delivers is no consumer while the site does not.
            assert (flow.staging.consumers, flow.target_bridge.started) == (int(view is london), view is london)
    assert london.node != paris.node


def test_what_is_not_there_is_forbidden_unless_all_of_it_is_asked_for(pair: PluginSubject) -> None:
    server, ghost = pair.server("london"), pair.queue("london", "ghost")
    result = f'{beans.DOMAIN}:address="ghost",broker="london",component=addresses,queue="ghost",routing-type="anycast",'
    none, every = beans.documents("london"), beans.queue("london")

    def read(bean: str, *names: str) -> dict[str, Any]:
        return pair.ask("london", type="read", mbean=bean, **({"attribute": list(names)} if names else {}))

    def forbidden(name: str, bean: str) -> dict[str, Any]:
        return failed("java.lang.Exception", f"Reading attribute {name} is forbidden for MBean {bean}", 403)

    assert read(ghost, "Name", "MessageCount") == forbidden("Name", f"{result}subcomponent=queues")
    assert read(server, "Version", "Active") == forbidden("Active", server)
    assert read(ghost) == pair.execute("london", ghost, "pause()") == failed(NO_BEAN, ghost, 404)
    assert read(none, "Name") == failed(NO_BEAN, f"No MBean with pattern {none} found for reading attributes", 404)
    # These versions do not call by pattern.
    assert pair.execute("london", every, "pause()") == failed(NO_BEAN, every, 404)
    assert read("nonsense", "x") == failed(ILLEGAL, "Invalid object name. Key properties cannot be empty", 400)
    body = {"type": "read", "mbean": server, "attribute": ["Version", "Nope"], "config": {"ignoreErrors": True}}
    text = f"ERROR: Reading attribute Nope is forbidden for MBean {server} (class java.lang.SecurityException)"
    assert pair.post("london", body).json()["value"] == {"Version": "2.11.0", "Nope": text}
    may = f"canInvoke({TEXT},{TEXT},[Ljava.lang.String;)"
    asked = pair.execute("london", beans.SECURITY, may, server, "createQueue", [])
    assert asked == failed(NO_BEAN, beans.SECURITY, 404)


def test_a_wrong_login_gets_nothing_however_often(pair: PluginSubject) -> None:
    for login in [Login("nobody", "wrong")] * 6 + [pair.place("london").app]:
        answers = pair.post("london", {"type": "version"}, login)
        assert (answers.status_code, answers.text) == (403, "")
    assert pair.ask("london", type="version")["value"]["agent"] == "1.3.7"


def test_the_listings_tell_clients_bridges_and_receivers(pair: PluginSubject) -> None:
    with pair.billing("london") as client:
        view = pair.view("london")
        client.confirmed("UNSUBSCRIBE", id="s")

    clients, mirror = pair.place("london").stomp.port, view.link.listeners[0].port
    [own] = [connection for connection in view.connections if connection.port == clients]
    assert (own.client, own.user, own.protocol) == ("billing", "app", "STOMP")
    assert {connection.protocol for connection in view.connections if connection.port != clients} == {"CORE"}
    assert any(connection.port == mirror for connection in view.connections)
    theirs = {
        (consumer.queue, consumer.client, consumer.user) for consumer in view.consumers if consumer.port == clients
    }
    assert theirs == {(IN, "billing", "app")}
    received = {consumer.queue for consumer in view.consumers if consumer.port != clients}
    assert received == {"continuity.cmd.in", *(flow.in_acks.name for flow in view.flows)}
    # How much of it they hold these versions do not list with them.
    assert {consumer.holds for consumer in view.consumers} == {None}


# messages


def taken(pair: PluginSubject, site: str = "london", *, ack: bool = True) -> Any:
    """The first message, as a client gets it that leaves politely."""
    with pair.client(site) as client:
        client.subscribe(IN)
        message = client.message()
        if ack:
            client.ack(message)
        client.confirmed("UNSUBSCRIBE", id="s")
    return message


def test_a_message_is_staged_at_the_peer_and_its_acknowledgement_removes_it_there(pair: PluginSubject) -> None:
    pair.send(IN, ["a", "b", "c"])
    pair.staged(IN, 3)
    pair.quiet()

    assert pair.depths(IN, STAGED) == [3, 0, 0, 3]
    assert pair.ids("london", IN) == pair.ids("paris", STAGED)
    assert pair.counters("london", SHIPPED) == (3, 3, 0)

    first = taken(pair)
    pair.staged(IN, 2)
    pair.quiet()

    assert first.headers["message-id"] == first.headers["ack"]
    assert first.headers["message-id"].isdecimal()
    assert first.headers[ID] not in pair.ids("paris", STAGED)
    assert pair.ids("london", IN) == pair.ids("paris", STAGED)
    assert pair.counters("london", f"{IN}.out.acks") == pair.counters("paris", f"{IN}.in.acks") == (1, 1, 0)
    assert pair.counters("paris", STAGED) == (3, 0, 1)


def test_what_is_staged_waits_for_its_time_and_is_listed_apart(pair: PluginSubject) -> None:
    pair.send(IN, [f"{number}" for number in range(5)])
    until(lambda: pair.depths(STAGED)[1] == 5)

    bean = pair.at("paris", STAGED)
    seen: set[tuple[int, int]] = set()

    def over() -> bool:
        staged = pair.flow("paris", IN).staging
        listed = json.loads(pair.done("paris", bean, "listScheduledMessagesAsJSON()"))
        assert all(row["_AMQ_SCHED_DELIVERY"] == row["timestamp"] + 500 and row[ID] for row in listed)
        seen.add((staged.depth, staged.delivering))
        return staged.scheduled == 0

    until(over)
    assert seen == {(5, 0)}


def test_what_was_delivered_there_comes_back_and_is_refused_for_ever(pair: PluginSubject) -> None:
    pair.send(IN, ["a", "b"])
    pair.staged(IN, 2)

    pair.move("paris")

    until(lambda: pair.depths(IN, STAGED) == [2, 2, 2, 0])
    message = taken(pair, "paris", ack=False)
    options = {"_CTY_ORIGIN": "london", "_AMQ_ORIG_ADDRESS": IN, "_AMQ_ORIG_QUEUE": f"{SHIPPED}.divert"}
    assert (options | {"redelivered": "false"}).items() <= message.headers.items()
    assert message.headers[ID] in pair.ids("london", IN)

    pair.move("london")

    until(lambda: pair.flow("london", IN).stuck)
    flow = pair.flow("london", IN)
    assert (flow.staging.depth, flow.staging.delivering) == (2, 2)
    assert pair.in_flight("london", flow.target_bridge) == 2
    bean = pair.at("london", STAGED)
    every = f"{ID} IN ({', '.join(repr(item) for item in sorted(pair.ids('london', IN)))})"
    assert pair.done("london", bean, REMOVE, every) == 0
    pair.execute("london", pair.bridge("london", f"{STAGED}.bridge"), "stop()")
    until(lambda: pair.flow("london", IN).staging.delivering == 0)
    assert pair.done("london", bean, REMOVE, every) == 2
    pair.quiet()
    assert pair.depths(IN) == [2, 2]


def test_an_acknowledgement_that_overtakes_its_message_finds_nothing(pair: PluginSubject) -> None:
    bridge = pair.bridge("london", f"{SHIPPED}.bridge")
    pair.done("london", bridge, "stop()")
    until(lambda: pair.flow("london", IN).out_mirror.consumers == 0)
    pair.send(IN, ["a"])
    taken(pair)
    until(lambda: pair.counters("paris", f"{IN}.in.acks")[1] == 1)
    assert pair.depths(SHIPPED)[0] == 1

    pair.execute("london", bridge, "start()")

    pair.staged(IN, 1)
    pair.quiet()
    assert pair.depths(IN, STAGED) == [0, 0, 0, 1]


def test_what_a_connection_held_when_it_ended_is_destroyed_where_both_sites_delivered_it(pair: PluginSubject) -> None:
    """The peer tells its deletion of a copy, as every acknowledgement in a queue that it delivers."""
    pair.send(IN, ["a", "b"])
    pair.staged(IN, 2)
    pair.move("paris")
    until(lambda: pair.depths(IN) == [2, 2])

    with pair.client("paris") as client:
        client.subscribe(IN)
        assert client.message() is not None
        client.confirmed("DISCONNECT")

    until(lambda: pair.depths(IN) == [1, 1])


@pytest.mark.parametrize("politely", [True, False], ids=["unsubscribed", "disconnected"])
def test_what_a_connection_held_when_it_ended_costs_the_peer_a_copy(pair: PluginSubject, politely: bool) -> None:
    pair.send(IN, ["a", "b", "c"])
    pair.staged(IN, 3)
    with pair.client("london") as client:
        client.subscribe(IN)
        held = [client.message() for _ in range(3)]
        if politely:
            client.confirmed("UNSUBSCRIBE", id="s")
        client.confirmed("DISCONNECT")

    pair.staged(IN, 3 if politely else 2)
    pair.quiet()

    assert pair.depths(IN)[0] == 3
    gone = pair.ids("london", IN) - pair.ids("paris", STAGED)
    assert gone == (set() if politely else {held[0].headers[ID]})


def test_what_management_puts_into_a_queue_is_not_shipped_and_its_removal_is(pair: PluginSubject) -> None:
    pair.put("london", OUT)
    pair.quiet()
    assert pair.depths(OUT, f"{OUT}.in.mirror") == [1, 0, 0, 0]
    assert len(pair.ids("london", OUT)) == 1

    assert pair.done("london", pair.at("london", OUT), REMOVE, "n = '0'") == 1

    until(lambda: pair.counters("paris", f"{OUT}.in.acks")[1] == 1)
    assert pair.counters("london", f"{OUT}.out.acks")[0] == 1


def test_emptying_the_queue_of_a_site_that_waits_deletes_where_clients_are_served(pair: PluginSubject) -> None:
    pair.send(IN, ["a", "b"])
    pair.staged(IN, 2)
    pair.move("paris")
    until(lambda: pair.depths(IN) == [2, 2])

    pair.execute("london", pair.at("london", IN), "removeAllMessages()")

    until(lambda: pair.depths(IN) == [0, 0])


def test_activation_lets_clients_in_and_puts_the_peer_out(pair: PluginSubject) -> None:
    def login_results() -> list[type]:
        places = (pair.place(site) for site in SITES)
        return [type(try_login(place.stomp, place.app, None, timeout_s=5)) for place in places]

    well = {"value": None, "status": 200}
    assert login_results() == [Connected, Closed]

    assert pair.execute("paris", pair.service("paris"), ACTIVATE, 20_000) == well

    until(lambda: [pair.serving(site) for site in SITES] == [(False, False), (True, True)])
    assert login_results() == [Closed, Connected]
    for _ in range(2):
        assert pair.execute("paris", pair.service("paris"), DEACTIVATE) == well
    assert [pair.serving(site) for site in SITES] == [(False, False)] * 2
    assert not any(flow.target_bridge.started for flow in pair.view("paris").flows)


def test_a_bridge_starts_again_where_its_peers_listener_opens_or_its_way_is_healed(pair: PluginSubject) -> None:
    listener = pair.acceptor("paris", "mirror")

    pair.execute("paris", listener, "stop()")

    until(lambda: not any(queue.consumers for flow in pair.view("london").flows for queue in flow.outflow))
    assert all(pair.view("london").link.links_started.values())
    pair.send(IN, ["a"])
    assert pair.depths(IN, SHIPPED, STAGED) == [1, 1, 0, 0, 0, 0]

    pair.execute("paris", listener, "start()")

    until(lambda: pair.depths(STAGED)[1] == 1)
    until(lambda: pair.view("london").link.attached)
    pair.stage.cut("london")
    until(lambda: not pair.flow("london", IN).out_mirror.consumers)
    assert pair.view("paris").link.attached
    pair.send(IN, ["b"])
    assert pair.depths(SHIPPED, STAGED) == [1, 0, 0, 1]

    pair.stage.heal()

    until(lambda: pair.depths(STAGED)[1] == 2)


def test_over_a_way_that_hangs_a_bridge_seems_connected_and_ships_nothing(pair: PluginSubject) -> None:
    pair.stage.cut("london", "hang")
    pair.send(IN, ["a"])

    until(lambda: pair.flow("london", IN).out_mirror.delivering == 1)
    outflow = pair.flow("london", IN)
    assert (outflow.out_mirror.depth, outflow.out_mirror.consumers) == (1, 1)
    assert pair.in_flight("london", outflow.mirror_bridge) == 1
    assert pair.depths(STAGED)[1] == 0

    pair.stage.heal()
    until(lambda: pair.depths(STAGED)[1] == 1)
    pair.quiet()
    assert pair.counters("paris", STAGED) == (1, 0, 0)


def test_alone_a_site_delivers_when_its_patience_is_over_and_what_it_said_is_kept(pair: PluginSubject) -> None:
    def served_by_paris() -> bool:
        return [pair.serving(site) for site in SITES] == [(False, False), (True, True)]

    pair.send(IN, ["a", "b"])
    pair.staged(IN, 2)
    pair.execute("paris", pair.at("paris", COMMANDS), "pause(boolean)", True)
    pair.stage.kill("london")

    pair.execute("paris", pair.service("paris"), ACTIVATE, 1_000)

    assert pair.serving("paris") == (True, False)
    until(lambda: pair.serving("paris") == (True, True), within_s=5)
    until(lambda: pair.depths_at("paris", IN, STAGED) == [2, 0])
    assert pair.depths_at("paris", COMMANDS) == [1]
    pair.stage.start("london")
    until(lambda: pair.serving("london") is not None, within_s=30)
    # It was told nothing; it starts inactive by itself, with what it held.
    until(lambda: pair.view("london").link.attached)
    assert (served_by_paris(), pair.depths(IN)[0]) == (True, 2)
    pair.execute("paris", pair.at("paris", COMMANDS), "resume()")
    pair.quiet()
    assert served_by_paris()


def test_a_new_queue_becomes_a_flow_at_both_sites_and_its_end_is_not_told(pair: PluginSubject) -> None:
    name = "made.by.hand"
    assert pair.write("london", name, None, name)["status"] == 200

    until(lambda: all(pair.view(site).flow(name) is not None for site in SITES))
    until(lambda: all(queue.consumers for site in SITES for queue in pair.flow(site, name).outflow))
    pair.send(name, ["a"])
    pair.staged(name, 1)
    assert pair.call("london", DESTROY, name, True)["status"] == 200

    until(lambda: pair.view("london").flow(name) is None)
    assert name in pair.view("paris").business
    pair.call("paris", DESTROY, name, True)
    until(lambda: pair.view("paris").flow(name) is None)


def test_ids_are_counted_in_slices_that_hold_each_of_them_once(pair: PluginSubject) -> None:
    pair.send(IN, [f"m{n}" for n in range(60)])
    pair.staged(IN, 60)

    rows = [pair.ids("paris", STAGED, item) for item in copies.id_slices()]

    assert sum(len(item) for item in rows) == 60
    assert set().union(*rows) == pair.ids("paris", STAGED)
