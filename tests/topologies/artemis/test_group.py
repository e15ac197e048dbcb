"""What a broker shows of other nodes, of a cluster and of MQTT, and who at the door of a peer's bridges is none."""

import json
from typing import Any

import pytest

from dr_ctl.core.errors import Between, Passive
from dr_ctl.jolokia.client import Answer
from dr_ctl.jolokia.errors import BadValue, OperationFailed
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.bridging import others
from dr_ctl.topologies.artemis.checks import of_both
from dr_ctl.topologies.artemis.group import Group, must_be_active, read
from dr_ctl.topologies.common.view import Connection, Queue
from tests.topologies.mirror.views import broker, queue

URL = "http://h1:8161/console/jolokia"
USUAL = {"Backup": False, "SharedStore": False}
OWN = {"nodeID": "n1", "live": "h1:61618", "primary": "h1:61618"}


def group(rows: Any, *, active: bool = True, **attributes: Any) -> Group:
    return read(URL, Fields("server", {**USUAL, **attributes}), "n1", Answer(None, json.dumps(rows)), active=active)


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
    told = group(rows, **attributes)

    assert (told.has_nodes, told.replicates) == (has_nodes, replicates)
    assert told.port == (61618 if rows else None)


def test_other_brokers_of_the_cluster_are_no_nodes() -> None:
    told = group([OWN, {"nodeID": "n2", "live": "h3:61618"}], HAPolicy="Primary Only")

    assert (told.nodes, told.cluster, told.has_nodes) == ((), ("h3:61618",), False)


def test_a_listing_that_may_not_be_asked_for_leaves_the_policy() -> None:
    refused = Answer(OperationFailed("no such operation"))

    assert read(URL, Fields("server", {**USUAL, "HAPolicy": "Primary Only"}), "n1", refused) == Group("Primary Only")
    with pytest.raises(BadValue):
        group({"data": []})


def test_a_node_that_waits_is_no_broker() -> None:
    backup = {"HAPolicy": "Shared Store Backup", "SharedStore": True, "Backup": True}

    with pytest.raises(Passive, match=r"passive: another node of that broker \(h1:61618 and h2:61618\)") as waiting:
        group([{**OWN, "backup": "h2:61618"}], active=False, **backup)
    assert waiting.value.at == ("h1:61618", "h2:61618")
    with pytest.raises(Passive):
        group([], HAPolicy="Replication Primary w/quorum voting", active=False)
    with pytest.raises(Between):
        group([], HAPolicy="Primary Only", active=False)
    with pytest.raises(Passive):
        group([], **backup)  # of a version that does not say whether it is active
    assert group([OWN], **{**backup, "Backup": False}).has_nodes


@pytest.mark.parametrize(("policy", "error"), [("Shared Store Primary", Passive), ("Primary Only", Between)])
def test_a_node_that_was_active_and_waits_now_is_no_broker(policy: str, error: type[Exception]) -> None:
    must_be_active(URL, Group(policy), Fields("server", {"Active": True}))
    with pytest.raises(error):
        must_be_active(URL, Group(policy), Fields("server", {"Active": False}))


class Peer:
    """A link with two bridges at work."""

    @property
    def ships(self) -> dict[str, bool]:
        return {"one": True, "two": True, "three": False}


def conn(user: str, protocol: str = "CORE") -> Connection:
    return Connection("", 61617, "", "", user, protocol)


BRIDGE, APP, NOBODY = conn("bridge"), conn("app"), conn("")


@pytest.mark.parametrize(
    ("there", "peer", "guests"),
    [
        ([BRIDGE, BRIDGE], Peer(), []),
        ([BRIDGE, BRIDGE, NOBODY], Peer(), []),  # without a session nobody can do anything
        ([BRIDGE] * 5, Peer(), []),  # of an earlier start of the peer
        ([BRIDGE, BRIDGE, APP], Peer(), [APP]),
        ([BRIDGE, BRIDGE, *[APP] * 5], Peer(), [APP] * 5),
        ([BRIDGE, BRIDGE, APP], None, [APP]),
        ([BRIDGE, BRIDGE, conn("bridge", "STOMP")], Peer(), [conn("bridge", "STOMP")]),
        ([], Peer(), []),
    ],
)
def test_whoever_is_none_of_the_bridges_at_their_door_is_a_client(
    there: list[Connection], peer: Any, guests: list[Connection]
) -> None:
    assert others(there, peer) == guests


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


def test_what_stays_is_a_warning_at_the_serving_site_alone() -> None:
    keeps, keeps_not = broker("london", queue(TOPIC, 1)), broker("paris")
    [finding] = of_both(keeps, keeps_not)
    assert finding.id == "DR-MQTT-001"
    assert finding.text == (
        "london/orders-1: 1 retained message(s) of MQTT (plant.1.state) stay there and do not come to paris"
    )
    assert list(of_both(keeps_not, keeps)) == []
