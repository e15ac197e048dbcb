"""What one reading of a BrokerSync pair shows, what speaks against a move of it, and what runs note for the agent."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.model import Severity
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.brokersync import checks, reading
from dr_ctl.topologies.brokersync.procedure import TOPOLOGY
from dr_ctl.topologies.brokersync.sync.queue import SHOWN, Counters
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView, SyncConfig
from dr_ctl.topologies.classic import reading as classic
from dr_ctl.topologies.classic.beans import CLOSES, PAUSES, REMOVES
from dr_ctl.topologies.classic.broker import Network, both_counts, lacking
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Consumer, Queue
from tests.topologies import made
from tests.topologies.made import PEERS

BROKER = "org.apache.activemq:type=Broker,brokerName"


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    bean = f"{BROKER}=b,destinationType=Queue,destinationName={name}"
    return made.queue(name, bean, depth, **{"routing": "queue", **more})


def listener(name: str, port: int, *, started: bool = True, protocol: str = "STOMP") -> Acceptor:
    bean = f"{BROKER}=b,connector=clientConnectors,connectorName={name}"
    return made.listener(name, bean, port, protocol, started=started, opens_at_boot=True)


def connection(client: str, port: int, connector: str) -> Connection:
    return Connection(client, port, "tcp://127.0.0.1:5", client, "", connector)


def broker(site: str, *, serves: bool, depth: int = 0, to_ship: int = 0, **more: Any) -> BrokerView:
    """One queue, `orders`, with its copy queue, and a connected network connector."""
    peer = PEERS[site]
    copies = queue(f"orders.to-{peer}", to_ship, internal=True, consumers=1)
    options = {
        "pair": "b",
        "config": Config(("stomp",), ("openwire",), None, stomp_port=1, agent="sync"),
        "sync": SyncConfig(f"{{queue}}.to-{peer}", f"{{queue}}.to-{site}"),
        "version": "5.18.3",
        "start": f"ID:{site}-1",
        "now_ms": 0,
        "acceptors": (
            listener("stomp", 1, started=serves),
            listener("openwire", 2, protocol="OPENWIRE"),
            listener("sync", 3),
        ),
        "queues": (queue("orders", depth), copies),
        "networks": (Network(f"to-{peer}", f"{BROKER}={site},connector=networkConnectors", peer),),
        "copy_queues": {"orders": copies},
    }
    return made.view(BrokerView, site, **{**options, **more})


def snapshot(*views: BrokerView) -> Snapshot[BrokerView]:
    return Snapshot({view.site: {view.pair: view} for view in views})


AT = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = Fields("b", {"BrokerName": "b", "BrokerVersion": "5.18.3", "BrokerId": "ID:1", "Slave": False})


class NoPapers:
    now_ms = 0

    @staticmethod
    def texts() -> dict[str, str]:
        return {}


def answered(*names: str, bridged: str = "", consumers: tuple[Consumer, ...] = ()) -> Answered:
    taken = tuple((consumer, False) for consumer in consumers)
    bridges = ((Consumer(bridged, None, "to-paris", "", "", 0), True),) if bridged else ()
    listeners = (listener("stomp", 1), listener("sync", 3))
    rows = {"acceptors": listeners, "queues": tuple(map(queue, names)), "prepared": ()}
    return classic.answered(FIELDS, (*taken, *bridges), **rows)


CONFIG = Config(("stomp",), None, None, stomp_port=1, agent="sync")


def made_of(told: Answered) -> dict[str, Any]:
    session: Any = SimpleNamespace(pair="b", site="london", config=CONFIG, document_files=NoPapers())
    return reading.Session.values(session, told)


def note_counters(told: Answered, copies: str = "{queue}.DR") -> dict[str, str]:
    own = SyncConfig(copies, copies)
    view = reading.as_view(made_of(told), told, own)
    return {name: value.name for name, value in view.copy_queues.items()}


def test_copy_queues_are_those_that_the_settings_name_or_that_a_bridge_takes_from() -> None:
    assert note_counters(answered("orders.in", "orders.in.DR", "other")) == {"orders.in": "orders.in.DR"}
    # Of the one whose name it begins with, the longest.
    answer = answered("orders", "orders.in", "orders.in-paris", bridged="orders.in-paris")
    assert note_counters(answer) == {"orders.in": "orders.in-paris"}


def test_what_the_agent_takes_is_no_clients() -> None:
    rows, theirs = (Consumer("orders.in", None, client, "", "", 0) for client in (f"{AGENT}1", "app"))
    answer = answered("orders.in", consumers=(rows, theirs))
    view = reading.as_view(made_of(answer), answer, SyncConfig("{queue}.DR", "{queue}.DR"))
    assert [consumer.client for consumer in view.consumers] == ["app"]


def test_what_the_peer_has_too_many_of_would_come_twice() -> None:
    local, remote = pair(5, 10, to_ship=2)
    assert (local.link.stake(remote).duplicates, local.link.stake(None).duplicates) == (7, None)
    assert local.link.stake(remote).queues == {"orders": (2, 7)}
    # The history has what is to ship, what lies there and what is not removed yet.
    assert {row.kind: row.depth for row in local.link.rows(remote, AT)} == {"mirror": 2, "staged": 10, "acks": 7}
    assert [[row.kind for row in case] for case in (local.link.rows(None, AT), remote.link.rows(local, AT))] == [
        ["mirror"],
        ["mirror"],
    ]


def test_what_the_peer_lacks_would_be_lost_shipped_or_never_copied() -> None:
    """20 copies were purged on their way, 3 are under way, and nothing copies `plain`."""
    local, remote = pair(23, 0, to_ship=3)
    local = replace(local, queues=(*local.queues, queue("plain", 30)))
    stake = local.link.stake(remote)
    rows = {(row.kind, row.name): row.depth for row in local.link.rows(remote, AT)}
    assert (stake.lost, stake.duplicates) == (53, 0)
    assert stake.queues == {"orders": (23, 0), "plain": (30, 0)}
    assert (rows["mirror", "orders"], rows["mirror", "plain"], rows["acks", "plain"]) == (23, 30, 0)
    assert local.link.stake(None).queues == {"orders": (3, None), "plain": (30, 0)}


def pair(source: int, target: int, *, to_ship: int) -> tuple[BrokerView, BrokerView]:
    return broker("london", serves=True, depth=source, to_ship=to_ship), broker("paris", serves=False, depth=target)


@pytest.mark.parametrize(
    ("source", "target", "to_ship", "lacks"), [(5, 5, 0, 0), (5, 3, 2, 0), (5, 2, 2, 1), (2, 9, 0, 0)]
)
def test_a_site_lacks_what_it_neither_has_nor_gets(source: int, target: int, to_ship: int, lacks: int) -> None:
    local, remote = pair(source, target, to_ship=to_ship)
    assert [count.lacks for count in both_counts(local, remote, Queues())] == [lacks]
    assert bool(lacking(local, remote, Queues(), {})) is (lacks > 0)


@pytest.mark.parametrize(
    ("more", "attached"),
    [
        ({"to_ship": 3}, True),
        ({"networks": ()}, False),
        ({"networks": (Network("to-paris", "b", None),)}, False),
        ({"copy_queues": {"orders": queue("c", 3)}}, False),
        ({"networks": (), "copy_queues": {}}, None),
    ],
)
def test_it_ships_only_where_its_connector_is_connected_and_its_copies_have_a_consumer(
    more: dict[str, Any], attached: bool | None
) -> None:
    assert broker("london", serves=True, **more).link.attached is attached


def test_a_client_at_a_connector_that_stays_open_is_told_and_the_agent_is_not() -> None:
    remote = (connection("app", 2, "openwire"), connection("dr-ctl-sync-1", 3, "sync"))
    [clients_elsewhere] = broker("london", serves=True, connections=remote).fence.clients_elsewhere()
    assert "app" in clients_elsewhere


def told(london: dict[str, Any] | None = None, paris: dict[str, Any] | None = None, **spec: Any) -> dict[str, Severity]:
    local = broker("london", serves=True, **(london or {}))
    remote = broker("paris", serves=False, **(paris or {}))
    move = Move(Spec("swapover", "paris", **spec), "london", {})
    reasons = TOPOLOGY.recipe(Queues(), Drain(), Timeouts()).why_not(snapshot(local, remote), move)
    return {finding.id: finding.severity for finding in reasons}


ERROR, WARNING = Severity.ERROR, Severity.WARNING
MORE = {"queues": (queue("orders"), queue("left.out"))}
TWO = (Network("a", "b", "x"), Network("b", "b", "y"))
# What nothing shows to be consumed is not removed by a move: too few, or somebody holds.
FEW, HELD = ({"depth": 2, "consumed": {"orders": 6}}, {"depth": 2, "consumed": {"orders": 7}, "held": "a person"})
NINE, ALL = {"depth": 9}, {"accept_difference": {"orders": 7}}


@pytest.mark.parametrize(
    ("london", "paris", "spec", "found"),
    [
        ({}, {}, {}, {}),
        # Without pauses a move cuts what clients hold where that is asked for.
        ({"denied": frozenset({PAUSES})}, {}, {"cut_in_flight": True}, {"DR-POLICY-002": WARNING}),
        (MORE, {"networks": ()}, {}, {"DR-SYNC-002": WARNING, "DR-SYNC-003": WARNING}),
        # What the standby has too many of is no lack.
        ({"depth": 2, "consumed": {"orders": 7}}, NINE, {}, {}),
        (FEW, NINE, {}, {"DR-SYNC-004": ERROR}),
        (HELD, NINE, {}, {"DR-SYNC-004": ERROR}),
        (FEW, NINE, ALL, {"DR-SYNC-005": WARNING}),
        (HELD, NINE, ALL, {"DR-SYNC-005": WARNING}),
    ],
)
def test_what_is_told_of_a_move(london: Any, paris: Any, spec: Any, found: dict[str, Severity]) -> None:
    assert told(london, paris, **spec) == found


@pytest.mark.parametrize(
    ("london", "finding"),
    [
        ({"denied": frozenset({CLOSES})}, "DR-POLICY-001"),
        ({"denied": frozenset({REMOVES})}, "DR-POLICY-001"),
        ({"denied": frozenset({PAUSES})}, "DR-POLICY-002"),
        ({"managed": False}, "DR-POLICY-003"),
        ({"copy_queues": {}}, "DR-SYNC-001"),
        ({"networks": ()}, "DR-SYNC-001"),
        ({"networks": TWO}, "DR-LINK-001"),
        ({"bridges": (connection("to-london", 1, "stomp"),)}, "DR-DOOR-003"),
        ({"depth": 5}, "DR-PARITY-001"),
    ],
)
def test_what_a_step_needs_and_lacks_refuses_the_move(london: dict[str, Any], finding: str) -> None:
    assert told(london)[finding] is ERROR
    # A difference that was accepted is moved with.
    accepted = told(london, accept_difference={"orders": 5})
    assert (finding in accepted) is (finding != "DR-PARITY-001")


def test_what_clients_consume_while_both_sites_are_looked_at_refuses_no_move() -> None:
    local = broker("london", serves=True, depth=2, consumed={"orders": 28})
    remote = broker("paris", serves=False, depth=32)
    assert checks.find_unproven(local, remote, Queues(), {"orders": 1})
    assert not checks.find_unproven(local, remote, Queues(), {"orders": 2})


COPIES = frozenset({"a", "b", "c"})
HERE = CompleteListing("orders", frozenset({"c"}), before=1, after=1)


@pytest.mark.parametrize(("consumed", "to_ship", "is_proven"), [(2, 0, True), (1, 0, False), (2, 1, False)])
def test_copies_go_where_the_counters_cover_all_of_them(consumed: int, to_ship: int, is_proven: bool) -> None:
    """A copy that is still to be shipped may be of a consumed message: it leaves less for the others."""
    serving = broker("london", serves=True, depth=1, to_ship=to_ship, consumed={"orders": consumed})
    covered = reading.prove_consumed(serving, "orders", COPIES, HERE)
    assert (covered.ids if isinstance(covered, Consumed) else None) == ({"a", "b"} if is_proven else None)


def test_nothing_goes_while_somebody_holds() -> None:
    serving = broker("london", serves=True, consumed={"orders": 9}, held="an operator")
    assert "an operator" in str(reading.prove_consumed(serving, "orders", COPIES, HERE))


def test_an_agent_is_handed_how_a_run_opened_that_start_and_keeps_its_own_memory(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    run_notes = reading.RunNotes(documents, "paris", "b")
    run_notes.record_opening("ID:1", {"orders": Counters(35, 0, 40, 2)})
    run_notes.record("ID:1", SHOWN, "orders", 7)

    handed = reading.agent_memory(documents, "paris", {})

    opened = {"opened": {"orders": [35, 40, 2]}}
    assert handed == {"b": {"start": "ID:1", "shown": {"orders": 42}, "handed": opened}}
    own = {"b": {"start": "ID:1", "shown": {"orders": 1}, "handed": opened}}
    assert reading.agent_memory(documents, "paris", own) == own
    assert reading.agent_memory(documents, "paris", {"b": {"start": "ID:1", "shown": {"orders": 1}}}) == handed
    assert reading.agent_memory(documents, "london", {}) == {}


def test_what_was_noted_of_another_start_counts_no_more(tmp_path: Path) -> None:
    run_notes = reading.RunNotes(tmp_path / "documents", "paris", "b")
    run_notes.record("ID:1", SHOWN, "orders", 7)
    run_notes.record("ID:2", SHOWN, "orders", 1)
    assert run_notes.read_for("ID:1") == {}
    assert run_notes.read_for("ID:2")["shown"] == {"orders": 1}
