"""What a look at a broker with diverts and bridges says: which queues it serves, what closes one, what is under way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

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
    CLOSED,
    IDS,
    OPEN,
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
    with_flow,
    with_queue,
    with_role,
)

LONDON, PARIS = broker("london"), broker("paris")


def shut(view: BrokerView, *, by_role: bool, by_pause: bool) -> BrokerView:
    """Its first queue closed by one of the two, or both, or neither."""
    return with_queue(with_role(view, "orders", CLOSED if by_role else OPEN), "orders", paused=by_pause)


@pytest.mark.parametrize(
    ("view", "orders", "role"),
    [
        (LONDON, True, Role.SERVING),
        (PARIS, False, Role.STANDBY),
        (shut(LONDON, by_role=True, by_pause=False), False, Role.SERVING),
        (shut(LONDON, by_role=False, by_pause=True), False, Role.SERVING),
        (shut(PARIS, by_role=False, by_pause=False), True, Role.SERVING),
        (replace(LONDON, acceptors=(door("clients", CLIENTS, "london", started=False),)), False, Role.STANDBY),
        (replace(LONDON, active=False), False, Role.UNKNOWN),
        (replace(LONDON, config=Config(("clients", "cleints"), ("bridge",), None)), True, Role.UNKNOWN),
        (broker("london", among=()), None, Role.UNKNOWN),
    ],
)
def test_a_queue_is_served_where_its_door_its_roles_and_its_pause_let_clients_in(
    view: BrokerView, orders: bool | None, role: Role
) -> None:
    assert (view.units.get("orders"), view.role) == (orders, role)


def test_whose_roles_no_settings_name_are_never_called_kept_out() -> None:
    unnamed = replace(PARIS, config=Config(("clients",), ("bridge",), None))

    assert not unnamed.kept_out("orders")
    assert PARIS.kept_out("orders")


def test_a_pause_that_a_run_will_lift_closes_nothing() -> None:
    lock = LockDocument(7, "a run", paused={"a run": ("orders",)})
    documents = {"dr-ctl.lock.london.7": lock.to_text()}
    by_run = replace(shut(LONDON, by_role=False, by_pause=True), documents=documents)

    assert not by_run.gated("orders")
    assert by_run.units["orders"]
    assert by_run.paused == ("orders",)


def test_of_two_queues_at_an_address_one_that_delivers_keeps_it_open() -> None:
    more = queue("orders.all", address="orders")
    view = replace(shut(LONDON, by_role=False, by_pause=True), queues=(*PARIS.queues, more))

    assert not view.gated("orders")
    assert replace(view, queues=(*PARIS.queues, replace(more, paused=True))).gated("orders")


def test_what_no_queue_takes_is_not_called_paused() -> None:
    assert not replace(PARIS, queues=()).gated("orders")


def test_the_pauses_of_a_closed_queue_are_its_gate_and_no_leftover() -> None:
    assert PARIS.paused == ()
    loose = replace(PARIS, queues=(*PARIS.queues, queue("loose", paused=True)))
    assert loose.paused == ("loose",)


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
    apart = seen(shut(LONDON, by_role=True, by_pause=True), shut(PARIS, by_role=False, by_pause=False))

    assert {each.name: each.serving for each in apart.units} == {"audit": "london", "orders": "paris"}


def test_what_is_under_way_is_what_the_buffers_hold() -> None:
    view = replace(
        broker("london", flows=(flow("london", "orders", 3), flow("london", "audit", 4))),
        ids=flow("london", IDS, 5),
        arrived=(arrived("london", 6),),
    )

    assert (view.link.to_ship, view.ids_to_ship, view.link.unapplied) == (7, 5, 6)
    assert (view.link.stake(None).lost, view.link.stake(PARIS).duplicates) == (7, 5)


def test_what_found_no_buffer_is_lost_with_its_site_and_stays_unshipped_in_the_history() -> None:
    view = replace(with_flow(LONDON, "orders", lambda _: flow("london", "orders", 7)), unrouted={"mirror.orders": 3})
    bare = with_flow(LONDON, "orders", lambda _: flow("london", "orders", 7))

    assert (view.link.stake(None).lost, view.link.stake(None).queues) == (
        10,
        {"orders": (10, None), "audit": (0, None)},
    )
    [row, before] = [next(iter(each.link.rows(None, datetime(2026, 11, 21, tzinfo=UTC)))) for each in (view, bare)]
    assert (row.name, row.depth, row.added) == ("orders", 10, (before.added or 0) + 3)


def test_what_cannot_be_read_is_not_zero() -> None:
    no_buffer = with_flow(LONDON, "orders", lambda each: replace(each, buffer=None))
    below = with_flow(LONDON, "orders", lambda each: replace(each, buffer=buffer("london", "orders", -1)))

    assert [view.link.to_ship for view in (no_buffer, below)] == [None, None]
    assert replace(LONDON, ids=None).ids_to_ship is None
    assert replace(LONDON, arrived=()).link.unapplied is None
    assert replace(LONDON, ids=None).link.residue is None
    assert broker("london", among=()).link.attached is None


@pytest.mark.parametrize(
    "more",
    [
        {"started": False},
        {"connected": False},
    ],
)
def test_a_bridge_is_attached_where_it_is_started_and_connected(more: dict[str, bool]) -> None:
    away = with_flow(LONDON, "orders", lambda each: replace(each, bridges=(bridge("london", "orders", **more),)))

    assert (LONDON.link.attached, away.link.attached) == (True, False)
    assert list(LONDON.link.unsettled()) == []
    assert "london: the bridge of orders is not connected" in away.link.unsettled()


def test_a_buffer_that_nobody_consumes_has_no_bridge_attached() -> None:
    unread = with_flow(LONDON, "orders", lambda each: replace(each, buffer=buffer("london", "orders", consumers=0)))

    assert not unread.link.attached
    # Versions that do not tell whether a bridge is connected have only that.
    untold = with_flow(
        LONDON, "orders", lambda each: replace(each, bridges=(bridge("london", "orders", connected=None),))
    )
    assert untold.link.attached


def test_what_closes_a_queue_is_seen_to_hold_once_it_is_closed() -> None:
    for call in closes(LONDON, ["orders"]):
        assert LONDON.holds(call) is (call.goal is Goal.CUT)
        assert PARIS.holds(replace(call, request=replace_site(call.request)))
    assert opens(LONDON, ["orders"]) == []


def replace_site(request: object) -> dict[str, object]:
    """The same request for the other broker."""
    assert isinstance(request, dict)
    return {**request, "bean": str(request["bean"]).replace("london", "paris")}


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
