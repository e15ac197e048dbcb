"""What a look at a broker with diverts and bridges says: which queues it serves, what closes one, what is under way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.lease import LockDocument
from dr_ctl.topologies.bridges.calls import closes, opens
from dr_ctl.topologies.bridges.look import joined
from dr_ctl.topologies.bridges.view import BrokerView, with_idle
from dr_ctl.topologies.common.view import Config
from tests.topologies.bridges.views import (
    CLIENTS,
    IDS,
    PAIR,
    UNITS,
    arrived,
    bridge,
    broker,
    buffer,
    door,
    flow,
    queue,
    seen,
    shut,
    with_flow,
    with_queue,
)

LONDON, PARIS = broker("london"), broker("paris")


@pytest.mark.parametrize(
    ("view", "orders", "role"),
    [
        (LONDON, True, Role.SERVING),
        (PARIS, False, Role.STANDBY),
        (shut(LONDON, "orders", by_role=True, by_pause=False), False, Role.SERVING),
        (shut(LONDON, "orders", by_role=False, by_pause=True), False, Role.SERVING),
        (shut(PARIS, "orders", by_role=False, by_pause=False), True, Role.SERVING),
        (replace(LONDON, acceptors=(door("clients", CLIENTS, "london", started=False),)), False, Role.STANDBY),
        (replace(LONDON, config=Config(("clients", "cleints"), ("bridge",), None)), True, Role.UNKNOWN),
        (broker("london", among=()), None, Role.UNKNOWN),
    ],
)
def test_a_queue_is_served_where_its_door_its_roles_and_its_pause_let_clients_in(
    view: BrokerView, orders: bool | None, role: Role
) -> None:
    assert (view.units.get("orders"), view.role) == (orders, role)


def test_a_pause_or_a_right_closes_a_queue_only_where_it_is_its_gate() -> None:
    # Whose roles no settings name are never called kept out.
    assert PARIS.kept_out("orders")
    assert not replace(PARIS, config=Config(("clients",), ("bridge",), None)).kept_out("orders")
    # A pause that a run will lift closes nothing.
    lock = LockDocument(7, "a run", paused={"a run": ("orders",)})
    paused = shut(LONDON, "orders", by_role=False, by_pause=True)
    by_run = replace(paused, documents={"dr-ctl.lock.london.7": lock.to_text()})
    assert (by_run.gated("orders"), by_run.units["orders"], by_run.paused) == (False, True, ("orders",))
    # Of two queues at an address one that delivers keeps it open.
    more = queue("orders.all", address="orders")
    two = replace(paused, queues=(*PARIS.queues, more))
    assert not two.gated("orders")
    assert replace(two, queues=(*PARIS.queues, replace(more, paused=True))).gated("orders")
    # What no queue takes is not called paused; the pauses of a closed queue are its gate and no leftover.
    assert not replace(PARIS, queues=()).gated("orders")
    assert PARIS.paused == ()
    assert replace(PARIS, queues=(*PARIS.queues, queue("loose", paused=True))).paused == ("loose",)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("orders", "orders"), ("mirror.paris.orders", "orders"), ("mirror.paris.audit", "audit"), ("DLQ", None)],
)
def test_a_buffer_moves_with_what_it_holds(name: str, unit: str | None) -> None:
    assert LONDON.unit_of(name) == unit


def working(view: BrokerView, *units: str) -> BrokerView:
    for unit in units:
        view = with_queue(view, unit, consumers=1)
    return view


@pytest.mark.parametrize(
    ("london", "paris", "idle"),
    [
        (working(LONDON, "orders"), broker("paris", closed=False), {"london": set(), "paris": {"orders"}}),
        (LONDON, working(broker("paris", closed=False), "orders"), {"london": {"orders"}, "paris": set()}),
        # Where both work, or nobody does, each serves: nothing says which one should not.
        (working(LONDON, *UNITS), working(broker("paris", closed=False), *UNITS), {"london": set(), "paris": set()}),
        (LONDON, broker("paris", closed=False), {"london": set(), "paris": set()}),
        (LONDON, working(PARIS, *UNITS), {"london": set(), "paris": set()}),
    ],
)
def test_what_nothing_keeps_clients_out_of_is_served_where_they_work(
    london: BrokerView, paris: BrokerView, idle: dict[str, set[str]]
) -> None:
    sites = with_idle({"london": {PAIR: london}, "paris": {PAIR: paris}})
    found = {site: each for site, brokers in sites.items() for each in brokers.values()}
    assert {site: set(each.idle) for site, each in found.items() if isinstance(each, BrokerView)} == idle


def test_a_service_in_two_parts_is_told_queue_by_queue() -> None:
    apart = seen(
        shut(LONDON, "orders", by_role=True, by_pause=True), shut(PARIS, "orders", by_role=False, by_pause=False)
    )
    assert {each.name: each.serving for each in apart.units} == {"audit": "london", "orders": "paris"}


def changed(**more: Any) -> BrokerView:
    return with_flow(LONDON, "orders", lambda each: replace(each, **more))


def test_what_is_under_way_is_what_the_buffers_hold() -> None:
    flows = (flow("london", "orders", 3), flow("london", "audit", 4))
    view = broker("london", flows=flows, ids=flow("london", IDS, 5), arrived=(arrived("london", 6),))
    assert (view.link.to_ship, view.ids_to_ship, view.link.unapplied) == (7, 5, 6)
    assert (view.link.stake(None).lost, view.link.stake(PARIS).duplicates) == (7, 5)


def test_what_found_no_buffer_is_lost_with_its_site_and_stays_unshipped_in_the_history() -> None:
    bare = with_flow(LONDON, "orders", lambda _: flow("london", "orders", 7))
    view = replace(bare, unrouted={"mirror.orders": 3})
    stake = view.link.stake(None)
    assert (stake.lost, stake.queues) == (10, {"orders": (10, None), "audit": (0, None)})
    [row, before] = [next(iter(each.link.rows(None, datetime(2026, 11, 21, tzinfo=UTC)))) for each in (view, bare)]
    assert (row.name, row.depth, row.added) == ("orders", 10, (before.added or 0) + 3)


def test_what_cannot_be_read_is_not_zero() -> None:
    below = changed(buffer=buffer("london", "orders", -1))
    assert [view.link.to_ship for view in (changed(buffer=None), below)] == [None, None]
    no_ids = replace(LONDON, ids=None)
    assert (no_ids.ids_to_ship, no_ids.link.residue, replace(LONDON, arrived=()).link.unapplied) == (None, None, None)
    assert broker("london", among=()).link.attached is None


@pytest.mark.parametrize(
    ("view", "attached"),
    [
        (LONDON, True),
        (changed(bridges=(bridge("london", "orders", started=False),)), False),
        (changed(bridges=(bridge("london", "orders", connected=False),)), False),
        (changed(buffer=buffer("london", "orders", consumers=0)), False),  # nobody consumes it
        (changed(bridges=(bridge("london", "orders", connected=None),)), True),  # a version that does not tell
    ],
)
def test_a_bridge_is_attached_where_it_is_started_connected_and_consumes(view: BrokerView, attached: bool) -> None:
    assert view.link.attached is attached
    assert ("london: the bridge of orders is not connected" in view.link.unsettled()) is not attached


def test_what_closes_a_queue_is_seen_to_hold_once_it_is_closed() -> None:
    assert opens(LONDON, ["orders"]) == []
    for call in closes(LONDON, ["orders"]):
        assert LONDON.holds(call) is (call.goal is Goal.CUT)
        there = {name: str(each).replace("london", "paris") for name, each in call.request.items() if name == "bean"}
        assert PARIS.holds(replace(call, request={**call.request, **there}))


def test_a_divert_is_known_by_its_filter_where_all_bridges_are_gone_and_its_buffer_has_a_name_of_its_own() -> None:
    own = buffer("london", "orders", address="puffer.in")
    named = replace(flow("london", "orders").divert, to="puffer.in")
    [found] = joined([named], [own], [])
    assert (found.unit, found.buffer, found.bridges) == ("orders", own, ())
    assert joined([replace(named, filter=None)], [own], []) == []


def test_dead_letters_have_no_row_in_the_history() -> None:
    ended = replace(LONDON, queues=(*LONDON.queues, queue("DLQ", 7), queue("ExpiryQueue", 3), queue("loose", 2)))
    rows = seen(ended, PARIS).rows(datetime(2026, 11, 21, tzinfo=UTC))
    assert {row.name for row in rows if row.kind == "queue" and row.site == "london"} == {*UNITS, "loose"}
