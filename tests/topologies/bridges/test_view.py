"""What a look at a broker with diverts and bridges says, its messages and id stores, and the barrier of the ids."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.lease import LockDocument
from dr_ctl.topologies.bridges.barrier import IdBarrier
from dr_ctl.topologies.bridges.calls import closes, opens
from dr_ctl.topologies.bridges.delayed import _latest_s
from dr_ctl.topologies.bridges.look import joined
from dr_ctl.topologies.bridges.messages import _message
from dr_ctl.topologies.bridges.stores import lacking
from dr_ctl.topologies.bridges.view import BrokerView, with_idle
from dr_ctl.topologies.common.idstore import NotRead, Store
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


AGAIN = "1795251999000"  # another start of a broker


def sending(noted: int, shipped: int, *, start: str | None = None) -> BrokerView:
    """London: so many ids were noted since its start, and so many of them shipped."""
    view = broker("london")
    left = buffer("london", IDS, noted - shipped, added=noted, removed=shipped)
    return replace(view, ids=flow("london", IDS, buffer=left), start=start or view.start)


def applying(came: int, done: int, *, start: str | None = None) -> BrokerView:
    """Paris: so many ids have arrived since its start, and so many of them are applied."""
    view = broker("paris")
    return replace(view, arrived=(arrived("paris", came - done, added=came, removed=done),), start=start or view.start)


def left(*looks: tuple[BrokerView, BrokerView]) -> list[int | None]:
    barrier = IdBarrier()
    return [barrier.left(*look) for look in looks]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(1000, 1000, 1000, 1000)], [0]),
        # Those of before are shipped, then applied.
        ([(10, 6, 6, 5), (10, 10, 10, 7), (10, 10, 10, 10)], [4 + 1, 3, 0]),
        # What other queues go on to note is not waited for: the buffers are never empty.
        ([(10, 6, 6, 5), (40, 12, 12, 9), (80, 50, 50, 11), (99, 70, 70, 12), (120, 90, 90, 60)], [5, 3, 1, 0, 0]),
    ],
)
def test_those_of_before_are_waited_for(looks: list[tuple[int, int, int, int]], told: list[int]) -> None:
    made = [(sending(noted, shipped), applying(came, done)) for noted, shipped, came, done in looks]
    assert left(*made) == told


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_restart_begins_it_anew(where: str) -> None:
    """Counters begin again at what was kept: the old ones would let everything pass, or nothing ever."""
    before = (sending(1000, 990), applying(990, 980))
    here = sending(8, 2, start=AGAIN) if where == "here" else sending(1010, 1004)
    there = applying(7, 3, start=AGAIN) if where == "there" else applying(994, 990)
    after = (sending(30, 20, start=AGAIN), sending(1030, 1020)), (applying(20, 3, start=AGAIN), applying(1010, 1000))

    told = left(before, (here, there), (after[0][where == "there"], after[1][where == "here"]))

    assert told[1] == 6 + 4
    assert told[2] is not None
    assert told[2] > 0


def test_what_cannot_be_read_is_not_known() -> None:
    here, there = sending(1, 1), applying(1, 1)
    below = replace(here, ids=flow("london", IDS, buffer=buffer("london", IDS, -1)))
    unread = replace(there, arrived=(arrived("paris", -1),))

    for look in (
        (replace(here, ids=None), there),
        (replace(here, ids=flow("london", IDS, buffer=None)), there),
        (below, there),
        (here, replace(there, arrived=())),
        (here, unread),
    ):
        assert left(look) == [None]


# Rows of Artemis 2.56.0, of messages of every protocol that its bridges carry: where each was sent, and of its copy.
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("browsed.json").read_text(encoding="utf-8"))
HEADER = "order_id"


@pytest.mark.parametrize("one", RECORDED, ids=[f"{each['client']}: {each['message']}" for each in RECORDED])
def test_a_copy_of_any_protocol_has_the_name_of_its_message(one: dict[str, Any]) -> None:
    born, copy = _message(one["born"], "london"), _message(one["copy"], "paris")

    assert copy.copied == ("london", int(one["born"]["messageID"]))
    assert born.copied is None
    assert born.origins & copy.origins
    assert not born.forwarded
    assert not copy.forwarded
    # What its consumers write down is the same at both sites: the producer's id, or else that name.
    given = one["message"] if one["message"] != "without properties" else f"london:{one['born']['messageID']}"
    assert born.id(HEADER) == copy.id(HEADER) == given


def test_what_a_client_of_amqp_wrote_where_a_broker_writes_is_its_own() -> None:
    told = {"messageAnnotations.x-opt-ORIG-MESSAGE-ID": 7, "applicationProperties._AMQ_ORIG_MESSAGE_ID": 8}
    row = {"messageID": "5", "protocol": "AMQP", "StringProperties": {}, "LongProperties": told}
    assert _message(row, "london").origins == {("london", 5)}


def test_an_id_that_is_a_number_is_written_down_as_one_writes_it() -> None:
    row = {"messageID": "5", "protocol": "AMQP", "IntProperties": {"applicationProperties.order_id": 47}}
    assert _message(row, "london").id(HEADER) == "47"


def test_a_message_of_another_protocol_has_no_name() -> None:
    assert not _message({"messageID": "5", "protocol": "HORNETQ"}, "london").named


@pytest.mark.parametrize(
    ("row", "due_s"),
    [
        ({"_AMQ_SCHED_DELIVERY": 101_500}, 1.5),
        ({"x-opt-delivery-time": 160_000, "x-opt-delivery-delay": 5}, 60.0),
        ({"x-opt-delivery-delay": 60_000, "timestamp": 0}, 60.0),
        ({"timestamp": 0}, inf),
    ],
)
def test_a_delayed_message_is_due_no_later_than_its_broker_shows(row: dict[str, int], due_s: float) -> None:
    assert _latest_s(row, 100_000) == due_s


def store(path: Path, *rows: tuple[str, str], table: str = "processed") -> Store:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"CREATE TABLE {table} (queue TEXT, id TEXT)")
        file.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    return Store(path, table, "queue", "id")


def test_what_one_knows_and_the_other_does_not_is_counted_by_queue(tmp_path: Path) -> None:
    here = store(tmp_path / "here it is.sqlite", ("FOO", "1"), ("FOO", "2"), ("FOO", "3"), ("BAR", "1"))
    there = store(tmp_path / "there.sqlite", ("FOO", "1"), ("BAR", "1"), ("BAR", "9"), table="done")
    assert lacking(here, there) == {"FOO": 2}
    assert lacking(there, here) == {"BAR": 1}


def test_stores_that_are_the_same_lack_nothing(tmp_path: Path) -> None:
    assert lacking(store(tmp_path / "one", ("FOO", "1")), store(tmp_path / "other", ("FOO", "1"))) == {}


@pytest.mark.parametrize("wrong", ["nothing is there", "no such table", "no database"])
def test_one_that_cannot_be_read_is_never_empty(tmp_path: Path, wrong: str) -> None:
    here, path = store(tmp_path / "here", ("FOO", "1")), tmp_path / "there"
    there = Store(path, "processed", "queue", "id")
    if wrong == "no such table":
        store(path, table="other")
    elif wrong == "no database":
        path.write_text("this is a text\n" * 100)

    for pair in ((here, there), (there, here)):
        with pytest.raises(NotRead):
            lacking(*pair)
    assert path.exists() is (wrong != "nothing is there")
