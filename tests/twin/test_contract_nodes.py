"""What a broker of several nodes does: which of them answers what, and what goes along from one to the next."""

import json
from typing import Any

import pytest

from dr_ctl.core.system import system
from dr_ctl.stomp_io.address import Closed, Connected
from dr_ctl.topologies.artemis import beans
from dr_ctl_lab.twin.kinds import BROKERSYNC
from dr_ctl_lab.twin.nodes import Layout
from tests.twin.subject import ADD, IN, OUT, TEXT, ClassicGroupSubject, GroupSubject, comes, until

SHARED, REPLICATED = Layout(nodes=2, takeover_s=2.0), Layout(nodes=2, replicates=True, takeover_s=2.0)
STAYS = Layout(nodes=2, fails_back=False, takeover_s=2.0)
A, B, PARIS = "london/a", "london/b", "paris"
STOP = f"stopBrokerConnection({TEXT})"
NOTHING = {"data": [], "count": 0}
TAKES_S = 120.0


@pytest.fixture
def group(layout: Layout, subject: GroupSubject) -> GroupSubject:
    del layout
    return subject


def by(*layouts: Layout) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("layout", layouts, ids=str, scope="module")


def taken_over(group: GroupSubject, at: str) -> None:
    until(lambda: group.active(at), within_s=TAKES_S)


def may_send(group: GroupSubject, at: str, match: str = IN) -> set[str]:
    """The roles that may."""
    rows = json.loads(group.done(at, group.server(at), f"getRolesAsJSON({TEXT})", match))
    return {row["name"] for row in rows if row["send"]}


def cluster(group: GroupSubject, at: str) -> str:
    return f"127.0.0.1:{group.place(at).ports['cluster']}"


def listed(group: GroupSubject, at: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(group.done(at, group.server(at), "listNetworkTopology()"))
    return rows


@by(SHARED, REPLICATED)
def test_a_backup_answers_like_an_empty_broker(group: GroupSubject, layout: Layout) -> None:
    group.put(A, IN, 3)
    group.call(A, ADD, IN, *["amq"] * 10)
    counts, flags = ("QueueCount", "PendingMirrorAcks", "DiskStoreUsage"), ("Active", "Backup", "HAPolicy")
    same = ("NodeID", "ReplicaSync", "SharedStore", "Clustered")
    of_a, of_b = (group.read(at, group.server(at), *counts, *flags, *same, "Name") for at in (A, B))
    policy = "Replication {} w/quorum voting" if layout.replicates else "Shared Store {}"
    components = ("acceptors", "broker-connections", "addresses", "cluster-connections")
    shown = [
        [
            bool(group.ask(at, type="search", mbean=f"{group.server(at)},component={component},*")["value"])
            for at in (A, B)
        ]
        for component in components
    ]
    live = {"live": cluster(group, A), "primary": cluster(group, A), "backup": cluster(group, B)}

    assert [of_a[name] for name in flags] == [True, False, policy.format("Primary")]
    assert [of_b[name] for name in flags] == [False, True, policy.format("Backup")]
    assert [of_a[name] for name in same] == [of_b[name] for name in same]
    assert [of_a[name] for name in same[1:]] == [layout.replicates, not layout.replicates, True]
    assert of_a["Name"] != of_b["Name"]
    assert of_a["QueueCount"] > 0 < of_a["DiskStoreUsage"]
    assert [of_b[name] for name in counts] == [0, 0, 0]
    assert shown == [[True, False]] * 3 + [[True, True]]
    for listing in ("listConnections", "listConsumers"):
        assert json.loads(group.done(B, group.server(B), f"{listing}({TEXT},int,int)", "", -1, -1)) == NOTHING
    assert [may_send(group, at) for at in (A, B)] == [{"amq"}, {"amq", "apps"}]
    assert [listed(group, at) for at in (A, B)] == [[{"nodeID": of_a["NodeID"], **live}]] * 2
    assert [group.logged_in(at) for at in (A, B)] == [Connected, Closed]


@by(SHARED, REPLICATED)
def test_a_takeover_forgets_what_management_did_and_keeps_the_journal(group: GroupSubject) -> None:
    document = "dr-ctl.contract.london"
    group.put(A, IN, 3)
    group.create(A, document, internal=True, user="what it says")
    group.call(A, ADD, "geheim.#", *["amq"] * 10)
    group.on(A, "pause(boolean)", True)
    group.on(A, "pause()", queue=OUT)
    group.settled()
    group.done(A, group.acceptor(A, "clients"), "stop()")
    group.done(A, group.server(A), STOP, PARIS)
    group.put(A, OUT, 2)
    node = group.read(A, group.server(A), "NodeID")

    group.stage.kill("london", node="a")
    comes(lambda: [group.active(at) for at in (A, B)], [None, False])
    taken_over(group, B)

    until(lambda: group.logged_in(B) is Connected)
    assert group.read(B, group.server(B), "NodeID") == node
    until(lambda: group.attached(B) and group.attached(PARIS), within_s=TAKES_S)
    pauses = [group.read(B, group.queue(B, name), "Paused", "PersistedPause") for name in (IN, OUT)]
    assert [[*pause.values()] for pause in pauses] == [[True, True], [False, False]]
    assert group.read(B, group.queue(B, document), "User") == {"User": "what it says"}
    assert may_send(group, B, "geheim.x") == {"amq"}
    counts = {"MessageCount": 3, "MessagesAdded": 3, "MessagesAcknowledged": 0}
    assert group.read(B, group.queue(B, IN), *counts) == counts
    comes(lambda: [group.depth(at, queue) for at in (B, PARIS) for queue in (IN, OUT)], [3, 2, 3, 2])
    assert group.pending(PARIS) == 0
    assert [listed(group, B)[0].get(key) for key in ("live", "backup")] == [cluster(group, B), None]


@by(SHARED, REPLICATED)
def test_a_node_that_comes_back_is_active_again_after_a_gap(group: GroupSubject, layout: Layout) -> None:
    def start(at: str) -> tuple[int, int]:
        """When its process began, and when what it runs did."""
        row = group.read(at, group.server(at), "CurrentTimeMillis", "UptimeMillis")
        process = int(group.read(at, beans.RUNTIME, "StartTime")["StartTime"])
        return process, (row["CurrentTimeMillis"] - row["UptimeMillis"]) // 1000

    group.stage.kill("london", node="a")
    taken_over(group, B)
    began = start(B)
    group.put(B, IN, 2)
    seen: list[tuple[bool | None, bool | None]] = []

    group.stage.start("london", node="a")
    while not group.active(A):
        seen.append((group.active(A), group.active(B)))
        system().sleep(0.02)

    # Of nodes that replicate none is active for less time than it takes to ask both.
    assert layout.replicates or any(True not in both for both in seen)
    assert (True, True) not in seen
    comes(lambda: group.active(B), False)
    if layout.replicates:  # a backup that has not got everything takes nothing over
        until(lambda: group.read(A, group.server(A), "ReplicaSync")["ReplicaSync"], within_s=TAKES_S)
    assert group.depth(A, IN) == 2
    passive = start(B)
    group.stage.kill("london", node="a")
    taken_over(group, B)
    again = start(B)
    assert began[0] == passive[0] == again[0]
    assert began[1] < passive[1]
    assert abs(passive[1] - again[1]) <= 1


@by(STAYS)
def test_a_primary_that_waits_refuses_everything(group: GroupSubject) -> None:
    group.stage.kill("london", node="a")
    taken_over(group, B)

    group.stage.start("london", node="a")

    system().sleep(5)
    assert [group.active(at) for at in (A, B)] == [None, True]
    assert [group.logged_in(at) for at in (A, B)] == [Closed, Connected]
    group.stage.kill("london", node="b")
    taken_over(group, A)


@by(REPLICATED)
def test_closing_the_listener_of_the_replication_makes_both_nodes_active(group: GroupSubject) -> None:
    group.put(A, IN, 2)
    group.settled()

    group.done(A, group.acceptor(A, "cluster"), "stop()")

    comes(lambda: [group.active(at) for at in (A, B)], [True, True], within_s=TAKES_S)
    shown = [group.read(at, group.server(at), "Backup", "NodeID", "ReplicaSync") for at in (A, B)]
    assert shown[0] == shown[1] == {**shown[0], "Backup": False, "ReplicaSync": False}
    until(lambda: all(group.attached(at) for at in (A, B)), within_s=TAKES_S)
    group.put(B, IN)
    comes(lambda: [group.depth(at, IN) for at in (A, B, PARIS)], [2, 3, 3])
    group.on(PARIS, "removeAllMessages()")
    comes(lambda: [group.depth(at, IN) for at in (A, B, PARIS)], [0, 3, 0])
    group.done(A, group.acceptor(A, "cluster"), "start()")
    assert [group.logged_in(at) for at in (A, B)] == [Connected, Connected]


@pytest.mark.parametrize("topology", [BROKERSYNC])
@by(Layout(nodes=2, takeover_s=2.0, console_s=2.0))
def test_of_a_classic_broker_a_slave_says_nothing_and_nothing_outlasts_a_takeover(
    layout: Layout, subject: ClassicGroupSubject
) -> None:
    def broker(at: str) -> str:
        return str(subject.read(at, subject.server(at), "BrokerId")["BrokerId"])

    until(lambda: subject.answers(A) and subject.answers(PARIS), within_s=TAKES_S)
    with subject.client(A) as client:
        for number in range(3):
            client.send(IN, n=str(number))
    subject.settled()
    ident = broker(A)
    assert [subject.answers(at) for at in (A, B)] == [True, False]
    assert [subject.probes(at) for at in (A, B)] == [Connected, Closed]
    subject.on(A, "pause()")
    subject.done(A, subject.network("london"), "stop()")
    subject.done(A, subject.connector(A, "stomp"), "stop()")

    subject.stage.kill("london", node="a")

    until(lambda: subject.probes(B) is Connected, within_s=TAKES_S)
    assert not subject.answers(B), "clients are served before the console answers"
    until(lambda: subject.answers(B), within_s=TAKES_S)
    assert broker(B) != ident
    until(lambda: subject.bridges(B) and subject.bridges(PARIS), within_s=TAKES_S)
    counts = {"QueueSize": 3, "EnqueueCount": 0, "Paused": False}
    assert subject.read(B, subject.queue(B, IN), *counts) == counts
    assert subject.depth(PARIS, IN) == 3
    subject.stage.start("london", node="a")
    system().sleep(2)
    assert [subject.answers(at) for at in (A, B)] == [False, True]
    assert subject.probes(A) is Closed
