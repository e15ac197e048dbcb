"""What a plan has where something is otherwise than usual; the usual ones stand in tests/record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.patience import Patience
from dr_ctl.engine import runbook
from dr_ctl.engine.plan import Ask, Call, Plan
from dr_ctl.engine.planner import plan as decide
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen
from tests.topologies.mirror.views import at_both, broker, door, doors, queue, seen, with_queue

BOOK = runbook.load("swapover", runbook.shipped())
LONDON, PARIS = at_both("orders.in", "orders.audit", depth=3)
CLIENTS = {site: beans.acceptor(f"broker-{site}", "clients") for site in ("london", "paris")}
QUEUE = {name: beans.queue("broker-london", name, "anycast", name) for name in ("orders.in", "orders.audit")}
CHANGING = ("catch-up", "quiesce", "fence", "drain", "activate")


def recipe(queues: Queues | None = None) -> Recipe[BrokerView]:
    return procedure.open_.recipe(queues or Queues(), Drain(), Patience())


def planned(look: MirrorSeen, **asked: Any) -> Plan:
    decided = decide(BOOK, recipe(), look, Ask("swapover", "paris", **asked))
    assert isinstance(decided, Plan)
    return decided


def draft(verb: str, look: MirrorSeen, queues: Queues | None = None, before: MirrorSeen | None = None) -> Draft:
    how = recipe(queues)
    return how.draft(
        RunbookStep(verb, "both", 1), look, Move(Ask("swapover", "paris"), "london", how.baseline(before or look))
    )


def test_limits_are_those_of_runbook_settings_and_options() -> None:
    usual = {step.verb: dict(step.limits) for step in planned(seen(LONDON, PARIS)).steps}
    asked = {step.verb: dict(step.limits) for step in planned(seen(LONDON, PARIS), timeout_s=7.0).steps}

    assert (usual["catch-up"], usual["quiesce"]) == ({"within": 60.0}, {"within": 5.0})
    assert (usual["drain"], usual["verify"]) == ({"within": 60.0, "stall": 20.0}, {"within": 60.0, "stable": 3.0})
    assert (asked["drain"]["within"], asked["verify"]["within"]) == (7.0, 7.0)


def test_a_draft_changes_nothing_it_was_given() -> None:
    look = seen(LONDON, with_queue(PARIS, queue("late", 2, site="paris", paused=True)))
    told = repr(look)

    for verb in CHANGING:
        assert draft(verb, look) == draft(verb, look)
    assert repr(look) == told


def test_what_is_paused_already_is_neither_paused_nor_resumed() -> None:
    look = seen(with_queue(LONDON, queue("orders.in", 3, paused=True)), PARIS)

    for verb in ("quiesce", "drain"):
        told = draft(verb, look)
        assert not [call for call in (*told.calls, *told.inverse) if change(call).bean == QUEUE["orders.in"]]
    assert recipe().baseline(look)["london"]["orders-1"]["paused"] == ["orders.in"]  # type: ignore[index,call-overload]


def test_queues_that_the_settings_leave_out_are_not_paused() -> None:
    queues = Queues(include=("orders.*",), exclude=("orders.audit",))

    told = draft("quiesce", seen(LONDON, PARIS), queues)

    sure = [change(call).bean for call in told.calls if call.when is None]
    assert (sure, [change(call).bean for call in told.inverse]) == ([QUEUE["orders.in"]], [QUEUE["orders.in"]])


def test_where_nothing_may_be_paused_no_later_queue_is_paused_either() -> None:
    told = draft("quiesce", seen(LONDON, PARIS), Queues(include=("nothing",)))

    assert (told.calls, told.inverse) == ((), ())


def test_only_doors_that_are_open_are_closed_and_only_those_come_back() -> None:
    two = (*doors("london", serving=True), door("mqtt", 1883, started=False))
    look = seen(replace(LONDON, acceptors=two, config=Config(("clients", "mqtt"), ("mirror",), None)), PARIS)

    told = draft("fence", look)

    assert [change(call).bean for call in told.calls] == [CLIENTS["london"]]
    assert [change(call).bean for call in told.inverse] == [CLIENTS["london"]]


def test_a_link_that_was_stopped_before_the_run_is_not_started_by_undoing_it() -> None:
    stopped = replace(PARIS, links=(replace(PARIS.links[0], started=False),))

    told = draft("catch-up", seen(LONDON, stopped))

    assert [call.site for call in told.inverse] == ["london"]


def test_the_inverse_comes_from_before_the_run_and_not_from_what_is_seen_now() -> None:
    """A resumed run sees the source closed and its queues paused: its own doing, which undo must put back."""
    before = seen(LONDON, PARIS)
    interrupted = replace(LONDON, acceptors=doors("london", serving=False))
    for name in QUEUE:
        interrupted = with_queue(interrupted, queue(name, 3, paused=True))
    now = seen(interrupted, PARIS)

    for verb in ("fence", "quiesce"):
        told = draft(verb, now, before=before)
        assert (told.calls, told.inverse) == ((), draft(verb, before).inverse)
        assert told.inverse
    assert [change(call).operation for call in draft("drain", now, before=before).calls[:2]] == ["resume()", "resume()"]


def test_a_finishing_run_lifts_what_is_still_paused_when_it_activates() -> None:
    paused = with_queue(broker("london", serving=False), queue("orders.in", 3, paused=True))
    serving = replace(PARIS, acceptors=doors("paris", serving=True))

    told = draft("activate", seen(paused, serving), before=seen(LONDON, PARIS))

    [call] = told.calls
    assert (call.site, change(call).operation, change(call).bean) == ("london", "resume()", QUEUE["orders.in"])


def test_what_is_not_replicated_is_named() -> None:
    odd = with_queue(with_queue(LONDON, queue("brief", durable=False)), queue("logs", 2))
    how = recipe(Queues(include=("orders.#", "brief")))
    move = Move(Ask("swapover", "paris"), "london", {})

    told = how.not_replicated(seen(odd, PARIS), move)

    assert "non-durable queues: brief" in told
    assert "queues left out of quiesce and parity by the settings (they move too): logs" in told
    assert len(told) == len(how.not_replicated(seen(LONDON, PARIS), move)) + 2


def usual(name: str) -> bool:
    """A client's queue."""
    return queue(name).business


@settings(deadline=None)
@given(name=st.text(min_size=1).filter(usual))
def test_any_queue_name_comes_unharmed_through_the_calls(name: str) -> None:
    told = planned(seen(*at_both(name)))

    for verb in ("quiesce", "drain"):
        step = next(each for each in told.steps if each.verb == verb)
        [mine] = [call for call in step.calls if call.when is None]
        assert beans.parts(change(mine).bean)["queue"] == name
        assert beans.parts(change(mine).bean)["address"] == name
        assert mine.about.endswith(f" {name} at london")
    assert Call.from_json(step.calls[0].as_json()) == step.calls[0]
