"""The executor on a machine that fails at every call and is killed or stopped at every moment: where it ends, resumed
or aborted, what is undone; what the world adds to a run; and the law that all waits follow."""

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import ExitCode, Json, Role
from dr_ctl.core.system import system
from dr_ctl.engine import journal as journal_module
from dr_ctl.engine.context import JournalledStep, Outage, StopAtOnce, StopRequest, restored_handlers, stop_request
from dr_ctl.engine.executor import Answer
from dr_ctl.engine.journal import Journal, read_entries
from dr_ctl.engine.plan import Plan, PlannedStep, Refusal, Spec
from dr_ctl.engine.ports import Done, Failed, NotNeeded, Outcome, StepContext, Unknown, Waited
from dr_ctl.engine.runbook import Runbook, RunbookStep
from dr_ctl.telemetry.events import Event, Notice, StepEnded, StepStarted, WaitProgress, nobody
from tests.engine.desk import (
    AFTER,
    ASK,
    BEFORE,
    BOOK,
    CALLS,
    DEBTS,
    EFFECTS,
    FAILBACK,
    FAILOVER,
    LOSS,
    MOVED,
    OPEN_PARIS,
    OPENING,
    REVERTIBLE,
    START,
    Clock,
    Cost,
    Desk,
    Estimates,
    a_plan,
    at_the,
    book_of,
)
from tests.engine.machine import KILLS, Fault, Machine, back, lost, paris

OK, REVERTED, INCOMPLETE, UNKNOWN = ExitCode.OK, ExitCode.REVERTED, ExitCode.INCOMPLETE, ExitCode.UNKNOWN
INTERRUPTED, TERMINATED, STRANDED = ExitCode.INTERRUPTED, ExitCode.TERMINATED, ExitCode.STRANDED
NOTHING_CHANGED = ExitCode.PRECHECK_FAILED
SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def test_an_undisturbed_run_moves_the_service_with_each_call_once(at: Desk) -> None:
    ended = at.go()

    assert (ended.code, ended.undone) == (OK, None)
    assert ended.text.endswith("verified: paris serves; nothing is under way; clients were out for 0.38 s")
    assert (at.machine.dump(), at.machine.effects) == (MOVED, EFFECTS)
    assert at.machine.calls == len(CALLS), "the tests of this file go through every call"
    assert at.lines("step")[::2] == [f"{n:02d}-{verb} started" for n, verb in enumerate(BEFORE + AFTER, start=1)]
    assert at.estimates.told == ["begin", "end within 30 s", "abandon"]


FAULTS = (Fault.REFUSED, Fault.LOST, Fault.BLIND, Fault.UNANSWERED)


@pytest.mark.parametrize("trouble", [*FAULTS, *SIGNALS, "a defect"])
@pytest.mark.parametrize("number", CALLS)
def test_what_befalls_a_call_is_undone_before_the_point_of_no_return_and_nothing_is_after_it(
    at: Desk, number: int, trouble: Fault | signal.Signals | str
) -> None:
    stop, signalled = StopRequest(), None
    if isinstance(trouble, Fault):
        at.machine.faults = {number: trouble}
    elif isinstance(trouble, signal.Signals):
        at.at_call(number, lambda: stop.ask(trouble))
        signalled = SIGNALS[trouble]
    else:
        at.at_call(number, lambda: {}["auto.q"])

    ended = at.go(stop=stop)

    assert at.estimates.told[-1] == "abandon"
    if trouble is Fault.UNANSWERED or (number in OPENING and signalled):
        assert (ended.code, at.machine.dump()) == (OK, MOVED)
        assert (at.machine.effects, at.machine.calls) == (EFFECTS, len(CALLS)), "seen to have worked: not repeated"
    elif number in REVERTIBLE:
        assert (ended.code, ended.undone) == (signalled or REVERTED, True)
        assert ended.text.endswith("; undone: london serves again")
        assert at.machine.dump() == START
        assert not OPEN_PARIS & set(at.machine.effects)
        assert at.lines("signal") == ([f" {signalled.name.lower()}"] if signalled else [])
    else:  # where nobody can vouch for the target, it is not known
        not_known = trouble in (Fault.BLIND, "a defect")
        assert (ended.code, ended.undone) == (UNKNOWN if not_known else INCOMPLETE, None)
        assert ended.text.endswith(": look at paris first") if not_known else ended.snapshot.units[0].serving == "paris"
        assert not at.machine.sites["london"].open
    if trouble == "a defect":
        assert "a defect in dr-ctl: KeyError: 'auto.q'" in ended.text
        assert any("Traceback" in str(entry.evidence.get("traceback")) for entry in at.entries())


@pytest.mark.parametrize("breaks", [False, True], ids=["fails", "breaks"])
def test_an_inverse_that_fails_or_breaks_does_not_stop_the_others(at: Desk, breaks: bool) -> None:
    at.machine.faults = {5: Fault.REFUSED, 6: Fault.REFUSED}
    if breaks:
        at.at_call(7, lambda: int("no number"))
    else:
        at.machine.stuck = frozenset({"open legacy at london"})

    ended = at.go()

    why = "a defect in dr-ctl: ValueError" if breaks else "could not open legacy at london"
    assert (ended.code, ended.undone) == (STRANDED, False)
    assert f"not everything could be undone: fence: {why}" in ended.text
    assert at.machine.dump()["london"]["paused"] == START["london"]["paused"]
    assert at.lines("step")[-3:] == ["06-fence undo-failed", "05-quiesce undo-started", "05-quiesce undone"]
    assert breaks or ended.findings[-1].text == "london serves, but not everything is as it was"


LATE = ExitCode.DRAIN_TIMEOUT


@pytest.mark.parametrize(
    ("verb", "outcome", "code"),
    [
        ("check", Failed("no", code=NOTHING_CHANGED), NOTHING_CHANGED),
        ("catch-up", Failed("it grows"), NOTHING_CHANGED),
        ("catch-up", Unknown("silence"), NOTHING_CHANGED),
        ("fence", Failed("no"), REVERTED),
        ("fence", Failed("no", code=NOTHING_CHANGED), REVERTED),
        ("drain", Failed("too slow", code=LATE), LATE),
        ("verify", Failed("they differ"), REVERTED),
        ("verify", Unknown("silence"), REVERTED),
        ("activate", Failed("london is open"), REVERTED),
        ("activate", Unknown("silence before any call"), REVERTED),
        ("activate", Failed("nodes take over for ever", proof_outdated=True), REVERTED),
        ("probe", Failed("nothing came back"), INCOMPLETE),
        ("probe", Unknown("silence"), INCOMPLETE),
    ],
)
def test_how_a_step_ends_says_how_the_run_ends(at: Desk, verb: str, outcome: Outcome, code: ExitCode) -> None:
    ended = at.go(answers={verb: outcome})
    assert (ended.code, ended.undone) == (code, None if code is INCOMPLETE else True)
    assert ended.text.startswith(outcome.text)
    assert at.machine.dump() == (MOVED if code is INCOMPLETE else START)
    if code is NOTHING_CHANGED:
        assert (at.machine.calls, ended.text) == (0, f"{outcome.text}; nothing was changed")


def test_what_a_takeover_outdates_is_proven_again(at: Desk) -> None:
    answers: dict[str, Outcome] = {"activate": Failed("another node is active", proof_outdated=True)}
    ended = at.go(answers=answers, listener=lambda event: answers.clear() if isinstance(event, Notice) else None)
    assert (ended.code, at.machine.dump(), at.machine.effects) == (OK, MOVED, EFFECTS)
    again = ["07-drain started", "08-verify started", "09-point-of-no-return started", "10-activate started"]
    begun = [line for line in at.lines("step") if line.endswith("started")]
    assert begun[6:] == [*again, *again, "11-probe started"]


def test_a_drain_timeout_before_anything_was_changed_is_no_drain_timeout(at: Desk) -> None:
    closed = dict.fromkeys(("quiesce", "fence"), NotNeeded("closed"))
    ended = at.go(answers={**closed, "drain": Failed("too slow", code=LATE)})
    assert (ended.code, ended.text) == (NOTHING_CHANGED, "too slow; nothing was changed")


@pytest.mark.parametrize(
    ("outcome", "code"), [(Failed("no listener opens"), INCOMPLETE), (Unknown("silence before any call"), UNKNOWN)]
)
def test_a_run_that_only_finishes_is_never_undone(at: Desk, outcome: Outcome, code: ExitCode) -> None:
    at.machine.faults = {5: Fault.KILLED_BEFORE}
    assert at.killed()
    at.machine.sites["paris"].listeners["clients"] = True  # by hand

    ended = at.go(answers={"activate": outcome})

    assert (ended.code, ended.undone, at.machine.calls) == (code, None, 5)


def both_open(machine: Machine) -> None:
    machine.sites["london"].listeners["clients"] = True


def target_closed(machine: Machine) -> None:
    machine.sites["paris"] = paris()


def source_silent(machine: Machine) -> None:
    machine.sites["london"].silent = True


SAYS_SO = dict.fromkeys(("activate", "probe"), NotNeeded("it says so"))


@pytest.mark.parametrize(
    ("moment", "meanwhile", "answers", "code", "text"),
    [
        ("probe", both_open, {"probe": Failed("nothing came back")}, UNKNOWN,
         "nothing came back; london is serving, paris is serving: look at paris first"),
        ("probe", target_closed, {"probe": Failed("nothing came back")}, STRANDED,
         "nothing came back; london is standby, paris is standby: look at paris first"),
        ("activate", lambda machine: None, SAYS_SO, UNKNOWN,
         "every step succeeded, but london is standby, paris is standby: look at paris first"),
        ("probe", source_silent, {}, UNKNOWN,
         "every step succeeded, but london is unknown, paris is serving: look at london first"),
        ("undo quiesce", source_silent, {"verify": Failed("no")}, STRANDED,
         "no; undone, but london is unknown, paris is standby"),
    ],
)  # fmt: skip
def test_an_end_is_not_believed_where_it_is_not_seen(
    at: Desk, moment: str, meanwhile: Callable[[Machine], None], answers: dict[str, Outcome], code: ExitCode, text: str
) -> None:
    event = StepEnded if moment.startswith("undo") else StepStarted
    ended = at.go(listener=at_the(event, moment, lambda: meanwhile(at.machine)), answers=answers)
    assert (ended.code, ended.text) == (code, text)
    assert ended.undone is (False if event is StepEnded else None)


def test_a_call_whose_intent_cannot_be_written_does_not_go_out(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append = journal_module.Journal._append

    def full(journal: journal_module.Journal, rows: list[tuple[str, ...]], **more: bool) -> int:
        if rows[0][0] == "intent":
            raise EnvironmentFault("the disk is full")
        return append(journal, rows, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(journal_module.Journal, "_append", full)

    with pytest.raises(EnvironmentFault):
        at.go()

    assert (at.machine.calls, at.machine.dump()) == (0, START)


def test_a_long_wait_is_sampled_once_a_second_after_its_first_minute(path: Path) -> None:
    clock, step = Clock(each_s=0.1), a_plan().steps[0]
    with closing(Journal(path)) as journal:
        journal.run(a_plan(), {})
        context = JournalledStep(journal, step, None, nobody, Outage(journal, None, start_known=False), [])
        while clock.monotonic() < 120:
            context.sample({"outflow": 1})

    times = [datetime.fromisoformat(entry.time) for entry in read_entries(path) if entry.kind == "sample"]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    began = next(number for number, gap in enumerate(gaps) if gap >= 1.0)
    assert max(gaps[:began]) < 0.5
    assert 59 <= (times[began] - times[0]).total_seconds() <= 61
    assert all(1.0 <= gap <= 1.5 for gap in gaps[began:])


@pytest.mark.parametrize("verb", [*BEFORE, *AFTER])
@pytest.mark.parametrize("moment", [StepStarted, StepEnded])
def test_a_signal_beside_a_step_undoes_everything_before_the_point_of_no_return_and_nothing_after_it(
    at: Desk, verb: str, moment: type[StepStarted | StepEnded]
) -> None:
    stop = StopRequest()
    ended = at.go(stop=stop, listener=at_the(moment, verb, lambda: stop.ask(signal.SIGTERM)))
    if verb in AFTER:
        assert (ended.code, at.machine.dump()) == (OK, MOVED)
        return
    assert (ended.code, ended.undone, at.machine.dump()) == (TERMINATED, True, START)
    assert moment is StepEnded or verb not in {line[3:] for line in at.lines("intent")}


@pytest.mark.parametrize("verb", ["drain", "activate"])
def test_a_signal_is_an_answer_to_the_question_before_a_step(at: Desk, verb: str) -> None:
    stop = StopRequest()

    def stepper(step: PlannedStep, may_undo: bool) -> Answer:
        if step.verb == verb:
            stop.ask(signal.SIGINT)
        return Answer.YES

    at.stepper = stepper
    if verb == "activate":  # past the point of no return it stops there
        with pytest.raises(StopAtOnce, match="2"):
            at.go(stop=stop)
        assert Desk(at.folder, at.machine).go().code is OK
        return
    ended = at.go(stop=stop)
    assert (ended.code, ended.undone, at.machine.dump()) == (INTERRUPTED, True, START)
    assert "drain" not in {line[3:8] for line in at.lines("step")}


def test_a_signal_is_an_answer_to_the_question_of_a_runbook(tmp_path: Path) -> None:
    stop = StopRequest()

    def asker(sentence: str) -> bool:
        stop.ask(signal.SIGTERM)
        raise AssertionError("the signal does not end the question")

    at = Desk(tmp_path, spec=FAILBACK, machine=Machine(sites=back(), debts=DEBTS), asker=asker)
    ended = at.go(stop=stop)
    assert (ended.code, ended.snapshot.roles["paris"]) == (TERMINATED, Role.SERVING)
    assert ended.snapshot.debts == (), "what stands before the question was wanted for itself"


def test_a_run_that_only_finishes_does_so_whatever_signal_comes(at: Desk) -> None:
    stop = StopRequest()
    at.machine.faults = {8: Fault.KILLED_BEFORE}
    assert at.killed()
    ended = at.go(stop=stop, listener=at_the(StepStarted, "observe", lambda: stop.ask(signal.SIGINT)))
    assert (ended.code, at.machine.dump()) == (OK, MOVED)


def test_a_signal_ends_a_wait(at: Desk) -> None:
    stop, at.machine.cut = StopRequest(), True

    ended = at.go(stop=stop, listener=lambda event: isinstance(event, WaitProgress) and stop.ask(signal.SIGINT))

    assert (ended.code, at.machine.dump(), len(at.lines("sample"))) == (INTERRUPTED, START, 1)


@pytest.mark.parametrize("number", CALLS)
def test_the_second_signal_stops_at_once_and_the_run_can_be_gone_on_with(at: Desk, number: int) -> None:
    stop = StopRequest()
    at.at_call(number, lambda: [stop.ask(signum) for signum in SIGNALS])

    with pytest.raises(StopAtOnce) as stopped:
        at.go(stop=stop)

    assert stopped.value.signum == signal.SIGTERM
    assert (at.machine.effects, at.estimates.told[-1]) == (EFFECTS[: number - 1], "abandon")
    assert (at.go().code, at.machine.dump()) == (OK, MOVED)


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_to_the_process_reaches_the_run_as_long_as_it_lasts(signum: signal.Signals) -> None:
    before = signal.getsignal(signum)
    with restored_handlers():
        stop = stop_request()
        os.kill(os.getpid(), signum)
        assert stop.wait(5)
        assert stop.signum == signum
        with pytest.raises(StopAtOnce):
            signal.raise_signal(signum)
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGPIPE])
def test_a_lost_terminal_or_a_closed_pipe_does_not_stop_a_run(signum: signal.Signals) -> None:
    with restored_handlers():
        stop = stop_request()
        signal.raise_signal(signum)
        assert not stop.asked()


@dataclass
class Hooks:
    """Commands that end with the outcome that the test gives them."""

    outcome: Outcome = field(default_factory=lambda: Done("hook succeeded"))
    effect: Callable[[], object] = lambda: None
    told: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)

    def run(self, name: str, facts: Mapping[str, Json]) -> Outcome:
        self.told.append((name, facts))
        self.effect()
        return self.outcome


def with_line(verb: str, line: RunbookStep, book: Runbook = BOOK) -> Runbook:
    at = next(number for number, step in enumerate(book.steps) if step.verb == verb)
    return replace(book, steps=(*book.steps[:at], line, *book.steps[at:]))


def hook(name: str = "tell") -> RunbookStep:
    return RunbookStep("hook", "both", 1, words={"name": name})


class TestHooks:
    def test_one_is_told_what_the_run_is_about(self, at: Desk) -> None:
        at.hooks, at.book = (hooks := Hooks()).run, with_line("fence", hook())
        assert at.go().code is ExitCode.OK
        about = {"operation": "swapover", "source": "london", "target": "paris", "step": "06-hook", "undoable": True}
        assert hooks.told == [("tell", about)]
        assert "06-hook" in at.lines("intent")
        assert "06-hook done" in at.lines("result")

    @pytest.mark.parametrize("verb", [*BEFORE[2:], "activate", "probe"])
    def test_one_that_fails_is_undone_or_past_the_point_of_no_return_a_warning(self, at: Desk, verb: str) -> None:
        at.hooks, at.book = Hooks(Failed("hook tell ended with 1")).run, with_line(verb, hook())
        ended = at.go()
        if verb in BEFORE:
            assert (ended.code, ended.undone, at.machine.dump()) == (ExitCode.REVERTED, True, START)
            assert "hook tell ended with 1" in ended.text
        else:
            assert (ended.code, at.machine.dump()) == (ExitCode.OK, MOVED)
            assert [finding.id for finding in ended.findings] == ["DR-HOOK-001"]

    @pytest.mark.parametrize("fails", [False, True])
    def test_one_that_cuts_the_lost_site_off_is_what_a_failover_rests_on(self, tmp_path: Path, fails: bool) -> None:
        gone = lost()
        gone["london"] = replace(gone["london"], down=False, silent=True)
        outcome: Outcome = Failed("hook fence-host ended with 1") if fails else Done("cut off")
        at = Desk(tmp_path, Machine(sites=gone), spec=FAILOVER, exposure=Cost())
        refused = at.decide()
        at.hooks = Hooks(outcome, lambda: gone["london"].listeners.update(clients=False, legacy=False)).run
        at.book = with_line("fence", hook("fence-host"), book_of("failover"))

        ended = at.go()

        assert isinstance(refused, Refusal)
        assert refused.findings[0].id == "DR-ALIVE-002"
        assert ended.code is (ExitCode.REVERTED if fails else ExitCode.OK)

    def test_a_lost_site_that_is_proven_to_be_down_is_not_cut_off(self, tmp_path: Path) -> None:
        book = with_line("fence", hook("fence-host"), book_of("failover"))
        decided = Desk(tmp_path, Machine(sites=lost()), spec=FAILOVER, exposure=Cost(), book=book).decide()
        assert isinstance(decided, Plan)
        assert [step.verb for step in decided.steps if step.verb == "hook"] == ["hook"]


def question() -> RunbookStep:
    return RunbookStep("ask", "both", 1, words={"sentence": "go on?"})


class TestQuestions:
    @pytest.mark.parametrize(
        ("before", "code"),
        [("quiesce", ExitCode.DECLINED), ("drain", ExitCode.REVERTED), ("probe", ExitCode.INCOMPLETE)],
    )
    def test_a_no_undoes_what_can_be_undone(self, at: Desk, before: str, code: ExitCode) -> None:
        at.asker, at.book = lambda sentence: False, with_line(before, question())
        assert at.go().code is code
        assert at.machine.dump() == (MOVED if before == "probe" else START)

    def test_past_the_point_of_no_return_a_signal_waits_for_the_answer(self, at: Desk) -> None:
        stop = StopRequest()

        def asker(sentence: str) -> bool:
            stop.ask(signal.SIGINT)
            return True

        at.asker, at.book = asker, with_line("probe", question())

        assert at.go(stop=stop).code is ExitCode.OK
        assert at.machine.dump() == MOVED


def test_a_hold_waits_and_can_be_stopped(tmp_path: Path) -> None:
    value: list[float | None] = []
    at = Desk(tmp_path, book=with_line("fence", RunbookStep("hold", "both", 1, {"for": 0.05})))
    ended = at.go(listener=lambda event: value.append(event.left_s) if isinstance(event, WaitProgress) else None)
    assert ended.code is ExitCode.OK
    assert value[0] == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize(("out_s", "left_s"), [(90, 30), (124, 120)])  # once it is over, it could only be undone
def test_a_resumed_run_has_what_is_left_of_the_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch, out_s: float, left_s: float
) -> None:
    monkeypatch.setattr("dr_ctl.engine.context.fenced_at", lambda _: system().now() - timedelta(seconds=out_s))
    with closing(Journal(path)) as journal:
        journal.run(a_plan(), {})
        outage = Outage(journal, 120, start_known=True)

    assert (outage.so_far_s(), outage.left_s()) == pytest.approx((out_s, left_s), abs=1)


def test_a_move_is_undone_when_clients_would_be_out_for_too_long_from_the_fence_on(tmp_path: Path) -> None:
    book = with_line("fence", RunbookStep("hold", "both", 1, {"for": 0.02}))
    at = Desk(tmp_path, spec=replace(ASK, max_outage_s=0.2), machine=Machine(cut=True), book=book)
    value: list[tuple[bool, float | None]] = []
    fenced: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, StepStarted) and event.verb == "fence":
            fenced.append(event.verb)
        elif isinstance(event, WaitProgress):
            value.append((bool(fenced), event.outage_s))

    ended = at.go(listener=listener)
    assert (ended.code, ended.undone, at.machine.dump()) == (ExitCode.REVERTED, True, START)
    assert "clients would be out for longer than 0.2 s" in ended.text
    assert {fenced for fenced, _ in value} == {False, True}
    assert all((outage_s is not None) is fenced for fenced, outage_s in value)


def test_the_estimate_says_how_much_is_left_of_its_time(tmp_path: Path) -> None:
    heard: list[WaitProgress] = []

    class Slow(Estimates):
        def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
            wait(0.001)
            return super().end(within_s=within_s, wait=wait)

    desk = Desk(tmp_path, estimates=Slow())
    desk.go(listener=lambda event: heard.append(event) if isinstance(event, WaitProgress) else None)

    [result] = [
        event for event in heard if event.subject.startswith("estimating from the history (given up after 30 s)")
    ]
    assert result.left_s is not None
    assert 29 < result.left_s <= 30


class Looks(StepContext):
    """A hand whose time is what its readings and waits take."""

    read_only = False

    def __init__(self, looks: Iterable[int], takes_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.at: list[float] = []
        self._readings, self._takes_s = iter(looks), takes_s

    def read(self) -> int:
        self.at.append(self.now_s)
        self.now_s += self._takes_s
        return next(self._readings)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("context", "more", "snapshot", "at"),
    [
        (Looks([1]), {"within_s": 0.0}, 1, [0.0]),  # where no time is left it looks once
        (Looks([1, 1, 0], takes_s=0.4), {}, 0, [0.0, 1.0, 2.0]),  # polls count from the beginning of a reading
        (Looks([0, 1, 0, 0]), {"stable_for": 2}, 0, [0.0, 1.0, 2.0, 3.0]),  # so many readings in a row
        # The second reading begins in time and ends late: the third, which began late, decides; no other begins late.
        (Looks([1, 1, 0], takes_s=2.0), {"within_s": 3.0, "poll_s": 0.5}, 0, [0.0, 2.0, 4.0]),
        (Looks([1] * 9), {"within_s": 2.5}, 1, [0.0, 1.0, 2.0, 3.0]),
        (Looks([1] * 9), {"max_s": 3.0}, 1, [0.0, 1.0, 3.0, 6.0, 9.0]),  # polls grow
        # A hopeless look ends it at once, and one that holds is never hopeless.
        (Looks([1, 2, 0]), {"within_s": None, "hopeless": lambda left: left > 1}, 2, [0.0, 1.0]),
        (Looks([0]), {"within_s": None, "hopeless": lambda snapshot: True}, 0, [0.0]),
    ],
)
def test_a_wait_holds_by_the_look_that_decides(
    context: Looks, more: dict[str, Any], snapshot: int, at: list[float]
) -> None:
    meanwhile: list[int] = []
    usual: dict[str, Any] = {"within_s": 9.0, "poll_s": 1.0, "meanwhile": meanwhile.append}
    waited = context.until(context.read, holds=lambda left: left == 0, **{**usual, **more})
    assert (waited, context.at) == (Waited(snapshot, satisfied=snapshot == 0), at)
    assert len(meanwhile) == len(at) - 1, "it gets each look after which the wait goes on"


WRITES = range(1, 34)  # of an undisturbed run: one for each block of lines
UNDOING_WRITES = range(1, 30)  # of a run whose last revertible call is refused
REFUSING = {REVERTIBLE[-1]: Fault.REFUSED}


@pytest.mark.parametrize(("faults", "writes"), [({}, WRITES), (REFUSING, UNDOING_WRITES)])
def test_the_crashes_of_this_file_are_at_every_write(at: Desk, faults: dict[int, Fault], writes: range) -> None:
    clock = Clock()
    at.machine.faults = faults

    at.go(clock=clock)

    assert clock.looks == writes[-1]


def moved(at: Desk) -> None:
    """What is left to do is done, and every call was made once."""
    assert at.go().code is ExitCode.OK
    assert (at.machine.dump(), at.machine.effects) == (MOVED, EFFECTS)


def put_back(at: Desk) -> None:
    assert at.abort().code is ExitCode.OK
    assert at.machine.dump() == START


@pytest.mark.parametrize("end", [moved, put_back])
@pytest.mark.parametrize("fault", KILLS)
@pytest.mark.parametrize("number", CALLS)
def test_killed_at_a_call_it_ends_the_same_or_is_put_back(
    at: Desk, number: int, fault: Fault, end: Callable[[Desk], None]
) -> None:
    at.machine.faults = {number: fault}
    assert at.killed()
    # At an activating call it cannot be aborted any more.
    assert at.may_abort() is (number in REVERTIBLE)
    if at.may_abort() or end is moved:
        end(at)


@pytest.mark.parametrize("end", [moved, put_back])
@pytest.mark.parametrize("write", WRITES)
def test_killed_before_a_line_it_ends_the_same_or_is_put_back(
    at: Desk, write: int, end: Callable[[Desk], None]
) -> None:
    """Resumed it is killed once more. It can be aborted until an activating call may have gone out; without a line no
    run has begun."""
    assert at.killed(Clock(dies_at=write))
    if end is moved:
        at.killed(Clock(dies_at=12))
        moved(at)
    elif write > WRITES[0]:
        assert at.may_abort() is ("10-activate" not in at.lines("intent"))
        end(at) if at.may_abort() else moved(at)


def test_an_abort_that_has_nothing_to_undo_does_not_claim_that_the_source_serves(at: Desk) -> None:
    assert at.killed(Clock(dies_at=5))
    at.machine.sites["london"].silent = True
    aborted = at.abort()
    assert aborted.code is ExitCode.UNKNOWN
    assert aborted.text == "aborted; nothing was changed, but london is unknown, paris is standby: look at london first"


# Killed at the very first the journal holds no plan: nothing was changed, and nothing can be aborted.
@pytest.mark.parametrize(
    ("write", "abort"), [(write, abort) for write in UNDOING_WRITES for abort in (False, True)[: min(write, 2)]]
)
def test_killed_while_undoing_it_ends_the_same_or_is_put_back(at: Desk, write: int, abort: bool) -> None:
    at.machine.faults = REFUSING
    assert at.killed(Clock(dies_at=write))
    at.machine.faults = {}
    ended = at.abort() if abort else at.go()
    assert ended.code is ExitCode.OK
    assert at.machine.dump() == (START if abort else MOVED)


def failover(folder: Path, cost: Cost | None = None) -> Desk:
    return Desk(folder, Machine(sites=lost()), spec=FAILOVER, exposure=cost or Cost())


def failback(folder: Path, spec: Spec = FAILBACK) -> Desk:
    return Desk(folder, Machine(sites=back(), debts=DEBTS), spec=spec)


def test_the_price_is_asked_once_more_right_before_the_point_of_no_return(tmp_path: Path) -> None:
    at = failover(tmp_path, Cost((0, 0, 5)))
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
    ended = failover(tmp_path / "closed", Cost((0, 5))).go(answers={"quarantine": Done("it is closed already")})
    assert (ended.code, ended.text) == (ExitCode.LOSS_REFUSED, "5 may be lost; nothing was changed")


@pytest.mark.parametrize("returned", [False, True], ids=["it_stays_away", "it_came_back_closed"])
def test_a_failover_is_finished_also_where_the_lost_site_came_back(tmp_path: Path, returned: bool) -> None:
    at = failover(tmp_path)
    at.machine.faults = {3: Fault.KILLED_BEFORE}
    assert at.killed()
    if returned:
        at.machine.sites["london"] = replace(back()["london"], outflow=0)
    ended = at.go()
    assert (ended.code, ended.snapshot.units[0].serving) == (ExitCode.OK, "paris")
    assert ended.bounds is not None, "it was said by the process that died"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.KILLED_BEFORE])
def test_a_failover_that_cannot_keep_residue_out_or_is_aborted_is_as_before_it(tmp_path: Path, fault: Fault) -> None:
    dies, at = fault is Fault.KILLED_BEFORE, failover(tmp_path)
    at.machine.faults = {2 if dies else 1: fault}
    before = at.machine.dump()
    assert not dies or at.killed()
    ended = at.abort() if dies else at.go()
    assert (ended.code, ended.undone) == (ExitCode.OK if dies else ExitCode.REVERTED, True)
    assert ended.text == "aborted; undone: no site serves, as before" or not dies
    assert at.machine.dump() == before


@pytest.mark.parametrize("killed", [False, True], ids=["in one go", "gone on with by a second process"])
@pytest.mark.parametrize("outcome", [Failed("it grows"), Unknown("silence")])
@pytest.mark.parametrize("verb", ["catch-up", "fence", "verify"])
def test_what_was_taken_in_stays_when_the_move_fails(tmp_path: Path, verb: str, outcome: Outcome, killed: bool) -> None:
    at = failback(tmp_path)

    def die() -> None:
        at.machine.faults = {at.machine.calls + 1: Fault.KILLED_BEFORE}

    assert not killed or at.killed(listener=at_the(StepStarted, "quiesce", die))
    ended = at.go(answers={verb: outcome})

    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text.endswith("undone: paris serves again")
    assert at.machine.sites["paris"].open
    assert at.machine.sites["paris"].links == {"mirror": True}
    assert "04-reinstate undo-started" not in at.lines("step")
    assert not any(paused for queue, paused in at.machine.sites["paris"].paused.items() if queue != "bills")


@pytest.mark.parametrize("refused", ["a call", "reconcile"])
def test_before_it_is_taken_in_a_failure_undoes_all(tmp_path: Path, refused: str) -> None:
    at = failback(tmp_path)
    before = at.machine.dump()
    at.machine.faults = {2: Fault.REFUSED} if refused == "a call" else {}
    ended = at.go(answers={refused: Failed("they differ")})
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert at.machine.dump() == before
