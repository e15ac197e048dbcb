"""A pair that diverts and bridges join: looks, messages, id stores, the barrier; checks and steps of a move."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing as closed_file
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.plan import ALL, Call, Goal, Spec
from dr_ctl.engine.ports import Move, StepPlan
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.settings.artemis import ClientRoles
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.bridges import procedure
from dr_ctl.topologies.bridges.checks import CHECKS, SKIPS_PER_S
from dr_ctl.topologies.bridges.procedure import WAS_PAUSED
from dr_ctl.topologies.bridges.reading import BridgesSnapshot, _latest_s, _message, join_flows, mark_idle
from dr_ctl.topologies.bridges.tools import count_ids_left, missing_ids
from dr_ctl.topologies.bridges.view import COMPARED, ORIGIN, Bridge, BrokerView, Divert, Flow
from dr_ctl.topologies.common.calls import debt_name
from dr_ctl.topologies.common.checks import Case
from dr_ctl.topologies.common.idstore import NotRead, Store
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Grants, Queue
from dr_ctl.topologies.common.waiting import Barrier
from tests.topologies import made
from tests.topologies.made import PAIR, PEERS

LETTERS = {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}
IDS = "notification.ids"
UNITS = ("orders", "audit")
CLIENTS, BRIDGES = 61616, 61617
OPEN: Grants = {"amq": ("send", "consume"), "app": ("send", "consume"), "bridge": ("send",)}
CLOSED: Grants = {"amq": ("send", "consume"), "app": (), "bridge": ("send",)}


def queue(name: str, depth: int = 0, *, site: str = "london", **more: Any) -> Queue:
    bean = beans.queue(site, more.get("address", name), more.get("routing", "anycast"), name)
    return made.queue(name, bean, depth, **LETTERS | more)


def buffer(site: str, unit: str, depth: int = 0, **more: Any) -> Queue:
    usual = {"address": f"mirror.{unit}", "routing": "anycast", "internal": True, "consumers": 1}
    return queue(f"mirror.{PEERS[site]}.{unit}", depth, site=site, **{**usual, **more})


def bridge(site: str, unit: str, **more: Any) -> Bridge:
    name = f"bridge.mirror.{PEERS[site]}.{unit}"
    bean = f'{beans.server(site)},component=bridges,name="{name}"'
    usual = Bridge(name, bean, f"mirror.{PEERS[site]}.{unit}", True, True, site)
    return replace(usual, **more)


def flow(site: str, unit: str, depth: int = 0, **more: Any) -> Flow:
    text = f"{ORIGIN} = '{site}' OR {ORIGIN} IS NULL"
    divert = Divert(f"divert.{unit}", unit, f"mirror.{unit}", text, exclusive=unit == IDS)
    return replace(Flow(divert, buffer(site, unit, depth), (bridge(site, unit),)), **more)


def arrived(site: str, depth: int = 0, **more: Any) -> Queue:
    """The peer's ids that wait for the processor, which is attached."""
    return queue(IDS, depth, site=site, **{"internal": True, "consumers": 1, **more})


def listener(name: str, port: int, site: str, **more: Any) -> Acceptor:
    return made.listener(name, beans.acceptor(site, name), port, "CORE", **more)


def broker(site: str, *, closed: bool | None = None, **more: Any) -> BrokerView:
    """One healthy broker; its queues are closed at Paris unless told otherwise: by role, and by their pauses."""
    shut = site == "paris" if closed is None else closed
    units = more.pop("among", UNITS)
    usual = {
        "config": Config(("clients",), ("bridge",), None, lasting=ClientRoles(roles=("app",))),
        "acceptors": (listener("clients", CLIENTS, site), listener("bridge", BRIDGES, site)),
        "queues": tuple(queue(unit, site=site, paused=shut) for unit in units),
        "connections": (connection("bridge", BRIDGES),),
        "flows": tuple(flow(site, unit) for unit in units),
        "ids": flow(site, IDS),
        "arrived": (arrived(site),),
        "unrouted": {},
        "grants": {**dict.fromkeys(units, CLOSED if shut else OPEN), IDS: OPEN},
        "users": {"app": frozenset({"app"}), "bridge": frozenset({"bridge"})},
    }
    return made.view(BrokerView, site, **{**usual, **more})


def connection(user: str, port: int) -> Connection:
    return Connection("5f0c", port, "10.1.2.3:50412", "", user, "CORE")


def with_queue(view: BrokerView, name: str, **changed: Any) -> BrokerView:
    return replace(view, queues=tuple(replace(item, **changed) if item.name == name else item for item in view.queues))


def with_flow(view: BrokerView, unit: str, change: Callable[[Flow], Flow]) -> BrokerView:
    return replace(view, flows=tuple(change(item) if item.unit == unit else item for item in view.flows))


def with_role(view: BrokerView, unit: str, grants: Grants) -> BrokerView:
    return replace(view, grants={**view.grants, unit: grants})


def shut(view: BrokerView, unit: str, *, by_role: bool = True, by_pause: bool = True) -> BrokerView:
    """One of its queues closed by one of the two, or both, or neither."""
    return with_queue(with_role(view, unit, CLOSED if by_role else OPEN), unit, paused=by_pause)


def snapshot(london: BrokerView | Silent, paris: BrokerView | Silent) -> BridgesSnapshot:
    return BridgesSnapshot({"london": {PAIR: london}, "paris": {PAIR: paris}})


LONDON, PARIS = broker("london"), broker("paris")


@pytest.mark.parametrize(
    ("view", "orders", "role"),
    [
        (LONDON, True, Role.SERVING),
        (PARIS, False, Role.STANDBY),
        (shut(LONDON, "orders", by_role=True, by_pause=False), False, Role.SERVING),
        (shut(LONDON, "orders", by_role=False, by_pause=True), False, Role.SERVING),
        (shut(PARIS, "orders", by_role=False, by_pause=False), True, Role.SERVING),
        (replace(LONDON, acceptors=(listener("clients", CLIENTS, "london", started=False),)), False, Role.STANDBY),
        (replace(LONDON, config=Config(("clients", "cleints"), ("bridge",), None)), True, Role.UNKNOWN),
        (broker("london", among=()), None, Role.UNKNOWN),
    ],
)
def test_a_queue_is_served_where_its_listener_its_roles_and_its_pause_let_clients_in(
    view: BrokerView, orders: bool | None, role: Role
) -> None:
    assert (view.units.get("orders"), view.role) == (orders, role)


PAUSED = shut(LONDON, "orders", by_role=False, by_pause=True)
LOCK = LockDocument(7, "a run", paused={"a run": ("orders",)}).to_text()
BY_RUN = replace(PAUSED, documents={"dr-ctl.lock.london.7": LOCK})


def test_a_pause_closes_a_queue_only_where_it_is_its_gate() -> None:
    # A pause that a run will lift closes nothing.
    assert (BY_RUN.closed_by_pause("orders"), BY_RUN.units["orders"], BY_RUN.paused) == (False, True, ("orders",))
    # Of two queues at an address one that delivers keeps it open; what no queue takes is not called paused.
    assert not replace(PAUSED, queues=(*PARIS.queues, queue("orders.all", address="orders"))).closed_by_pause("orders")
    assert not replace(PARIS, queues=()).closed_by_pause("orders")


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
    sites = mark_idle({"london": {PAIR: london}, "paris": {PAIR: paris}}).sites
    by_name = {site: item for site, brokers in sites.items() for item in brokers.values()}
    assert {site: set(value.idle) for site, value in by_name.items() if isinstance(value, BrokerView)} == idle


def changed(**more: Any) -> BrokerView:
    return with_flow(LONDON, "orders", lambda options: replace(options, **more))


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
    [row, before] = [next(iter(item.link.rows(None, datetime(2026, 11, 21, tzinfo=UTC)))) for item in (view, bare)]
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


def test_a_divert_is_known_by_its_filter_where_all_bridges_are_gone_and_its_buffer_has_a_name_of_its_own() -> None:
    own = buffer("london", "orders", address="puffer.in")
    divert = replace(flow("london", "orders").divert, to="puffer.in")
    [line] = join_flows([divert], [own], [])
    assert (line.unit, line.buffer, line.bridges) == ("orders", own, ())
    assert join_flows([replace(divert, filter=None)], [own], []) == []


def test_dead_letters_have_no_row_in_the_history() -> None:
    ended = replace(LONDON, queues=(*LONDON.queues, queue("DLQ", 7), queue("ExpiryQueue", 3), queue("loose", 2)))
    rows = snapshot(ended, PARIS).rows(datetime(2026, 11, 21, tzinfo=UTC))
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
    barrier = Barrier()
    return [count_ids_left(barrier, *look) for look in looks]


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
    local = sending(8, 2, start=AGAIN) if where == "here" else sending(1010, 1004)
    remote = applying(7, 3, start=AGAIN) if where == "there" else applying(994, 990)
    after = (sending(30, 20, start=AGAIN), sending(1030, 1020)), (applying(20, 3, start=AGAIN), applying(1010, 1000))

    remaining = left(before, (local, remote), (after[0][where == "there"], after[1][where == "here"]))

    assert remaining[1] == 6 + 4
    assert remaining[2] is not None
    assert remaining[2] > 0


def test_what_cannot_be_read_is_not_known() -> None:
    local, remote = sending(1, 1), applying(1, 1)
    below = replace(local, ids=flow("london", IDS, buffer=buffer("london", IDS, -1)))
    unread = replace(remote, arrived=(arrived("paris", -1),))

    for look in (
        (replace(local, ids=None), remote),
        (replace(local, ids=flow("london", IDS, buffer=None)), remote),
        (below, remote),
        (local, replace(remote, arrived=())),
        (local, unread),
    ):
        assert left(look) == [None]


# Rows of Artemis 2.56.0, of messages of every protocol that its bridges carry: where each was sent, and of its copy.
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("browsed.json").read_text(encoding="utf-8"))
HEADER = "order_id"


@pytest.mark.parametrize("one", RECORDED, ids=[f"{item['client']}: {item['message']}" for item in RECORDED])
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
    options = {"messageAnnotations.x-opt-ORIG-MESSAGE-ID": 7, "applicationProperties._AMQ_ORIG_MESSAGE_ID": 8}
    row = {"messageID": "5", "protocol": "AMQP", "StringProperties": {}, "LongProperties": options}
    assert _message(row, "london").origins == {("london", 5)}


def test_an_id_that_is_a_number_is_written_down_as_one_writes_it() -> None:
    row = {"messageID": "5", "protocol": "AMQP", "IntProperties": {"applicationProperties.order_id": 47}}
    assert _message(row, "london").id(HEADER) == "47"


def test_a_message_of_another_protocol_has_no_name() -> None:
    assert not _message({"messageID": "5", "protocol": "HORNETQ"}, "london").is_shown


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
    with closed_file(sqlite3.connect(path)) as file, file:
        file.execute(f"CREATE TABLE {table} (queue TEXT, id TEXT)")
        file.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    return Store(path, table, "queue", "id")


def test_what_one_knows_and_the_other_does_not_is_named_by_queue(tmp_path: Path) -> None:
    local = store(tmp_path / "here it is.sqlite", ("FOO", "1"), ("FOO", "2"), ("FOO", "3"), ("BAR", "1"))
    remote = store(tmp_path / "there.sqlite", ("FOO", "1"), ("BAR", "1"), ("BAR", "9"), table="done")
    assert missing_ids(local, remote) == {"FOO": {"2", "3"}}
    assert missing_ids(remote, local, ["BAR"]) == {"BAR": {"9"}}


@pytest.mark.parametrize("wrong", ["nothing is there", "no such table", "no database"])
def test_one_that_cannot_be_read_is_never_empty(tmp_path: Path, wrong: str) -> None:
    local, path = store(tmp_path / "here", ("FOO", "1")), tmp_path / "there"
    remote = Store(path, "processed", "queue", "id")
    if wrong == "no such table":
        store(path, table="other")
    elif wrong == "no database":
        path.write_text("this is a text\n" * 100)

    for pair in ((local, remote), (remote, local)):
        with pytest.raises(NotRead):
            missing_ids(*pair)
    assert path.exists() is (wrong != "nothing is there")


ERROR, WARNING = Severity.ERROR, Severity.WARNING


def findings(london: BrokerView = LONDON, paris: BrokerView = PARIS, *units: str) -> list[Finding]:
    return CHECKS.of_move(case(Spec("swapover", "paris", units=units or None), london, paris))


def case(spec: Spec, *brokers: BrokerView) -> Case[BrokerView]:
    return Case(Rules(Queues(), Drain(), Timeouts()), snapshot(*brokers), Move(spec, "london", {}))


def orders(site: str = "london", **more: Any) -> BrokerView:
    """One broker where what carries `orders` is otherwise."""
    return with_flow(broker(site), "orders", lambda options: replace(options, **more))


def bridged(**more: Any) -> BrokerView:
    return orders(bridges=(bridge("london", "orders", **more),))


def filtered(text: str | None) -> BrokerView:
    def told(value: Flow) -> Flow:
        return replace(value, divert=replace(value.divert, filter=text))

    return with_flow(LONDON, "orders", told)


def multicast(routing: str | None = "STRIP", speaks: str = "CORE", unrouted: int = 0) -> BrokerView:
    """London, whose buffer of orders does not take what clients marked for a queue."""
    flow = orders(buffer=buffer("london", "orders", routing="multicast"))
    with_flow_ = with_flow(
        flow, "orders", lambda options: replace(options, divert=replace(options.divert, routing=routing))
    )
    clients, *others = with_flow_.acceptors
    listeners = (replace(clients, protocols=frozenset({speaks})), *others)
    return replace(with_flow_, acceptors=listeners, unrouted={"mirror.orders": unrouted})


UNROUTED = {"mirror.orders": 3}
DEEP = with_queue(replace(LONDON, unrouted=UNROUTED), "orders", depth=COMPARED + 1)
UNSHIPPED = replace(LONDON, ids=flow("london", IDS, bridges=(bridge("london", IDS, started=False),)))
MISSING = replace(PARIS, queues=PARIS.queues[1:])
REFUSING = with_role(PARIS, "orders", {**CLOSED, "bridge": ()})
LEAVES, TAKES = "`--accept-difference orders=3`", "is paused there, and clients may send to it"
ONE = [
    (replace(LONDON, ids=None), PARIS, "DR-BRIDGE-003 error", "would come as duplicates"),
    (orders(buffer=buffer("london", "orders", paused=True)), PARIS, "DR-LINK-005 error", "is paused"),
    (replace(LONDON, queues=(*LONDON.queues, queue("loose"))), PARIS, "DR-BRIDGE-005 warning", "copies loose"),
    (orders(buffer=None), PARIS, "DR-BRIDGE-006 error", "into an address without a queue"),
    (orders(bridges=()), PARIS, "DR-BRIDGE-006 error", "no bridge reads mirror.paris.orders"),
    (multicast(speaks="AMQP"), PARIS, "DR-BRIDGE-019 warning", "is multicast and orders is anycast"),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019 error", '<anycast><queue name="mirror.paris.orders"/></anycast>'),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019 error", "3 message(s) for orders found no queue at mirror.orders"),
    (replace(LONDON, unrouted=UNROUTED), PARIS, "DR-BRIDGE-019 warning", "have no copy"),
    (DEEP, PARIS, "DR-BRIDGE-019 error", LEAVES),
    (orders(buffer=buffer("london", "orders", 5, scheduled=2)), PARIS, "DR-BRIDGE-020 error", LEAVES.replace("3", "2")),
    (orders(buffer=buffer("london", "orders", 5, scheduled=3), due_s=(0.3, 21.0, 20.0)),
     PARIS, "DR-BRIDGE-020 error", "1 delayed message(s) of orders are not shipped within 20 s"),
    (bridged(origin=None), PARIS, "DR-BRIDGE-007 error", "does not write ARTEMIS_MESSAGE_ORIGIN"),
    (bridged(origin="paris"), PARIS, "DR-BRIDGE-007 error", "those without an origin"),
    (filtered(None), PARIS, "DR-BRIDGE-007 error", "its filter is missing"),
    (filtered("ARTEMIS_MESSAGE_ORIGIN = 'london'"), PARIS, "DR-BRIDGE-007 error", "those without an origin"),
    (LONDON, REFUSING, "DR-BRIDGE-008 error", "role bridge may not send"),
    (LONDON, replace(REFUSING, connections=()), "DR-BRIDGE-008 error", "role bridge may not send"),
    (replace(LONDON, config=Config(("clients",), ("bridge",), None)), PARIS, "DR-BRIDGE-009 error", "which roles"),
    (LONDON, replace(PARIS, arrived=(arrived("paris", consumers=0),)), "DR-BRIDGE-010 error", "nothing applies"),
    (LONDON, MISSING, "DR-BRIDGE-011 error", "ships them, and they are lost"),
    (LONDON, replace(PARIS, unrouted={"orders": 50}), "DR-BRIDGE-011 warning", "50 message(s) for orders"),
    (LONDON, with_queue(with_role(PARIS, "orders", OPEN), "orders", paused=False),
     "DR-BRIDGE-012 error", "nothing keeps clients of orders out of paris"),
    (LONDON, with_role(PARIS, "orders", OPEN), "DR-BRIDGE-013 warning", TAKES),
    (LONDON, with_queue(PARIS, "orders", depth=SKIPS_PER_S + 1), "DR-BRIDGE-014 info", "1 s at 4000 a second"),
    (replace(LONDON, users=None), PARIS, "DR-FENCE-005 warning", "cannot tell"),
    (replace(LONDON, connections=(connection("app", BRIDGES),)),
     PARIS, "DR-FENCE-006 error", "app, the user of the bridges, has a role that a fence keeps out"),
]  # fmt: skip


@pytest.mark.parametrize(("london", "paris", "finding", "words"), ONE)
def test_one_thing_wrong_is_one_finding(london: BrokerView, paris: BrokerView, finding: str, words: str) -> None:
    about = ("DR-BRIDGE", "DR-LINK", "DR-FENCE", finding[:7])
    [reported] = [finding for finding in findings(london, paris) if finding.id.startswith(about)]
    assert f"{reported.id} {reported.severity.value}" == finding
    assert words in reported.text + reported.remedy
    assert reported.remedy


@pytest.mark.parametrize(
    ("london", "paris", "units", "told"),
    [
        (LONDON, PARIS, (), {}),
        (LONDON, PARIS, ("orders",), {}),
        # A buffer of another kind takes what its divert marks anew.
        (multicast("MULTICAST", "AMQP"), PARIS, (), {}),
        (multicast(None, "AMQP"), PARIS, (), {}),
        # A role that may send nearly nowhere is no bridges', and is not taken for refused.
        (LONDON, with_role(PARIS, "orders", {**CLOSED, "reports": ("send",)}), (), {}),
        (with_queue(LONDON, "orders", depth=20_000), with_queue(PARIS, "orders", depth=20_000), (), {}),
        # Of queues that are not to move only their own are told; the ids are everybody's.
        (bridged(started=False), MISSING, ("audit",), {}),
        (bridged(started=False), MISSING, ("orders",), {"DR-BRIDGE-004": WARNING, "DR-BRIDGE-011": ERROR}),
        (UNSHIPPED, PARIS, ("audit",), {"DR-BRIDGE-004": WARNING}),
        # What is copied one way only would be captured no more.
        (LONDON, replace(PARIS, flows=PARIS.flows[1:]), (), {"DR-BRIDGE-006": ERROR, "DR-BRIDGE-005": WARNING}),
    ],
)  # fmt: skip
def test_what_is_told_of_a_move(london: BrokerView, paris: BrokerView, units: tuple[str, ...], told: Any) -> None:
    assert len(UNITS) == 2
    reported = findings(london, paris, *units)
    own = {finding.id: finding.severity for finding in reported if not (told and finding.id.startswith("DR-QUEUE"))}
    assert own == told
    if "DR-BRIDGE-005" in told:
        assert "no divert copies orders back to london" in reported[0].text


def test_what_found_no_buffer_is_left_behind_where_a_person_says_so() -> None:
    def told(accepted: int) -> list[Severity]:
        spec = Spec("swapover", "paris", accept_difference={"orders": accepted})
        return [
            finding.severity
            for finding in CHECKS.of_broker(DEEP, case(spec, DEEP, PARIS))
            if finding.id == "DR-BRIDGE-019"
        ]

    assert (told(4), told(3), told(2)) == ([WARNING], [WARNING], [ERROR])


def test_a_broker_without_any_such_divert_is_not_of_this_topology() -> None:
    rows = [finding.id for finding in findings(broker("london", among=()), broker("paris", among=()))]
    assert rows.count("DR-BRIDGE-001") == 2


RECIPE = procedure.TOPOLOGY.recipe(Queues(), Drain(), Timeouts())
BOTH = snapshot(LONDON, PARIS)


def drafted(verb: str, operation: str, look: BridgesSnapshot = BOTH, target: str = "paris", **more: Any) -> StepPlan:
    """One step of an operation from the other site; `units` are those that are asked for."""
    spec = Spec(operation, target, units=more.get("units"))
    move = Move(spec, "london" if target == "paris" else "paris", RECIPE.baseline(look), more.get("moved", ()))
    return RECIPE.draft(RunbookStep(verb, "both", 1, words=more.get("words", {})), look, move)


def test_one_reading_costs_as_much_as_it_has_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is worked out for each queue asks of that queue, and not of all."""
    names, asked, kept_out = [f"orders.{number}" for number in range(200)], [], BrokerView.kept_out

    def counted(view: BrokerView, unit: str) -> bool:
        asked.append(unit)
        return kept_out(view, unit)

    monkeypatch.setattr(BrokerView, "kept_out", counted)
    look = snapshot(*(broker(site, among=names) for site in PEERS))
    move = Move(Spec("swapover", "paris"), "london", RECIPE.baseline(look))
    assert not [check for check in RECIPE.checks(look, move) if check.verdict == "fails"]
    assert not RECIPE.why_not(look, move)
    assert (len(look.units), len(look.brokers), [*look.findings()]) == (200, 2, [])
    assert 200 < len(asked) < 40 * 200


def told(calls: tuple[Call, ...]) -> list[tuple[str, Goal, str]]:
    return [(call.site, call.goal, call.resource) for call in calls]


def closing(site: str, *units: str) -> list[tuple[str, Goal, str]]:
    """The roles of all first, so that nobody who is cut comes back."""
    return [(site, goal, unit) for goal in (Goal.REVOKE, Goal.CLOSE, Goal.CUT) for unit in units]


def opening(site: str, *units: str) -> list[tuple[str, Goal, str]]:
    admits = [(site, Goal.GRANT, unit) for unit in (*units, ALL)]
    return [*((site, Goal.OPEN, unit) for unit in units), *admits] if units else []


def away(view: BrokerView) -> BrokerView:
    """The listener of its clients is closed."""
    return replace(view, acceptors=(listener("clients", CLIENTS, view.site, started=False), *view.acceptors[1:]))


FENCED, SERVES = broker("london", closed=True), shut(PARIS, "audit", by_role=False, by_pause=False)


@pytest.mark.parametrize(
    ("verb", "operation", "look", "more", "calls", "inverse"),
    [
        # Of a part only that is fenced, and let in again; an undo opens nothing that was closed before.
        ("fence", "swapover", BOTH, {"units": ("audit",)}, closing("london", "audit"), opening("london", "audit")),
        ("fence", "swapover", BOTH, {"moved": ("orders",)}, closing("london", "audit"), opening("london", "audit")),
        ("fence", "swapover", snapshot(shut(LONDON, "orders"), PARIS), {}, None, opening("london", "audit")),
        # A lost site that is closed is not fenced again.
        ("fence", "failover", snapshot(away(LONDON), PARIS), {}, [], None),
        ("fence", "failover", BOTH, {}, closing("london", *UNITS), None),
        # An unfence opens what is closed at both sites, and nothing else.
        ("unfence", "unfence", snapshot(FENCED, PARIS), {}, opening("london", *UNITS), None),
        ("unfence", "unfence", snapshot(FENCED, SERVES), {}, opening("london", "orders"), None),
        ("unfence", "unfence", snapshot(FENCED, PARIS), {"units": ("audit",)},
         opening("london", "audit"), closing("london", "audit")),
        ("unfence", "unfence", BOTH, {}, [], None),
    ],
)  # fmt: skip
def test_what_is_closed_and_opened(
    verb: str, operation: str, look: BridgesSnapshot, more: Any, calls: Any, inverse: Any
) -> None:
    draft = drafted(verb, operation, look, **more)
    assert calls is None or told(draft.calls) == calls
    assert inverse is None or told(draft.inverse) == inverse


@pytest.mark.parametrize(
    ("london", "paris", "is_opened"),
    [
        (away(LONDON), PARIS, True),
        (away(LONDON), SERVES, False),
        (away(shut(LONDON, "audit")), SERVES, True),
        (away(FENCED), broker("paris", closed=False), False),  # nothing is opened there
    ],
)
def test_an_unfence_opens_no_listener_behind_which_a_queue_of_the_other_site_would_be_open(
    london: BrokerView, paris: BrokerView, is_opened: bool
) -> None:
    assert (
        "clients" in [call.resource for call in drafted("unfence", "unfence", snapshot(london, paris)).calls]
    ) is is_opened


@pytest.mark.parametrize(
    ("london", "more", "pays"),
    [
        (LONDON, {}, True),
        (LONDON, {"units": ("orders",)}, False),
        (shut(LONDON, "audit"), {"units": ("orders",)}, True),
        (LONDON, {"units": ("orders",), "words": {CUT_OFF: True}}, True),
    ],
)
def test_a_fence_by_itself_pays_its_debt_where_it_is_of_all(london: BrokerView, more: Any, pays: bool) -> None:
    owes = replace(PARIS, documents={debt_name(DebtKind.FENCE, "london", "paris"): "{}"})
    draft = drafted("fence", "fence", snapshot(london, owes), **more)
    written = [call.goal for call in (*draft.calls, *draft.inverse) if call.goal in (Goal.DELETE, Goal.CREATE)]
    assert written == ([Goal.DELETE, Goal.CREATE] if pays else [])


def test_a_return_pauses_no_queue_again_that_a_run_has_left_paused() -> None:
    calls = drafted("reinstate", "reinstate", snapshot(BY_RUN, PARIS)).calls
    assert [call.resource for call in calls if call.goal is Goal.PAUSE] == ["audit"]
    resumed = {call.resource: call.when == WAS_PAUSED for call in calls if call.goal is Goal.RESUME}
    assert resumed == {"orders": False, "audit": True}


def test_a_wait_may_restart_the_bridges_of_what_moves_and_of_the_ids_only() -> None:
    draft = drafted("drain", "swapover", units=("orders",))
    names = {call.resource for call in draft.calls}
    assert names == {"bridge.mirror.paris.orders", "bridge.mirror.paris.notification.ids"}
    assert all(call.when is not None for call in draft.calls)
    assert {call.goal for call in draft.inverse} == {Goal.LINK_UP}
