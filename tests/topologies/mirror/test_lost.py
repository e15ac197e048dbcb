"""A site is lost, and returned to its pair: what speaks against each, exactly which calls, and what puts them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.errors import TimedOut, Unreachable
from dr_ctl.core.model import Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine import runbook
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE, DESTROY_QUEUE
from dr_ctl.topologies.artemis.operations import PAUSE_LASTING, RESUME
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.drafts.shipping import START_LINK
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen
from tests.topologies.mirror.pair import Management, mirrored_pair, observed
from tests.topologies.mirror.views import PAIR, at_both, broker, consumer, door, doors, queue, seen, with_queue

REFUSED = Unreachable("london: connection refused", refused=True)
GONE = Silent(PAIR, "london", REFUSED, ports_refuse=True)
UNSEEN = Silent(PAIR, "london", Unreachable("?", refused=False))
OPEN, PARIS = at_both("orders.in", "orders.audit", depth=3)
LONDON = replace(OPEN, acceptors=doors("london", serving=False))
UNSTARTED = (replace(LONDON.links[0], started=False, connected=False),)
CLIENTS_DOOR, LINK_DOOR = PARIS.acceptors
SHUT = replace(PARIS, acceptors=(CLIENTS_DOOR, replace(LINK_DOOR, started=False)))
MIRROR = beans.acceptor("broker-paris", "mirror")
SERVER = beans.server("broker-paris")
CLIENTS = {site: beans.acceptor(f"broker-{site}", "clients") for site in ("london", "paris")}
QUEUES = {name: beans.queue("broker-paris", name, "anycast", name) for name in ("orders.in", "orders.audit")}
OWED = FENCE, QUARANTINE = ("dr-ctl.debt.paris.fence.london", "dr-ctl.debt.paris.quarantine.london")
# As a failover leaves it: it serves, the door of the link is closed, both debts stand there.
SERVING = replace(
    PARIS,
    acceptors=(doors("paris", serving=True)[0], SHUT.acceptors[1]),
    links=(replace(PARIS.links[0], connected=False),),
    documents=dict.fromkeys(OWED, ""),
)
MENDED = replace(SERVING, acceptors=doors("paris", serving=True), links=PARIS.links, documents={})
RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())


def move(before: MirrorSeen, operation: str) -> Move:
    target, source = ("paris", "london") if operation == "failover" else ("london", "paris")
    return Move(Ask(operation, target), source, RECIPE.baseline(before))


def draft(
    operation: str, verb: str, look: MirrorSeen, before: MirrorSeen | None = None, recipe: Recipe[BrokerView] = RECIPE
) -> Draft:
    [line] = [step for step in runbook.load(operation, runbook.shipped()).steps if step.verb == verb]
    return recipe.draft(line, look, move(before or look, operation))


def failover(verb: str, look: MirrorSeen, before: MirrorSeen | None = None) -> Draft:
    return draft("failover", verb, look, before)


def failback(verb: str, look: MirrorSeen, **more: Any) -> Draft:
    return draft("failback", verb, look, **more)


def against(operation: str, look: MirrorSeen) -> dict[str, str]:
    return {each.id: each.severity.value for each in RECIPE.why_not(look, move(look, operation))}


def concerns(call: Call) -> Any:
    """The bean of a door or a queue, the name of a document."""
    if change(call).operation == CREATE_QUEUE:
        return json.loads(str(change(call).arguments[0]))["name"]
    return change(call).arguments[0] if change(call).operation == DESTROY_QUEUE else change(call).bean


def short(calls: Sequence[Call], site: str = "paris") -> list[tuple[Any, ...]]:
    assert {call.site for call in calls} <= {site}
    return [(change(each).operation, concerns(each), *([each.when] if each.when else [])) for each in calls]


@pytest.mark.parametrize(
    ("paris", "told"),
    [
        (replace(PARIS, links=(replace(PARIS.links[0], connected=False),)), {}),
        # What would make the opened site useless or unsafe refuses it.
        (replace(PARIS, config=Config(("amqp",), ("mirror",), None)), {"DR-DOOR-001": "error"}),
        (replace(PARIS, config=Config(("clients",), None, None),
                 acceptors=(*PARIS.acceptors, door("amqp", 5672, site="paris"))), {"DR-DOOR-003": "error"}),
        # What can wait until clients are served again, or what only the way back needs, is a warning.
        (replace(PARIS, prepared=("AQID",)), {"DR-TX-001": "warning"}),
        (replace(PARIS, lock_coordinators=("lock",)), {"DR-DOOR-008": "warning"}),
        (replace(PARIS, queues=tuple(PARIS.business.values())), {"DR-LINK-002": "warning"}),
        (SHUT, {"DR-DOOR-004": "warning"}),
        (replace(PARIS, acceptors=(*PARIS.acceptors, door("amqp", 5672, site="paris")),
                 consumers=(consumer(port=61617),)), {"DR-DOOR-011": "warning"}),
        (replace(PARIS, config=Config(("clients", "mirror"), None, None)), {"DR-DOOR-003": "warning"}),
        (replace(PARIS, links=()), {"DR-LINK-009": "warning"}),
        (replace(PARIS, config=Config(("clients",), ("mirror",), "mistyped")), {"DR-LINK-001": "warning"}),
        (replace(PARIS, links=UNSTARTED), {"DR-LINK-003": "warning"}),
    ],
)  # fmt: skip
def test_what_speaks_against_a_failover(paris: BrokerView, told: dict[str, str]) -> None:
    found = against("failover", seen(GONE, paris))
    assert found["DR-SITE-001"] == "warning"
    assert found.items() >= told.items()
    assert [each for each in found.values() if each == "error"] == [each for each in told.values() if each == "error"]
    assert told or len(found) == 1
    look = seen(GONE, paris)
    assert all(each.remedy for each in RECIPE.why_not(look, move(look, "failover")) if each.severity is Severity.ERROR)


@pytest.mark.parametrize("london", [OPEN, Silent(PAIR, "london", TimedOut("no answer within 5 s"))])
def test_a_lost_site_that_lives_refuses_it(london: Any) -> None:
    assert next(iter(against("failover", seen(london, PARIS)))) == "DR-ALIVE-001"


def test_what_a_closed_site_says_of_itself_is_not_asked() -> None:
    assert against("failover", seen(replace(LONDON, prepared=("AQID",), links=()), PARIS)) == {}


@pytest.mark.parametrize(
    ("verb", "look", "calls", "inverse"),
    [
        ("fence", seen(GONE, PARIS), [(CREATE_QUEUE, FENCE)], [(DESTROY_QUEUE, FENCE, "it stands there")]),
        ("fence", seen(UNSEEN, PARIS), [(CREATE_QUEUE, FENCE)], [(DESTROY_QUEUE, FENCE, "it stands there")]),
        ("fence", seen(LONDON, PARIS), [], []),  # it is closed
        ("fence", seen(GONE, replace(PARIS, documents={FENCE: ""})), [], []),  # owed by an earlier run
        # Residue is kept out by the door of the link, and that is written down before.
        ("quarantine", seen(GONE, PARIS), [(CREATE_QUEUE, QUARANTINE), ("stop()", MIRROR)],
         [("start()", MIRROR, "it is closed"), (DESTROY_QUEUE, QUARANTINE, "it stands there")]),
        ("quarantine", seen(GONE, SHUT),
         [(CREATE_QUEUE, QUARANTINE)], [(DESTROY_QUEUE, QUARANTINE, "it stands there")]),
        ("quarantine", seen(GONE, replace(PARIS, documents={QUARANTINE: ""})),
         [("stop()", MIRROR)], [("start()", MIRROR, "it is closed")]),
        ("activate", seen(GONE, PARIS), [("start()", CLIENTS["paris"])], [("stop()", CLIENTS["paris"], "it is open")]),
    ],
)  # fmt: skip
def test_the_calls_of_a_failover(verb: str, look: MirrorSeen, calls: Any, inverse: Any) -> None:
    told = failover(verb, look)
    assert (short(told.calls), short(told.inverse)) == (calls, inverse)


def test_a_failover_says_what_is_owed_and_how_long_it_waits() -> None:
    owed = failover("fence", seen(GONE, PARIS))
    assert (owed.site, owed.about) == ("london", "clients cannot be shown to be kept out: the fence is owed")
    assert failover("fence", seen(LONDON, PARIS)) == Draft("london", "its doors are closed already")
    for boots_open in (True, False):  # whether a quarantine outlasts a restart is written down
        boots = replace(PARIS, acceptors=(CLIENTS_DOOR, replace(LINK_DOOR, opens_at_boot=boots_open)))
        written = json.loads(str(change(failover("quarantine", seen(GONE, boots)).calls[0]).arguments[0]))
        assert json.loads(written["user"])["lasting"] is not boots_open
    look = seen(GONE, PARIS)
    assert failover("settle", look).limits == {"within": Patience().settle_s}
    own = RunbookStep("settle", "target", 9, {"within": 0.5})
    assert RECIPE.draft(own, look, move(look, "failover")).limits == {"within": 0.5}


def test_a_resumed_failover_undoes_to_what_was_before_it_not_to_what_it_finds() -> None:
    before = seen(GONE, PARIS)
    for verb in ("fence", "quarantine"):
        told = failover(verb, seen(GONE, replace(SHUT, documents=dict.fromkeys(OWED, ""))), before)
        assert (told.calls, told.inverse) == ((), failover(verb, before).inverse)
    # A lost site that is back when a run is finished is left alone.
    serving = replace(PARIS, acceptors=doors("paris", serving=True))
    paused = with_queue(broker("london", serving=False), queue("orders.in", 3, paused=True))
    assert failover("activate", seen(paused, serving), before).calls == ()


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (seen(replace(LONDON, links=UNSTARTED), SERVING), {}),  # the return itself puts it right
        (seen(UNSEEN, SERVING), {"DR-SITE-001": "error"}),
        (seen(LONDON, replace(UNSEEN, site="paris")), {"DR-SITE-001": "error"}),
        (seen(replace(LONDON, prepared=("AQID",)), SERVING), {"DR-TX-001": "error"}),
        (seen(LONDON, replace(SERVING, links=())), {"DR-LINK-009": "error"}),
        (seen(OPEN, SERVING), {"DR-RETURN-001": "warning"}),  # it is closed before anything else
    ],
)
def test_what_speaks_against_a_return(look: MirrorSeen, told: dict[str, str]) -> None:
    assert against("failback", look) == told


PAUSES = [(PAUSE_LASTING, QUEUES["orders.in"]), (PAUSE_LASTING, QUEUES["orders.audit"])]
RESUMES = [(RESUME, QUEUES["orders.in"]), (RESUME, QUEUES["orders.audit"])]


def test_a_site_is_taken_in_with_exactly_these_calls() -> None:
    told = failback("reinstate", seen(LONDON, SERVING))
    struck = [(DESTROY_QUEUE, FENCE), (DESTROY_QUEUE, QUARANTINE)]
    assert short(told.calls) == [*PAUSES, ("start()", MIRROR), *RESUMES, *struck]
    # A restart must not let residue meet consumers: the pause lasts.
    assert [change(each).arguments for each in told.calls[:2]] == [(True,)] * 2
    assert {change(each).bean for each in (*told.calls[-2:], *told.inverse[-2:])} == {SERVER}
    assert {change(each).arguments[1] for each in told.calls[-2:]} == {True}
    assert short(told.inverse) == [
        *((*each, "it is paused") for each in RESUMES),
        ("stop()", MIRROR, "it is open"),
        *((CREATE_QUEUE, name, "it does not stand there") for name in OWED),
    ]
    assert told.limits == {"stall": 20.0}, "what moves is not timed out"


def test_a_return_changes_what_is_otherwise_at_either_site_and_nothing_else() -> None:
    closed, paused = seen(LONDON, SERVING), queue("orders.in", 3, site="paris", paused=True)
    found = seen(LONDON, with_queue(SERVING, paused))
    # What was paused before stays paused; pauses that an interrupted run left are lifted.
    kept = failback("reinstate", found)
    assert QUEUES["orders.in"] not in [change(call).bean for call in (*kept.calls, *kept.inverse)]
    lifted = failback("reinstate", found, before=closed)
    assert [each[0] for each in short(lifted.calls) if each[1] == QUEUES["orders.in"]] == [RESUME]
    assert set(lifted.inverse) == set(failback("reinstate", closed).inverse)
    # Every queue is paused, whatever the settings narrow.
    narrow = procedure.open_.recipe(Queues(include=("orders.in",)), Drain(), Patience())
    assert [each for each in short(failback("reinstate", closed, recipe=narrow).calls) if each in PAUSES] == PAUSES
    # A link of the returned site that is stopped is started.
    started = failback("reinstate", seen(replace(LONDON, links=UNSTARTED), SERVING)).calls
    [link] = [each for each in started if each.site == "london"]
    assert (change(link).operation, change(link).bean) == (START_LINK, beans.server("broker-london"))
    assert (change(link).arguments, link.when) == (("paris",), None)
    # One that came back closed is only counted; an open one is closed, and never opened again beside the other.
    assert failback("residue", closed).calls == ()
    residue = failback("residue", seen(OPEN, SERVING))
    assert (short(residue.calls, "london"), residue.inverse) == ([("stop()", CLIENTS["london"])], ())
    # The move back opens every door that is closed by then.
    for look in (closed, seen(OPEN, SERVING)):
        told = failback("activate", look)
        assert short(told.calls, "london") == [("start()", CLIENTS["london"])]
        assert short(told.inverse, "london") == [("stop()", CLIENTS["london"], "it is open")]


@pytest.mark.parametrize(
    ("look", "taken_in"),
    [
        (seen(LONDON, MENDED), True),
        (seen(LONDON, SERVING), False),
        (seen(LONDON, replace(MENDED, documents={FENCE: ""})), False),
        (seen(LONDON, replace(MENDED, acceptors=SERVING.acceptors)), False),
        (seen(replace(LONDON, documents={"dr-ctl.debt.london.fence.paris": ""}), MENDED), False),
        (seen(replace(LONDON, documents={"dr-ctl.lock.london.3": ""}), MENDED), True),
        (seen(OPEN, MENDED), False),
        (seen(replace(LONDON, links=(replace(LONDON.links[0], connected=False),)), MENDED), False),
        (seen(LONDON, replace(MENDED, pending_acks=2)), False),
    ],
    ids=["all is well", "both owed", "a fence", "the link's door is closed", "owed at home", "only a lock", "open",
         "its link ships nothing", "not all of it is applied"],
)  # fmt: skip
def test_it_is_taken_in_where_nothing_is_owed_kept_out_or_under_way(look: MirrorSeen, taken_in: bool) -> None:
    assert (RECIPE.holds_already(look, move(look, "reinstate")) is not None) is taken_in


def done(calls: Sequence[Call], *brokers: Management) -> None:
    for call in calls:
        if _due(call, brokers[-1]):
            brokers[-1].execute(change(call).bean, change(call).operation, change(call).arguments)


def _due(call: Call, site: Management) -> bool:
    return {
        "it is closed": lambda: not site.settable()["doors"][beans.parts(change(call).bean)["name"]],
        "it is open": lambda: site.settable()["doors"][beans.parts(change(call).bean)["name"]],
        "it stands there": lambda: site.document(str(change(call).arguments[0])) is not None,
    }.get(str(call.when), lambda: True)()


@settings(max_examples=60, deadline=None)
@given(mirror=st.booleans(), owed=st.sets(st.sampled_from(OWED)), cut=st.integers(0, 4))
def test_wherever_a_failover_is_cut_its_inverses_bring_back_the_baseline(
    mirror: bool, owed: set[str], cut: int
) -> None:
    paris = mirrored_pair()[1]
    paris.acceptors["mirror"]["Started"] = mirror
    for name in owed:
        paris.queue(name, InternalQueue=True, User="")
    look = MirrorSeen({"london": {PAIR: GONE}, "paris": observed(paris).sites["paris"]})
    before = paris.settable()
    drafts = [failover(verb, look) for verb in ("fence", "quarantine", "activate")]
    done([call for told in drafts for call in told.calls][:cut], paris)
    for told in reversed(drafts):
        done(told.inverse, paris)
    assert paris.settable() == before


@settings(max_examples=60, deadline=None)
@given(paused=st.sets(st.sampled_from(sorted(QUEUES))), mirror=st.booleans(), cut=st.integers(0, 7))
def test_wherever_a_return_is_cut_its_inverse_brings_back_the_baseline(
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
    step = failback("reinstate", observed(london, paris))
    for calls in (step.calls[:cut], step.inverse):
        for call in calls:
            paris.execute(change(call).bean, change(call).operation, change(call).arguments)
    assert {debt.since for debt in observed(london, paris).debts} == {"a day"}
    assert [each.settable() for each in (london, paris)] == before
