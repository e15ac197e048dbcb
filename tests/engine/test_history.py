"""What a journal says of its run, that every alteration of it is found, and the life of a step."""

import itertools
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import Json
from dr_ctl.engine.entries import GENESIS, Entry, JournalDamaged, read
from dr_ctl.engine.history import history, outage_s
from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.engine.runs import RunFiles, write
from dr_ctl.engine.seal import Verdict, check
from dr_ctl.engine.states import MOVES, IllegalMove, StepEvent, StepState, after
from tests.engine.desk import BY, Clock, Desk, a_plan
from tests.engine.machine import Fault, Machine
from tests.report.scribe import Scribe, cut_off, done, plan, resumed, undone

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


@pytest.fixture
def small(tmp_path: Path) -> RunFiles:
    """A short run that has ended: few bytes, every kind of line."""
    scribe = Scribe(tmp_path, plan=plan(steps=plan().steps[5:6])).begin()
    scribe.start("fence").sample("fence", {"outflow": 3}).stop("fence", text="Türen zu", took_s=0.25)
    scribe.journal.signal("interrupted")
    return scribe.end(0, "ok", "paris serves", pairs=[]).files


@pytest.mark.parametrize("write_run", [done, undone, resumed])
def test_a_run_that_ended_is_whole(tmp_path: Path, write_run: Callable[[Path], Scribe]) -> None:
    files = write_run(tmp_path).files

    checked = check(files)

    assert checked.verdict is Verdict.WHOLE
    assert checked.lines == len(files.journal.read_bytes().splitlines())


def test_every_byte_flipped_once_is_found_in_its_own_line(small: RunFiles) -> None:
    whole = small.journal.read_bytes()
    line, missed = 1, []

    for place, byte in enumerate(whole):
        for bits in (0x01, 0x20):
            small.journal.write_bytes(whole[:place] + bytes([byte ^ bits]) + whole[place + 1 :])
            checked = check(small)
            if (checked.verdict, checked.line) != (Verdict.ALTERED, line):
                missed.append((place, bits, checked))
        line += byte == ord("\n")

    assert missed == []
    assert line == 7


def test_every_cut_is_found(small: RunFiles) -> None:
    whole = small.journal.read_bytes()

    found = []
    for length in range(len(whole)):
        small.journal.write_bytes(whole[:length])
        found.append((check(small).verdict, check(small).line))

    assert found == [(Verdict.ALTERED, whole[:length].count(b"\n") + 1) for length in range(len(whole))]


def test_every_byte_of_the_result_counts(small: RunFiles) -> None:
    whole = small.result.read_bytes()
    missed = []

    for place, byte in enumerate(whole):
        small.result.write_bytes(whole[:place] + bytes([byte ^ 0x01]) + whole[place + 1 :])
        if check(small).verdict is not Verdict.ALTERED:
            missed.append(whole[place : place + 1])

    assert missed == []


def chained(files: RunFiles, line: int, **more: Any) -> None:
    """Write a line anew, and with it every hash after it: the chain fits in itself."""
    lines = [json.loads(each) for each in files.journal.read_bytes().splitlines()]
    lines[line - 1] |= more
    previous, told = lines[line - 1]["previous"], lines[: line - 1]
    text = "".join(Entry(**{k: v for k, v in each.items() if k != "hash"}).to_line() for each in told)
    for each in lines[line - 1 :]:
        each.pop("hash")
        entry = Entry(**(each | {"previous": previous}))
        previous = entry.hash()
        text += entry.to_line()
    files.journal.write_text(text, encoding="utf-8")


def added(small: RunFiles) -> None:
    last = json.loads(small.journal.read_bytes().splitlines()[-1])
    entry = Entry(7, last["time"], "signal", None, None, "interrupted", {}, last["hash"])
    with small.journal.open("a", encoding="utf-8") as file:
        file.write(entry.to_line())


def otherwise(old: bytes, new: bytes) -> Callable[[RunFiles], object]:
    return lambda files: files.journal.write_bytes(files.journal.read_bytes().replace(old, new))


def says_else(key: str) -> Callable[[RunFiles], None]:
    return lambda small: write(small.result, json.loads(small.result.read_bytes()) | {key: "something else"})


NOTHING_SEALED = ["", "{", "[]", "null", "{}", '{"journal": {}}', '{"journal": {"count": "x"}}']


@pytest.mark.parametrize(
    ("alter", "line", "words"),
    [
        # A chain that was made anew.
        *((partial(chained, line=n, time="2026-11-21T02:00:00.001Z"), 6, "the last, and result.json do not fit")
          for n in range(1, 7)),
        (added, 7, "line 7 of journal.jsonl was added"),
        (otherwise(b'{"seq":2,', b'{"seq": 2,'), 2, ""),  # the same entry in other bytes
        *((says_else(key), None, "result.json does not say what line 6")
          for key in ("outcome", "exit_code", "summary", "findings", "data")),
        *((partial(lambda small, text: small.result.write_text(text), text=text), None, "") for text in NOTHING_SEALED),
        (lambda small: small.journal.unlink(), 1, ""),
        (lambda small: small.journal.write_bytes(b""), 1, ""),
    ],
)  # fmt: skip
def test_what_was_altered_is_named(small: RunFiles, alter: Callable[[RunFiles], object], line: Any, words: str) -> None:
    alter(small)
    checked = check(small)
    assert checked.verdict is Verdict.ALTERED
    assert line is None or checked.line == line
    assert words in checked.text


@pytest.mark.parametrize(
    ("alter", "verdict", "line", "words"),
    [
        (lambda files: None, Verdict.OPEN, None, "its 7 line(s) so far fit together; line 8 is torn, or being written"),
        # A crash may leave a whole line that is none.
        (lambda files: files.journal.write_bytes(files.journal.read_bytes() + b"\0\0\n"), Verdict.OPEN, 8,
         "its 7 line(s) so far fit together; line 8 is torn, as a crash leaves it"),
        (lambda files: files.journal.write_bytes(b"garbage\n"), Verdict.ALTERED, 1, ""),
        (otherwise(b'"seq":3', b'"seq":4'), Verdict.ALTERED, 3, ""),
    ],
)  # fmt: skip
def test_an_open_run_is_checked_as_far_as_it_came(
    tmp_path: Path, alter: Callable[[RunFiles], object], verdict: Verdict, line: int | None, words: str
) -> None:
    files = cut_off(tmp_path).files
    alter(files)
    checked = check(files)
    assert (checked.verdict, checked.line, checked.lines) == (verdict, line, {None: 7, 8: 7, 1: 0, 3: 2}[line])
    assert checked.text.endswith(words)


def test_a_run_that_never_began_has_nothing_to_check(tmp_path: Path) -> None:
    assert check(RunFiles("20261121T020000Z-swapover-paris-7f3a", tmp_path)).verdict is Verdict.NOT_BEGUN


ILLEGAL = [pair for pair in itertools.product(StepState, StepEvent) if pair not in MOVES]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_illegal_move_raises(state: StepState, event: StepEvent) -> None:
    with pytest.raises(IllegalMove, match=event.value):
        after(state, event)


def test_every_state_can_be_reached() -> None:
    reached = {StepState.PENDING}
    for _ in StepState:
        reached |= {then for (state, _), then in MOVES.items() if state in reached}

    assert reached == set(StepState)
