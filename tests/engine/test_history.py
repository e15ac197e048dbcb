"""What a journal says of its run: enough to go on with it, to undo it, and to say how long clients were out."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.core.model import Json
from dr_ctl.engine.entries import GENESIS, Entry, JournalDamaged, read
from dr_ctl.engine.history import history, outage_s
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.engine.states import StepEvent, StepState
from tests.engine.desk import BY, Clock, Desk, a_plan
from tests.engine.machine import Fault, Machine

PLAN = a_plan()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def step(verb: str) -> PlannedStep:
    return next(each for each in PLAN.steps if each.verb == verb)


def test_a_plan_comes_back_as_it_was_whatever_a_later_one_says(path: Path) -> None:
    later = replace(PLAN, ask=replace(PLAN.ask, timeout_s=9.0), source="rome", baseline={})
    for plans in ((PLAN,), (PLAN, later)):
        path.unlink(missing_ok=True)
        with closing(Journal(path, Clock())) as journal:
            for each in plans:
                journal.run(each, BY)
        past = history(read(path))
        assert (past.ask, past.source, past.baseline) == (PLAN.ask, PLAN.source, PLAN.baseline)
        assert not past.ended
        if later not in plans:
            assert (tuple(each.step for each in past.steps), past.last_number) == (PLAN.steps, 11)


def test_an_ask_with_every_option_comes_back_as_it_was() -> None:
    asked = Ask("swapover", "paris", 90.0, cut_in_flight=True, accept_difference={"q": 3}, expect_serving="london")
    assert Ask.from_json(json.loads(json.dumps(asked.as_json()))) == asked


def test_steps_that_may_have_changed_something_come_back_the_last_first(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        for verb, event in [("quiesce", StepEvent.SUCCEEDED), ("fence", StepEvent.FAILED), ("drain", None)]:
            journal.step(step(verb), StepEvent.STARTED, {})
            if event is not None:
                journal.step(step(verb), event, {})

        before = journal.history().started()
        journal.step(step("fence"), StepEvent.UNDO_STARTED, {})
        journal.step(step("fence"), StepEvent.UNDONE, {})

        assert [each.verb for each in before] == ["drain", "fence", "quiesce"]
        assert [each.verb for each in journal.history().started()] == ["drain", "quiesce"]
        assert {each.step.verb: each.state for each in history(read(path)).steps}["drain"] is StepState.RUNNING


def test_a_resumed_run_keeps_the_source_and_baseline_of_the_first_and_adds_its_steps(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Machine({5: Fault.KILLED_AFTER}))
    assert desk.killed()
    desk.go()
    past = desk.past()
    assert past is not None
    assert (past.source, past.baseline) == (PLAN.source, PLAN.baseline)
    assert past.last_number == 22
    assert [each.step.number for each in past.steps] == list(range(1, 23))


@pytest.mark.parametrize(
    ("events", "activation"),
    [
        ((), False),
        ((None,), True),
        ((None, StepEvent.SUCCEEDED), True),
        ((None, StepEvent.LOST), True),
        ((None, StepEvent.FAILED), False),
        ((StepEvent.FAILED,), False),
    ],
    ids=["none", "intent", "done", "unknown", "disproved", "refused"],
)
def test_an_activation_counts_from_its_intent_until_it_is_disproved(
    path: Path, events: tuple[StepEvent | None, ...], activation: bool
) -> None:
    activate = step("activate")
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        journal.step(activate, StepEvent.STARTED, {})
        for event in events:
            if event is None:
                journal.intents(activate, activate.calls)
            else:
                journal.step(activate, event, {})

    assert history(read(path)).activation is activation


def test_a_journal_without_a_run_says_that_nothing_was_changed(path: Path) -> None:
    Journal(path, Clock()).close()
    with pytest.raises(JournalDamaged, match="holds no plan") as damaged:
        history(read(path))
    assert damaged.value.remedy == "The run never began: nothing was changed by it."


@pytest.mark.parametrize(
    ("kind", "step", "outcome", "evidence"),
    [
        ("run", None, None, {}),
        ("run", None, None, {"plan": None}),
        ("run", None, None, {"plan": {"steps": [{"number": 1}]}}),
        ("run", None, None, {"plan": {"steps": [], "ask": {}, "source": "london", "baseline": {}}}),
        ("step", "99-none", "started", {}),
        ("step", "06-fence", "flew", {}),
    ],
)
def test_a_sealed_line_that_does_not_fit_is_a_clear_error(
    path: Path, kind: str, step: str | None, outcome: str | None, evidence: dict[str, Json]
) -> None:
    with closing(Journal(path, Clock())) as journal:
        if kind == "step":
            journal.run(PLAN, BY)
        count, last = journal.count, journal.last_hash
    entry = Entry(count + 1, "2026-11-21T02:00:00.000Z", kind, step, None, outcome, evidence, last)
    path.write_bytes(path.read_bytes() + entry.to_line().encode())
    with pytest.raises(JournalDamaged, match="holds no run that can be read"):
        history(read(path))


def test_a_run_that_has_ended_says_so(path: Path) -> None:
    with closing(Journal(path, Clock())) as journal:
        journal.run(PLAN, BY)
        journal.end({"outcome": "ok"})
        assert journal.history().ended
    assert [entry.outcome for entry in read(path)][-1] == "ok"


def at(second: int, kind: str, step: str, outcome: str | None = None) -> Entry:
    return Entry(1, f"2026-11-21T02:00:{second:02d}.000Z", kind, step, None, outcome, {}, GENESIS)


STEPS = ("05-quiesce", "06-fence", "10-activate", "11-probe", "17-fence", "21-activate")
PLANNED: list[Json] = [
    PlannedStep(int(number), verb, "", "").as_json() for number, _, verb in (each.partition("-") for each in STEPS)
]
BEGUN = replace(at(0, "run", ""), step=None, evidence={"plan": {"steps": PLANNED}})
STARTED = at(1, "step", "06-fence", "started")
FENCED = at(2, "intent", "06-fence")
OPENED = at(9, "step", "10-activate", "succeeded")


@pytest.mark.parametrize(
    ("entries", "seconds"),
    [
        ([STARTED], None),
        ([STARTED, FENCED], None),
        ([STARTED, OPENED], None),
        ([STARTED, FENCED, OPENED], 7),
        ([STARTED, FENCED, at(3, "intent", "06-fence"), OPENED], 7),
        ([FENCED, at(5, "step", "17-fence", "unneeded"), at(30, "step", "21-activate", "unneeded")], 28),
        ([FENCED, at(8, "step", "10-activate", "failed"), at(12, "step", "06-fence", "undone")], 10),
        ([FENCED, at(8, "step", "06-fence", "undo-failed")], None),
        ([FENCED, at(8, "step", "05-quiesce", "undone")], None),
        ([FENCED, OPENED, at(40, "step", "11-probe", "succeeded")], 7),
    ],
)
def test_clients_are_out_from_the_fences_first_call_until_a_site_lets_them_in(
    entries: list[Entry], seconds: float | None
) -> None:
    assert outage_s([BEGUN, *entries]) == seconds
