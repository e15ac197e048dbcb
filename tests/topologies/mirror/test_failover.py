"""A failover of a mirrored pair: what speaks against it, exactly which calls it makes, and what puts them back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.errors import TimedOut, Unreachable
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine import runbook
from dr_ctl.engine.plan import Ask, Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE, DESTROY_QUEUE
from dr_ctl.topologies.common.seen import Silent
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.view import MirrorSeen
from tests.topologies.mirror.pair import Management, mirrored_pair
from tests.topologies.mirror.test_recipe import observed
from tests.topologies.mirror.views import PAIR, at_both, broker, consumer, door, doors, queue, seen, with_queue

ASK = Ask("failover", "paris")
REFUSED = Unreachable("london: connection refused", refused=True)
GONE = Silent(PAIR, "london", REFUSED, ports_refuse=True)
LONDON, PARIS = at_both("orders.in", "orders.audit", depth=3)
WAITING = replace(LONDON, acceptors=doors("london", serving=False))
MIRROR = beans.acceptor("broker-paris", "mirror")
SERVER = beans.server("broker-paris")
RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
OWED = ("dr-ctl.debt.paris.fence.london", "dr-ctl.debt.paris.quarantine.london")


def move(before: MirrorSeen) -> Move:
    return Move(ASK, "london", RECIPE.baseline(before))


def draft(verb: str, look: MirrorSeen, before: MirrorSeen | None = None) -> Draft:
    [line] = [step for step in runbook.load("failover", runbook.shipped()).steps if step.verb == verb]
    return RECIPE.draft(line, look, move(before or look))


def short(calls: tuple[Call, ...]) -> list[tuple[str, Any, str | None]]:
    """Each call by its operation and by what it concerns: the bean of a door, the name of a document."""

    def concerns(call: Call) -> Any:
        if change(call).operation == CREATE_QUEUE:
            return json.loads(str(change(call).arguments[0]))["name"]
        return change(call).arguments[0] if change(call).arguments else change(call).bean

    assert {call.site for call in calls} <= {"paris"}
    return [(change(call).operation, concerns(call), call.when) for call in calls]


def findings(look: MirrorSeen) -> list[Finding]:
    return list(RECIPE.why_not(look, move(look)))


class TestAgainst:
    def test_a_healthy_target_beside_a_site_that_is_gone_is_only_told_who_is_gone(self) -> None:
        [found] = findings(seen(GONE, replace(PARIS, links=(replace(PARIS.links[0], connected=False),))))

        assert (found.id, found.severity, found.remedy) == ("DR-SITE-001", Severity.WARNING, REFUSED.remedy)

    @pytest.mark.parametrize("role", [Role.SERVING, Role.SICK])
    def test_a_lost_site_that_lives_refuses_it(self, role: Role) -> None:
        london = LONDON if role is Role.SERVING else Silent(PAIR, "london", TimedOut("no answer within 5 s"))

        assert findings(seen(london, PARIS))[0].id == "DR-ALIVE-001"

    @pytest.mark.parametrize(
        ("paris", "id_"),
        [
            (replace(PARIS, active=False), "DR-SITE-002"),
            (replace(PARIS, config=Config(("amqp",), ("mirror",), None)), "DR-DOOR-001"),
            (
                replace(PARIS, config=Config(("clients",), None, None),
                        acceptors=(*PARIS.acceptors, door("amqp", 5672, site="paris"))),
                "DR-DOOR-003",
            ),
        ],
    )  # fmt: skip
    def test_what_would_make_the_opened_site_useless_or_unsafe_refuses_it(self, paris: Any, id_: str) -> None:
        errors = [found for found in findings(seen(GONE, paris)) if found.severity is Severity.ERROR]

        assert [found.id for found in errors] == [id_]
        assert errors[0].remedy

    @pytest.mark.parametrize(
        ("paris", "id_"),
        [
            (replace(PARIS, prepared=("AQID",)), "DR-TX-001"),
            (replace(PARIS, lock_coordinators=("lock",)), "DR-DOOR-008"),
            (replace(PARIS, queues=tuple(PARIS.business.values())), "DR-LINK-002"),
            (replace(PARIS, acceptors=(PARIS.acceptors[0], replace(PARIS.acceptors[1], started=False))), "DR-DOOR-004"),
            (
                replace(PARIS, acceptors=(*PARIS.acceptors, door("amqp", 5672, site="paris")),
                        consumers=(consumer(port=61617),)),
                "DR-DOOR-011",
            ),
            # What only the way back needs.
            (replace(PARIS, config=Config(("clients", "mirror"), None, None)), "DR-DOOR-003"),
            (replace(PARIS, links=()), "DR-LINK-009"),
            (replace(PARIS, config=Config(("clients",), ("mirror",), "mistyped")), "DR-LINK-001"),
            (replace(PARIS, links=(replace(PARIS.links[0], started=False, connected=False),)), "DR-LINK-003"),
        ],
    )  # fmt: skip
    def test_what_can_wait_until_clients_are_served_again_is_a_warning(self, paris: Any, id_: str) -> None:
        told = {found.id: found.severity for found in findings(seen(GONE, paris))}

        assert told[id_] is Severity.WARNING
        assert Severity.ERROR not in told.values()

    def test_what_the_other_site_says_of_itself_is_not_asked(self) -> None:
        assert findings(seen(replace(WAITING, active=True, prepared=("AQID",), links=()), PARIS)) == []


class TestDrafts:
    @pytest.mark.parametrize("london", [GONE, Silent(PAIR, "london", Unreachable("?", refused=False))])
    def test_a_site_that_is_away_is_owed_its_fence_on_the_broker_that_goes_on(self, london: Silent) -> None:
        told = draft("fence", seen(london, PARIS))

        assert (told.site, told.about) == ("london", "clients cannot be shown to be kept out: the fence is owed")
        assert short(told.calls) == [(CREATE_QUEUE, OWED[0], None)]
        assert short(told.inverse) == [(DESTROY_QUEUE, OWED[0], "it stands there")]

    def test_one_that_is_seen_closed_owes_none(self) -> None:
        assert draft("fence", seen(WAITING, PARIS)) == Draft("london", "its doors are closed already")

    def test_residue_is_kept_out_by_the_door_of_the_link_and_written_down_before(self) -> None:
        told = draft("quarantine", seen(GONE, PARIS))

        assert short(told.calls) == [(CREATE_QUEUE, OWED[1], None), ("stop()", MIRROR, None)]
        assert short(told.inverse) == [
            ("start()", MIRROR, "it is closed"),
            (DESTROY_QUEUE, OWED[1], "it stands there"),
        ]

    def test_a_door_that_was_closed_before_is_neither_closed_nor_opened_again(self) -> None:
        shut = replace(PARIS, acceptors=(PARIS.acceptors[0], replace(PARIS.acceptors[1], started=False)))

        told = draft("quarantine", seen(GONE, shut))

        assert short(told.calls) == [(CREATE_QUEUE, OWED[1], None)]
        assert short(told.inverse) == [(DESTROY_QUEUE, OWED[1], "it stands there")]

    @pytest.mark.parametrize("boots_open", [True, False])
    def test_whether_a_quarantine_outlasts_a_restart_is_written_down(self, boots_open: bool) -> None:
        doors = (PARIS.acceptors[0], replace(PARIS.acceptors[1], opens_at_boot=boots_open))

        told = draft("quarantine", seen(GONE, replace(PARIS, acceptors=doors)))

        written = json.loads(str(change(told.calls[0]).arguments[0]))
        assert json.loads(written["user"])["lasting"] is not boots_open

    @pytest.mark.parametrize(("verb", "name"), [("fence", OWED[0]), ("quarantine", OWED[1])])
    def test_a_debt_of_an_earlier_run_is_neither_written_nor_struck(self, verb: str, name: str) -> None:
        owing = replace(PARIS, documents={name: ""})

        told = draft(verb, seen(GONE, owing))

        assert name not in [what for _, what, _ in short((*told.calls, *told.inverse))]

    def test_a_resumed_run_undoes_to_what_was_before_it_not_to_what_it_finds(self) -> None:
        before = seen(GONE, PARIS)
        half = replace(
            PARIS,
            acceptors=(PARIS.acceptors[0], replace(PARIS.acceptors[1], started=False)),
            documents=dict.fromkeys(OWED, ""),
        )

        for verb in ("fence", "quarantine"):
            assert draft(verb, seen(GONE, half), before).calls == ()
            assert draft(verb, seen(GONE, half), before).inverse == draft(verb, before).inverse

    def test_settling_has_a_bound(self) -> None:
        assert draft("settle", seen(GONE, PARIS)).limits == {"within": Patience().settle_s}
        own = RunbookStep("settle", "target", 9, {"within": 0.5})
        assert RECIPE.draft(own, seen(GONE, PARIS), move(seen(GONE, PARIS))).limits == {"within": 0.5}

    def test_the_doors_open_as_in_a_planned_move(self) -> None:
        told = draft("activate", seen(GONE, PARIS))

        clients = beans.acceptor("broker-paris", "clients")
        assert short(told.calls) == [("start()", clients, None)]
        assert short(told.inverse) == [("stop()", clients, "it is open")]

    def test_a_lost_site_that_is_back_when_a_run_is_finished_is_left_alone(self) -> None:
        serving = replace(PARIS, acceptors=doors("paris", serving=True))
        paused = with_queue(broker("london", serving=False), queue("orders.in", 3, paused=True))

        assert draft("activate", seen(paused, serving), before=seen(GONE, PARIS)).calls == ()


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
    drafts = [draft(verb, look) for verb in ("fence", "quarantine", "activate")]

    for call in [call for told in drafts for call in told.calls][:cut]:
        paris.execute(change(call).bean, change(call).operation, change(call).arguments)
    for told in reversed(drafts):
        for call in told.inverse:
            if _due(call, paris):
                paris.execute(change(call).bean, change(call).operation, change(call).arguments)

    assert paris.settable() == before


def _due(call: Call, site: Management) -> bool:
    doors_open = site.settable()["doors"]
    return {
        "it is closed": lambda: not doors_open[beans.parts(change(call).bean)["name"]],
        "it is open": lambda: doors_open[beans.parts(change(call).bean)["name"]],
        "it stands there": lambda: site.document(str(change(call).arguments[0])) is not None,
    }[str(call.when)]()
