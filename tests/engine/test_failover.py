"""Failover, reinstate and failback: who is lost, at what price, who returns; planned and carried out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import ExitCode, Finding, Role, Severity
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.history import History, StepPast
from dr_ctl.engine.outcome import Done, Outcome, Refused, Unknown
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.planner import plan
from dr_ctl.engine.states import StepState
from dr_ctl.telemetry.events import StepStarted
from tests.engine.desk import DEBTS, FAILBACK, FAILOVER, LOSS, REINSTATE, Cost, Desk, at_the, book_of
from tests.engine.machine import KILLS, Fault, Machine, Recipe, Seen, back, lost

SERVING, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN
PLAN, THERE = "plan", "already there"
ALIVE, NOT_SHOWN, UNFIT = "DR-ALIVE-001", "DR-ALIVE-002", "DR-ROLE-004"
BOTH, NOT_TAKEN_IN = "DR-ROLE-001", "DR-ROLE-008"
CODES = {ALIVE: ExitCode.SERVING_SITE_ALIVE, LOSS: ExitCode.LOSS_REFUSED}
SURE = {"presume_down": "london", "reason": "the building burns"}
# The target's role, then the lost site's: serving, standby, down, sick, unknown.
LOST_UNFIT = (ALIVE, UNFIT, UNFIT, ALIVE, UNFIT)
LOST = {
    SERVING: (ALIVE, THERE, THERE, THERE, THERE),
    STANDBY: (ALIVE, PLAN, PLAN, ALIVE, NOT_SHOWN),
    **dict.fromkeys((DOWN, SICK, UNKNOWN), LOST_UNFIT),
}
LOST_ROLES = [(here, there, told) for here, row in LOST.items() for there, told in zip(Role, row, strict=True)]
# The returning site's role, then that of the other: serving, standby, down, sick, unknown.
REFUSED = (NOT_TAKEN_IN,) * 4
REINSTATED = {SERVING: (BOTH, *REFUSED), STANDBY: (PLAN, *REFUSED)} | dict.fromkeys(
    (DOWN, SICK, UNKNOWN), (NOT_TAKEN_IN, *REFUSED)
)
FAILED_BACK = REINSTATED | {SERVING: (BOTH, THERE, *REFUSED[1:])}
RETURNED_ROLES = [
    (ask, here, there, decision)
    for ask, table in ((REINSTATE, REINSTATED), (FAILBACK, FAILED_BACK))
    for here, row in table.items()
    for there, decision in zip(Role, row, strict=True)
]
FINISHING = ["observe", "check", "point-of-no-return", "activate", "probe"]
FAILING_OVER = ["observe", "check", "snapshot", "estimate", "fence", "quarantine", "settle", *FINISHING[2:]]


def seen(london: Role, paris: Role, *debts: Debt) -> Seen:
    return Seen({"london": london, "paris": paris}, Machine(sites=lost()).dump(), debts)


def told(decided: Decision) -> str:
    match decided:
        case Plan():
            return PLAN
        case AlreadyThere():
            return THERE
        case Refusal(findings, code):
            assert code is CODES.get(findings[0].id, ExitCode.PRECHECK_FAILED)
            assert findings[0].remedy
            return findings[0].id


def decide(ask: Ask, look: Seen, past: History | None = None, price: Cost | None = None) -> Decision:
    return plan(book_of(ask.operation), Recipe(), look, ask, past, price)


def past(ask: Ask, sites: dict[str, Any], reached: str) -> History:
    """A run that died when the step `reached` had succeeded."""
    machine = Machine(sites=sites, debts=DEBTS if ask.operation != "failover" else ())
    decided = decide(ask, machine.look())
    assert isinstance(decided, Plan), decided
    last = next(step.number for step in decided.steps if step.verb == reached)
    steps = tuple(
        StepPast(step, StepState.DONE if step.number <= last else StepState.PENDING) for step in decided.steps
    )
    return History(ask, decided.source, decided.baseline, steps, activation=reached == "activate", ended=False)


class TestWhoIsLost:
    @pytest.mark.parametrize(
        ("sure", "accept", "cost"),
        [
            ({}, None, 0),
            (SURE, None, 0),
            (SURE, "unknown", None),
            (SURE, 7, 7),
            ({}, None, 1),
            (SURE, 7, None),
            (SURE, 7, 8),
            ({"presume_down": "london"}, 7, 7),
            ({"presume_down": "paris", "reason": "the wrong one"}, 0, 0),
            ({"reason": "the building burns"}, 0, 0),
        ],
    )
    @pytest.mark.parametrize(("here", "there", "decision"), LOST_ROLES)
    def test_the_roles_decide_then_the_price(
        self, here: Role, there: Role, decision: str, sure: dict[str, Any], accept: Any, cost: int | None
    ) -> None:
        ask = replace(FAILOVER, accept_loss=accept, **sure)
        affordable = accept == "unknown" or (cost is not None and cost <= (accept or 0))
        decided = decide(ask, seen(there, here), price=Cost((cost,)))
        if decision == NOT_SHOWN and sure == SURE:
            decision = PLAN
        assert told(decided) == (LOSS if decision == PLAN and not affordable else decision)
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == ("london", "paris")

    def test_everything_that_speaks_against_it_is_told_with_the_price(self) -> None:
        warning = Finding("DR-DOOR-007", Severity.WARNING, "opens at boot")
        decided = plan(book_of("failover"), Recipe((warning,)), seen(DOWN, STANDBY), FAILOVER, price=Cost((None,)))
        assert isinstance(decided, Refusal)
        assert [finding.id for finding in decided.findings] == [LOSS, warning.id]

    def test_the_plan_keeps_residue_out_before_anybody_is_let_in_and_undoes_that(self) -> None:
        decided = decide(FAILOVER, Machine(sites=lost()).look(), price=Cost())

        assert isinstance(decided, Plan)
        assert [step.verb for step in decided.steps] == FAILING_OVER
        [quarantine] = [step for step in decided.steps if step.verb == "quarantine"]
        assert [call.about for call in (*quarantine.calls, *quarantine.inverse)] == [
            "keep out mirror at paris",
            "let in mirror at paris",
        ]

    @pytest.mark.parametrize(
        ("here", "there", "decision"),
        [
            (STANDBY, DOWN, PLAN),
            (STANDBY, STANDBY, PLAN),
            (STANDBY, SERVING, ALIVE),
            (STANDBY, UNKNOWN, NOT_SHOWN),
            (SERVING, DOWN, PLAN),
            (SERVING, UNKNOWN, PLAN),
            (SERVING, STANDBY, PLAN),
            (SERVING, SERVING, ALIVE),
            (UNKNOWN, DOWN, UNFIT),
        ],
    )
    def test_one_that_goes_on_is_decided_by_the_same_roles(self, here: Role, there: Role, decision: str) -> None:
        before = past(FAILOVER, lost(), "quarantine")

        # What it may cost matters only as long as nobody serves.
        decided = decide(FAILOVER, seen(there, here), before, Cost((99 if here is SERVING else 0,)))

        assert told(decided) == decision
        if isinstance(decided, Plan) and here is SERVING:
            assert [step.verb for step in decided.steps] == FINISHING
            assert not any(step.undoable for step in decided.steps)
        if (here, there) == (STANDBY, DOWN):  # refused when meanwhile it costs too much
            assert told(decide(FAILOVER, seen(there, here), before, Cost((1,)))) == LOSS


class TestWhoReturns:
    @pytest.mark.parametrize("debts", [(), DEBTS[:1], DEBTS], ids=["nothing_owed", "a_fence_owed", "both_owed"])
    @pytest.mark.parametrize(("ask", "here", "there", "decision"), RETURNED_ROLES)
    def test_the_roles_decide_and_for_one_that_came_back_open_what_is_owed(
        self, ask: Ask, here: Role, there: Role, decision: str, debts: tuple[Debt, ...]
    ) -> None:
        decided = decide(ask, seen(here, there, *debts))
        if (here, there) == (SERVING, SERVING) and debts:
            decision = PLAN
        if ask is REINSTATE and decision == PLAN and not debts:
            decision = THERE
        assert told(decided) == decision
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == ("paris", "london")

    @pytest.mark.parametrize("ask", [REINSTATE, FAILBACK])
    def test_a_debt_of_the_other_sorts_nothing_out_and_another_site_than_expected_refuses(self, ask: Ask) -> None:
        of_paris = replace(DEBTS[0], about="paris", kept_at="london")
        assert told(decide(ask, seen(SERVING, SERVING, of_paris))) == BOTH
        for expected, decision in (("london", "DR-ROLE-002"), ("paris", PLAN)):
            assert told(decide(replace(ask, expect_serving=expected), seen(STANDBY, SERVING, *DEBTS))) == decision

    def test_without_the_move_it_ends_where_both_are_shown_to_hold_the_same(self) -> None:
        plans = [decide(ask, Machine(sites=back(), debts=DEBTS).look()) for ask in (REINSTATE, FAILBACK)]
        verbs = [[step.verb for step in each.steps] for each in plans if isinstance(each, Plan)]
        assert verbs[0] == ["observe", "check", "residue", "reinstate", "reconcile"]
        assert verbs[1][: len(verbs[0]) + 1] == [*verbs[0], "ask"]
        assert verbs[1][-3:] == ["point-of-no-return", "activate", "probe"]

    @pytest.mark.parametrize(
        ("here", "there", "decision"),
        [
            (STANDBY, SERVING, PLAN),
            (STANDBY, STANDBY, PLAN),
            (SERVING, STANDBY, PLAN),
            (SERVING, SERVING, BOTH),
            (UNKNOWN, STANDBY, NOT_TAKEN_IN),
            (STANDBY, DOWN, NOT_TAKEN_IN),
        ],
    )
    def test_a_failback_goes_on_from_wherever_it_stopped(self, here: Role, there: Role, decision: str) -> None:
        before = past(replace(FAILBACK, expect_serving="paris"), back(), "fence")
        decided = decide(before.ask, seen(here, there), before)
        assert told(decided) == decision
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == ("paris", "london")
            assert decided.baseline == before.baseline

    @pytest.mark.parametrize("ask", [REINSTATE, FAILBACK])
    @pytest.mark.parametrize(("reached", "again"), [("reinstate", True), ("reconcile", False)])
    def test_what_was_taken_in_is_not_taken_in_again(self, ask: Ask, reached: str, again: bool) -> None:
        before = past(ask, back(), reached)
        decided = decide(ask, seen(STANDBY, SERVING), before)
        assert isinstance(decided, Plan)
        assert ("reinstate" in [step.verb for step in decided.steps]) is again


def failover(folder: Path, *faults: tuple[int, Fault], cost: Cost | None = None) -> Desk:
    return Desk(folder, Machine(dict(faults), sites=lost()), ask=FAILOVER, price=cost or Cost())


def failback(folder: Path, *faults: tuple[int, Fault], opened: bool = False, ask: Ask = FAILBACK) -> Desk:
    return Desk(folder, Machine(dict(faults), sites=back(opened=opened), debts=DEBTS), ask=ask)


def stays_in(at: Desk, ended: RunResult[Seen]) -> None:
    """What was taken in is in, although the move back was undone."""
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text.endswith("undone: paris serves again")
    assert at.machine.sites["paris"].open
    assert at.machine.sites["paris"].links == {"mirror": True}
    assert "04-reinstate undo-started" not in at.lines("step")
    assert not any(paused for queue, paused in at.machine.sites["paris"].paused.items() if queue != "bills")


def test_the_price_is_asked_once_more_right_before_the_point_of_no_return(tmp_path: Path) -> None:
    at = failover(tmp_path, cost=Cost((0, 0, 5)))
    before = at.machine.dump()
    at.decide()  # as the command line does before it holds the lock
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text == "5 may be lost; undone: no site serves, as before"
    assert [finding.id for finding in ended.findings] == [LOSS]
    assert at.machine.dump() == before
    undone = ["08-point-of-no-return failed", "06-quarantine undo-started", "06-quarantine undone"]
    assert at.lines("step")[-3:] == undone
    # Where nothing had to be changed until then it has its own code.
    (tmp_path / "closed").mkdir()
    ended = failover(tmp_path / "closed", cost=Cost((0, 5))).go(answers={"quarantine": Done("it is closed already")})
    assert (ended.code, ended.text) == (ExitCode.LOSS_REFUSED, "5 may be lost; nothing was changed")


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (failover, 3),
        (lambda *asked: failback(*asked, ask=REINSTATE), 3),
        (failback, 9),
    ],
    ids=["failover", "reinstate", "failback"],
)
def test_what_died_at_any_call_ends_the_same(tmp_path: Path, make: Callable[..., Desk], calls: int) -> None:
    (tmp_path / "whole").mkdir()
    whole = make(tmp_path / "whole")
    whole.go()
    assert whole.machine.calls == calls
    for number in range(1, calls + 1):
        for fault in KILLS:
            folder = tmp_path / f"{number}-{fault.name}"
            folder.mkdir()
            at = make(folder, (number, fault))
            assert at.killed()
            ended = at.go()
            assert ended.code is ExitCode.OK, (number, fault, ended)
            assert at.machine.dump() == whole.machine.dump(), (number, fault)


@pytest.mark.parametrize("returned", [False, True], ids=["it_stays_away", "it_came_back_closed"])
def test_a_failover_is_finished_whether_or_not_the_lost_site_came_back_meanwhile(
    tmp_path: Path, returned: bool
) -> None:
    at = failover(tmp_path, (3, Fault.KILLED_BEFORE))
    assert at.killed()
    if returned:
        at.machine.sites["london"] = replace(back()["london"], outflow=0)
    ended = at.go()
    assert (ended.code, ended.seen.units[0].serving) == (ExitCode.OK, "paris")
    assert ended.bounds is not None, "it was said by the process that died"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.KILLED_BEFORE])
def test_a_failover_that_cannot_keep_residue_out_or_is_aborted_is_as_before_it(tmp_path: Path, fault: Fault) -> None:
    dies = fault is Fault.KILLED_BEFORE
    at = failover(tmp_path, (2 if dies else 1, fault))
    before = at.machine.dump()
    assert not dies or at.killed()
    ended = at.abort() if dies else at.go()
    assert (ended.code, ended.undone) == (ExitCode.OK if dies else ExitCode.REVERTED, True)
    assert ended.text == "aborted; undone: no site serves, as before" or not dies
    assert at.machine.dump() == before


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_a_failback_takes_the_site_in_and_moves_back(tmp_path: Path, opened: bool) -> None:
    at = failback(tmp_path, opened=opened)
    if opened:  # the machine judges two open sites only when one is opened beside another
        assert at.machine.look().roles == {"london": Role.SERVING, "paris": Role.SERVING}
    ended = at.go()
    assert ended.code is ExitCode.OK, ended
    assert (ended.seen.units[0].serving, ended.seen.debts) == ("london", ())
    closed = {"doors": {"clients": False, "legacy": False}, "paused": {"orders": False, "bills": True}}
    assert at.machine.dump() == {
        "london": {"doors": {"clients": True, "legacy": True}, "paused": {"orders": False}},
        "paris": {**closed, "links": {"mirror": True}},
    }


def test_a_no_to_the_question_ends_declined_with_the_site_taken_in(tmp_path: Path) -> None:
    questions: list[str] = []
    at = failback(tmp_path)
    at.asker = lambda sentence: bool(questions.append(sentence))
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.DECLINED, None)
    assert "london stays taken in: `dr-ctl swapover --to london`" in ended.text
    assert questions == ["Both sites hold the same. Move the service back now?"]
    assert (at.machine.sites["paris"].open, at.machine.sites["paris"].links) == (True, {"mirror": True})
    assert not [line for line in at.lines("step") if "undo" in line]
    assert at.machine.debts == ()


@pytest.mark.parametrize("outcome", [Refused("it grows"), Unknown("silence")])
@pytest.mark.parametrize("verb", ["catch-up", "fence", "verify"])
def test_what_was_taken_in_stays_in_when_the_move_back_fails(tmp_path: Path, verb: str, outcome: Outcome) -> None:
    at = failback(tmp_path)
    stays_in(at, at.go(answers={verb: outcome}))


def test_what_a_first_process_took_in_stays_in_when_a_second_fails(tmp_path: Path) -> None:
    at = failback(tmp_path)

    def die() -> None:
        at.machine.faults = {at.machine.calls + 1: Fault.KILLED_BEFORE}

    assert at.killed(listener=at_the(StepStarted, "quiesce", die))
    stays_in(at, at.go(answers={"verify": Refused("they differ")}))


@pytest.mark.parametrize(("faults", "answers"), [({2: Fault.REFUSED}, {}), ({}, {"reconcile": Refused("they differ")})])
def test_before_it_is_taken_in_a_failure_undoes_all(tmp_path: Path, faults: Any, answers: Any) -> None:
    at = failback(tmp_path)
    before = at.machine.dump()
    at.machine.faults = faults
    ended = at.go(answers=answers)
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert at.machine.dump() == before
