"""What dr-ctl remembers at a broker, debts included; what a broker shows of other nodes, a cluster and MQTT."""

import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core.errors import Passive, StartingOrEnding
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.lease import Forbidden
from dr_ctl.jolokia.client import Answer
from dr_ctl.jolokia.http import BadValue, OperationFailed
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.broker import ArtemisRequests, Group, without_bridges
from dr_ctl.topologies.artemis.reading import Documents, must_be_active, read_group
from dr_ctl.topologies.common.calls import debt_name, debts_of, is_debt, numbered
from dr_ctl.topologies.common.checks import mqtt_findings
from dr_ctl.topologies.common.session import EVERYTHING, FOR_FENCE, ReadScope
from dr_ctl.topologies.common.view import Connection, Queue
from dr_ctl.topologies.mirror.reading import Session
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.pair import Management, _Direct, failed
from tests.topologies.mirror.views import broker, queue


def documents(broker: Management) -> Documents:
    view = SimpleNamespace(broker=broker.broker, requests=ArtemisRequests(broker.broker))
    session = SimpleNamespace(
        dialect=Session.dialect,
        site=broker.site,
        pair="orders-1",
        last_view=lambda: view,
        wire=lambda: _Direct(broker),
        close=lambda: None,
    )
    return Documents(cast("Session", session))


@pytest.fixture
def london() -> Management:
    return Management("london", "paris", open=True)


@pytest.mark.parametrize("parts", [EVERYTHING, FOR_FENCE], ids=["whole", "listeners"])
def test_a_look_from_before_the_machine_slept_is_old(
    london: Management, parts: ReadScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that stands still in suspend would take it for a young one, beside a lock that has run out."""
    awake_s = 1000.0
    asleep_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: awake_s)
    monkeypatch.setattr(time, "clock_gettime", lambda _: awake_s + asleep_s[0])
    view = SimpleNamespace(documents={}, forged=(), now_ms=1, queues=())
    monkeypatch.setattr("dr_ctl.topologies.mirror.reading.reread", lambda *_, **__: view)
    session = Session.__new__(Session)
    session.site, session.pair, session.newest = "london", "orders-1", (awake_s, cast("BrokerView", view))
    session.group = cast("Any", SimpleNamespace(has_one_node=True))
    monkeypatch.setattr(session, "_everything", lambda _: view)
    monkeypatch.setattr(session, "reader", lambda: None)
    session.read(parts)

    asleep_s[0] = 600.0

    recent = Documents(session).recent("lock")
    assert recent is not None
    assert recent[0] == 600.0


@pytest.mark.parametrize(
    "answer",
    [
        {"error_type": "java.lang.Exception", "error": "not allowed", "status": 403},
        failed("AMQ229032: User: app does not have permission='CREATE_DURABLE_QUEUE'", "SecurityException", 500),
    ],
    ids=["the console's policy", "the broker's security"],
)
def test_a_refusal_is_told_apart_from_one_that_is_there(london: Management, answer: dict[str, object]) -> None:
    london.instead["createQueue"] = answer
    with pytest.raises(Forbidden):
        documents(london).create("lock", 1, "text")


@pytest.mark.parametrize(
    ("answer", "forbidden"),
    [
        ({"value": True, "status": 200}, False),
        ({"value": False, "status": 200}, True),
        # A broker that does not know who may says nothing.
        (failed("No MBean", "javax.management.InstanceNotFoundException", 404), False),
    ],
)
def test_whether_they_may_be_created_is_asked_and_not_tried(london: Management, answer: Any, forbidden: bool) -> None:
    london.instead["canInvoke"] = answer
    assert (documents(london).why_forbidden() is not None) is forbidden


def test_only_documents_of_the_kind_are_numbered_whatever_the_site_is_called() -> None:
    names = ["dr-ctl.lock.london.2", "dr-ctl.lock.lon.1", "dr-ctl.lock.london.x", "dr-ctl.debt.london.1", "dr-ctl.lock"]
    assert [number for number, _ in numbered(dict.fromkeys(names, ""), "lock")] == [1, 2]


SITES = st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True)
NAME = "dr-ctl.debt.paris.quarantine.london"


@given(kind=st.sampled_from(DebtKind), lost_site=SITES, kept_at=SITES, lasting=st.booleans())
def test_the_name_says_who_holds_it_what_it_is_and_whom_it_concerns(
    kind: DebtKind, lost_site: str, kept_at: str, lasting: bool
) -> None:
    name = debt_name(kind, lost_site, kept_at)
    text = json.dumps({"since": "2026-11-21T02:00:00Z", "lasting": lasting})
    assert is_debt(name)
    assert debts_of({name: text}) == [Debt(kind, lost_site, kept_at, "2026-11-21T02:00:00Z", lasting)]


@pytest.mark.parametrize(
    "text", ["", "owed", "[]", "7", "null", "{}", '{"since": "2026-11-21T02:00:00Z"}', '{"lasting": true}', '{"sin']
)
def test_one_that_cannot_be_read_is_owed_all_the_same(text: str) -> None:
    [debt] = debts_of({NAME: text})
    assert debt == Debt(DebtKind.QUARANTINE, "london", "paris", "not known", lasting=False)


NO_DEBTS = """dr-ctl.lock.paris.4 dr-ctl.probe.paris dr-ctl.debt dr-ctl.debt. dr-ctl.debt.paris dr-ctl.debt.paris.fence
dr-ctl.debt.paris.taxes.london dr-ctl.debt.paris.fence.london.twice orders.in"""


@pytest.mark.parametrize("name", [*NO_DEBTS.split(), ""])
def test_what_is_named_otherwise_is_no_debt_and_keeps_nobody_from_looking(name: str) -> None:
    assert not is_debt(name)
    assert debts_of({name: "{}", NAME: "{}"}) == debts_of({NAME: "{}"})


URL = "http://h1:8161/console/jolokia"
USUAL = {"Backup": False, "SharedStore": False}
OWN = {"nodeID": "n1", "live": "h1:61618", "primary": "h1:61618"}


def group(rows: Any, *, active: bool = True, **attributes: Any) -> Group:
    return read_group(
        URL, Fields("server", {**USUAL, **attributes}), "n1", Answer(None, json.dumps(rows)), active=active
    )


@pytest.mark.parametrize(
    ("attributes", "rows", "has_nodes", "replicates"),
    [
        ({"HAPolicy": "Primary Only"}, [], False, False),
        ({"HAPolicy": "Live Only"}, [OWN], False, False),
        ({"HAPolicy": "Shared Store Primary", "SharedStore": True}, [{**OWN, "backup": "h2:61618"}], True, False),
        ({"HAPolicy": "Replication Primary w/quorum voting"}, [OWN], True, True),
        ({}, [{**OWN, "backup": "h2:61618"}], True, True),  # an old version tells no policy
        ({}, [], False, False),
    ],
)
def test_nodes_are_told_by_the_policy_or_by_the_listing(
    attributes: dict[str, Any], rows: list[Any], *, has_nodes: bool, replicates: bool
) -> None:
    node_group = group(rows, **attributes)

    assert (node_group.has_nodes, node_group.replicates) == (has_nodes, replicates)
    assert node_group.port == (61618 if rows else None)


def test_other_brokers_of_the_cluster_are_no_nodes() -> None:
    node_group = group([OWN, {"nodeID": "n2", "live": "h3:61618"}], HAPolicy="Primary Only")

    assert (node_group.nodes, node_group.cluster, node_group.has_nodes) == ((), ("h3:61618",), False)


def test_a_listing_that_may_not_be_asked_for_leaves_the_policy() -> None:
    refused = Answer(OperationFailed("no such operation"))

    assert read_group(URL, Fields("server", {**USUAL, "HAPolicy": "Primary Only"}), "n1", refused) == Group(
        "Primary Only"
    )
    with pytest.raises(BadValue):
        group({"data": []})


def test_a_node_that_waits_is_no_broker() -> None:
    backup = {"HAPolicy": "Shared Store Backup", "SharedStore": True, "Backup": True}

    with pytest.raises(Passive, match=r"passive: another node of that broker \(h1:61618 and h2:61618\)") as waiting:
        group([{**OWN, "backup": "h2:61618"}], active=False, **backup)
    assert waiting.value.at == ("h1:61618", "h2:61618")
    with pytest.raises(Passive):
        group([], HAPolicy="Replication Primary w/quorum voting", active=False)
    with pytest.raises(StartingOrEnding):
        group([], HAPolicy="Primary Only", active=False)
    with pytest.raises(Passive):
        group([], **backup)  # of a version that does not say whether it is active
    assert group([OWN], **{**backup, "Backup": False}).has_nodes


@pytest.mark.parametrize(("policy", "error"), [("Shared Store Primary", Passive), ("Primary Only", StartingOrEnding)])
def test_a_node_that_was_active_and_waits_now_is_no_broker(policy: str, error: type[Exception]) -> None:
    must_be_active(URL, Group(policy), Fields("server", {"Active": True}))
    with pytest.raises(error):
        must_be_active(URL, Group(policy), Fields("server", {"Active": False}))


# Two bridges of its link are at work.
PEER = SimpleNamespace(link=SimpleNamespace(links_started={"one": True, "two": True, "three": False}))


def conn(user: str, protocol: str = "CORE") -> Connection:
    return Connection("", 61617, "", "", user, protocol, has_session=bool(user))


BRIDGE, APP, NOBODY = conn("bridge"), conn("app"), conn("")


@pytest.mark.parametrize(
    ("there", "peer", "foreign_connections"),
    [
        ([BRIDGE, BRIDGE], PEER, []),
        ([BRIDGE, BRIDGE, NOBODY], PEER, []),  # without a session nobody can do anything
        ([BRIDGE] * 5, PEER, []),  # of an earlier start of the peer
        ([BRIDGE, BRIDGE, APP], PEER, [APP]),
        ([BRIDGE, BRIDGE, *[APP] * 5], PEER, [APP] * 5),
        ([BRIDGE, BRIDGE, APP], None, [APP]),
        ([BRIDGE, BRIDGE, conn("bridge", "STOMP")], PEER, [conn("bridge", "STOMP")]),
        ([], PEER, []),
    ],
)
def test_whoever_is_none_of_the_bridges_at_their_listener_is_a_client(
    there: list[Connection], peer: Any, foreign_connections: list[Connection]
) -> None:
    assert without_bridges(there, peer) == foreign_connections


TOPIC = "$sys.mqtt.retain.plant.1.state"
SESSIONS = queue("$sys.mqtt.sessions", 3, internal=True)


@pytest.mark.parametrize(
    ("queues", "stays"),
    [
        ([], ()),
        ([queue(TOPIC, 0), queue("$sys.mqtt.sessions", 0, internal=True)], ()),
        ([queue("meter-7.plant.*", 5)], ()),  # the queue of a session moves
        ([queue(TOPIC, 1)], ("1 retained message(s) of MQTT (plant.1.state)",)),
        ([SESSIONS], ("the session state of 3 client(s) of MQTT",)),
        (
            [queue(TOPIC, 1), queue("$sys.mqtt.retain.a", 1), SESSIONS],
            ("2 retained message(s) of MQTT (a; plant.1.state)", "the session state of 3 client(s) of MQTT"),
        ),
    ],
)
def test_retained_messages_and_kept_sessions_stay(queues: list[Queue], stays: tuple[str, ...]) -> None:
    assert tuple(broker("london", *queues).stays) == stays


@pytest.mark.parametrize(
    ("kept", "what", "remedy"),
    [
        (queue(TOPIC, 1), "1 retained message(s) of MQTT (plant.1.state)", "Publish with retain again"),
        (SESSIONS, "the session state of 3 client(s) of MQTT", "Let clients subscribe again at paris"),
    ],
)
def test_what_stays_is_a_warning_at_the_serving_site_alone(kept: Queue, what: str, remedy: str) -> None:
    keeps, keeps_not = broker("london", kept), broker("paris")
    [finding] = mqtt_findings(keeps, keeps_not)
    assert (finding.id, finding.remedy[: len(remedy)]) == ("DR-MQTT-001", remedy)
    assert finding.remedy.count(".") == 1
    assert finding.text == f"london/orders-1: no link copies this to paris: {what}"
    assert list(mqtt_findings(keeps_not, keeps)) == []
