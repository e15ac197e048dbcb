"""The checks of a move where diverts and bridges join the sites, and what a plan has where something is unusual."""

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.bridges import procedure
from dr_ctl.topologies.bridges.checks import SKIPS_PER_S, of_broker, of_move
from dr_ctl.topologies.bridges.messages import COMPARED
from dr_ctl.topologies.bridges.seen import BridgesSeen
from dr_ctl.topologies.bridges.view import BrokerView, Flow
from dr_ctl.topologies.common.debts import document
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Config
from tests.topologies.bridges.views import (
    BRIDGES,
    CLIENTS,
    CLOSED,
    IDS,
    OPEN,
    UNITS,
    arrived,
    bridge,
    broker,
    buffer,
    connection,
    door,
    flow,
    queue,
    seen,
    shut,
    with_flow,
    with_queue,
    with_role,
)

LONDON, PARIS = broker("london"), broker("paris")
ERROR, WARNING = Severity.ERROR, Severity.WARNING


def findings(london: BrokerView = LONDON, paris: BrokerView = PARIS, *units: str) -> list[Finding]:
    ask = Ask("swapover", "paris", units=units or None)
    return of_move(Rules(Queues(), Drain(), Patience()), seen(london, paris), Move(ask, "london", {}))


def orders(site: str = "london", **more: Any) -> BrokerView:
    """One broker where what carries `orders` is otherwise."""
    return with_flow(broker(site), "orders", lambda each: replace(each, **more))


def bridged(**more: Any) -> BrokerView:
    return orders(bridges=(bridge("london", "orders", **more),))


def filtered(text: str | None) -> BrokerView:
    def told(each: Flow) -> Flow:
        return replace(each, divert=replace(each.divert, filter=text))

    return with_flow(LONDON, "orders", told)


def multicast(routing: str | None = "STRIP", speaks: str = "CORE", unrouted: int = 0) -> BrokerView:
    """London, whose buffer of orders does not take what clients marked for a queue."""
    flow = orders(buffer=buffer("london", "orders", routing="multicast"))
    told = with_flow(flow, "orders", lambda each: replace(each, divert=replace(each.divert, routing=routing)))
    clients, *others = told.acceptors
    doors = (replace(clients, protocols=frozenset({speaks})), *others)
    return replace(told, acceptors=doors, unrouted={"mirror.orders": unrouted})


def without_bridges(view: BrokerView) -> BrokerView:
    """As a broker is whose peer refused one of them: all are gone, the buffers are there."""
    assert view.ids is not None
    flows = tuple(replace(each, bridges=()) for each in view.flows)
    return replace(view, flows=flows, ids=replace(view.ids, bridges=()))


UNROUTED = {"mirror.orders": 3}
DEEP = with_queue(replace(LONDON, unrouted=UNROUTED), "orders", depth=COMPARED + 1)
UNSHIPPED = replace(LONDON, ids=flow("london", IDS, bridges=(bridge("london", IDS, started=False),)))
MISSING = replace(PARIS, queues=PARIS.queues[1:])
LEAVES, TAKES = "`--accept-difference orders=3`", "is paused there, and clients may send to it"
ONE = [
    (without_bridges(LONDON), PARIS, "DR-BRIDGE-002 error", "AMQ224058"),
    (replace(LONDON, ids=None), PARIS, "DR-BRIDGE-003 error", "would come twice"),
    (bridged(started=False), PARIS, "DR-BRIDGE-004 warning", "bridge.mirror.paris.orders is stopped"),
    (bridged(connected=False), PARIS, "DR-LINK-004 warning", "not connected"),
    (orders(buffer=buffer("london", "orders", paused=True)), PARIS, "DR-LINK-005 error", "is paused"),
    (replace(LONDON, queues=(*LONDON.queues, queue("loose"))), PARIS, "DR-BRIDGE-005 warning", "copies loose"),
    (orders(buffer=None), PARIS, "DR-BRIDGE-006 error", "where no queue is"),
    (orders(bridges=()), PARIS, "DR-BRIDGE-006 error", "no bridge reads mirror.paris.orders"),
    (multicast(speaks="AMQP"), PARIS, "DR-BRIDGE-019 warning", "is multicast and orders is anycast"),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019 error", '<anycast><queue name="mirror.paris.orders"/></anycast>'),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019 error", "3 message(s) for orders found no queue at mirror.orders"),
    (replace(LONDON, unrouted=UNROUTED), PARIS, "DR-BRIDGE-019 warning", "has no copy"),
    (DEEP, PARIS, "DR-BRIDGE-019 error", LEAVES),
    (orders(buffer=buffer("london", "orders", 5, scheduled=2)), PARIS, "DR-BRIDGE-020 error", LEAVES.replace("3", "2")),
    (orders(buffer=buffer("london", "orders", 5, scheduled=3), due_s=(0.3, 21.0, 20.0)),
     PARIS, "DR-BRIDGE-020 error", "1 delayed message(s) of orders are not shipped within 20 s"),
    (bridged(origin=None), PARIS, "DR-BRIDGE-007 error", "writes no ARTEMIS_MESSAGE_ORIGIN"),
    (bridged(origin="paris"), PARIS, "DR-BRIDGE-007 error", "or of nobody"),
    (filtered(None), PARIS, "DR-BRIDGE-007 error", "its filter is missing"),
    (filtered("ARTEMIS_MESSAGE_ORIGIN = 'london'"), PARIS, "DR-BRIDGE-007 error", "or of nobody"),
    (LONDON, with_role(PARIS, "orders", {**CLOSED, "bridge": ()}), "DR-BRIDGE-008 error", "role bridge may not send"),
    (replace(LONDON, config=Config(("clients",), ("bridge",), None)), PARIS, "DR-BRIDGE-009 error", "which roles"),
    (LONDON, replace(PARIS, arrived=(arrived("paris", consumers=0),)), "DR-BRIDGE-010 error", "nothing applies"),
    (LONDON, MISSING, "DR-BRIDGE-011 error", "ships it into nothing"),
    (LONDON, replace(PARIS, unrouted={"orders": 50}), "DR-BRIDGE-011 warning", "50 message(s) for orders"),
    (LONDON, with_queue(with_role(PARIS, "orders", OPEN), "orders", paused=False),
     "DR-BRIDGE-012 error", "nothing keeps clients of orders out of paris"),
    (LONDON, with_role(PARIS, "orders", OPEN), "DR-BRIDGE-013 warning", TAKES),
    (LONDON, with_queue(PARIS, "orders", depth=SKIPS_PER_S + 1), "DR-BRIDGE-014 info", "1 s at 4000 a second"),
    (replace(LONDON, users=None), PARIS, "DR-FENCE-005 warning", "cannot tell"),
    (replace(LONDON, connections=(connection("app", BRIDGES),)),
     PARIS, "DR-FENCE-006 error", "the bridges' user app has a role that a fence keeps out"),
]  # fmt: skip


@pytest.mark.parametrize(("london", "paris", "finding", "words"), ONE)
def test_one_thing_wrong_is_one_finding(london: BrokerView, paris: BrokerView, finding: str, words: str) -> None:
    about = ("DR-BRIDGE", "DR-LINK", "DR-FENCE", finding[:7])
    [found] = [each for each in findings(london, paris) if each.id.startswith(about)]
    assert f"{found.id} {found.severity.value}" == finding
    assert words in found.text + found.remedy
    assert found.remedy


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
    found = findings(london, paris, *units)
    own = {each.id: each.severity for each in found if not (told and each.id.startswith("DR-QUEUE"))}
    assert own == told
    if "DR-BRIDGE-005" in told:
        assert "no divert copies orders back to london" in found[0].text


def test_what_found_no_buffer_is_left_behind_where_a_person_says_so() -> None:
    def told(accepted: int) -> list[Severity]:
        ask = Ask("swapover", "paris", accept_difference={"orders": accepted})
        return [each.severity for each in of_broker(DEEP, ask) if each.id == "DR-BRIDGE-019"]

    assert (told(4), told(3), told(2)) == ([WARNING], [WARNING], [ERROR])


def test_a_look_tells_of_a_copy_that_takes_sends_and_names_the_command_that_closes_it() -> None:
    looks = (seen(LONDON, with_role(PARIS, "orders", OPEN)), seen(LONDON, PARIS))
    told = [[each.remedy for each in look.findings() if each.id == "DR-BRIDGE-013"] for look in looks]
    assert (["`dr-ctl fence paris --queues orders`" in each for each in told[0]], told[1]) == ([True], [])


def test_a_broker_without_any_such_divert_is_not_of_this_topology() -> None:
    told = [each.id for each in findings(broker("london", among=()), broker("paris", among=()))]
    assert told.count("DR-BRIDGE-001") == 2


def test_the_deeper_copies_are_named_with_the_time_that_they_take() -> None:
    [told] = findings(LONDON, with_queue(with_queue(PARIS, "orders", depth=20_000), "audit", depth=8_000))
    assert "orders 20000 (5 s at 4000 a second)" in told.text
    assert "audit 8000 (2 s at 4000 a second)" in told.text


RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
LONDON, PARIS = broker("london"), broker("paris")
BOTH = seen(LONDON, PARIS)


def drafted(verb: str, operation: str, look: BridgesSeen = BOTH, target: str = "paris", **more: Any) -> Draft:
    """One step of an operation from the other site; `units` are those that are asked for."""
    ask = Ask(operation, target, units=more.get("units"))
    move = Move(ask, "london" if target == "paris" else "paris", RECIPE.baseline(look), more.get("moved", ()))
    return RECIPE.draft(RunbookStep(verb, "both", 1, words=more.get("words", {})), look, move)


def told(calls: tuple[Call, ...]) -> list[tuple[str, Goal, str]]:
    return [(call.site, call.goal, call.thing) for call in calls]


def closing(site: str, *units: str) -> list[tuple[str, Goal, str]]:
    """The roles of all first, so that nobody who is cut comes back."""
    return [(site, goal, unit) for goal in (Goal.SHUT_OUT, Goal.CLOSE, Goal.CUT) for unit in units]


def opening(site: str, *units: str) -> list[tuple[str, Goal, str]]:
    admits = [(site, Goal.ADMIT, unit) for unit in (*units, ALL)]
    return [*((site, Goal.OPEN, unit) for unit in units), *admits] if units else []


def away(view: BrokerView) -> BrokerView:
    """The door of its clients is closed."""
    return replace(view, acceptors=(door("clients", CLIENTS, view.site, started=False), *view.acceptors[1:]))


FENCED, SERVES = broker("london", closed=True), shut(PARIS, "audit", by_role=False, by_pause=False)


@pytest.mark.parametrize(
    ("verb", "operation", "look", "more", "calls", "inverse"),
    [
        # Of a part only that is fenced, and let in again; an undo opens nothing that was closed before.
        ("fence", "swapover", BOTH, {"units": ("audit",)}, closing("london", "audit"), opening("london", "audit")),
        ("fence", "swapover", BOTH, {"moved": ("orders",)}, closing("london", "audit"), opening("london", "audit")),
        ("fence", "swapover", seen(shut(LONDON, "orders"), PARIS), {}, None, opening("london", "audit")),
        # A lost site that is closed is not fenced again.
        ("fence", "failover", seen(away(LONDON), PARIS), {}, [], None),
        ("fence", "failover", BOTH, {}, closing("london", *UNITS), None),
        # An unfence opens what is closed at both sites, and nothing else.
        ("unfence", "unfence", seen(FENCED, PARIS), {}, opening("london", *UNITS), None),
        ("unfence", "unfence", seen(FENCED, SERVES), {}, opening("london", "orders"), None),
        ("unfence", "unfence", seen(FENCED, PARIS), {"units": ("audit",)},
         opening("london", "audit"), closing("london", "audit")),
        ("unfence", "unfence", BOTH, {}, [], None),
    ],
)  # fmt: skip
def test_what_is_closed_and_opened(
    verb: str, operation: str, look: BridgesSeen, more: Any, calls: Any, inverse: Any
) -> None:
    draft = drafted(verb, operation, look, **more)
    assert calls is None or told(draft.calls) == calls
    assert inverse is None or told(draft.inverse) == inverse


@pytest.mark.parametrize(
    ("london", "paris", "is_opened"),
    [(away(LONDON), PARIS, True), (away(LONDON), SERVES, False), (away(shut(LONDON, "audit")), SERVES, True)],
)
def test_an_unfence_opens_no_door_behind_which_a_queue_of_the_other_site_would_be_open(
    london: BrokerView, paris: BrokerView, is_opened: bool
) -> None:
    assert ("clients" in [each.thing for each in drafted("unfence", "unfence", seen(london, paris)).calls]) is is_opened


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
    owes = replace(PARIS, documents={document(DebtKind.FENCE, "london", "paris"): "{}"})
    draft = drafted("fence", "fence", seen(london, owes), **more)
    written = [call.goal for call in (*draft.calls, *draft.inverse) if call.goal in (Goal.STRIKE, Goal.WRITE)]
    assert written == ([Goal.STRIKE, Goal.WRITE] if pays else [])


def test_an_activation_opens_a_door_that_is_closed_and_leaves_it_open() -> None:
    draft = drafted("activate", "swapover", seen(LONDON, away(PARIS)))
    assert told(draft.calls)[-1] == ("paris", Goal.OPEN, "clients")
    assert "clients" not in [call.thing for call in draft.inverse]


def test_a_return_starts_what_is_stopped_shuts_its_doors_again_and_holds_what_is_delivered() -> None:
    stopped = (bridge("paris", "orders", started=False),)
    part = shut(broker("paris", closed=False), "audit")
    paris = with_flow(part, "orders", lambda each: replace(each, bridges=stopped))
    draft = drafted("reinstate", "reinstate", seen(away(LONDON), paris), "london")

    parts = {name: told(tuple(each for each in draft.calls if each.part == name)) for name in ("hold", "deliver")}
    assert parts == {"hold": [("paris", Goal.PAUSE, "orders")], "deliver": [("paris", Goal.RESUME, "orders")]}
    let_in = {("london", Goal.LINK_UP, "clients"), ("paris", Goal.LINK_UP, "bridge.mirror.london.orders")}
    assert let_in <= {*told(tuple(each for each in draft.calls if each.part == "let in"))}
    assert told(draft.inverse) == [*parts["deliver"], ("london", Goal.LINK_DOWN, "clients")]


def test_a_wait_may_restart_the_bridges_of_what_moves_and_of_the_ids_only() -> None:
    draft = drafted("drain", "swapover", units=("orders",))
    names = {call.thing for call in draft.calls}
    assert names == {"bridge.mirror.paris.orders", "bridge.mirror.paris.notification.ids"}
    assert all(call.when is not None for call in draft.calls)
    assert {call.goal for call in draft.inverse} == {Goal.LINK_UP}
