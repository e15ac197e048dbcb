"""The return of a lost site to a mirrored pair: what speaks against it, its exact calls, and what puts them back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.errors import Unreachable
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine import runbook
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE, DESTROY_QUEUE
from dr_ctl.topologies.artemis.operations import PAUSE_LASTING, RESUME
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.drafts.shipping import START_LINK
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen
from tests.topologies.mirror.pair import mirrored_pair
from tests.topologies.mirror.test_recipe import observed
from tests.topologies.mirror.views import PAIR, at_both, doors, queue, seen, with_queue

OWED = ("dr-ctl.debt.paris.fence.london", "dr-ctl.debt.paris.quarantine.london")
LINK = beans.acceptor("broker-paris", "mirror")
CLIENTS = {site: beans.acceptor(f"broker-{site}", "clients") for site in ("london", "paris")}
QUEUES = {name: beans.queue("broker-paris", name, "anycast", name) for name in ("orders.in", "orders.audit")}
OPEN, PARIS = at_both("orders.in", "orders.audit", depth=3)
LONDON = replace(OPEN, acceptors=doors("london", serving=False))
# As a failover leaves it: it serves, the door of the link is closed, both debts stand there.
SERVING = replace(
    PARIS,
    acceptors=(doors("paris", serving=True)[0], replace(doors("paris", serving=True)[1], started=False)),
    links=(replace(PARIS.links[0], connected=False),),
    documents=dict.fromkeys(OWED, ""),
)
MENDED = replace(SERVING, acceptors=doors("paris", serving=True), links=PARIS.links, documents={})
RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())


def move(before: MirrorSeen, operation: str = "failback") -> Move:
    return Move(Ask(operation, "london"), "paris", RECIPE.baseline(before))


def draft(verb: str, look: MirrorSeen, before: MirrorSeen | None = None, recipe: Recipe[BrokerView] = RECIPE) -> Draft:
    [line] = [step for step in runbook.load("failback", runbook.shipped()).steps if step.verb == verb]
    return recipe.draft(line, look, move(before or look))


def exact(calls: tuple[Call, ...]) -> list[Any]:
    return [(call.site, change(call).operation, change(call).bean, change(call).arguments, call.when) for call in calls]


def ids(look: MirrorSeen) -> list[tuple[str, Severity]]:
    found: list[Finding] = list(RECIPE.why_not(look, move(look)))
    return [(each.id, each.severity) for each in found]


def test_what_the_return_itself_puts_right_does_not_speak_against_it() -> None:
    unstarted = replace(LONDON, links=(replace(LONDON.links[0], started=False, connected=False),))

    assert ids(seen(unstarted, SERVING)) == []


@pytest.mark.parametrize(
    ("look", "id_"),
    [
        (seen(Silent(PAIR, "london", Unreachable("?", refused=False)), SERVING), "DR-SITE-001"),
        (seen(LONDON, Silent(PAIR, "paris", Unreachable("?", refused=False))), "DR-SITE-001"),
        (seen(replace(LONDON, prepared=("AQID",)), SERVING), "DR-TX-001"),
        (seen(LONDON, replace(SERVING, links=())), "DR-LINK-009"),
    ],
)
def test_what_it_cannot_put_right_refuses_it(look: MirrorSeen, id_: str) -> None:
    assert ids(look) == [(id_, Severity.ERROR)]


def test_a_site_that_came_back_open_is_closed_before_anything_else_and_that_is_said() -> None:
    look = seen(OPEN, SERVING)

    assert ids(look) == [("DR-RETURN-001", Severity.WARNING)]
    told = draft("residue", look)
    assert exact(told.calls) == [("london", "stop()", CLIENTS["london"], (), None)]
    assert told.inverse == (), "it is never opened again beside the other"


def test_one_that_came_back_closed_is_only_counted() -> None:
    assert draft("residue", seen(LONDON, SERVING)).calls == ()


def test_it_is_taken_in_with_exactly_these_calls() -> None:
    told = draft("reinstate", seen(LONDON, SERVING))

    server = beans.server("broker-paris")
    assert exact(told.calls) == [
        # A restart must not let residue meet consumers: the pause lasts.
        ("paris", PAUSE_LASTING, QUEUES["orders.in"], (True,), None),
        ("paris", PAUSE_LASTING, QUEUES["orders.audit"], (True,), None),
        ("paris", "start()", LINK, (), None),
        ("paris", RESUME, QUEUES["orders.in"], (), None),
        ("paris", RESUME, QUEUES["orders.audit"], (), None),
        ("paris", DESTROY_QUEUE, server, (OWED[0], True), None),
        ("paris", DESTROY_QUEUE, server, (OWED[1], True), None),
    ]
    assert exact(told.inverse) == [
        ("paris", RESUME, QUEUES["orders.in"], (), "it is paused"),
        ("paris", RESUME, QUEUES["orders.audit"], (), "it is paused"),
        ("paris", "stop()", LINK, (), "it is open"),
        *(
            ("paris", CREATE_QUEUE, server, change(told.inverse[-n]).arguments, "it does not stand there")
            for n in (2, 1)
        ),
    ]
    assert [json.loads(str(change(call).arguments[0]))["name"] for call in told.inverse[-2:]] == list(OWED)
    assert told.limits == {"stall": 20.0}, "what moves is not timed out"


def test_what_was_paused_before_stays_paused() -> None:
    told = draft("reinstate", seen(LONDON, with_queue(SERVING, queue("orders.in", 3, site="paris", paused=True))))

    assert QUEUES["orders.in"] not in [change(call).bean for call in (*told.calls, *told.inverse)]


def test_pauses_that_an_interrupted_run_left_are_lifted() -> None:
    paused = with_queue(SERVING, queue("orders.in", 3, site="paris", paused=True))

    told = draft("reinstate", seen(LONDON, paused), before=seen(LONDON, SERVING))

    mine = [change(call).operation for call in told.calls if change(call).bean == QUEUES["orders.in"]]
    assert mine == [RESUME]
    assert set(told.inverse) == set(draft("reinstate", seen(LONDON, SERVING)).inverse)


def test_every_queue_is_paused_whatever_the_settings_narrow() -> None:
    recipe = procedure.open_.recipe(Queues(include=("orders.in",)), Drain(), Patience())

    told = draft("reinstate", seen(LONDON, SERVING), recipe=recipe)

    assert {change(call).bean for call in told.calls if change(call).operation == PAUSE_LASTING} == set(QUEUES.values())


def test_a_link_of_the_returned_site_that_is_stopped_is_started() -> None:
    stopped = replace(LONDON, links=(replace(LONDON.links[0], started=False, connected=False),))

    told = draft("reinstate", seen(stopped, SERVING))

    assert ("london", START_LINK, beans.server("broker-london"), ("paris",), None) in exact(told.calls)


@pytest.mark.parametrize(
    ("look", "taken_in"),
    [
        (seen(LONDON, MENDED), True),
        (seen(LONDON, SERVING), False),
        (seen(LONDON, replace(MENDED, documents={OWED[0]: ""})), False),
        (seen(LONDON, replace(MENDED, acceptors=SERVING.acceptors)), False),
        (seen(replace(LONDON, documents={"dr-ctl.debt.london.fence.paris": ""}), MENDED), False),
        (seen(replace(LONDON, documents={"dr-ctl.lock.london.3": ""}), MENDED), True),
        (seen(OPEN, MENDED), False),
        (seen(replace(LONDON, links=(replace(LONDON.links[0], connected=False),)), MENDED), False),
        (seen(LONDON, replace(MENDED, pending_acks=2)), False),
    ],
    ids=[
        "all is well",
        "both owed",
        "a fence",
        "the link's door is closed",
        "owed at home",
        "only a lock",
        "open",
        "its link ships nothing",
        "not all of it is applied",
    ],
)
def test_it_is_taken_in_where_nothing_is_owed_kept_out_or_under_way(look: MirrorSeen, taken_in: bool) -> None:
    assert (RECIPE.holds_already(look, move(look, "reinstate")) is not None) is taken_in


@pytest.mark.parametrize("london", [LONDON, OPEN], ids=["came_back_closed", "came_back_open"])
def test_the_move_back_opens_every_door_that_is_closed_by_then(london: Any) -> None:
    told = draft("activate", seen(london, SERVING))

    assert exact(told.calls) == [("london", "start()", CLIENTS["london"], (), None)]
    assert exact(told.inverse) == [("london", "stop()", CLIENTS["london"], (), "it is open")]


@settings(max_examples=60, deadline=None)
@given(paused=st.sets(st.sampled_from(sorted(QUEUES))), mirror=st.booleans(), cut=st.integers(0, 7))
def test_wherever_the_return_is_cut_its_inverse_brings_back_the_baseline(
    paused: set[str], mirror: bool, cut: int
) -> None:
    london, paris = mirrored_pair()
    london.acceptors["clients"]["Started"], paris.acceptors["clients"]["Started"] = False, True
    paris.acceptors["mirror"]["Started"] = mirror
    for name in OWED:
        paris.queue(name, InternalQueue=True, User='{"since": "a day", "lasting": true}')
    for bean, told in paris.queues.items():
        told["Paused"] = beans.parts(bean)["queue"] in paused
    before = [each.settable() for each in (london, paris)]
    step = draft("reinstate", observed(london, paris))

    for call in step.calls[:cut]:
        paris.execute(change(call).bean, change(call).operation, change(call).arguments)
    for call in step.inverse:
        paris.execute(change(call).bean, change(call).operation, change(call).arguments)
    assert {debt.since for debt in observed(london, paris).debts} == {"a day"}

    assert [each.settable() for each in (london, paris)] == before
