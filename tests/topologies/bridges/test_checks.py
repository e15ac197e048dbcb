"""The checks of a move where diverts and bridges join the sites: one thing wrong gives exactly its finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.bridges.checks import SKIPS_PER_S, of_broker, of_move
from dr_ctl.topologies.bridges.messages import COMPARED
from dr_ctl.topologies.bridges.view import BrokerView, Flow
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Config
from tests.topologies.bridges.views import (
    BRIDGES,
    CLOSED,
    IDS,
    OPEN,
    UNITS,
    arrived,
    bridge,
    broker,
    buffer,
    connection,
    flow,
    queue,
    seen,
    with_flow,
    with_queue,
    with_role,
)

LONDON, PARIS = broker("london"), broker("paris")
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


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


def test_nothing_speaks_against_a_pair_that_is_well() -> None:
    assert findings() == []
    assert findings(LONDON, PARIS, "orders") == []


ONE = [
    (replace(LONDON, active=False), PARIS, "DR-SITE-002", ERROR, "not active"),
    (without_bridges(LONDON), PARIS, "DR-BRIDGE-002", ERROR, "AMQ224058"),
    (replace(LONDON, ids=None), PARIS, "DR-BRIDGE-003", ERROR, "would come twice"),
    (bridged(started=False), PARIS, "DR-BRIDGE-004", WARNING, "bridge.mirror.paris.orders is stopped"),
    (bridged(connected=False), PARIS, "DR-LINK-004", WARNING, "not connected"),
    (orders(buffer=buffer("london", "orders", paused=True)), PARIS, "DR-LINK-005", ERROR, "is paused"),
    (replace(LONDON, queues=(*LONDON.queues, queue("loose"))), PARIS, "DR-BRIDGE-005", WARNING, "copies loose"),
    (orders(buffer=None), PARIS, "DR-BRIDGE-006", ERROR, "where no queue is"),
    (orders(bridges=()), PARIS, "DR-BRIDGE-006", ERROR, "no bridge reads mirror.paris.orders"),
    (multicast(speaks="AMQP"), PARIS, "DR-BRIDGE-019", WARNING, "is multicast and orders is anycast"),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019", ERROR, '<anycast><queue name="mirror.paris.orders"/></anycast>'),
    (multicast(unrouted=3), PARIS, "DR-BRIDGE-019", ERROR, "3 message(s) for orders found no queue at mirror.orders"),
    (replace(LONDON, unrouted={"mirror.orders": 3}), PARIS, "DR-BRIDGE-019", WARNING, "has no copy"),
    (
        with_queue(replace(LONDON, unrouted={"mirror.orders": 3}), "orders", depth=COMPARED + 1),
        PARIS,
        "DR-BRIDGE-019",
        ERROR,
        "`--accept-difference orders=3`",
    ),
    (
        orders(buffer=buffer("london", "orders", 5, scheduled=2)),
        PARIS,
        "DR-BRIDGE-020",
        ERROR,
        "`--accept-difference orders=2`",
    ),
    (bridged(origin=None), PARIS, "DR-BRIDGE-007", ERROR, "writes no ARTEMIS_MESSAGE_ORIGIN"),
    (bridged(origin="paris"), PARIS, "DR-BRIDGE-007", ERROR, "or of nobody"),
    (filtered(None), PARIS, "DR-BRIDGE-007", ERROR, "its filter is missing"),
    (filtered("ARTEMIS_MESSAGE_ORIGIN = 'london'"), PARIS, "DR-BRIDGE-007", ERROR, "or of nobody"),
    (LONDON, with_role(PARIS, "orders", {**CLOSED, "bridge": ()}), "DR-BRIDGE-008", ERROR, "role bridge may not send"),
    (replace(LONDON, config=Config(("clients",), ("bridge",), None)), PARIS, "DR-BRIDGE-009", ERROR, "which roles"),
    (LONDON, replace(PARIS, arrived=(arrived("paris", consumers=0),)), "DR-BRIDGE-010", ERROR, "nothing applies"),
    (LONDON, replace(PARIS, queues=PARIS.queues[1:]), "DR-BRIDGE-011", ERROR, "ships it into nothing"),
    (LONDON, replace(PARIS, unrouted={"orders": 50}), "DR-BRIDGE-011", WARNING, "50 message(s) for orders"),
    (
        LONDON,
        with_queue(with_role(PARIS, "orders", OPEN), "orders", paused=False),
        "DR-BRIDGE-012",
        ERROR,
        "nothing keeps clients of orders out of paris",
    ),
    (LONDON, with_role(PARIS, "orders", OPEN), "DR-BRIDGE-013", WARNING, "is paused there, and clients may send to it"),
    (LONDON, with_queue(PARIS, "orders", depth=SKIPS_PER_S + 1), "DR-BRIDGE-014", INFO, "1 s at 4000 a second"),
    (replace(LONDON, users=None), PARIS, "DR-FENCE-005", WARNING, "cannot tell"),
    (
        replace(LONDON, connections=(connection("app", BRIDGES),)),
        PARIS,
        "DR-FENCE-006",
        ERROR,
        "the bridges' user app has a role that a fence keeps out",
    ),
]


@pytest.mark.parametrize(("london", "paris", "id_", "severity", "words"), ONE)
def test_one_thing_wrong_is_one_finding(
    london: BrokerView, paris: BrokerView, id_: str, severity: Severity, words: str
) -> None:
    mine = [each for each in findings(london, paris) if each.id.startswith(("DR-BRIDGE", "DR-LINK", "DR-FENCE"))]
    if id_ == "DR-SITE-002":
        mine = findings(london, paris)

    assert [(each.id, each.severity) for each in mine] == [(id_, severity)]
    assert words in mine[0].text + mine[0].remedy
    assert mine[0].remedy


@pytest.mark.parametrize("routing", ["MULTICAST", None])
def test_a_buffer_of_another_kind_takes_what_its_divert_marks_anew(routing: str | None) -> None:
    assert findings(multicast(routing, "AMQP"), PARIS) == []


def test_what_found_no_buffer_is_left_behind_where_a_person_says_so() -> None:
    deep = with_queue(replace(LONDON, unrouted={"mirror.orders": 3}), "orders", depth=COMPARED + 1)

    def told(accepted: int) -> list[Severity]:
        ask = Ask("swapover", "paris", accept_difference={"orders": accepted})
        return [each.severity for each in of_broker(deep, ask) if each.id == "DR-BRIDGE-019"]

    assert (told(4), told(3), told(2)) == ([WARNING], [WARNING], [ERROR])


def test_a_look_tells_of_a_copy_that_takes_sends_and_names_the_command_that_closes_it() -> None:
    half_open = with_role(PARIS, "orders", OPEN)

    told = [each for each in seen(LONDON, half_open).findings() if each.id == "DR-BRIDGE-013"]

    assert ["`dr-ctl fence paris --queues orders`" in each.remedy for each in told] == [True]
    assert not [each for each in seen(LONDON, PARIS).findings() if each.id == "DR-BRIDGE-013"]


def test_a_broker_without_any_such_divert_is_not_of_this_topology() -> None:
    told = findings(broker("london", among=()), broker("paris", among=()))

    assert [each.id for each in told if each.id == "DR-BRIDGE-001"] == ["DR-BRIDGE-001"] * 2


def test_what_is_copied_one_way_only_would_be_captured_no_more() -> None:
    told = findings(LONDON, replace(PARIS, flows=PARIS.flows[1:]))

    assert {each.id: each.severity for each in told}.items() >= {
        "DR-BRIDGE-006": ERROR,
        "DR-BRIDGE-005": WARNING,
    }.items()
    assert "no divert copies orders back to london" in told[0].text


def test_of_queues_that_are_not_to_move_only_their_own_are_told() -> None:
    """What a run does not touch does not keep it; the ids are everybody's."""
    stopped = bridged(started=False)
    missing = replace(PARIS, queues=PARIS.queues[1:])

    assert findings(stopped, missing, "audit") == []
    assert {each.id for each in findings(stopped, missing, "orders")} == {"DR-BRIDGE-004", "DR-BRIDGE-011"}
    unshipped = replace(LONDON, ids=flow("london", IDS, bridges=(bridge("london", IDS, started=False),)))
    assert {each.id for each in findings(unshipped, PARIS, "audit")} == {"DR-BRIDGE-004"}


def test_the_deeper_copies_are_named_with_the_time_that_they_take() -> None:
    paris = with_queue(with_queue(PARIS, "orders", depth=20_000), "audit", depth=8_000)

    [told] = findings(LONDON, paris)

    assert "orders 20000 (5 s at 4000 a second)" in told.text
    assert "audit 8000 (2 s at 4000 a second)" in told.text
    assert findings(with_queue(LONDON, "orders", depth=20_000), with_queue(PARIS, "orders", depth=20_000)) == []


def test_a_role_that_no_bridge_may_use_is_not_taken_for_refused() -> None:
    """Only what may send nearly everywhere can be the bridges' role."""
    assert len(UNITS) == 2
    once = with_role(PARIS, "orders", {**CLOSED, "reports": ("send",)})

    assert findings(LONDON, once) == []
