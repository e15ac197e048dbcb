"""What follows from one look at a BrokerSync pair: what is to be shipped, what was consumed and lies there still."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.look import seen
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView, SyncConfig
from dr_ctl.topologies.classic.broker import Network
from dr_ctl.topologies.classic.look import Answered
from dr_ctl.topologies.common.view import Config, Consumer
from tests.topologies.brokersync.views import broker, connection, door, queue

AT = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = Fields("b", {"BrokerName": "b", "BrokerVersion": "5.18.3", "BrokerId": "ID:1", "Slave": False})


class NoPapers:
    now_ms = 0

    @staticmethod
    def texts() -> dict[str, str]:
        return {}


def answered(*names: str, bridged: str = "", consumers: tuple[Consumer, ...] = ()) -> Answered:
    taken = tuple((each, False) for each in consumers)
    bridges = ((Consumer(bridged, None, "to-paris", "", "", 0), True),) if bridged else ()
    doors = (door("stomp", 1), door("sync", 3))
    return Answered(FIELDS, doors, (), tuple(map(queue, names)), (*taken, *bridges), (), (), frozenset())


CONFIG = Config(("stomp",), None, None, greets_at=1)


def looked(told: Answered, copies: str = "{queue}.DR") -> dict[str, str]:
    own = SyncConfig(copies, copies, "sync")
    view = seen(told, NoPapers(), pair="b", site="london", config=CONFIG, own=own)  # type: ignore[arg-type]
    return {name: each.name for name, each in view.copying.items()}


def test_copy_queues_are_those_that_the_settings_name_or_that_a_bridge_takes_from() -> None:
    assert looked(answered("orders.in", "orders.in.DR", "other")) == {"orders.in": "orders.in.DR"}
    # Of the one whose name it begins with, the longest.
    told = answered("orders", "orders.in", "orders.in-paris", bridged="orders.in-paris")
    assert looked(told) == {"orders.in": "orders.in-paris"}


def test_what_the_agent_takes_is_no_clients() -> None:
    mine, theirs = (Consumer("orders.in", None, client, "", "", 0) for client in (f"{AGENT}1", "app"))
    own, more = SyncConfig("{queue}.DR", "{queue}.DR", "sync"), {"pair": "b", "site": "x", "config": CONFIG}
    view = seen(answered("orders.in", consumers=(mine, theirs)), NoPapers(), own=own, **more)  # type: ignore[arg-type]
    assert [each.client for each in view.consumers] == ["app"]


def test_what_the_peer_has_too_many_of_would_come_twice() -> None:
    here, there = pair(5, 10, to_ship=2)
    assert (here.link.ahead(there), here.link.ahead(None)) == ({"orders": 7}, {"orders": None})
    assert here.link.stake(there).queues == {"orders": (2, 7)}
    # The history has what is to ship, what lies there and what is not removed yet.
    assert {row.kind: row.depth for row in here.link.rows(there, AT)} == {"mirror": 2, "staged": 10, "acks": 7}
    assert [[row.kind for row in told] for told in (here.link.rows(None, AT), there.link.rows(here, AT))] == [
        ["mirror"],
        ["mirror"],
    ]


def test_what_the_peer_lacks_would_be_lost_shipped_or_never_copied() -> None:
    """20 copies were purged on their way, 3 are under way, and nothing copies `plain`."""
    here, there = pair(23, 0, to_ship=3)
    here = replace(here, queues=(*here.queues, queue("plain", 30)))
    stake = here.link.stake(there)
    rows = {(row.kind, row.name): row.depth for row in here.link.rows(there, AT)}
    assert (stake.lost, stake.duplicates) == (53, 0)
    assert stake.queues == {"orders": (23, 0), "plain": (30, 0)}
    assert (rows["mirror", "orders"], rows["mirror", "plain"], rows["acks", "plain"]) == (23, 30, 0)
    assert here.link.stake(None).queues == {"orders": (3, None), "plain": (30, 0)}


def pair(source: int, target: int, *, to_ship: int) -> tuple[BrokerView, BrokerView]:
    return broker("london", serves=True, depth=source, to_ship=to_ship), broker("paris", serves=False, depth=target)


@pytest.mark.parametrize(
    ("source", "target", "to_ship", "lacks"), [(5, 5, 0, 0), (5, 3, 2, 0), (5, 2, 2, 1), (2, 9, 0, 0)]
)
def test_a_site_lacks_what_it_neither_has_nor_gets(source: int, target: int, to_ship: int, lacks: int) -> None:
    here, there = pair(source, target, to_ship=to_ship)
    assert [told.lacks for told in parity.counts(here, there, Queues())] == [lacks]
    assert bool(parity.lacking(here, there, Queues(), {})) is (lacks > 0)


@pytest.mark.parametrize(
    ("more", "attached"),
    [
        ({"to_ship": 3}, True),
        ({"networks": ()}, False),
        ({"networks": (Network("to-paris", "b", None),)}, False),
        ({"copying": {"orders": queue("c", 3)}}, False),
        ({"networks": (), "copying": {}}, None),
    ],
)
def test_it_ships_only_where_its_connector_is_connected_and_its_copies_have_a_consumer(
    more: dict[str, Any], attached: bool | None
) -> None:
    assert broker("london", serves=True, **more).link.attached is attached


def test_a_client_at_a_connector_that_stays_open_is_told_and_the_agent_is_not() -> None:
    there = (connection("app", 2, "openwire"), connection("dr-ctl-sync-1", 3, "sync"))
    [told] = broker("london", serves=True, connections=there).fence.strangers()
    assert "app" in told
