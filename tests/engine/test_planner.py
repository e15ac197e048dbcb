"""The planner: every pair of roles, what was asked and what is past, and the plan or all the reasons against one."""

from dataclasses import replace

import pytest

from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.history import History, StepPast
from dr_ctl.engine.plan import AlreadyThere, Ask, Decision, Plan, Refusal
from dr_ctl.engine.planner import plan
from dr_ctl.engine.runbook import VERBS, Runbook, RunbookStep
from dr_ctl.engine.states import StepState
from tests.engine.desk import ASK, BOOK, a_plan
from tests.engine.machine import Machine, Recipe, Seen

SERVING, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN
PLAN, THERE = "plan", "already there"
BOTH, UNEXPECTED, TARGET_ALONE, TARGET_UNFIT, NOBODY = (f"DR-ROLE-00{number}" for number in range(1, 6))
SILENT, OTHER_SITES = "DR-ROLE-006", "DR-ROLE-007"
WARNING = Finding("DR-TLS-001", Severity.WARNING, "certificates are not verified")
ERRORS = tuple(Finding(f"DR-X-{number}", Severity.ERROR, f"reason {number}") for number in (1, 2))
OTHER = {"london": "paris", "paris": "london"}

# The target's role, then the other site's: serving, standby, down, sick, unknown.
DECISIONS = {
    SERVING: (BOTH, THERE, TARGET_ALONE, TARGET_ALONE, TARGET_ALONE),
    STANDBY: (PLAN, NOBODY, NOBODY, NOBODY, NOBODY),
    **dict.fromkeys((DOWN, SICK, UNKNOWN), (TARGET_UNFIT, NOBODY, NOBODY, NOBODY, NOBODY)),
}
ROLES = [(here, there, told) for here, row in DECISIONS.items() for there, told in zip(Role, row, strict=True)]

# The same for a run that goes on: from london, to paris.
RESUMED = {
    SERVING: (BOTH, PLAN, SILENT, SILENT, SILENT),
    STANDBY: (PLAN, PLAN, SILENT, SILENT, SILENT),
    **dict.fromkeys((DOWN, SICK, UNKNOWN), (SILENT,) * 5),
}
RESUMED_ROLES = [(here, there, told) for here, row in RESUMED.items() for there, told in zip(Role, row, strict=True)]


def seen(**roles: Role) -> Seen:
    """Both sites as they are at the start, in other roles."""
    return Seen({"london": SERVING, "paris": STANDBY} | roles, Machine().look().flags)


def told(decided: Decision) -> str:
    match decided:
        case Plan():
            return PLAN
        case AlreadyThere():
            return THERE
        case Refusal(findings):
            return findings[0].id


def past(state: StepState = StepState.DONE, ask: Ask = ASK) -> History:
    """A run from london to paris that was interrupted after 11 steps."""
    before = a_plan()
    steps = tuple(StepPast(step, state) for step in before.steps)
    return History(ask, before.source, before.baseline, steps, activation=False, ended=False)


def book(*verbs: str) -> Runbook:
    words = {"hook": {"name": "tell"}, "ask": {"sentence": "go on?"}}
    lines = [RunbookStep(verb, "both", line, {}, words.get(verb, {})) for line, verb in enumerate(verbs, start=4)]
    return replace(BOOK, steps=tuple(lines))


def decided_plan(decided: Decision) -> Plan:
    assert isinstance(decided, Plan), decided
    return decided


# Roles


@pytest.mark.parametrize("target", ["london", "paris"])
@pytest.mark.parametrize(("here", "there", "decision"), ROLES)
def test_the_roles_decide(target: str, here: Role, there: Role, decision: str) -> None:
    sites = seen(**{target: here, OTHER[target]: there})
    decided = plan(BOOK, Recipe(), sites, Ask("swapover", target))
    assert told(decided) == decision
    if isinstance(decided, Plan):
        assert (decided.source, decided.target) == (OTHER[target], target)
    elif isinstance(decided, Refusal):  # it says both roles and what to do
        roles = {target: here, OTHER[target]: there}
        assert f"london is {roles['london'].value}, paris is {roles['paris'].value}" in decided.findings[0].text
        assert decided.findings[0].remedy


@pytest.mark.parametrize("expected", ["london", "paris"])
@pytest.mark.parametrize(("here", "there", "decision"), ROLES)
def test_an_expectation_that_does_not_hold_refuses_whatever_else_holds(
    expected: str, here: Role, there: Role, decision: str
) -> None:
    serving = [site for site, role in (("paris", here), ("london", there)) if role is SERVING]
    ask = replace(ASK, expect_serving=expected)
    decided = plan(BOOK, Recipe(), seen(paris=here, london=there), ask)
    # Two sites that serve are worse than one that was not expected.
    assert told(decided) == (decision if serving == [expected] or decision == BOTH else UNEXPECTED)


def test_a_refusal_for_the_roles_has_the_topologys_errors_with_it() -> None:
    decided = plan(BOOK, Recipe((*ERRORS, WARNING)), seen(paris=UNKNOWN), ASK)
    assert isinstance(decided, Refusal)
    assert [finding.id for finding in decided.findings] == [TARGET_UNFIT, "DR-X-1", "DR-X-2"]
    assert decided.findings[0].text == "paris cannot take over: london is serving, paris is unknown"


def test_where_the_target_serves_already_warnings_are_told_and_errors_do_not_matter() -> None:
    decided = plan(BOOK, Recipe((*ERRORS, WARNING)), seen(london=STANDBY, paris=SERVING), ASK)
    assert decided == AlreadyThere("paris serves already; nothing was changed", (WARNING,))


# What speaks against it


def test_any_error_of_the_topology_refuses_also_a_run_that_goes_on_and_a_warning_does_not() -> None:
    assert plan(BOOK, Recipe((*ERRORS, WARNING)), seen(), ASK) == Refusal((*ERRORS, WARNING))
    assert plan(BOOK, Recipe(ERRORS), seen(), ASK, past()) == Refusal(ERRORS)
    assert decided_plan(plan(BOOK, Recipe((WARNING,)), seen(), ASK)).findings == (WARNING,)


def test_verbs_that_the_topology_cannot_do_are_named_with_all_other_reasons() -> None:
    recipe = Recipe(ERRORS, lacks=frozenset({"probe", "catch-up", "hook"}))
    decided = plan(BOOK, recipe, seen(), ASK)
    assert isinstance(decided, Refusal)
    assert [finding.id for finding in decided.findings] == ["DR-BOOK-004", "DR-X-1", "DR-X-2"]
    assert decided.findings[0].text == "the runbook swapover.yaml has steps that cannot be done yet: catch-up, probe"


# The plan


def test_a_plan_has_every_line_of_the_runbook_in_order_with_its_calls() -> None:
    decided = decided_plan(plan(BOOK, Recipe(), seen(), ASK))

    assert [step.verb for step in decided.steps] == [line.verb for line in BOOK.steps]
    assert [step.number for step in decided.steps] == list(range(1, 12))
    fence = decided.steps[5]
    assert (fence.id, fence.site) == ("06-fence", "london")
    assert [call.about for call in fence.calls] == ["close clients at london", "close legacy at london"]
    assert [call.about for call in fence.inverse] == ["open clients at london", "open legacy at london"]
    assert decided.not_replicated == ("what is in memory at london",)
    assert decided.cannot_know == ("what clients do",)
    # The point of no return parts what is undone from what is finished.
    assert decided.as_json()["point_of_no_return"] == 9
    assert [step.undoable for step in decided.steps] == [True] * 8 + [False] * 3
    assert decided.baseline == Machine().dump()


@pytest.mark.parametrize(("timeout_s", "catch_up", "drain"), [(70.0, 60.0, 70.0), (7.0, 7.0, 7.0)])
def test_a_steps_limits_are_the_runbooks_unless_the_topology_or_who_gives_less_time_has_its_own(
    timeout_s: float, catch_up: float, drain: float
) -> None:
    decided = decided_plan(plan(BOOK, Recipe(), seen(), replace(ASK, timeout_s=timeout_s)))
    limits = {step.verb: step.limits.get("within") for step in decided.steps}
    assert (limits["catch-up"], limits["quiesce"], limits["drain"]) == (catch_up, 5.0, drain)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_of_a_runbook_has_a_step(verb: str) -> None:
    decided = decided_plan(plan(book("observe", verb), Recipe(), seen(), ASK))
    assert decided.steps[1].verb == verb
    assert decided.steps[1].about


# Going on


@pytest.mark.parametrize(("here", "there", "decision"), RESUMED_ROLES)
def test_an_interrupted_run_goes_on_where_both_sites_answer_and_not_both_serve(
    here: Role, there: Role, decision: str
) -> None:
    decided = plan(BOOK, Recipe(), seen(paris=here, london=there), ASK, past())
    assert told(decided) == decision
    if isinstance(decided, Plan):
        assert (decided.source, decided.target) == ("london", "paris")


@pytest.mark.parametrize(("activation", "decision"), [(True, PLAN), (False, SILENT)])
def test_once_it_has_moved_the_site_that_it_left_may_be_down(activation: bool, decision: str) -> None:
    before = replace(past(), activation=activation)
    assert told(plan(BOOK, Recipe(), seen(london=DOWN, paris=SERVING), ASK, before)) == decision
    assert told(plan(BOOK, Recipe(), seen(london=UNKNOWN, paris=SERVING), ASK, before)) == SILENT
    assert told(plan(BOOK, Recipe(), seen(london=DOWN), ASK, before)) == SILENT


@pytest.mark.parametrize("source", [SERVING, STANDBY])
def test_it_goes_on_from_the_first_step_with_numbers_of_its_own(source: Role) -> None:
    decided = decided_plan(plan(BOOK, Recipe(), seen(london=source), ASK, past()))
    assert [step.verb for step in decided.steps] == [line.verb for line in BOOK.steps]
    assert [step.number for step in decided.steps] == list(range(12, 23))
    assert [step.undoable for step in decided.steps] == [True] * 8 + [False] * 3


def test_where_the_target_serves_only_finishing_is_left_and_nothing_is_undone_any_more() -> None:
    decided = decided_plan(plan(BOOK, Recipe(), seen(london=STANDBY, paris=SERVING), ASK, past()))

    assert [step.id for step in decided.steps] == [
        "12-observe",
        "13-check",
        "14-point-of-no-return",
        "15-activate",
        "16-probe",
    ]
    assert not any(step.undoable for step in decided.steps)
    assert {call.about for call in decided.steps[3].calls} >= {"resume orders at london", "resume bills at london"}


def test_it_undoes_to_what_was_before_the_run_not_to_what_it_finds() -> None:
    site = Machine()
    site.sites["london"].doors["clients"] = site.sites["london"].doors["legacy"] = False
    site.sites["london"].paused["orders"] = True
    decided = decided_plan(plan(BOOK, Recipe(), site.look(), ASK, past()))
    inverses = {step.verb: [call.about for call in step.inverse] for step in decided.steps}
    assert decided.baseline == Machine().dump()
    assert inverses["fence"] == ["open clients at london", "open legacy at london"]
    assert inverses["quiesce"] == ["resume orders at london", "resume bills at london"]


@pytest.mark.parametrize(("now", "decision"), [(None, PLAN), ("london", "DR-ROLE-002")])
def test_what_is_expected_to_serve_is_what_is_expected_now(now: str | None, decision: str) -> None:
    begun = replace(ASK, expect_serving="london")
    decided = plan(BOOK, Recipe(), seen(london=STANDBY), replace(begun, expect_serving=now), past(ask=begun))
    assert told(decided) == decision


@pytest.mark.parametrize(
    "roles",
    [{"berlin": SERVING, "paris": STANDBY}, {"london": STANDBY, "rome": SERVING}, {"berlin": SERVING, "rome": STANDBY}],
)
def test_it_does_not_go_on_where_a_site_serves_that_is_neither_its_source_nor_its_target(
    roles: dict[str, Role],
) -> None:
    decided = plan(BOOK, Recipe(), Seen(roles), ASK, past())
    assert isinstance(decided, Refusal)
    [finding] = decided.findings
    first, second = (f"{site} is {role.value}" for site, role in roles.items())
    assert (finding.id, finding.text) == (OTHER_SITES, f"the run is from london to paris, but {first}, {second}")
