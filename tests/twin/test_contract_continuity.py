"""What management answers where the continuity plugin joins the sites, real or simulated."""

from typing import Any

from dr_ctl.stomp_io.address import Login
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import UPDATE_FILTERED
from dr_ctl_lab.lab.kinds import CONTINUITY
from tests.twin.subject import QUEUES, SITES, PluginSubject

TOPOLOGY = CONTINUITY

NO_BEAN = "javax.management.InstanceNotFoundException"
ILLEGAL = "java.lang.IllegalArgumentException"
NO_QUEUE = "org.apache.activemq.artemis.api.core.ActiveMQNonExistentQueueException"
DESTROY = "destroyQueue(java.lang.String,boolean)"


def failed(kind: str, text: str, status: int) -> dict[str, Any]:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def test_the_whole_look_of_the_product_reads_the_same_things(pair: PluginSubject) -> None:
    london, paris = (pair.view(site) for site in SITES)

    for view in (london, paris):
        assert (view.version, view.link.attached, view.prepared) == ("2.11.0", True, ())
        assert view.role.value == ("serving" if view is london else "standby")
        assert {door.name: door.protocols for door in view.acceptors if door.port is not None} == {
            "clients": frozenset({"CORE", "AMQP", "STOMP"}),
            "mirror": frozenset({"CORE", "AMQP"}),
        }
        assert [door.name for door in view.link.doors] == ["mirror"]
        assert set(view.business) >= {*QUEUES, "DLQ", "ExpiryQueue"}
        assert {flow.queue for flow in view.flows} >= {*QUEUES, "DLQ", "ExpiryQueue"}
        assert view.service is not None
        assert (view.service.site_id, view.service.staging_ms, view.service.interval_ms) == (view.site, 500, 500.0)
        assert view.service.prefix == "continuity.cmd"
        assert all(view.link.ships.values())
        assert list(view.link.unsettled()) == []
        assert view.fence.strangers() == []
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
        return pair.ask("london", type="read", mbean=bean, **({"attribute": list(names)} if names else {}))

    forbidden = "Reading attribute Name is forbidden for MBean"
    assert read(ghost, "Name", "MessageCount") == failed(
        "java.lang.Exception", f"{forbidden} {told}subcomponent=queues", 403
    )
    assert read(server, "Version", "Active") == failed(
        "java.lang.Exception", f"Reading attribute Active is forbidden for MBean {server}", 403
    )
    assert read(ghost) == failed(NO_BEAN, ghost, 404)
    assert pair.execute("london", ghost, "pause()") == failed(NO_BEAN, ghost, 404)
    assert read(none, "Name") == failed(NO_BEAN, f"No MBean with pattern {none} found for reading attributes", 404)
    # These versions do not call by pattern.
    assert pair.execute("london", beans.all_queues("london"), "pause()") == failed(
        NO_BEAN, beans.all_queues("london"), 404
    )
    assert read("nonsense", "x") == failed(ILLEGAL, "Invalid object name. Key properties cannot be empty", 400)
    body = {"type": "read", "mbean": server, "attribute": ["Version", "Nope"]}
    told = pair.post("london", {**body, "config": {"ignoreErrors": True}}).json()["value"]
    text = f"ERROR: Reading attribute Nope is forbidden for MBean {server} (class java.lang.SecurityException)"
    assert told == {"Version": "2.11.0", "Nope": text}
    may = "canInvoke(java.lang.String,java.lang.String,[Ljava.lang.String;)"
    asked = pair.execute("london", beans.SECURITY, may, server, "createQueue", [])
    assert asked == failed(NO_BEAN, beans.SECURITY, 404)


def test_operations_that_cannot_be_called_are_refused_in_the_same_words(pair: PluginSubject) -> None:
    server, service = pair.server("london"), pair.service("london")

    def call(bean: str, operation: str, *arguments: Any) -> dict[str, Any]:
        return pair.execute("london", bean, operation, *arguments)

    assert call(server, "nope()") == failed(ILLEGAL, f"No operation nope found on MBean {server}", 400)
    text = f"No operation activateSite() on MBean {service} exists. Known signatures: (java.lang.Long)"
    assert call(service, "activateSite()") == failed(ILLEGAL, text, 400)
    close = "closeConnectionWithID(java.lang.String)"
    text = f"Invalid number of operation arguments. Operation {close} on {server} requires 1 parameters, not 0 as given"
    assert call(server, close) == failed(ILLEGAL, text, 400)
    assert call(server, "listConnections(java.lang.String,int,int)", "", 1, 10)["status"] == 500
    bad = call(pair.at("london", "orders.in"), "countMessages(java.lang.String)", "a = = 'b'")
    assert "AMQ229020: Invalid filter: a = = 'b'" in bad["error"]


def test_a_wrong_login_gets_nothing_however_often(pair: PluginSubject) -> None:
    for login in [Login("nobody", "wrong")] * 6 + [pair.place("london").app]:
        told = pair.post("london", {"type": "version"}, login)
        assert (told.status_code, told.text) == (403, "")
    assert pair.ask("london", type="version")["value"]["agent"] == "1.3.7"


def test_a_document_is_created_once_changed_and_removed_and_is_no_flow(pair: PluginSubject) -> None:
    name, address = "dr-ctl.contract.london.1", "dr-ctl.contract.london.continuity.cmd"
    flows = len(pair.view("london").flows)

    first = pair.write("london", name, "dr_ctl_says = 'one ''two'''", address)
    again = pair.write("london", name, "dr_ctl_says = 'another'", address)

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
    assert pair.execute("london", pair.server("london"), DESTROY, name, True) == gone
    assert pair.execute("london", pair.server("london"), UPDATE_FILTERED, *told) == gone


def test_the_listings_tell_clients_bridges_and_receivers(pair: PluginSubject) -> None:
    with pair.billing("london") as client:
        view = pair.view("london")
        client.confirmed("UNSUBSCRIBE", id="s")

    clients, mirror = pair.place("london").stomp.port, view.link.doors[0].port
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
