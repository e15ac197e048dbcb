"""What a pair with the continuity plugin answers and does, real or simulated: where they differ the twin is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dr_ctl.cli.twins import PlayedTwin
from dr_ctl.jolokia import beans
from dr_ctl.lab.kinds import CONTINUITY
from dr_ctl.lab.lab import Lab
from dr_ctl.stomp_io.address import Login
from dr_ctl.stomp_io.client import Closed, Connected, greet
from dr_ctl.topologies.artemis.papers import UPDATE_FILTERED
from tests.continuity.plugin import needs_plugin
from tests.twin.plugin_subject import ACTIVATE, DEACTIVATE, FLOWS, ID, PluginSubject
from tests.twin.subject import SITES, until

NO_BEAN = "javax.management.InstanceNotFoundException"
ILLEGAL = "java.lang.IllegalArgumentException"
NO_QUEUE = "org.apache.activemq.artemis.api.core.ActiveMQNonExistentQueueException"
DESTROY = "destroyQueue(java.lang.String,boolean)"
REMOVE = "removeMessages(java.lang.String)"


@pytest.fixture(scope="session")
def plugin_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("plugin contract") / "lab", topology=CONTINUITY, queues=FLOWS) as lab:
        yield lab


@pytest.fixture
def topology() -> str:
    return CONTINUITY


@pytest.fixture(params=["twin", pytest.param("brokers", marks=[pytest.mark.broker, needs_plugin])])
def pair(request: pytest.FixtureRequest) -> PluginSubject:
    if request.param == "twin":
        twin: PlayedTwin = request.getfixturevalue("twin")
        return PluginSubject(twin)
    lab: Lab = request.getfixturevalue("plugin_pair")
    subject = PluginSubject(lab)
    lab.heal()
    subject.reset()
    return subject


def failed(kind: str, text: str, status: int) -> dict[str, Any]:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def bare(told: dict[str, Any]) -> dict[str, Any]:
    """An answer without what these versions add to each, whether it is wanted or not."""
    return {key: value for key, value in told.items() if key not in ("request", "timestamp")}


# what it answers


def test_the_whole_look_of_the_product_reads_the_same_things(pair: PluginSubject) -> None:
    london, paris = (pair.view(site) for site in SITES)

    for view in (london, paris):
        assert (view.version, view.attached, view.prepared) == ("2.11.0", True, ())
        assert view.role.value == ("serving" if view is london else "standby")
        assert {door.name: door.protocols for door in view.acceptors if door.port is not None} == {
            "clients": frozenset({"CORE", "AMQP", "STOMP"}),
            "mirror": frozenset({"CORE", "AMQP"}),
        }
        assert [door.name for door in view.mirror_doors] == ["mirror"]
        assert set(view.business) >= {*FLOWS, "DLQ", "ExpiryQueue"}
        assert {flow.queue for flow in view.flows} >= {*FLOWS, "DLQ", "ExpiryQueue"}
        assert view.service is not None
        assert (view.service.site_id, view.service.staging_ms, view.service.interval_ms) == (view.site, 500, 500.0)
        assert view.service.prefix == "continuity.cmd"
        assert all(view.ships.values())
        assert list(view.unsettled()) == []
        assert view.strangers() == []
        for flow in view.flows:
            assert (flow.out_mirror.routing, flow.in_mirror.routing) == ("multicast", "anycast")
            assert (flow.out_mirror.consumers, flow.in_acks.consumers) == (1, 1)
            # What delivers is no consumer while the site does not.
            assert (flow.in_mirror.consumers, flow.target_bridge.started) == (int(view is london), view is london)
    assert london.node != paris.node


def test_the_plugin_has_moved_the_beans_of_its_own(pair: PluginSubject) -> None:
    server = pair.server("london")
    flow = 'broker="london",component=continuity,flow="orders.in",name="continuity.service"'
    kinds = {"out.mirror": "multicast", "out.acks": "multicast", "in.mirror": "anycast", "in.acks": "anycast"}

    for kind, routing in kinds.items():
        queue = f"orders.in.{kind}"
        found = pair.ask("london", type="search", mbean=f'{server},queue="{queue}",*')["value"]
        name = f'{beans.DOMAIN}:address="{queue}",{flow},queue="{queue}",routing-type="{routing}",subcomponent=flows'
        assert found == [f"{name},subsubcomponent=addresses,subsubsubcomponent=queues"]
    for bridge in ("orders.in.out.mirror.bridge", "orders.in.out.acks.bridge", "orders.in.in.mirror.bridge"):
        assert pair.bridge("london", bridge) == (
            f'{beans.DOMAIN}:bridge="{bridge}",{flow},subcomponent=flows,subsubcomponent=bridges'
        )
    assert pair.at("london", "continuity.cmd.out") == (
        f'{beans.DOMAIN}:address="continuity.cmd.out",broker="london",component=continuity,name="continuity.service",'
        'queue="continuity.cmd.out",routing-type="multicast",subcomponent=addresses,subsubcomponent=queues'
    )
    assert pair.ask("london", type="search", mbean=f"{server},component=bridges,name=*")["value"] == []
    exact = f"{pair.service('london')},subcomponent=flows,flow=*"
    assert len(pair.ask("london", type="search", mbean=exact)["value"]) == len(pair.view("london").flows)


def test_what_is_not_there_is_forbidden_unless_all_of_it_is_asked_for(pair: PluginSubject) -> None:
    server, ghost = pair.server("london"), pair.queue("london", "ghost")
    told = f'{beans.DOMAIN}:address="ghost",broker="london",component=addresses,queue="ghost",routing-type="anycast",'
    none = beans.documents("london")

    def read(bean: str, *names: str) -> dict[str, Any]:
        return bare(pair.ask("london", type="read", mbean=bean, **({"attribute": list(names)} if names else {})))

    forbidden = "Reading attribute Name is forbidden for MBean"
    assert read(ghost, "Name", "MessageCount") == failed(
        "java.lang.Exception", f"{forbidden} {told}subcomponent=queues", 403
    )
    assert read(server, "Version", "Active") == failed(
        "java.lang.Exception", f"Reading attribute Active is forbidden for MBean {server}", 403
    )
    assert read(ghost) == failed(NO_BEAN, ghost, 404)
    assert bare(pair.execute("london", ghost, "pause()")) == failed(NO_BEAN, ghost, 404)
    assert read(none, "Name") == failed(NO_BEAN, f"No MBean with pattern {none} found for reading attributes", 404)
    # These versions do not call by pattern.
    assert bare(pair.execute("london", beans.all_queues("london"), "pause()")) == failed(
        NO_BEAN, beans.all_queues("london"), 404
    )
    assert read("nonsense", "x") == failed(ILLEGAL, "Invalid object name. Key properties cannot be empty", 400)
    body = {"type": "read", "mbean": server, "attribute": ["Version", "Nope"]}
    told = pair.post("london", {**body, "config": {"ignoreErrors": True}}).json()["value"]
    text = f"ERROR: Reading attribute Nope is forbidden for MBean {server} (class java.lang.SecurityException)"
    assert told == {"Version": "2.11.0", "Nope": text}
    may = "canInvoke(java.lang.String,java.lang.String,[Ljava.lang.String;)"
    asked = bare(pair.execute("london", beans.SECURITY, may, server, "createQueue", []))
    assert asked == failed(NO_BEAN, beans.SECURITY, 404)


def test_operations_that_cannot_be_called_are_refused_in_the_same_words(pair: PluginSubject) -> None:
    server, service = pair.server("london"), pair.service("london")

    def call(bean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return bare(pair.execute("london", bean, operation, *arguments))

    assert call(server, "nope()") == failed(ILLEGAL, f"No operation nope found on MBean {server}", 400)
    text = f"No operation activateSite() on MBean {service} exists. Known signatures: (java.lang.Long)"
    assert call(service, "activateSite()") == failed(ILLEGAL, text, 400)
    close = "closeConnectionWithID(java.lang.String)"
    text = f"Invalid number of operation arguments. Operation {close} on {server} requires 1 parameters, not 0 as given"
    assert call(server, close) == failed(ILLEGAL, text, 400)
    assert call(server, "listConnections(java.lang.String,int,int)", "", 1, 10)["status"] == 500
    bad = call(pair.at("london", "orders.in"), "countMessages(java.lang.String)", "a = = 'b'")
    assert "AMQ229020: Invalid filter: a = = 'b'" in bad["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{nope", "Invalid JSON request"),
        ("3", "Invalid JSON Request"),
        ('{"type": "zork"}', "No type with name 'zork' exists"),
        ('[{"type": "version"}, {"type": "zork"}]', "No type with name 'zork' exists"),
    ],
)
def test_what_is_no_request_is_refused_like_one(pair: PluginSubject, body: str, said: str) -> None:
    told = pair.post("london", body, raw=True)

    assert told.status_code == 200
    assert told.json()["status"] == 400
    assert told.json()["error"].startswith(f"{ILLEGAL} : {said}")


def test_a_wrong_login_gets_nothing_however_often(pair: PluginSubject) -> None:
    for login in [Login("nobody", "wrong")] * 6 + [pair.place("london").app]:
        told = pair.post("london", {"type": "version"}, login)
        assert (told.status_code, told.text) == (403, "")
    assert pair.ask("london", type="version")["value"]["agent"] == "1.3.7"


def test_a_document_is_created_once_changed_and_removed_and_is_no_flow(pair: PluginSubject) -> None:
    name, address = "dr-ctl.contract.london.1", "dr-ctl.contract.london.continuity.cmd"
    flows = len(pair.view("london").flows)

    first = pair.write("london", name, "dr_ctl_says = 'one ''two'''", address)
    again = bare(pair.write("london", name, "dr_ctl_says = 'another'", address))

    try:
        assert first["status"] == 200
        text = f"AMQ229019: Queue {name} already exists on address {address}"
        assert again == failed("java.lang.IllegalStateException", text, 500)
        assert pair.view("london").documents == {name: "one 'two'"}
        told = (name, "ANYCAST", "dr_ctl_says = 'new'", 0, False, False, *(None,) * 6)
        assert pair.execute("london", pair.server("london"), UPDATE_FILTERED, *told)["status"] == 200
        assert pair.view("london").documents == {name: "new"}
        assert pair.view("paris").documents == {}
        assert len(pair.view("london").flows) == flows
    finally:
        assert pair.execute("london", pair.server("london"), DESTROY, name, True)["status"] == 200
    gone = failed(NO_QUEUE, f"AMQ229017: Queue {name} does not exist", 500)
    assert bare(pair.execute("london", pair.server("london"), DESTROY, name, True)) == gone
    assert bare(pair.execute("london", pair.server("london"), UPDATE_FILTERED, *told)) == gone


def test_the_listings_tell_clients_bridges_and_receivers(pair: PluginSubject) -> None:
    with pair.client("london", **{"client-id": "billing"}) as client:
        client.send("orders.in")
        client.subscribe("orders.in")
        client.message()
        view = pair.view("london")
        client.confirmed("UNSUBSCRIBE", id="s")

    clients, mirror = pair.place("london").stomp.port, view.mirror_doors[0].port
    mine = [each for each in view.connections if each.port == clients]
    assert [(each.client, each.user, each.protocol) for each in mine] == [("billing", "app", "STOMP")]
    assert {each.protocol for each in view.connections if each.port != clients} == {"CORE"}
    assert any(each.port == mirror for each in view.connections)
    theirs = {(each.queue, each.client, each.user) for each in view.consumers if each.port == clients}
    assert theirs == {("orders.in", "billing", "app")}
    received = {each.queue for each in view.consumers if each.port != clients}
    assert received == {"continuity.cmd.in", *(flow.in_acks.name for flow in view.flows)}
    # How much of it they hold these versions do not list with them.
    assert {each.holds for each in view.consumers} == {None}


# what it does


def test_a_message_is_staged_at_the_peer_and_its_acknowledgement_removes_it_there(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b", "c"])
    pair.staged("orders.in", 3)
    pair.quiet()

    assert pair.depths("orders.in", "orders.in.in.mirror") == [3, 0, 0, 3]
    assert pair.ids("london", "orders.in") == pair.ids("paris", "orders.in.in.mirror")
    assert pair.counters("london", "orders.in.out.mirror") == (3, 3, 0)

    with pair.client("london") as client:
        client.subscribe("orders.in")
        first = client.message()
        client.ack(first)
        client.confirmed("UNSUBSCRIBE", id="s")
    pair.staged("orders.in", 2)
    pair.quiet()

    assert first.headers["message-id"] == first.headers["ack"]
    assert first.headers["message-id"].isdecimal()
    assert first.headers[ID] not in pair.ids("paris", "orders.in.in.mirror")
    assert pair.ids("london", "orders.in") == pair.ids("paris", "orders.in.in.mirror")
    assert pair.counters("london", "orders.in.out.acks") == (1, 1, 0)
    assert pair.counters("paris", "orders.in.in.acks") == (1, 1, 0)
    assert pair.counters("paris", "orders.in.in.mirror") == (3, 0, 1)


def test_what_is_staged_waits_for_its_time_and_is_listed_apart(pair: PluginSubject) -> None:
    pair.send("orders.in", [f"{number}" for number in range(5)])
    until(lambda: pair.depths("orders.in.in.mirror")[1] == 5)

    bean = pair.at("paris", "orders.in.in.mirror")
    seen: set[tuple[int, int]] = set()

    def over() -> bool:
        staged = pair.flow("paris", "orders.in").in_mirror
        listed = json.loads(pair.execute("paris", bean, "listScheduledMessagesAsJSON()")["value"])
        assert all(row["_AMQ_SCHED_DELIVERY"] == row["timestamp"] + 500 and row[ID] for row in listed)
        seen.add((staged.depth, staged.delivering))
        return staged.scheduled == 0

    until(over)
    assert seen == {(5, 0)}


def test_what_was_delivered_there_comes_back_and_is_refused_for_ever(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)

    pair.move("paris")

    until(lambda: pair.depths("orders.in", "orders.in.in.mirror") == [2, 2, 2, 0])
    with pair.client("paris") as client:
        client.subscribe("orders.in")
        message = client.message()
        client.confirmed("UNSUBSCRIBE", id="s")
    assert message.headers["_CTY_ORIGIN"] == "london"
    assert message.headers["_AMQ_ORIG_ADDRESS"] == "orders.in"
    assert message.headers["_AMQ_ORIG_QUEUE"] == "orders.in.out.mirror.divert"
    assert message.headers["redelivered"] == "false"
    assert message.headers[ID] in pair.ids("london", "orders.in")

    pair.move("london")

    until(lambda: pair.flow("london", "orders.in").stuck)
    flow = pair.flow("london", "orders.in")
    assert (flow.in_mirror.depth, flow.in_mirror.delivering) == (2, 2)
    assert flow.target_bridge.forwarded - flow.target_bridge.acked == 2
    bean = pair.at("london", "orders.in.in.mirror")
    every = f"{ID} IN ({', '.join(repr(each) for each in sorted(pair.ids('london', 'orders.in')))})"
    assert pair.execute("london", bean, REMOVE, every)["value"] == 0
    pair.execute("london", pair.bridge("london", "orders.in.in.mirror.bridge"), "stop()")
    until(lambda: pair.flow("london", "orders.in").in_mirror.delivering == 0)
    assert pair.execute("london", bean, REMOVE, every)["value"] == 2
    pair.quiet()
    assert pair.depths("orders.in") == [2, 2]


def test_an_acknowledgement_that_overtakes_its_message_finds_nothing(pair: PluginSubject) -> None:
    bridge = pair.bridge("london", "orders.in.out.mirror.bridge")
    assert pair.execute("london", bridge, "stop()")["status"] == 200
    until(lambda: pair.flow("london", "orders.in").out_mirror.consumers == 0)
    with pair.client("london") as client:
        client.send("orders.in")
        client.subscribe("orders.in")
        client.ack(client.message())
        client.confirmed("UNSUBSCRIBE", id="s")
    until(lambda: pair.counters("paris", "orders.in.in.acks")[1] == 1)
    assert pair.depths("orders.in.out.mirror")[0] == 1

    pair.execute("london", bridge, "start()")

    pair.staged("orders.in", 1)
    pair.quiet()
    assert pair.depths("orders.in", "orders.in.in.mirror") == [0, 0, 0, 1]


@pytest.mark.parametrize("politely", [True, False], ids=["unsubscribed", "disconnected"])
def test_what_a_connection_held_when_it_ended_costs_the_peer_a_copy(pair: PluginSubject, politely: bool) -> None:
    pair.send("orders.in", ["a", "b", "c"])
    pair.staged("orders.in", 3)
    with pair.client("london") as client:
        client.subscribe("orders.in")
        held = [client.message() for _ in range(3)]
        if politely:
            client.confirmed("UNSUBSCRIBE", id="s")
        client.confirmed("DISCONNECT")

    pair.staged("orders.in", 3 if politely else 2)
    pair.quiet()

    assert pair.depths("orders.in")[0] == 3
    gone = pair.ids("london", "orders.in") - pair.ids("paris", "orders.in.in.mirror")
    assert gone == (set() if politely else {held[0].headers[ID]})


def test_what_management_puts_into_a_queue_is_not_shipped_and_its_removal_is(pair: PluginSubject) -> None:
    pair.put("london", "orders.out")
    pair.quiet()
    assert pair.depths("orders.out", "orders.out.in.mirror") == [1, 0, 0, 0]
    assert len(pair.ids("london", "orders.out")) == 1

    assert pair.execute("london", pair.at("london", "orders.out"), REMOVE, "n = '0'")["value"] == 1

    until(lambda: pair.counters("paris", "orders.out.in.acks")[1] == 1)
    assert pair.counters("london", "orders.out.out.acks")[0] == 1


def test_emptying_the_queue_of_a_site_that_waits_deletes_where_clients_are_served(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)
    pair.move("paris")
    until(lambda: pair.depths("orders.in") == [2, 2])

    pair.execute("london", pair.at("london", "orders.in"), "removeAllMessages()")

    until(lambda: pair.depths("orders.in") == [0, 0])


def test_activation_lets_clients_in_and_puts_the_peer_out(pair: PluginSubject) -> None:
    at = {site: pair.place(site) for site in SITES}
    assert isinstance(greet(at["london"].stomp, at["london"].app, None, timeout_s=5), Connected)
    assert isinstance(greet(at["paris"].stomp, at["paris"].app, None, timeout_s=5), Closed)

    assert bare(pair.execute("paris", pair.service("paris"), ACTIVATE, 20_000)) == {"value": None, "status": 200}

    until(lambda: pair.serving("paris") == (True, True))
    until(lambda: pair.serving("london") == (False, False))
    assert isinstance(greet(at["paris"].stomp, at["paris"].app, None, timeout_s=5), Connected)
    assert isinstance(greet(at["london"].stomp, at["london"].app, None, timeout_s=5), Closed)
    for _ in range(2):
        assert bare(pair.execute("paris", pair.service("paris"), DEACTIVATE)) == {"value": None, "status": 200}
    assert [pair.serving(site) for site in SITES] == [(False, False)] * 2
    assert not any(flow.target_bridge.started for flow in pair.view("paris").flows)


def test_a_bridge_starts_again_where_its_peers_door_opens(pair: PluginSubject) -> None:
    door = pair.acceptor("paris", "mirror")

    pair.execute("paris", door, "stop()")

    until(lambda: not any(queue.consumers for flow in pair.view("london").flows for queue in flow.outflow))
    assert all(pair.view("london").ships.values())
    pair.send("orders.in", ["a"])
    assert pair.depths("orders.in", "orders.in.out.mirror", "orders.in.in.mirror") == [1, 1, 0, 0, 0, 0]
    first = pair.flow("london", "orders.in").out_mirror.oldest_ms
    assert first is not None
    until(lambda: (pair.flow("london", "orders.in").out_mirror.oldest_ms or 0) > first)

    pair.execute("paris", door, "start()")

    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)
    until(lambda: pair.view("london").attached)


def test_a_cut_way_takes_the_bridges_down_and_healing_brings_them_back(pair: PluginSubject) -> None:
    pair.stage.cut("london")
    until(lambda: not pair.flow("london", "orders.in").out_mirror.consumers)
    assert pair.view("paris").attached
    pair.send("orders.in", ["a"])
    assert pair.depths("orders.in.out.mirror", "orders.in.in.mirror") == [1, 0, 0, 0]

    pair.stage.heal()

    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)


def test_over_a_way_that_hangs_a_bridge_seems_connected_and_ships_nothing(pair: PluginSubject) -> None:
    pair.stage.cut("london", "hang")
    pair.send("orders.in", ["a"])

    until(lambda: pair.flow("london", "orders.in").out_mirror.delivering == 1)
    outflow = pair.flow("london", "orders.in")
    assert (outflow.out_mirror.depth, outflow.out_mirror.consumers) == (1, 1)
    assert outflow.mirror_bridge.forwarded - outflow.mirror_bridge.acked == 1
    assert pair.depths("orders.in.in.mirror")[1] == 0

    pair.stage.heal()
    until(lambda: pair.depths("orders.in.in.mirror")[1] == 1)
    pair.quiet()
    assert pair.counters("paris", "orders.in.in.mirror") == (1, 0, 0)


def test_alone_a_site_delivers_when_its_patience_is_over_and_what_it_said_is_kept(pair: PluginSubject) -> None:
    pair.send("orders.in", ["a", "b"])
    pair.staged("orders.in", 2)
    pair.execute("paris", pair.at("paris", "continuity.cmd.out"), "pause(boolean)", True)
    pair.stage.kill("london")

    pair.execute("paris", pair.service("paris"), ACTIVATE, 1_000)

    assert pair.serving("paris") == (True, False)
    until(lambda: pair.serving("paris") == (True, True), within_s=5)
    until(lambda: pair.depths_at("paris", "orders.in", "orders.in.in.mirror") == [2, 0])
    assert pair.depths_at("paris", "continuity.cmd.out") == [1]
    pair.stage.start("london")
    until(lambda: pair.serving("london") is not None, within_s=30)
    # It was told nothing; it starts inactive by itself, with what it held.
    until(lambda: pair.view("london").attached)
    assert [pair.serving(site) for site in SITES] == [(False, False), (True, True)]
    assert pair.depths("orders.in")[0] == 2
    pair.execute("paris", pair.at("paris", "continuity.cmd.out"), "resume()")
    pair.quiet()
    assert [pair.serving(site) for site in SITES] == [(False, False), (True, True)]


def test_a_new_queue_becomes_a_flow_at_both_sites_and_its_end_is_not_told(pair: PluginSubject) -> None:
    name = "made.by.hand"
    assert pair.write("london", name, None, name)["status"] == 200

    until(lambda: all(pair.view(site).flow(name) is not None for site in SITES))
    until(lambda: all(queue.consumers for site in SITES for queue in pair.flow(site, name).outflow))
    pair.send(name, ["a"])
    pair.staged(name, 1)
    assert pair.execute("london", pair.server("london"), DESTROY, name, True)["status"] == 200

    until(lambda: pair.view("london").flow(name) is None)
    assert name in pair.view("paris").business
    pair.execute("paris", pair.server("paris"), DESTROY, name, True)
    until(lambda: pair.view("paris").flow(name) is None)
