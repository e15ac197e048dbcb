"""A mirrored pair, real or simulated. What management answers: values, documents, and the shape of every error. What
becomes of messages: sent, shipped, delivered, acknowledged, given back. Listeners, links, pauses and deaths."""

import json
from typing import Any

import pytest

from dr_ctl.jolokia.client import READ_S
from dr_ctl.stomp_io.address import Closed, Connected, Login, LoginDenied
from dr_ctl.stomp_io.client import ConnectionLost, RequestRefused, try_login
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.reading import LIMITS, find_broker, limits_of_addresses
from dr_ctl.topologies.common.calls import OUTFLOW_PREFIX
from dr_ctl.topologies.common.session import FOR_HISTORY
from dr_ctl.topologies.mirror.reading import browse, read_residue, reread
from tests.twin.conftest import ON_THE_WIRE_TOO
from tests.twin.subject import ADD, IN, OUT, REMOVE, SITES, TEXT, Subject, comes, until

pytestmark = ON_THE_WIRE_TOO

ILLEGAL, NUMBER = "java.lang.IllegalArgumentException", "java.lang.NumberFormatException"
NO_BEAN, GONE = (f"javax.management.{kind}NotFoundException" for kind in ("Instance", "Attribute"))
CREATE = f"createQueue({TEXT})"
FORCE = f"destroyQueue({TEXT},boolean)"
LIMIT = f"addAddressSettings({TEXT},{TEXT})"
STOP, START = (f"{verb}BrokerConnection({TEXT})" for verb in ("stop", "start"))
RELOAD = "reloadConfigurationFile()"
MATCHING = f"removeMessages({TEXT})"
LISTED = f"listConnections({TEXT},int,int)"
EVERYTHING = {"send", "consume", "createDurableQueue", "createNonDurableQueue", "browse", "createAddress"}
KEPT_OUT = (*["amq"] * 6, "", *["amq"] * 3)

SPOKEN = frozenset({"CORE", "AMQP", "STOMP", "OPENWIRE", "MQTT"})


def failed(kind: str, text: str, status: int) -> dict[str, Any]:
    return {"error_type": kind, "error": f"{kind} : {text}", "status": status}


def test_the_whole_look_of_the_product_reads_the_same_things(subject: Subject) -> None:
    london, paris = (subject.view(site) for site in SITES)

    for view, peer in ((london, paris), (paris, london)):
        with subject.reader(view.site) as reader:
            assert find_broker(reader) == view.site
        assert (view.version, view.link.attached, view.prepared, view.coordinators) == ("2.56.0", True, (), ())
        assert view.role.value == ("serving" if view is london else "standby")
        assert {listener.name: (listener.protocols, listener.opens_at_boot) for listener in view.acceptors} == {
            "clients": (SPOKEN, False),
            "mirror": (frozenset({"AMQP"}), True),
        }
        links = [(link.name, link.started, link.connected, link.protocol) for link in view.links]
        assert links == [(peer.site, True, True, "AMQP")]
        assert set(view.business) == {IN, OUT, "DLQ", "ExpiryQueue"}
        queue = view.business[IN]
        assert (queue.durable, queue.temporary, queue.ring, queue.last_value) == (True, False, False, False)
        assert (queue.dead_letter_address, queue.expiry_address) == ("DLQ", "ExpiryQueue")
        assert view.outflow is not None
        assert (view.outflow.internal, view.outflow.business) == (True, False)
    assert london.node != paris.node


def test_a_queue_with_an_odd_name_is_found_by_its_bean_and_read_by_that_name(subject: Subject) -> None:
    for odd in ('say "hello"', "a,b=c", "who?", "st*r"):
        subject.create("london", odd, internal=True)
        try:
            assert subject.read("london", subject.queue("london", odd), "Name") == {"Name": odd}
        finally:
            subject.destroy("london", odd)
    name = "odd\x01\x0b\x1b\x1f\x7f\x85.name\\u001;"

    assert subject.create("london", name)["status"] == 200
    listing = subject.post("london", {"type": "read", "mbean": subject.server("london"), "attribute": "QueueNames"})
    view = subject.view("london")
    subject.destroy("london", name)

    assert r"odd\u0001\u000;\u001;\u001?" in listing.text
    with pytest.raises(ValueError, match="Invalid"):
        listing.json()
    assert name in view.business


def test_what_keeps_clients_out_behind_open_listeners_is_read(subject: Subject) -> None:
    """Addresses at a limit, by their policy; of a paused one its queues are paused too."""
    server = subject.server("london")
    policies = {"full.fail": "FAIL", "full.drop": "DROP", "full.block": "BLOCK", "full.page": "PAGE"}
    names = [*policies, "paused", "blocked", "disabled"]
    for name in names:
        subject.create("london", name)
    subject.put("london", "full.page", 2)
    for name, policy in policies.items():
        subject.put("london", name, 2)
        limit = json.dumps({"maxSizeBytes": 200, "pageSizeBytes": 100, "addressFullMessagePolicy": policy})
        subject.done("london", server, LIMIT, name, limit)
    subject.done("london", subject.address("london", "paused"), "pause()")
    assert subject.done("london", subject.address("london", "blocked"), "block()") is True
    subject.done("london", subject.queue("london", "disabled"), "disable()")
    with subject.client("london") as client:
        client.send("disabled")  # confirmed all the same

    try:
        view = subject.view("london")
        with subject.reader("london") as reader:
            rows = [
                (limits_of_address.text, limits_of_address.addresses)
                for limits_of_address in limits_of_addresses(reader, view, timeout_s=READ_S)
            ]
        until(lambda: subject.read("london", server, *LIMITS)["DiskStoreUsage"] > 0)  # once it has looked
        figures = subject.read("london", server, *LIMITS)
        with subject.client("london") as client, pytest.raises(RequestRefused, match=r"full\.fail"):
            client.send("full.fail")
    finally:
        for name in names:
            subject.call("london", f"removeAddressSettings({TEXT})", name)
            subject.execute("london", subject.address("london", name), "resume()")
            subject.execute("london", subject.address("london", name), "unblock()")
            subject.destroy("london", name)
    with subject.reader("london") as reader:
        assert limits_of_addresses(reader, subject.view("london"), timeout_s=READ_S) == ()

    full = "addresses with address-full-policy {}, at their limit: {}"
    assert rows == [
        ("addresses are paused: their clients get nothing: paused", ("paused",)),
        ("addresses are blocked by management: their senders wait: blocked", ("blocked",)),
        ("queues are disabled, so messages sent to them are confirmed and dropped: disabled", ("disabled",)),
        (full.format("BLOCK", "their senders wait: full.block"), ("full.block",)),
        (full.format("FAIL", "what is sent there is refused: full.fail"), ("full.fail",)),
        (full.format("DROP", "what is sent there is dropped: full.drop"), ("full.drop",)),
    ]
    assert (view.business["paused"].paused, view.business["blocked"].paused) == (True, False)
    assert view.business["disabled"].depth == 0
    assert 0 < figures["DiskStoreUsage"] < 1
    assert 0 < figures["MaxDiskUsage"] <= 100
    assert figures["AddressMemoryUsage"] < figures["GlobalMaxSize"]


def test_a_business_queue_comes_and_goes_at_both_sites_and_leaves_its_address(subject: Subject) -> None:
    subject.create("london", "biz")
    until(lambda: "biz" in subject.view("paris").business)
    with subject.client("london") as client:
        client.subscribe("biz")
        refused = subject.destroy("london", "biz")
        assert refused["error_type"] == "org.apache.activemq.artemis.api.core.ActiveMQIllegalStateException"
        assert "AMQ229025: Cannot delete queue biz on binding biz - it has consumers" in refused["error"]
        assert subject.call("london", FORCE, "biz", True)["status"] == 200

    until(lambda: "biz" not in subject.view("paris").business)
    for site in SITES:
        reading = subject.read(site, subject.address(site, "biz"), "Address", "QueueNames")
        assert reading == {"Address": "biz", "QueueNames": []}


@pytest.mark.parametrize(
    ("bean", "asked", "kind", "said"),
    [
        ("ghost", ["Name"], NO_BEAN, "BEAN"),
        ("ghost", "pause()", NO_BEAN, "BEAN"),
        ("documents", ["Name"], NO_BEAN, "No MBean with pattern BEAN found for reading attributes"),
        ("documents", "pause()", NO_BEAN, "No MBean with pattern BEAN found for invoking JMX operations"),
        ("server", ["Active", "Nope"], GONE, "No such attribute: Nope"),
        ("nonsense", ["x"], ILLEGAL, "Invalid object name. Key properties cannot be empty"),
        ("listeners", ["Nope"], ILLEGAL, "No matching attributes [Nope] found on MBeans ["),
        ("server", "nope(int)", ILLEGAL, "No operation nope found on MBean BEAN"),
        ("server", "createQueue", ILLEGAL, "Operation createQueue on MBean BEAN is overloaded. "),
        ("server", f"{STOP} zz", ILLEGAL, "broker connection zz not found"),
        ("server", STOP, ILLEGAL, f"Invalid number of operation arguments. Operation {STOP} on BEAN requires 1 "),
        ("server", f"{LISTED} a b 1", NUMBER, 'For input string: "b"'),
        ("server", f"{CREATE} {{}}", None, "AMQ229229: Failed to parse JSON queue configuration: {}"),
        ("queue", f"countMessages({TEXT}) a = = 'b'", None, "AMQ229020: Invalid filter: a = = 'b'"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_the_same_words(
    subject: Subject, bean: str, asked: str | list[str], kind: str | None, said: str
) -> None:
    named = {"ghost": subject.queue("london", "ghost"), "documents": beans.documents("london")}
    named |= {"server": subject.server("london"), "listeners": beans.acceptor("london")}
    name = (named | {"queue": subject.queue("london", IN)}).get(bean, bean)

    if isinstance(asked, list):
        rows = subject.ask("london", type="read", mbean=name, attribute=asked)
    else:
        operation, _, words = asked.partition(" ")
        rows = subject.execute("london", name, operation, *([words] if "'" in words else words.split()))

    assert rows["status"] in (400, 404, 500)
    text = said.replace("BEAN", name)
    assert text in rows["error"] if kind is None else rows["error"].startswith(f"{kind} : {text}"), rows
    assert kind in (None, rows["error_type"])


def test_a_call_by_the_beginning_of_names_is_of_all_queues_that_begin_so(subject: Subject) -> None:
    names = ("alike.a", 'alike."b"', "alike")
    for name in names:
        subject.create("london", name)
    pattern = beans.queues_by_prefix("london", "alike.")

    def all_paused() -> list[bool]:
        return [paused(subject, "london", name)[0] for name in names]

    done = subject.done("london", pattern, "pause()")

    assert {beans.parts(bean)["queue"]: value for bean, value in done.items()} == dict.fromkeys(names[:2])
    assert all_paused() == [True, True, False]
    subject.done("london", pattern, "resume()")
    assert all_paused() == [False, False, False]
    nobody = beans.queues_by_prefix("london", "nobody.")
    text = f"No MBean with pattern {nobody} found for invoking JMX operations"
    assert subject.execute("london", nobody, "pause()") == failed(NO_BEAN, text, 404)
    for name in names:
        subject.destroy("london", name)
    subject.settled()  # what made and destroyed them is shipped too
    # And by none of all: also of what the link has to ship.
    every = beans.queue("london")
    done = subject.done("london", every, "pause()")
    assert {beans.parts(bean)["queue"] for bean in done} >= {IN, OUT, "DLQ"}
    assert paused(subject, "london", f"{OUTFLOW_PREFIX}paris") == (True, False)
    subject.put("london", IN)
    comes(lambda: subject.shipping("london"), {"MessageCount": 1, "DeliveringCount": 0, "ConsumerCount": 1})
    assert subject.depth("paris", IN) == 0
    subject.done("london", every, "resume()")
    comes(lambda: subject.depth("paris", IN), 1)


def test_many_requests_are_answered_one_by_one_and_errors_can_stand_in_the_place_of_values(subject: Subject) -> None:
    server, config = subject.server("london"), {"includeRequest": False}
    good = {"type": "read", "mbean": server, "attribute": ["Active"], "config": config}
    bad = {"type": "exec", "mbean": server, "operation": "nope()", "config": config}

    assert [item["status"] for item in subject.post("london", [good, bad, good]).json()] == [200, 400, 200]
    assert subject.post("london", []).json() == []
    echoed = subject.post("london", {**good, "config": {}}).json()
    assert echoed["request"] == {"type": "read", "mbean": server, "attribute": "Active"}
    lenient = {**good, "attribute": ["Active", "Nope"], "config": {**config, "ignoreErrors": True}}
    missing = {".error": True, "error_type": GONE, "error": "No such attribute: Nope"}
    assert subject.post("london", lenient).json() == {"value": {"Active": True, "Nope": missing}, "status": 200}


def test_a_wrong_login_gets_nothing_and_after_four_failures_a_user_has_to_wait(subject: Subject) -> None:
    body = {"type": "version"}
    for login in (Login("nobody", "wrong"), subject.place("london").app):
        answer = subject.post("london", body, login)
        assert (answer.status_code, answer.text, answer.headers["Hawtio-Forbidden-Reason"]) == (403, "", "NONE")
    assert subject.post("london", body).status_code == 200

    answers = [subject.post("paris", body, Login("somebody", "wrong")) for _ in range(5)]

    assert [answer.status_code for answer in answers] == [403, 403, 403, 403, 429]
    assert answers[-1].headers["Retry-After"] == "1"
    assert subject.post("paris", body).status_code == 200


def test_small_questions(subject: Subject) -> None:
    server = subject.server("london")

    def answer(operation: str, *words: Any) -> Any:
        return subject.done("london", server, operation, *words)

    may = f"canInvoke({TEXT},{TEXT},[Ljava.lang.String;)"
    assert subject.done("london", beans.SECURITY, may, server, "createQueue", [TEXT]) is True
    assert answer("listPreparedTransactionDetailsAsJSON()") == ""
    assert answer("listLockCoordinatorsAsJSON()") == "[]"
    links = json.loads(answer("listBrokerConnections()"))
    assert [(link["name"], link["started"], link["connected"]) for link in links] == [("paris", True, True)]
    everyone, nobody = (json.loads(answer(f"listUser({TEXT})", name)) for name in ("", "nobody"))
    assert {row["username"]: row["roles"] for row in everyone} == {"admin": ["amq"], "app": ["apps"]}
    assert nobody == [{"username": "nobody", "roles": []}]
    assert subject.ask("london", type="version")["value"]["agent"] == "2.4.3"
    assert subject.ask("london", type="search", mbean=beans.ANY_SERVER)["value"] == [server]
    assert subject.ask("london", type="read", mbean=server, attribute="Active") == {"value": True, "status": 200}
    rows = subject.read("london", beans.queue("london"), "MessageCount")
    assert f"{OUTFLOW_PREFIX}paris" in {beans.parts(bean)["queue"] for bean in rows}
    assert subject.read("london", server, "QueueCount") == {"QueueCount": len(rows)}
    keys = [[pair.partition("=")[0] for pair in bean.partition(":")[2].split(",")] for bean in rows]
    assert all(key == sorted(key) for key in keys)


@pytest.mark.parametrize("match", ["orders.#", "#"])
def test_what_a_role_may_do_is_taken_away_and_given_back(subject: Subject, match: str) -> None:
    def may(address: str) -> set[str]:
        rows = json.loads(subject.call("london", f"getRolesAsJSON({TEXT})", address)["value"])
        return {word for row in rows if row["name"] == "apps" for word, granted in row.items() if granted is True}

    assert may(match) == EVERYTHING
    try:
        assert subject.call("london", ADD, match, *KEPT_OUT)["status"] == 200
        assert may(match) == may(IN) == set()
        assert (may("another") == set()) is (match == "#")
        rows = json.loads(subject.read("london", subject.address("london", IN), "RolesAsJSON")["RolesAsJSON"])
        assert [row["name"] for row in rows] == ["amq"]
    finally:
        subject.call("london", REMOVE, match)
        # What broker.xml says of the same match is only in force again once it is read again.
        assert (may(match) == EVERYTHING) is (match != "#")
        subject.call("london", RELOAD)
    assert may(match) == may(IN) == EVERYTHING


@pytest.mark.parametrize(
    ("command", "headers", "said"),
    [
        ("SEND", {"destination": IN, "destination-type": "ANYCAST"}, "AMQ339011 Error sending message"),
        (
            *("SEND", {"destination": "new.one", "destination-type": "ANYCAST"}),
            "AMQ229032:? User:? app does not have permission=.CREATE_ADDRESS",
        ),
        (
            *("SUBSCRIBE", {"id": "1", "destination": IN, "subscription-type": "ANYCAST"}),
            "AMQ339016 Error creating subscription 1",
        ),
    ],
)
def test_a_client_whose_role_is_kept_out_is_greeted_and_may_do_nothing(
    subject: Subject, command: str, headers: dict[str, str], said: str
) -> None:
    assert subject.call("london", ADD, "#", *KEPT_OUT)["status"] == 200
    try:
        with subject.client("london") as client:
            client.connection.stomp.send_frame(command, {**headers, "receipt": "r"}, "")
            with pytest.raises(ConnectionLost, match=said):
                client.frame("RECEIPT")
        # What the mirror ships is not kept out.
        subject.put("paris", IN)
        comes(lambda: subject.depth("london", IN), 1)
    finally:
        subject.call("london", REMOVE, "#")
        subject.call("london", RELOAD)


def test_a_look_that_asks_for_less_tells_the_same_of_queues_that_were_filled_made_and_removed(subject: Subject) -> None:
    before, since = "made.before", "made.since"
    subject.create("london", before)
    known = subject.view("london")
    subject.destroy("london", before)
    subject.create("london", since)
    subject.put("london", IN, 2)
    subject.put("london", since)
    comes(lambda: subject.depth("london", since), 1)  # a broker counts a message just after its receipt

    with subject.reader("london") as reader:
        again = reread(reader, known, FOR_HISTORY, timeout_s=READ_S)

    try:
        assert again.business == subject.view("london").business
        assert {name: queue.depth for name, queue in again.business.items() if queue.depth} == {IN: 2, since: 1}
    finally:
        subject.destroy("london", since)


# messages


def test_what_is_sent_appears_at_the_peer_under_the_same_origin(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send(IN, "one", order_id="a")
        client.send(IN, "two", durable=False)

    comes(lambda: subject.depth("paris", IN), 2)
    views = {site: subject.view(site) for site in SITES}
    ids = {}
    for site, view in views.items():
        with subject.reader(site) as reader:
            ids[site] = browse(reader, view, [view.business[IN]], limit=10)[0].ids
    assert ids["london"] == ids["paris"]
    assert {born for born, _ in ids["london"]} == {views["london"].node}
    assert [subject.counts(site, IN) for site in SITES] == [(2, 0, 2), (2, 0, 2)]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_acknowledgement_leaves_at_both_sites_and_a_nack_is_taken_for_one(subject: Subject, command: str) -> None:
    with subject.client("london") as client:
        client.send(IN)
        comes(lambda: subject.depth("paris", IN), 1)
        client.subscribe(IN)
        message = client.message()
        assert subject.counts("london", IN)[:2] == (1, 1)

        client.ack(message, command)

        comes(lambda: subject.depth("paris", IN), 0)
        assert subject.depth("london", IN) == 0
        assert [subject.counters(site, IN) for site in SITES] == [(1, 1, 0), (1, 1, 0)]


def test_a_window_or_a_selector_bounds_what_a_client_holds_and_browsing_does_not_see_that(subject: Subject) -> None:
    with subject.client("london") as client:
        for _ in range(4):
            client.send(IN, "x" * 200)
        client.subscribe(IN, consumer_window_size="600")
        held = [client.message() for _ in range(2)]
        client.nothing_for(0.1)

        assert (subject.counts("london", IN), len(subject.browse("london", IN))) == ((4, 2, 4), 2)
        assert subject.on("london", f"countMessages({TEXT})", "receipt = 'r'") == 2
        assert subject.on("london", "countMessages()") == 4
        client.ack(held[0])
        client.message()
    with subject.client("london") as client:
        client.subscribe(OUT, selector="dr_ctl_probe = 'mine'")
        client.send(OUT, "theirs")
        client.send(OUT, "mine", dr_ctl_probe="mine")

        assert client.message().body in ("mine", b"mine")
        assert subject.counts("london", OUT)[:2] == (2, 1)


def test_a_refused_login_says_why_and_closes(subject: Subject) -> None:
    place = subject.place("london")

    for login, name in ((Login("app", "wrong"), "app"), (None, "null")):
        try_login_ = try_login(place.stomp, login, None, timeout_s=5)
        assert isinstance(try_login_, LoginDenied)
        assert try_login_.because == f"Security Error occurred: User name [{name}] or password is invalid"
    right = try_login(place.stomp, place.app, None, timeout_s=5)

    assert isinstance(right, Connected)
    assert (right.version, right.server.partition("/")[0]) == ("1.2", "ActiveMQ-Artemis")


def test_after_ten_deliveries_a_message_is_a_dead_letter_at_both_sites(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send(OUT, order_id="dead")
    for _ in range(10):
        with subject.client("london") as client:
            client.subscribe(OUT)
            client.message()
        comes(lambda: subject.counts("london", OUT)[1], 0)

    comes(lambda: [subject.depth(site, "DLQ") for site in SITES], [1, 1])
    for site in SITES:
        assert (subject.depth(site, OUT), subject.counters(site, OUT)) == (0, (1, 0, 1))
        [row] = subject.browse(site, "DLQ")
        assert (row["StringProperties"]["_AMQ_ORIG_QUEUE"], row["address"]) == (OUT, "DLQ")


def test_what_a_consumer_at_the_peer_holds_cannot_be_acknowledged_there(subject: Subject) -> None:
    with subject.client("london") as client:
        client.send(IN)
        comes(lambda: subject.depth("paris", IN), 1)
        subject.stage.open_clients("paris")
        with subject.client("paris") as remote:
            remote.subscribe(IN)
            remote.message()
            client.subscribe(IN)
            client.ack(client.message())

            comes(lambda: subject.pending("paris"), 1, within_s=2)
            comes(lambda: subject.pending("paris"), 0, within_s=5)

            assert subject.counts("paris", IN)[:2] == (1, 1)
    assert subject.depth("london", IN) == 0
    comes(lambda: subject.counts("paris", IN)[:2], (1, 0))  # for ever


def test_a_message_is_moved_out_of_the_mirror_into_a_queue_of_its_own(subject: Subject) -> None:
    move, kept = f"moveMessage(long,{TEXT})", "dr-ctl.kept.paris"
    subject.put("london", IN, 2)
    subject.settled()
    comes(lambda: subject.depth("paris", IN), 2)
    subject.create("paris", kept, internal=True)
    number = int(subject.browse("paris", IN)[0]["messageID"])

    rows = [subject.on("paris", move, number, kept) for _ in range(2)]
    nowhere = subject.execute("paris", subject.queue("paris", IN), move, number, "nowhere")

    assert rows == [True, False]
    assert nowhere == failed(ILLEGAL, "AMQ229049: No queue found for nowhere", 400)
    comes(lambda: subject.depth("london", IN), 1)
    assert [subject.counters(site, IN) for site in SITES] == [(2, 1, 0), (2, 1, 0)]
    [row] = subject.browse("paris", kept)
    assert row["StringProperties"]["_AMQ_ORIG_QUEUE"] == IN
    assert row["LongProperties"] == {"_AMQ_ORIG_MESSAGE_ID": number}
    assert "x-opt-amq-bkr-id" not in row["StringProperties"]
    subject.destroy("paris", kept)


def test_an_acknowledgement_under_way_names_whose_message_it_was(subject: Subject) -> None:
    subject.put("london", IN)
    subject.settled()
    comes(lambda: subject.depth("paris", IN), 1)
    subject.call("paris", STOP, "london")
    try:
        subject.on("paris", "removeAllMessages()")
        comes(lambda: subject.shipping("paris")["MessageCount"], 1)
        [row] = subject.browse("paris", f"{OUTFLOW_PREFIX}london")
    finally:
        subject.call("paris", START, "london")

    annotated = "messageAnnotations.x-opt-amq-mr-"
    assert row["StringProperties"] == {
        f"{annotated}adr": IN,
        "messageAnnotations.x-opt-amq-bkr-id": subject.view("london").node,
        "extraProperties._AMQ_AD": f"{OUTFLOW_PREFIX}london",
        f"{annotated}qu": IN,
    }
    assert row["ByteProperties"] == {f"{annotated}ack-reason": 1}
    assert row["PropertiesText"].startswith(f"{{{annotated}adr={IN}, {annotated}ev-type=postAck, ")
    assert row["text"].isdecimal()
    assert (row["type"], row["protocol"], row["timestamp"]) == (4, "AMQP", 0)


def test_closing_a_listener_cuts_its_clients_and_takes_back_what_they_hold(subject: Subject) -> None:
    listener = subject.acceptor("london", "clients")
    with subject.client("london") as client:
        client.send(IN)
        client.subscribe(IN)
        client.message()

        assert subject.execute("london", listener, "stop()") == {"value": None, "status": 200}

        assert subject.counts("london", IN)[:2] == (1, 0)
        assert subject.read("london", subject.queue("london", IN), "ConsumerCount") == {"ConsumerCount": 0}
        with pytest.raises(ConnectionLost):
            client.frame("RECEIPT")
    for place in (subject.place(site) for site in SITES):
        assert isinstance(try_login(place.stomp, place.app, None, timeout_s=5), Closed)
    for operation in ("stop()", "start()", "start()"):
        subject.done("london", listener, operation)
    with subject.client("london") as client:
        assert isinstance(client.login_result, Connected)


def test_a_transaction_sends_when_it_is_committed_and_holds_no_acknowledgement(subject: Subject) -> None:
    with subject.client("london") as client:
        for name in ("t", "u"):
            client.confirmed("BEGIN", transaction=name)
            client.send(IN, name, transaction=name)
        assert subject.counts("london", IN) == (0, 0, 0)

        client.confirmed("COMMIT", transaction="t")
        client.confirmed("ABORT", transaction="u")

        comes(lambda: [subject.counts(site, IN) for site in SITES], [(1, 0, 1), (1, 0, 1)])
        client.subscribe(IN)
        client.confirmed("BEGIN", transaction="v")
        client.send(IN, "never", transaction="v")  # and nobody ends it
        client.ack(client.message(), transaction="v")
        comes(lambda: [subject.depth(site, IN) for site in SITES], [0, 0])
    with subject.client("london") as client:
        client.subscribe(IN)
        client.nothing_for(0.2)


# sites


def paused(subject: Subject, site: str, queue: str) -> tuple[bool, bool]:
    reading = subject.read(site, subject.queue(site, queue), "Paused", "PersistedPause")
    return reading["Paused"], reading["PersistedPause"]


def attached(subject: Subject, site: str) -> bool:
    return bool(subject.link(site)["Connected"] and subject.shipping(site)["ConsumerCount"])


def test_a_stopped_link_keeps_what_happens_and_a_started_one_ships_it(subject: Subject) -> None:
    subject.put("london", IN, 2)
    comes(lambda: subject.depth("paris", IN), 2)
    subject.settled()

    assert subject.call("london", STOP, "paris")["status"] == 200
    assert (subject.link("london"), attached(subject, "paris")) == ({"Started": False, "Connected": False}, True)
    subject.put("london", IN, 3)
    subject.on("london", MATCHING, "n = '1'")

    comes(lambda: subject.shipping("london"), {"MessageCount": 5, "DeliveringCount": 0, "ConsumerCount": 0})
    with subject.reader("london") as reader:
        left = read_residue(reader, subject.view("london"))
    # Both were acknowledged; of one the message itself has not been shipped either.
    assert (left.messages, left.acks) == (3, 2)
    assert left.acked is not None
    assert {queue: len(origins) for queue, origins in left.acked.items()} == {IN: 1}
    assert subject.depth("paris", IN) == 2

    for _ in range(2):
        assert subject.call("london", START, "paris")["status"] == 200
    until(lambda: attached(subject, "london"))
    subject.settled()
    comes(lambda: [subject.depth(site, IN) for site in SITES], [3, 3])
    reading = subject.read("london", subject.outflow("london"), "MessagesAdded", "MessagesAcknowledged")
    assert reading["MessagesAdded"] == reading["MessagesAcknowledged"]


def test_a_link_goes_with_the_peers_listener_or_a_cut_way_and_comes_back(subject: Subject) -> None:
    subject.execute("paris", subject.acceptor("paris", "mirror"), "stop()")

    comes(lambda: subject.link("london"), {"Started": True, "Connected": False})
    until(lambda: not attached(subject, "london"))
    assert attached(subject, "paris")
    subject.put("london", IN)
    comes(lambda: subject.shipping("london")["MessageCount"], 1)

    subject.execute("paris", subject.acceptor("paris", "mirror"), "start()")
    comes(lambda: subject.depth("paris", IN), 1)
    assert attached(subject, "london")
    subject.stage.cut("london")
    until(lambda: not attached(subject, "london"))
    subject.put("london", IN)

    subject.stage.heal()

    comes(lambda: subject.depth("paris", IN), 2)


def test_a_link_over_a_way_that_hangs_seems_attached_and_ships_nothing(subject: Subject) -> None:
    subject.stage.cut("london", "hang")
    subject.put("london", IN)

    comes(lambda: subject.shipping("london")["DeliveringCount"], 1)
    assert subject.shipping("london") == {"MessageCount": 1, "DeliveringCount": 1, "ConsumerCount": 1}
    assert subject.link("london") == {"Started": True, "Connected": True}

    for operation in (STOP, START):
        subject.call("london", operation, "paris")
    comes(lambda: subject.shipping("london")["ConsumerCount"], 0)
    until(lambda: subject.link("london")["Connected"])  # by its flag: the handshake hangs
    assert subject.shipping("london") == {"MessageCount": 1, "DeliveringCount": 0, "ConsumerCount": 0}

    subject.stage.heal()
    comes(lambda: subject.depth("paris", IN), 1)


def test_a_pause_stops_delivery_and_a_lasting_one_stays(subject: Subject) -> None:
    with subject.client("london") as client:
        client.subscribe(IN)
        assert subject.on("london", "pause()") is None
        client.send(IN)

        client.nothing_for(0.2)
        assert [paused(subject, site, IN) for site in SITES] == [(True, False), (False, False)]
        for lasting in (True, False):
            subject.on("london", "pause(boolean)", lasting)
        assert paused(subject, "london", IN) == (True, True)

        subject.on("london", "resume()")
        client.message()
    assert paused(subject, "london", IN) == (False, False)


def test_a_death_takes_what_is_volatile_and_leaves_what_is_durable(subject: Subject) -> None:
    kept = "dr-ctl.contract.london"
    with subject.client("london") as client:
        client.send(IN, "kept")
        client.send(IN, "gone", durable=False)
        client.subscribe(IN, consumer_window_size="1")
        client.message()
        subject.on("london", "pause(boolean)", True)
        subject.on("london", "pause()", queue=OUT)
        subject.create("london", kept, internal=True, user="what it says")
        subject.settled()
        was = subject.view("london")
        subject.execute("paris", subject.acceptor("paris", "mirror"), "stop()")
        until(lambda: not attached(subject, "london"))
        # With receipts: what management sends may not be on disk yet when it says so.
        for _ in range(2):
            client.send(OUT)
        subject.stage.kill("london")
        until(lambda: not subject.link("paris")["Connected"])
        assert subject.shipping("paris")["ConsumerCount"] == 0

    subject.stage.start("london")

    now = subject.view("london")
    assert (now.node, now.version, now.broker) == (was.node, was.version, was.broker)
    assert int(now.start) > int(was.start)
    assert {listener.name: listener.started for listener in now.acceptors} == {"clients": False, "mirror": True}
    assert [paused(subject, "london", queue) for queue in (IN, OUT)] == [(True, True), (False, False)]
    assert now.documents[kept] == "what it says"
    queue, outflow = now.business[IN], now.outflow
    assert (queue.depth, queue.delivering, queue.added, queue.acked, queue.removed) == (1, 0, 1, 0, 0)
    assert now.business[OUT].added == 2
    assert outflow is not None
    assert outflow.depth == outflow.added > 2  # every address and queue is announced again
    with subject.reader("london") as reader:
        left = read_residue(reader, now)
    assert (left.messages, left.acks, left.acked) == (2, 0, {}), "announcements are no acknowledgements"
    until(lambda: attached(subject, "paris"))

    subject.execute("paris", subject.acceptor("paris", "mirror"), "start()")
    subject.settled()
    comes(lambda: subject.depth("paris", OUT), 2)
    assert subject.depth("paris", IN) == 2  # the other lives at the peer
    subject.destroy("london", kept)
    # New messages have new numbers.
    subject.put("london", IN)
    comes(lambda: subject.depth("paris", IN), 3)


def test_the_listings_tell_clients_and_links(subject: Subject) -> None:
    with subject.billing("london"):
        view = subject.view("london")

    port = subject.place("london").stomp.port
    [own] = [connection for connection in view.connections if connection.port == port]
    assert (own.client, own.user, own.protocol) == ("billing", "app", "STOMP")
    links = [(connection.protocol, connection.client) for connection in view.connections if connection.port != port]
    assert links == [("AMQP", subject.view("paris").node)] * 2  # both directions name the peer
    [at_queue] = [consumer for consumer in view.consumers if consumer.queue == IN]
    assert (at_queue.port, at_queue.client, at_queue.user, at_queue.holds) == (port, "billing", "app", 1)
    assert len([consumer for consumer in view.consumers if consumer.queue == f"{OUTFLOW_PREFIX}paris"]) == 1
    assert own.remote == at_queue.remote
    assert view.fence.clients_elsewhere() == []
    comes(lambda: [connection for connection in subject.view("london").connections if connection.port == port], [])
