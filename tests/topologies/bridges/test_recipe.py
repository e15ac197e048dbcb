"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.patience import Patience
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.bridges import procedure
from dr_ctl.topologies.bridges.seen import BridgesSeen
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.debts import document
from tests.topologies.bridges.views import CLIENTS, UNITS, bridge, broker, door, seen, shut, with_flow

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
