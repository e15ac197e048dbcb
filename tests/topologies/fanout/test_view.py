"""What is recorded of a site whose producers write to its peer too, and who is no producer there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.common.view import Config, Connection, Consumer, Queue
from dr_ctl.topologies.fanout.view import BrokerView, FanoutConfig
from tests.topologies import made

AT = datetime(2026, 11, 23, tzinfo=UTC)
PORTS = {"stomp": 1, "producers": 2, "sync": 3, "openwire": 4}
CONFIG = Config(("stomp",), None, None)
OWN = FanoutConfig(("producers",), "sync", "order_id")


def queue(name: str, depth: int, *, added: int = 100, removed: int = 40, **more: Any) -> Queue:
    counts = {"added": added, "removed": removed, "acked": removed}
    return made.queue(name, f"bean of {name}", depth, **{"routing": "queue", **counts, **more})


def view(site: str, *queues: Queue, is_open: bool = True, **more: Any) -> BrokerView:
    doors = tuple(
        made.door(name, f"bean of {name}", port, "STOMP", started=is_open or name != "stomp", opens_at_boot=True)
        for name, port in PORTS.items()
    )
    told = {"config": CONFIG, "own": OWN, "version": "5.18.3", "start": f"start of {site}", "now_ms": 0}
    return made.view(BrokerView, site, **{**told, "acceptors": doors, "queues": queues, **more})


def client(name: str, connector: str) -> Connection:
    return Connection(name, PORTS[connector], "10.0.0.1", name, "app", connector)


def rows(here: BrokerView, peer: BrokerView | None) -> dict[str, Row]:
    return {row.kind: row for row in here.link.rows(peer, AT)}


@pytest.mark.parametrize(
    ("here", "there", "lost", "duplicates"),
    [(5, 5, 0, 0), (5, 9, 0, 4), (9, 5, 4, 0)],
    ids=["even", "residue", "lacking"],
)
def test_beside_its_peer_what_that_lacks_may_be_lost_and_what_it_has_more_may_come_twice(
    here: int, there: int, lost: int, duplicates: int
) -> None:
    told = rows(view("london", queue("q", here)), view("paris", queue("q", there), is_open=False))
    assert {kind: row.depth for kind, row in told.items()} == {"mirror": lost, "acks": duplicates, "staged": there}
    assert (told["mirror"].added, told["acks"].added, told["acks"].removed) == (0, 40, 40 - duplicates)


def test_where_a_store_tells_what_was_done_nothing_of_it_comes_twice_beside_its_peer_or_alone() -> None:
    stored = replace(OWN, stored=True)
    london, paris = view("london", queue("q", 5), own=stored), view("paris", queue("q", 9), own=stored, is_open=False)
    for peer in (paris, None):
        told = rows(london, peer)
        assert (told["acks"].name, told["acks"].depth, told["acks"].start) == ("*", 0, told["mirror"].start)
    assert (london.link.stake(paris).duplicates, london.link.redelivers) == (0, False)
    unread = replace(london, own=replace(stored, unread="it cannot be read"))
    assert (rows(unread, paris)["acks"].depth, unread.link.redelivers) == (4, True)


def test_alone_all_that_lies_there_may_be_lost_and_no_rate_joins_that_to_looks_beside_the_peer() -> None:
    london = view("london", queue("q", 60))
    owing = replace(london, documents={document(DebtKind.QUARANTINE, "paris", "london"): "{}"})
    even = rows(london, view("paris", queue("q", 60), is_open=False))["mirror"]
    for told in (rows(london, None), rows(owing, view("paris", queue("q", 60), is_open=False))):
        assert told.keys() == {"mirror"}
        assert (told["mirror"].depth, told["mirror"].added) == (60, 100)
        assert told["mirror"].start != even.start


def test_of_a_peer_that_was_lost_and_is_back_equal_counts_are_no_equal_messages() -> None:
    owed = {document(DebtKind.QUARANTINE, "paris", "london"): "{}"}
    london = replace(view("london", queue("q", 7), is_open=False), documents=owed)
    paris = view("paris", queue("q", 5), is_open=False)
    told, back = london.link.stake(paris), paris.link.stake(london)
    assert (told.lost, told.duplicates, told.queues) == (7, 5, {"q": (7, 5)})
    assert (back.lost, back.duplicates) == (5, 7)


def test_a_site_that_waits_records_no_outflow_and_dead_letters_none_at_all() -> None:
    dead = queue("ActiveMQ.DLQ", 7, dead_letter_address="ActiveMQ.DLQ")
    assert rows(view("paris", queue("q", 5), is_open=False), view("london", queue("q", 5))) == {}
    assert rows(view("london", dead), None) == {}


def test_a_queue_that_counts_below_zero_is_not_read() -> None:
    told = view("london", queue("q", -1)).link.stake(view("paris", queue("q", 5)))
    assert (told.lost, told.duplicates, told.queues) == (None, None, None)
    assert rows(view("london", queue("q", -1)), view("paris", queue("q", 5))) == {}


def test_a_receipt_rests_on_what_left_while_producers_go_on() -> None:
    before, later = (view("london", queue("q", depth, added=added)) for depth, added in ((5, 100), (9, 104)))
    taken = view("london", queue("q", 4, removed=41))
    assert [*before.link.counters] == [*later.link.counters]
    assert [*before.link.counters] != [*taken.link.counters]


def test_consumers_among_the_producers_and_clients_elsewhere_would_work_behind_a_fence() -> None:
    taker = Consumer("q", None, "both", "", "app", 0)
    there = (
        client("both", "producers"),
        client("sender", "producers"),
        client("dr-ctl-mine", "sync"),
        client("x", "openwire"),
    )
    told = view("london", queue("q", 1), connections=there, consumers=(taker,))

    assert [each.partition(" (")[0] for each in told.fence.strangers()] == [
        "client x from 10.0.0.1",
        "consumer of q: client both",
    ]
    assert [door.name for door in told.fence.leaves_open] == ["openwire"]
