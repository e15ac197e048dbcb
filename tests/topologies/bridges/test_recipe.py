"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dr_ctl.core.model import Role
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
from tests.topologies.bridges.views import (
    CLIENTS,
    CLOSED,
    OPEN,
    UNITS,
    bridge,
    broker,
    door,
    seen,
    with_flow,
    with_queue,
    with_role,
)

RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
LONDON, PARIS = broker("london"), broker("paris")
BOTH = seen(LONDON, PARIS)


def drafted(verb: str, operation: str = "swapover", target: str = "paris", **more: Any) -> Draft:
    """One step of an operation from the other site; `units` are those that are asked for."""
    look: BridgesSeen = more.get("look", BOTH)
    source = "london" if target == "paris" else "paris"
    ask = Ask(operation, target, units=more.get("units"))
    move = Move(ask, source, RECIPE.baseline(more.get("began", look)), more.get("moved", ()))
    return RECIPE.draft(RunbookStep(verb, "both", 1, words=more.get("words", {})), look, move)


def told(calls: tuple[Call, ...]) -> list[tuple[str, Goal, str]]:
    return [(call.site, call.goal, call.thing) for call in calls]


def closing(site: str, *units: str, cut: bool = True) -> list[tuple[str, Goal, str]]:
    """The roles of all first, so that nobody who is cut comes back."""
    goals = (Goal.SHUT_OUT, Goal.CLOSE, *((Goal.CUT,) if cut else ()))
    return [(site, goal, unit) for goal in goals for unit in units]


def opening(site: str, *units: str) -> list[tuple[str, Goal, str]]:
    admits = [*((site, Goal.ADMIT, unit) for unit in units), (site, Goal.ADMIT, ALL)]
    return [*admits, *((site, Goal.OPEN, unit) for unit in units)]


def test_of_a_part_only_that_is_fenced_and_let_in_again() -> None:
    draft = drafted("fence", units=("audit",))

    assert told(draft.calls) == closing("london", "audit")
    assert told(draft.inverse) == opening("london", "audit")
    assert told(drafted("fence", moved=("orders",)).calls) == closing("london", "audit")


def test_an_undo_opens_nothing_that_was_closed_before() -> None:
    shut = with_queue(with_role(LONDON, "orders", CLOSED), "orders", paused=True)

    assert told(drafted("fence", look=seen(shut, PARIS)).inverse) == opening("london", "audit")


def test_a_fence_by_itself_pays_its_debt_where_it_is_of_all() -> None:
    owes = replace(PARIS, documents={document(DebtKind.FENCE, "london", "paris"): "{}"})
    look, pays = seen(LONDON, owes), (Goal.STRIKE, Goal.WRITE)

    def debt(**more: Any) -> list[Goal]:
        draft = drafted("fence", "fence", look=look, **more)
        return [call.goal for call in (*draft.calls, *draft.inverse) if call.goal in pays]

    assert debt() == [*pays]
    assert debt(units=("orders",)) == []
    shut = seen(with_role(LONDON, "audit", CLOSED), owes)
    assert [call.goal for call in drafted("fence", "fence", units=("orders",), look=shut).calls][-1] is Goal.STRIKE
    assert debt(units=("orders",), words={CUT_OFF: True}) == [*pays]


def test_a_lost_site_that_is_closed_is_not_fenced_again() -> None:
    away = replace(LONDON, acceptors=(door("clients", CLIENTS, "london", started=False),))

    assert seen(away, PARIS).roles["london"] is Role.STANDBY
    assert drafted("fence", "failover", look=seen(away, PARIS)).calls == ()
    assert told(drafted("fence", "failover").calls) == closing("london", *UNITS)


def test_an_activation_opens_a_door_that_is_closed_and_leaves_it_open() -> None:
    shut = replace(PARIS, acceptors=(door("clients", CLIENTS, "paris", started=False),))

    draft = drafted("activate", look=seen(LONDON, shut))

    assert told(draft.calls)[-1] == ("paris", Goal.OPEN, "clients")
    assert "clients" not in [call.thing for call in draft.inverse]


def test_a_return_holds_delivery_while_residue_comes_and_shuts_its_doors_again() -> None:
    back = replace(LONDON, acceptors=(door("clients", CLIENTS, "london", started=False),))
    stopped = with_flow(
        broker("paris", closed=False),
        "orders",
        lambda each: replace(each, bridges=(bridge("paris", "orders", started=False),)),
    )

    draft = drafted("reinstate", "reinstate", "london", look=seen(back, stopped))

    parts = {name: told(tuple(each for each in draft.calls if each.part == name)) for name in ("hold", "deliver")}
    assert parts["hold"] == [("paris", Goal.PAUSE, unit) for unit in UNITS]
    assert parts["deliver"] == [("paris", Goal.RESUME, unit) for unit in UNITS]
    let_in = told(tuple(each for each in draft.calls if each.part == "let in"))
    assert ("london", Goal.LINK_UP, "clients") in let_in
    assert ("paris", Goal.LINK_UP, "bridge.mirror.london.orders") in let_in
    assert told(draft.inverse) == [*parts["deliver"], ("london", Goal.LINK_DOWN, "clients")]


def test_what_the_serving_site_does_not_deliver_is_not_held_and_not_let_go() -> None:
    part = with_queue(with_role(broker("paris", closed=False), "audit", CLOSED), "audit", paused=True)

    draft = drafted("reinstate", "reinstate", "london", look=seen(LONDON, part))

    assert {call.thing for call in draft.calls if call.goal in (Goal.PAUSE, Goal.RESUME)} == {"orders"}


def unfence(look: BridgesSeen, **more: Any) -> Draft:
    """Of London: its own site is the source of a step at one site."""
    return drafted("unfence", "unfence", look=look, **more)


def test_an_unfence_opens_what_is_closed_at_both_sites_and_nothing_else() -> None:
    fenced = broker("london", closed=True)
    served = with_queue(with_role(PARIS, "audit", OPEN), "audit", paused=False)

    assert told(unfence(seen(fenced, PARIS)).calls) == opening("london", *UNITS)
    assert told(unfence(seen(fenced, served)).calls) == opening("london", "orders")
    assert told(unfence(seen(fenced, PARIS), units=("audit",)).calls) == opening("london", "audit")
    assert told(unfence(seen(fenced, PARIS), units=("audit",)).inverse) == closing("london", "audit")
    assert unfence(BOTH).calls == ()


def test_a_wait_may_restart_the_bridges_of_what_moves_and_of_the_ids_only() -> None:
    draft = drafted("drain", units=("orders",))

    names = {call.thing for call in draft.calls}
    assert names == {"bridge.mirror.paris.orders", "bridge.mirror.paris.notification.ids"}
    assert all(call.when is not None for call in draft.calls)
    assert {call.goal for call in draft.inverse} == {Goal.LINK_UP}


def test_an_unfence_opens_no_door_behind_which_a_queue_of_the_other_site_would_be_open() -> None:
    restarted = replace(LONDON, acceptors=(door("clients", CLIENTS, "london", started=False), *LONDON.acceptors[1:]))
    beside = with_queue(with_role(PARIS, "audit", OPEN), "audit", paused=False)  # Paris serves it

    def opened(london: BrokerView, paris: BrokerView) -> bool:
        calls = drafted("unfence", "unfence", look=seen(london, paris)).calls
        return "clients" in [each.thing for each in calls]

    assert opened(restarted, PARIS)
    assert not opened(restarted, beside)
    assert opened(with_role(restarted, "audit", CLOSED), beside)
