"""What management answers at a mirrored pair, real or simulated: values, documents, and the shape of every error."""

import json
from typing import Any

import pytest

from dr_ctl.jolokia.client import READ_S
from dr_ctl.stomp_io.address import Login
from dr_ctl.stomp_io.connection import SaidError
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.limits import SERVER, of_addresses
from dr_ctl.topologies.artemis.look import MOVING, find_broker
from dr_ctl.topologies.common.names import OUTFLOW_PREFIX
from dr_ctl.topologies.mirror.look import Size, look_again
from tests.twin.conftest import ON_THE_WIRE_TOO
from tests.twin.subject import SITES, Subject, until

pytestmark = ON_THE_WIRE_TOO

ILLEGAL = "java.lang.IllegalArgumentException"
NO_BEAN = "javax.management.InstanceNotFoundException"
NO_QUEUE = "org.apache.activemq.artemis.api.core.ActiveMQNonExistentQueueException"
CREATE, CREATE_OR = "createQueue(java.lang.String)", "createQueue(java.lang.String,boolean)"
LIMIT = "addAddressSettings(java.lang.String,java.lang.String)"
UPDATE, DESTROY = "updateQueue(java.lang.String)", "destroyQueue(java.lang.String)"


def failed(kind: str, text: str, status: int) -> dict[str, Any]:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def test_the_whole_look_of_the_product_reads_the_same_things(subject: Subject) -> None:
    london, paris = (subject.view(site) for site in SITES)

    assert [find(subject, site) for site in SITES] == ["london", "paris"]
    for view, peer in ((london, paris), (paris, london)):
        assert view.version == "2.56.0"
        assert view.link.attached
        assert view.role.value == ("serving" if view is london else "standby")
        assert {door.name: (door.protocols, door.opens_at_boot) for door in view.acceptors} == {
            "clients": (frozenset({"CORE", "AMQP", "STOMP"}), False),
            "mirror": (frozenset({"AMQP"}), True),
        }
        assert [(link.name, link.started, link.connected, link.protocol) for link in view.links] == [
            (peer.site, True, True, "AMQP")
        ]
        assert set(view.business) == {"orders.in", "orders.out", "DLQ", "ExpiryQueue"}
        assert view.prepared == ()
        assert view.lock_coordinators == ()
        queue = view.business["orders.in"]
        assert (queue.durable, queue.temporary, queue.ring, queue.last_value) == (True, False, False, False)
        assert (queue.dead_letter_address, queue.expiry_address) == ("DLQ", "ExpiryQueue")
        assert view.outflow is not None
        assert (view.outflow.internal, view.outflow.business) == (True, False)
    assert london.node != paris.node


def test_a_queue_with_control_characters_in_its_name_is_read_by_that_name(subject: Subject) -> None:
    name, server = "odd\x01\x0b\x1b\x1f\x7f\x85.name\\u001;", subject.server("london")
    created = {"name": name, "address": "odd", "routing-type": "ANYCAST", "durable": True}

    assert subject.execute("london", server, CREATE, json.dumps(created))["status"] == 200
    listing = subject.post("london", {"type": "read", "mbean": server, "attribute": "QueueNames"})
    view = subject.view("london")
    subject.execute("london", server, DESTROY, name)

    assert r"odd\u0001\u000;\u001;\u001?" in listing.text
    with pytest.raises(ValueError, match="Invalid"):
        listing.json()
    assert name in view.business


def test_what_keeps_clients_out_behind_open_doors_is_read(subject: Subject) -> None:
    """Addresses at a limit, by their policy; of a paused one its queues are paused too."""
    server, broker = subject.server("london"), subject.broker["london"]
    policies = {"full.fail": "FAIL", "full.drop": "DROP", "full.block": "BLOCK", "full.page": "PAGE"}
    names = [*policies, "paused", "blocked"]
    for name in names:
        subject.create("london", name)
    subject.put("london", "full.page", 2)
    for name, policy in policies.items():
        subject.put("london", name, 2)
        limit = json.dumps({"maxSizeBytes": 200, "pageSizeBytes": 100, "addressFullMessagePolicy": policy})
        told = subject.execute("london", server, LIMIT, name, limit)
        assert told["status"] == 200, told
    assert subject.execute("london", beans.address(broker, "paused"), "pause()")["status"] == 200
    assert subject.execute("london", beans.address(broker, "blocked"), "block()")["value"] is True

    try:
        view = subject.view("london")
        with subject.reader("london") as reader:
            found = [(each.text, each.addresses) for each in of_addresses(reader, view, timeout_s=READ_S)]
        until(lambda: subject.read("london", server, *SERVER)["DiskStoreUsage"] > 0)  # once it has looked
        figures = subject.read("london", server, *SERVER)
        with subject.client("london") as client, pytest.raises(SaidError, match=r"full\.fail"):
            client.send("full.fail")
    finally:
        for name in names:
            subject.execute("london", server, "removeAddressSettings(java.lang.String)", name)
            subject.execute("london", beans.address(broker, name), "resume()")
            subject.execute("london", beans.address(broker, name), "unblock()")
            subject.execute("london", server, DESTROY, name)
    with subject.reader("london") as reader:
        assert of_addresses(reader, subject.view("london"), timeout_s=READ_S) == ()

    full = "addresses with address-full-policy {}, at their limit: {}"
    assert found == [
        ("addresses are paused: their clients get nothing: paused", ("paused",)),
        ("addresses are blocked by management: their senders wait: blocked", ("blocked",)),
        (full.format("BLOCK", "their senders wait: full.block"), ("full.block",)),
        (full.format("FAIL", "what is sent there is refused: full.fail"), ("full.fail",)),
        (full.format("DROP", "what is sent there is dropped: full.drop"), ("full.drop",)),
    ]
    assert view.business["paused"].paused
    assert not view.business["blocked"].paused
    assert 0 < figures["DiskStoreUsage"] < 1
    assert 0 < figures["MaxDiskUsage"] <= 100
    assert figures["AddressMemoryUsage"] < figures["GlobalMaxSize"]


def find(subject: Subject, site: str) -> str:
    with subject.reader(site) as reader:
        return find_broker(reader)


def test_a_document_is_created_once_changed_and_removed(subject: Subject) -> None:
    name, address, server = "dr-ctl.contract.london.1", "dr-ctl.contract.london", subject.server("london")
    told = {"name": name, "address": address, "routing-type": "ANYCAST", "durable": True, "internal": True}
    told |= {"user": '{"run": 1}', "max-consumers": 0}
    other = json.dumps({**told, "user": "another"})

    def call(operation: str, *words: Any) -> dict[str, Any]:
        return subject.execute("london", server, operation, *words)

    made = json.loads(call(CREATE, json.dumps(told))["value"])
    again, strict, tolerant = call(CREATE, other), call(CREATE_OR, other, False), call(CREATE_OR, other, True)

    assert (made["name"], made["user"], made["internal"]) == (name, '{"run": 1}', True)
    text = f"AMQ229019: Queue {name} already exists on address {address}"
    assert again == strict == failed("java.lang.IllegalStateException", text, 500)
    assert (tolerant["status"], subject.view("london").documents) == (200, {name: '{"run": 1}'})
    assert json.loads(call(UPDATE, json.dumps({**told, "user": "new"}))["value"])["user"]
    assert (subject.view("london").documents, subject.view("paris").documents) == ({name: "new"}, {})

    assert call(DESTROY, name) == {"value": None, "status": 200}

    gone = failed(NO_QUEUE, f"AMQ229017: Queue {name} does not exist", 500)
    assert [call(DESTROY, name), call(UPDATE, json.dumps(told))] == [gone, gone]
    assert call("destroyQueue(java.lang.String,boolean)", name, True) == gone
    assert subject.view("london").documents == {}
    # Its address stays; the peer never had it.
    pattern = f'component=addresses,address="{address}",*'
    left = [
        subject.ask(site, type="search", mbean=f'{beans.DOMAIN}:broker="{site}",{pattern}')["value"] for site in SITES
    ]
    assert left == [[f'{beans.DOMAIN}:address="{address}",broker="london",component=addresses'], []]


def test_a_business_queue_comes_and_goes_at_both_sites_and_leaves_its_address(subject: Subject) -> None:
    subject.create("london", "biz")
    until(lambda: "biz" in subject.view("paris").business)
    with subject.client("london") as client:
        client.subscribe("biz")
        refused = subject.execute("london", subject.server("london"), DESTROY, "biz")
        assert refused["error_type"] == "org.apache.activemq.artemis.api.core.ActiveMQIllegalStateException"
        assert "AMQ229025: Cannot delete queue biz on binding biz - it has consumers" in refused["error"]

        force = "destroyQueue(java.lang.String,boolean)"
        assert subject.execute("london", subject.server("london"), force, "biz", True)["status"] == 200

    until(lambda: "biz" not in subject.view("paris").business)
    for site in SITES:
        bean = f'{subject.server(site)},component=addresses,address="biz"'
        assert subject.read(site, bean, "Address", "QueueNames") == {"Address": "biz", "QueueNames": []}


GONE = "javax.management.AttributeNotFoundException"
LINK = "stopBrokerConnection(java.lang.String)"
LISTED = "listConnections(java.lang.String,int,int)"
NO_FILTER = "AMQ229020: Invalid filter: a = = 'b'"


@pytest.mark.parametrize(
    ("bean", "asked", "kind", "said"),
    [
        ("ghost", ["Name"], NO_BEAN, "BEAN"),
        ("ghost", "pause()", NO_BEAN, "BEAN"),
        ("documents", ["Name"], NO_BEAN, "No MBean with pattern BEAN found for reading attributes"),
        ("documents", "pause()", NO_BEAN, "No MBean with pattern BEAN found for invoking JMX operations"),
        ("server", ["Active", "Nope"], GONE, "No such attribute: Nope"),
        ("nonsense", ["x"], ILLEGAL, "Invalid object name. Key properties cannot be empty"),
        ("doors", ["Nope"], ILLEGAL, "No matching attributes [Nope] found on MBeans ["),
        ("server", "nope(int)", ILLEGAL, "No operation nope found on MBean BEAN"),
        ("server", "createQueue", ILLEGAL, "Operation createQueue on MBean BEAN is overloaded. "),
        ("server", f"{LINK} zz", ILLEGAL, "broker connection zz not found"),
        ("server", LINK, ILLEGAL, f"Invalid number of operation arguments. Operation {LINK} on BEAN requires 1 "),
        ("server", f"{LISTED} a b 1", "java.lang.NumberFormatException", 'For input string: "b"'),
        ("server", f"{CREATE} {{}}", None, "AMQ229229: Failed to parse JSON queue configuration: {}"),
        ("queue", "countMessages(java.lang.String) a = = 'b'", None, NO_FILTER),
    ],
)
def test_what_cannot_be_answered_is_refused_in_the_same_words(
    subject: Subject, bean: str, asked: str | list[str], kind: str | None, said: str
) -> None:
    beans_by_name = {
        "ghost": subject.queue("london", "ghost"),
        "documents": beans.documents("london"),
        "server": subject.server("london"),
        "doors": beans.all_acceptors("london"),
        "queue": subject.queue("london", "orders.in"),
    }
    name = beans_by_name.get(bean, bean)

    if isinstance(asked, list):
        told = subject.ask("london", type="read", mbean=name, attribute=asked)
    else:
        operation, _, words = asked.partition(" ")
        told = subject.execute("london", name, operation, *([words] if "'" in words else words.split()))

    assert told["status"] in (400, 404, 500)
    text = said.replace("BEAN", name)
    assert text in told["error"] if kind is None else told["error"].startswith(f"{kind} : {text}"), told
    assert kind in (None, told["error_type"])


def test_a_call_by_the_beginning_of_names_is_of_all_queues_that_begin_so(subject: Subject) -> None:
    names = ("alike.a", 'alike."b"', "alike")
    for name in names:
        subject.create("london", name)
    pattern = beans.queues_beginning("london", "alike.")

    def paused() -> list[bool]:
        return [subject.read("london", subject.queue("london", name), "Paused")["Paused"] for name in names]

    told = subject.execute("london", pattern, "pause()")

    assert {beans.parts(bean)["queue"]: value for bean, value in told["value"].items()} == dict.fromkeys(names[:2])
    assert paused() == [True, True, False]
    assert subject.execute("london", pattern, "resume()")["status"] == 200
    assert paused() == [False, False, False]
    nobody = beans.queues_beginning("london", "nobody.")
    text = f"No MBean with pattern {nobody} found for invoking JMX operations"
    assert subject.execute("london", nobody, "pause()") == failed(NO_BEAN, text, 404)
    for name in names:
        subject.execute("london", subject.server("london"), DESTROY, name)


def test_a_broker_says_how_many_queues_it_has(subject: Subject) -> None:
    listed = len(subject.read("london", beans.all_queues("london"), "Name"))

    assert subject.read("london", subject.server("london"), "QueueCount") == {"QueueCount": listed}


def test_errors_can_stand_in_the_place_of_values(subject: Subject) -> None:
    config = {"ignoreErrors": True, "includeRequest": False}
    body = {"type": "read", "mbean": subject.server("london"), "attribute": ["Active", "Nope"], "config": config}

    told = subject.post("london", body).json()

    missing = {".error": True, "error_type": "javax.management.AttributeNotFoundException"}
    assert told == {"value": {"Active": True, "Nope": {**missing, "error": "No such attribute: Nope"}}, "status": 200}


def beans_of(name: str) -> str:
    """The name with its keys in alphabetical order."""
    parts = beans.parts(name)
    plain = ("component", "subcomponent")
    keys = ",".join(f"{key}={parts[key] if key in plain else beans.quote(parts[key])}" for key in sorted(parts))
    return f"{beans.DOMAIN}:{keys}"


def test_many_requests_are_answered_one_by_one(subject: Subject) -> None:
    config = {"includeRequest": False}
    good = {"type": "read", "mbean": subject.server("london"), "attribute": ["Active"], "config": config}
    bad = {"type": "exec", "mbean": subject.server("london"), "operation": "nope()", "config": config}

    assert [each["status"] for each in subject.post("london", [good, bad, good]).json()] == [200, 400, 200]
    assert subject.post("london", []).json() == []
    echoed = subject.post("london", {**good, "config": {}}).json()
    assert echoed["request"] == {"type": "read", "mbean": subject.server("london"), "attribute": "Active"}


def test_a_wrong_login_gets_nothing(subject: Subject) -> None:
    body = {"type": "version"}
    app = subject.place("london").app

    for login in (Login("nobody", "wrong"), app):
        told = subject.post("london", body, login)
        assert (told.status_code, told.text) == (403, "")
        assert told.headers["Hawtio-Forbidden-Reason"] == "NONE"
    assert subject.post("london", body).status_code == 200


def test_after_four_failures_a_user_has_to_wait(subject: Subject) -> None:
    login = Login("somebody", "wrong")
    told = [subject.post("paris", {"type": "version"}, login) for _ in range(5)]

    assert [each.status_code for each in told] == [403, 403, 403, 403, 429]
    assert told[-1].headers["Retry-After"] == "1"
    assert subject.post("paris", {"type": "version"}).status_code == 200


def test_small_questions(subject: Subject) -> None:
    server = subject.server("london")
    may = "canInvoke(java.lang.String,java.lang.String,[Ljava.lang.String;)"

    assert subject.execute("london", beans.SECURITY, may, server, "createQueue", ["java.lang.String"])["value"] is True
    assert subject.execute("london", server, "listPreparedTransactionDetailsAsJSON()")["value"] == ""
    assert subject.execute("london", server, "listLockCoordinatorsAsJSON()")["value"] == "[]"
    links = json.loads(subject.execute("london", server, "listBrokerConnections()")["value"])
    assert [(each["name"], each["started"], each["connected"]) for each in links] == [("paris", True, True)]
    assert subject.ask("london", type="version")["value"]["agent"] == "2.4.3"
    assert subject.ask("london", type="search", mbean=beans.ANY_SERVER)["value"] == [server]
    single = subject.ask("london", type="read", mbean=server, attribute="Active")
    assert single == {"value": True, "status": 200}
    rows = subject.read("london", beans.all_queues("london"), "MessageCount")
    assert f"{OUTFLOW_PREFIX}paris" in {beans.parts(bean)["queue"] for bean in rows}
    assert all(bean == beans_of(bean) for bean in rows)


def test_odd_names_are_found_by_their_beans(subject: Subject) -> None:
    for name in ('say "hello"', "a,b=c", "who?", "st*r"):
        subject.create("london", name, internal=True)
        try:
            assert subject.read("london", subject.queue("london", name), "Name") == {"Name": name}
        finally:
            subject.execute("london", subject.server("london"), DESTROY, name)


KINDS = ",".join(["java.lang.String"] * 11)
EVERYTHING = {"send", "consume", "createDurableQueue", "createNonDurableQueue", "browse", "createAddress"}


@pytest.mark.parametrize("match", ["orders.#", "#"])
def test_what_a_role_may_do_is_taken_away_and_given_back(subject: Subject, match: str) -> None:
    server = subject.server("london")

    def may(address: str) -> set[str]:
        rows = json.loads(subject.execute("london", server, "getRolesAsJSON(java.lang.String)", address)["value"])
        return {word for row in rows if row["name"] == "apps" for word, granted in row.items() if granted is True}

    assert may(match) == EVERYTHING
    try:
        told = subject.execute("london", server, f"addSecuritySettings({KINDS})", match, *["amq"] * 6, "", *["amq"] * 3)
        assert told["status"] == 200, told
        assert may(match) == may("orders.in") == set()
        assert (may("another") == set()) is (match == "#")
        bean = f'{server},component=addresses,address="orders.in"'
        rows = json.loads(subject.read("london", bean, "RolesAsJSON")["RolesAsJSON"])
        assert [row["name"] for row in rows] == ["amq"]
    finally:
        subject.execute("london", server, "removeSecuritySettings(java.lang.String)", match)
        # What broker.xml says of the same match is only in force again once it is read again.
        assert (may(match) == EVERYTHING) is (match != "#")
        subject.execute("london", server, "reloadConfigurationFile()")
    assert may(match) == may("orders.in") == EVERYTHING


def test_users_are_told_with_their_roles(subject: Subject) -> None:
    server, operation = subject.server("london"), "listUser(java.lang.String)"

    everyone = json.loads(subject.execute("london", server, operation, "")["value"])
    nobody = json.loads(subject.execute("london", server, operation, "nobody")["value"])

    assert {row["username"]: row["roles"] for row in everyone} == {"admin": ["amq"], "app": ["apps"]}
    assert nobody == [{"username": "nobody", "roles": []}]


def test_a_look_that_asks_for_less_tells_the_same_of_queues_that_were_filled_made_and_removed(subject: Subject) -> None:
    server, made = subject.server("london"), ["made.before", "made.since"]
    documents = [json.dumps({"name": name, "routing-type": "ANYCAST", "durable": True}) for name in made]
    subject.execute("london", server, CREATE, documents[0])
    known = subject.view("london")
    subject.execute("london", server, DESTROY, made[0])
    subject.execute("london", server, CREATE, documents[1])
    subject.put("london", "orders.in", 2)
    subject.put("london", made[1])

    with subject.reader("london") as reader:
        again = look_again(reader, known, Size(MOVING), timeout_s=READ_S)

    try:
        assert again.business == subject.view("london").business
        assert {name: queue.depth for name, queue in again.business.items() if queue.depth} == {
            "orders.in": 2,
            made[1]: 1,
        }
    finally:
        subject.execute("london", server, DESTROY, made[1])
