"""The planner: every pair of roles, what was asked and what is past, and the plan or all the reasons against one. And
runbooks: the shipped ones pass the lint; what is not well formed or not safe is told all at once, by line."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Role, Severity
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.journal import PastStep, RunState, StepState
from dr_ctl.engine.plan import AlreadyThere, Decision, Plan, Refusal, Spec
from dr_ctl.engine.planner import plan
from dr_ctl.engine.runbook import ORDER, VERBS, Runbook, RunbookStep, lint, load, shipped
from tests.engine.desk import ASK, BOOK, DEBTS, FAILBACK, FAILOVER, LOSS, REINSTATE, Cost, book_of
from tests.engine.machine import Machine, Recipe, Site, Snapshot, back, lost

SERVING, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN
PLAN, THERE = "plan", "already there"
BOTH, UNEXPECTED, TARGET_ALONE, UNFIT, NOBODY = (f"DR-ROLE-00{number}" for number in range(1, 6))
SILENT, OTHER_SITES, NOT_TAKEN_IN = "DR-ROLE-006", "DR-ROLE-007", "DR-ROLE-008"
ALIVE, NOT_SHOWN = "DR-ALIVE-001", "DR-ALIVE-002"
CODES = {ALIVE: ExitCode.SERVING_SITE_ALIVE, LOSS: ExitCode.LOSS_REFUSED}
SURE = {"presume_down": "london", "reason": "the building burns"}
WARNING = Finding("DR-TLS-001", Severity.WARNING, "certificates are not verified")
ERRORS = tuple(Finding(f"DR-X-{number}", Severity.ERROR, f"reason {number}") for number in (1, 2))
OTHER = {"london": "paris", "paris": "london"}
Table = Mapping[Role, tuple[str, ...]]


def table(serving: tuple[str, ...], standby: tuple[str, ...], *dark: str) -> Table:
    """What is decided by the target's role, then by that of the other site: serving, standby, down, sick, unknown."""
    return {SERVING: serving, STANDBY: standby, **dict.fromkeys((DOWN, SICK, UNKNOWN), dark)}


def rows(of: Table) -> list[tuple[Role, Role, str]]:
    return [(local, remote, value) for local, row in of.items() for remote, value in zip(Role, row, strict=True)]


MOVED = table((BOTH, THERE, TARGET_ALONE, TARGET_ALONE, TARGET_ALONE), (PLAN, *[NOBODY] * 4), UNFIT, *[NOBODY] * 4)
# The same for a run that goes on.
RESUMED = table((BOTH, PLAN, *[SILENT] * 3), (PLAN, PLAN, *[SILENT] * 3), *[SILENT] * 5)
# Of a failover the other site is the lost one, of a return it is the one that serves meanwhile.
LOST = table((ALIVE, *[THERE] * 4), (ALIVE, PLAN, PLAN, ALIVE, NOT_SHOWN), ALIVE, UNFIT, UNFIT, ALIVE, UNFIT)
REINSTATED = table((BOTH, *[NOT_TAKEN_IN] * 4), (PLAN, *[NOT_TAKEN_IN] * 4), *[NOT_TAKEN_IN] * 5)
FAILED_BACK = REINSTATED | {SERVING: (BOTH, THERE, *[NOT_TAKEN_IN] * 3)}
RETURNED = [(spec, *row) for spec, of in ((REINSTATE, REINSTATED), (FAILBACK, FAILED_BACK)) for row in rows(of)]
FINISHING = ["observe", "check", "point-of-no-return", "activate", "probe"]


def snapshot(london: Role = SERVING, paris: Role = STANDBY, *debts: Debt) -> Snapshot:
    """Both sites as they are at the start, in other roles."""
    return Snapshot({"london": london, "paris": paris}, Machine().dump(), debts)


def decide(
    spec: Spec, look: Snapshot, past: RunState | None = None, exposure: Cost | None = None, recipe: Recipe | None = None
) -> Decision:
    return plan(book_of(spec.operation), recipe or Recipe(), look, spec, past, exposure)


def told(decided: Decision) -> str:
    match decided:
        case Plan():
            return PLAN
        case AlreadyThere():
            return THERE
        case Refusal(findings, code):
            assert code is CODES.get(findings[0].id, ExitCode.PRECHECK_FAILED)
            assert findings[0].remedy or findings[0] in ERRORS
            return findings[0].id


def planned(decided: Decision) -> Plan:
    assert isinstance(decided, Plan), decided
    return decided


def verbs(decided: Decision) -> list[str]:
    return [step.verb for step in planned(decided).steps]


def past(spec: Spec = ASK, sites: dict[str, Site] | None = None, reached: str = "probe") -> RunState:
    """A run that was interrupted when the step `reached` had succeeded, and let nobody in."""
    machine = Machine(debts=DEBTS if spec.operation in ("reinstate", "failback") else ())
    machine.sites = sites or machine.sites
    before = planned(decide(spec, machine.read()))
    last = next(step.number for step in before.steps if step.verb == reached)
    steps = tuple(PastStep(step, StepState.DONE if step.number <= last else StepState.PENDING) for step in before.steps)
    return RunState(before, steps, activation_sent=False)


class TestWhoIsLeft:
    @pytest.mark.parametrize("target", ["london", "paris"])
    @pytest.mark.parametrize(("here", "there", "decision"), rows(MOVED))
    def test_the_roles_decide(self, target: str, here: Role, there: Role, decision: str) -> None:
        roles = {target: here, OTHER[target]: there}
        decided = decide(Spec("swapover", target), snapshot(**roles))
        assert told(decided) == decision
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == (OTHER[target], target)
        elif isinstance(decided, Refusal):  # it says both roles
            assert f"london is {roles['london'].value}, paris is {roles['paris'].value}" in decided.findings[0].text

    @pytest.mark.parametrize("expected", ["london", "paris"])
    @pytest.mark.parametrize(("here", "there", "decision"), rows(MOVED))
    def test_an_expectation_that_does_not_hold_refuses(
        self, expected: str, here: Role, there: Role, decision: str
    ) -> None:
        serving = [site for site, role in (("paris", here), ("london", there)) if role is SERVING]
        decided = decide(replace(ASK, expect_serving=expected), snapshot(there, here))
        # Two sites that serve are worse than one that was not expected.
        assert told(decided) == (decision if serving == [expected] or decision == BOTH else UNEXPECTED)

    def test_the_findings_of_the_topology_are_told_too_and_an_error_refuses(self) -> None:
        both, warning = Recipe((*ERRORS, WARNING)), Recipe((WARNING,))
        lacking = Recipe(ERRORS, lacks=frozenset({"probe", "catch-up", "hook"}))

        dark = decide(ASK, snapshot(paris=UNKNOWN), recipe=both)
        cannot = decide(ASK, snapshot(), recipe=lacking)
        above = decide(FAILOVER, snapshot(DOWN), exposure=Cost((None,)), recipe=warning)

        assert isinstance(dark, Refusal)
        assert [finding.id for finding in dark.findings] == [UNFIT, "DR-X-1", "DR-X-2"]
        assert isinstance(cannot, Refusal)
        assert [finding.id for finding in cannot.findings] == ["DR-BOOK-004", "DR-X-1", "DR-X-2"]
        assert cannot.findings[0].text.endswith("steps that cannot be done yet: catch-up, probe")
        assert isinstance(above, Refusal)
        assert [finding.id for finding in above.findings] == [LOSS, WARNING.id]
        remote = AlreadyThere("paris serves already; nothing was changed", (WARNING,))
        assert decide(ASK, snapshot(STANDBY, SERVING), recipe=both) == remote
        assert decide(ASK, snapshot(), recipe=both) == Refusal((*ERRORS, WARNING))
        assert decide(ASK, snapshot(), past(), recipe=Recipe(ERRORS)) == Refusal(ERRORS)
        assert planned(decide(ASK, snapshot(), recipe=warning)).findings == (WARNING,)


class TestThePlan:
    def test_it_has_every_line_of_the_runbook_in_order_with_its_calls(self) -> None:
        decided = planned(decide(ASK, snapshot()))

        assert verbs(decided) == [line.verb for line in BOOK.steps]
        assert [step.number for step in decided.steps] == list(range(1, 12))
        fence = decided.steps[5]
        assert (fence.id, fence.site) == ("06-fence", "london")
        assert [call.summary for call in fence.calls] == ["close clients at london", "close legacy at london"]
        assert [call.summary for call in fence.inverse] == ["open clients at london", "open legacy at london"]
        assert decided.not_replicated == ("what is in memory at london",)
        assert decided.cannot_know == ("what clients do",)
        # The point of no return parts what is undone from what is finished.
        assert document(decided)["point_of_no_return"] == 9
        assert [step.undoable for step in decided.steps] == [True] * 8 + [False] * 3
        assert decided.baseline == Machine().dump()

    @pytest.mark.parametrize(("timeout_s", "catch_up", "drain"), [(70.0, 60.0, 70.0), (7.0, 7.0, 7.0)])
    def test_a_steps_limits_are_the_runbooks_or_less(self, timeout_s: float, catch_up: float, drain: float) -> None:
        decided = planned(decide(replace(ASK, timeout_s=timeout_s), snapshot()))
        limits = {step.verb: step.limits.get("within") for step in decided.steps}
        assert (limits["catch-up"], limits["quiesce"], limits["drain"]) == (catch_up, 5.0, drain)

    def test_every_verb_of_a_runbook_has_a_step(self) -> None:
        words: dict[str, dict[str, Any]] = {"hook": {"name": "tell"}, "ask": {"sentence": "go on?"}}
        lines = [RunbookStep(verb, "both", 4, {}, words.get(verb, {})) for verb in sorted(VERBS)]
        book: Runbook = replace(BOOK, steps=tuple(lines))
        decided = planned(plan(book, Recipe(), snapshot(), ASK))
        assert verbs(decided) == sorted(VERBS)
        assert all(step.summary for step in decided.steps)

    def test_a_failover_keeps_residue_out_before_anybody_is_let_in_and_undoes_that(self) -> None:
        decided = planned(decide(FAILOVER, Machine(sites=lost()).read(), exposure=Cost()))

        beside = ["snapshot", "estimate", "fence", "quarantine", "settle"]
        assert verbs(decided) == [*FINISHING[:2], *beside, *FINISHING[2:]]
        [kept] = [step for step in decided.steps if step.verb == "quarantine"]
        assert [call.summary for call in (*kept.calls, *kept.inverse)] == [
            "keep out mirror at paris",
            "let in mirror at paris",
        ]

    def test_without_the_move_a_return_ends_where_both_are_shown_to_hold_the_same(self) -> None:
        rejoined, moved = (
            verbs(decide(spec, Machine(sites=back(), debts=DEBTS).read())) for spec in (REINSTATE, FAILBACK)
        )
        assert rejoined == ["observe", "check", "residue", "reinstate", "reconcile"]
        assert moved[: len(rejoined) + 1] == [*rejoined, "ask"]
        assert moved[-3:] == ["point-of-no-return", "activate", "probe"]


class TestGoingOn:
    @pytest.mark.parametrize(("here", "there", "decision"), rows(RESUMED))
    def test_a_run_goes_on_where_both_sites_answer_and_not_both_serve(
        self, here: Role, there: Role, decision: str
    ) -> None:
        decided = decide(ASK, snapshot(there, here), past())
        assert told(decided) == decision
        if isinstance(decided, Plan) and here is SERVING:  # only finishing is left, and nothing is undone any more
            finishing = [f"{number}-{verb}" for number, verb in enumerate(FINISHING, start=12)]
            assert [step.id for step in decided.steps] == finishing
            assert not any(step.undoable for step in decided.steps)
            assert {call.summary for call in decided.steps[3].calls} >= {
                "resume orders at london",
                "resume bills at london",
            }
        elif isinstance(decided, Plan):  # from the first step, with numbers of its own
            assert verbs(decided) == [line.verb for line in BOOK.steps]
            assert [step.number for step in decided.steps] == list(range(12, 23))
            assert [step.undoable for step in decided.steps] == [True] * 8 + [False] * 3

    @pytest.mark.parametrize(("activation", "decision"), [(True, PLAN), (False, SILENT)])
    def test_once_it_has_moved_the_site_that_it_left_may_be_down(self, activation: bool, decision: str) -> None:
        before = replace(past(), activation_sent=activation)
        assert told(decide(ASK, snapshot(DOWN, SERVING), before)) == decision
        assert told(decide(ASK, snapshot(UNKNOWN, SERVING), before)) == SILENT
        assert told(decide(ASK, snapshot(DOWN), before)) == SILENT

    def test_it_undoes_to_what_was_before_the_run_not_to_what_it_finds(self) -> None:
        site = Machine()
        site.sites["london"].listeners["clients"] = site.sites["london"].listeners["legacy"] = False
        site.sites["london"].paused["orders"] = True
        decided = planned(decide(ASK, site.read(), past()))
        inverses = {step.verb: [call.summary for call in step.inverse] for step in decided.steps}
        assert decided.baseline == Machine().dump()
        assert inverses["fence"] == ["open clients at london", "open legacy at london"]
        assert inverses["quiesce"] == ["resume orders at london", "resume bills at london"]

    @pytest.mark.parametrize(("now", "decision"), [(None, PLAN), ("london", UNEXPECTED)])
    def test_what_is_expected_to_serve_is_what_is_expected_now(self, now: str | None, decision: str) -> None:
        begun = replace(ASK, expect_serving="london")
        assert told(decide(replace(begun, expect_serving=now), snapshot(STANDBY), past(begun))) == decision

    @pytest.mark.parametrize(
        "roles",
        [
            {"berlin": SERVING, "paris": STANDBY},
            {"london": STANDBY, "rome": SERVING},
            {"berlin": SERVING, "rome": STANDBY},
        ],
    )
    def test_it_does_not_go_on_where_a_third_site_serves(self, roles: dict[str, Role]) -> None:
        decided = decide(ASK, Snapshot(roles), past())
        assert isinstance(decided, Refusal)
        [finding] = decided.findings
        first, second = (f"{site} is {role.value}" for site, role in roles.items())
        assert (finding.id, finding.text) == (OTHER_SITES, f"the run is from london to paris, but {first}, {second}")

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
    def test_a_failover_that_goes_on_is_decided_by_the_same_roles(self, here: Role, there: Role, decision: str) -> None:
        before = past(FAILOVER, lost(), "quarantine")

        # What it may cost matters only as long as nobody serves.
        decided = decide(FAILOVER, snapshot(there, here), before, Cost((99 if here is SERVING else 0,)))

        assert told(decided) == decision
        if isinstance(decided, Plan) and here is SERVING:
            assert verbs(decided) == FINISHING
            assert not any(step.undoable for step in decided.steps)
        if (here, there) == (STANDBY, DOWN):  # refused when meanwhile it costs too much
            assert told(decide(FAILOVER, snapshot(there, here), before, Cost((1,)))) == LOSS

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
        decided = decide(before.plan.spec, snapshot(here, there), before)
        assert told(decided) == decision
        if isinstance(decided, Plan):
            assert (decided.source, decided.baseline) == ("paris", before.plan.baseline)

    @pytest.mark.parametrize("spec", [REINSTATE, FAILBACK])
    @pytest.mark.parametrize(("reached", "again"), [("reinstate", True), ("reconcile", False)])
    def test_what_was_taken_in_is_not_taken_in_again(self, spec: Spec, reached: str, again: bool) -> None:
        before = past(spec, back(), reached)
        assert ("reinstate" in verbs(decide(spec, snapshot(STANDBY, SERVING), before))) is again


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
    @pytest.mark.parametrize(("here", "there", "decision"), rows(LOST))
    def test_the_roles_decide_then_the_price(
        self, here: Role, there: Role, decision: str, sure: dict[str, Any], accept: Any, cost: int | None
    ) -> None:
        affordable = accept == "unknown" or (cost is not None and cost <= (accept or 0))
        decided = decide(replace(FAILOVER, accept_loss=accept, **sure), snapshot(there, here), exposure=Cost((cost,)))
        if decision == NOT_SHOWN and sure == SURE:
            decision = PLAN
        assert told(decided) == (LOSS if decision == PLAN and not affordable else decision)
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == ("london", "paris")


class TestWhoReturns:
    @pytest.mark.parametrize("debts", [(), DEBTS[:1], DEBTS], ids=["nothing_owed", "a_fence_owed", "both_owed"])
    @pytest.mark.parametrize(("spec", "here", "there", "decision"), RETURNED)
    def test_the_roles_decide_and_what_is_owed(
        self, spec: Spec, here: Role, there: Role, decision: str, debts: tuple[Debt, ...]
    ) -> None:
        decided = decide(spec, snapshot(here, there, *debts))
        if (here, there) == (SERVING, SERVING) and debts:
            decision = PLAN
        if spec is REINSTATE and decision == PLAN and not debts:
            decision = THERE
        assert told(decided) == decision
        if isinstance(decided, Plan):
            assert (decided.source, decided.target) == ("paris", "london")

    @pytest.mark.parametrize("spec", [REINSTATE, FAILBACK])
    def test_a_debt_of_the_other_sorts_nothing_out_and_another_site_than_expected_refuses(self, spec: Spec) -> None:
        of_paris = replace(DEBTS[0], lost_site="paris", kept_at="london")
        assert told(decide(spec, snapshot(SERVING, SERVING, of_paris))) == BOTH
        for expected, decision in (("london", UNEXPECTED), ("paris", PLAN)):
            assert told(decide(replace(spec, expect_serving=expected), snapshot(STANDBY, SERVING, *DEBTS))) == decision


GOOD = {operation: (shipped() / f"{operation}.yaml").read_text(encoding="utf-8") for operation in ORDER}
MOVE_TEXT, LOST_TEXT = GOOD["swapover"], GOOD["failover"]


def written(folder: Path, text: str | bytes, name: str = "book.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def linted(folder: Path, text: str | bytes) -> list[str]:
    """What the lint says of a text; a text with an error is never a runbook."""
    book, findings = lint(written(folder, text))
    assert (book is None) is any(finding.severity is Severity.ERROR for finding in findings)
    return [finding.text.removeprefix("book.yaml:") for finding in findings]


def without(text: str, verb: str) -> str:
    return re.sub(rf"  - {verb}:.*\n", "", text)


def line_of(text: str, verb: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if line.startswith(f"  - {verb}:"))


def exchanged(text: str, first: str, then: str) -> str:
    """The text with the lines of two verbs in each other's place."""
    lines = text.splitlines(keepends=True)
    one, two = line_of(text, first) - 1, line_of(text, then) - 1
    lines[one], lines[two] = lines[two], lines[one]
    return "".join(lines)


def test_a_runbook_is_read_with_its_limits_and_words(tmp_path: Path) -> None:
    book, _ = lint(written(tmp_path, LOST_TEXT))
    assert isinstance(book, Runbook)
    steps = {step.verb: step for step in book.steps}
    assert list(steps) == [step.verb for step in book.steps]
    assert book.summary.startswith("The serving site is lost. Serve at the other site now")
    assert (steps["observe"].site, steps["observe"].limits, steps["observe"].line) == ("both", {"lost": 5.0}, 4)
    assert steps["estimate"].words == {"stored": True}
    assert (steps["check"].words, steps["fence"].site) == ({"operation": "failover"}, "lost")


def test_short_and_long_forms_are_the_same(tmp_path: Path) -> None:
    long = MOVE_TEXT.replace("fence: serving", "fence: {site: serving}").replace("drain: {to: target}", "drain: target")
    long = long.replace("check: swapover", "check: {operation: swapover}")
    book, _ = lint(written(tmp_path, long))
    assert book is not None
    assert book.steps == load("swapover", shipped()).steps


def test_a_runbook_without_a_sentence_about_it_is_good_with_a_warning(tmp_path: Path) -> None:
    book, findings = lint(written(tmp_path, LOST_TEXT.replace("about:", "# about:")))
    assert book is not None
    assert [(finding.severity, finding.text) for finding in findings] == [
        (Severity.WARNING, "book.yaml:1: about: is missing; say in a sentence what the runbook is for")
    ]


@pytest.mark.parametrize("line", ["hook: fence-host", "ask: Is the room dark?", "hold: 5s", "observe: both"])
def test_hooks_questions_pauses_and_looks_may_stand_more_than_once(tmp_path: Path, line: str) -> None:
    assert linted(tmp_path, MOVE_TEXT.replace("  - fence:", f"  - {line}\n  - {line}\n  - fence:", 1)) == []


def test_one_that_is_no_text_is_told(tmp_path: Path) -> None:
    text = "0: cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    assert linted(tmp_path, b"\xff\xfe") == [text]


RULES = [(operation, *rule) for operation, rules in ORDER.items() for rule in rules]


@pytest.mark.parametrize(("operation", "first", "then", "because"), RULES)
def test_the_wrong_order_is_told_with_the_reason(
    tmp_path: Path, operation: str, first: str, then: str, because: str
) -> None:
    text = exchanged(GOOD[operation], first, then)
    assert f"{line_of(text, then)}: {then} comes before {first}: {because}" in linted(tmp_path, text)
    text = without(GOOD[operation], first)
    problems = linted(tmp_path, text)
    expected = f"{line_of(text, then)}: {then} without {first} before it: {because}"
    assert expected in problems or any(f"{first} is missing after" in item for item in problems)


MOVE = ("check", "quiesce", "fence", "drain", "verify", "point-of-no-return", "activate", "probe")
NEEDED_WHERE_LOST = ("check", "fence", "point-of-no-return", "activate", "probe")
NEEDED = {"swapover": MOVE, "failback": MOVE, "failover": NEEDED_WHERE_LOST}
UNSAFE = [(op, exchanged(GOOD[op], *two)) for op, verbs in NEEDED.items() for two in itertools.pairwise(verbs)]
UNSAFE += [(op, without(GOOD[op], verb)) for op, verbs in NEEDED.items() for verb in verbs]


@pytest.mark.parametrize(("operation", "text"), UNSAFE)
def test_no_verb_that_safety_needs_can_be_left_out_or_change_places(tmp_path: Path, operation: str, text: str) -> None:
    book, findings = lint(written(tmp_path, text))
    assert book is None
    assert {finding.id for finding in findings} == {"DR-BOOK-003"}


def test_a_runbook_of_another_operation_is_not_taken_for_it(tmp_path: Path) -> None:
    written(tmp_path, LOST_TEXT, "swapover.yaml")
    with pytest.raises(UsageError, match="is a runbook for failover, not for swapover"):
        load("swapover", tmp_path)
