"""What the world adds to a run: yes and no, commands, a limit to the outage; and the law that all waits follow."""

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from dr_ctl.core.model import ExitCode, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import Plan, Refusal
from dr_ctl.engine.ports import Hand
from dr_ctl.engine.runbook import Runbook, RunbookStep
from dr_ctl.engine.stopping import StopRequest
from dr_ctl.engine.waiting import Waited, until
from dr_ctl.telemetry.events import Event, StepStarted, WaitProgress
from tests.engine.desk import ASK, BEFORE, BOOK, FAILOVER, MOVED, START, Cost, Desk, Estimates, book_of
from tests.engine.machine import Machine, lost


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
    """The runbook with one more line right before a verb."""
    at = next(number for number, step in enumerate(book.steps) if step.verb == verb)
    return replace(book, steps=(*book.steps[:at], line, *book.steps[at:]))


def hook(name: str = "tell") -> RunbookStep:
    return RunbookStep("hook", "both", 1, words={"name": name})


class TestHooks:
    def test_one_is_told_what_the_run_is_about(self, at: Desk) -> None:
        at.hooks, at.book = (hooks := Hooks()), with_line("fence", hook())
        assert at.go().code is ExitCode.OK
        about = {"operation": "swapover", "source": "london", "target": "paris", "step": "06-hook", "undoable": True}
        assert hooks.told == [("tell", about)]
        assert "06-hook" in at.lines("intent")
        assert "06-hook done" in at.lines("result")

    @pytest.mark.parametrize("verb", [*BEFORE[2:], "activate", "probe"])
    def test_one_that_fails_is_undone_or_past_the_point_of_no_return_a_warning(self, at: Desk, verb: str) -> None:
        at.hooks, at.book = Hooks(Refused("hook tell ended with 1")), with_line(verb, hook())
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
        outcome: Outcome = Refused("hook fence-host ended with 1") if fails else Done("cut off")
        at = Desk(tmp_path, Machine(sites=gone), ask=FAILOVER, price=Cost())
        refused = at.decide()
        at.hooks = Hooks(outcome, lambda: gone["london"].doors.update(clients=False, legacy=False))
        at.book = with_line("fence", hook("fence-host"), book_of("failover"))

        ended = at.go()

        assert isinstance(refused, Refusal)
        assert refused.findings[0].id == "DR-ALIVE-002"
        assert ended.code is (ExitCode.REVERTED if fails else ExitCode.OK)

    def test_a_lost_site_that_is_proven_to_be_down_is_not_cut_off(self, tmp_path: Path) -> None:
        book = with_line("fence", hook("fence-host"), book_of("failover"))
        decided = Desk(tmp_path, Machine(sites=lost()), ask=FAILOVER, price=Cost(), book=book).decide()
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
    told: list[float | None] = []
    at = Desk(tmp_path, book=with_line("fence", RunbookStep("hold", "both", 1, {"for": 0.05})))
    ended = at.go(listener=lambda event: told.append(event.left_s) if isinstance(event, WaitProgress) else None)
    assert ended.code is ExitCode.OK
    assert told[0] == pytest.approx(0.05, abs=0.02)


def test_a_move_is_undone_when_clients_would_be_out_for_too_long_from_the_fence_on(tmp_path: Path) -> None:
    book = with_line("fence", RunbookStep("hold", "both", 1, {"for": 0.02}))
    at = Desk(tmp_path, ask=replace(ASK, max_outage_s=0.2), machine=Machine(cut=True), book=book)
    told: list[tuple[bool, float | None]] = []
    fenced: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, StepStarted) and event.verb == "fence":
            fenced.append(event.verb)
        elif isinstance(event, WaitProgress):
            told.append((bool(fenced), event.outage_s))

    ended = at.go(listener=listener)
    assert (ended.code, ended.undone, at.machine.dump()) == (ExitCode.REVERTED, True, START)
    assert "clients would be out for longer than 0.2 s" in ended.text
    assert {fenced for fenced, _ in told} == {False, True}
    assert all((outage_s is not None) is fenced for fenced, outage_s in told)


def test_the_estimate_says_how_much_is_left_of_its_time(tmp_path: Path) -> None:
    heard: list[WaitProgress] = []

    class Slow(Estimates):
        def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
            wait(0.001)
            return super().end(within_s=within_s, wait=wait)

    desk = Desk(tmp_path, estimates=Slow())
    desk.go(listener=lambda event: heard.append(event) if isinstance(event, WaitProgress) else None)

    [told] = [each for each in heard if each.about.startswith("estimating from the history (given up after 30 s)")]
    assert told.left_s is not None
    assert 29 < told.left_s <= 30


class Looks:
    """A hand whose time is what its looks and waits take."""

    only_looks = False

    def __init__(self, looks: Iterable[int], takes_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.at: list[float] = []
        self._looks, self._takes_s = iter(looks), takes_s

    def look(self) -> int:
        self.at.append(self.now_s)
        self.now_s += self._takes_s
        return next(self._looks)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("hand", "more", "seen", "at"),
    [
        (Looks([1]), {"within_s": 0.0}, 1, [0.0]),  # where no time is left it looks once
        (Looks([1, 1, 0], takes_s=0.4), {}, 0, [0.0, 1.0, 2.0]),  # polls count from the beginning of a look
        (Looks([0, 1, 0, 0]), {"calm": 2}, 0, [0.0, 1.0, 2.0, 3.0]),  # so many looks in a row
        # The second look begins in time and ends late: the third, which began late, decides; no other begins late.
        (Looks([1, 1, 0], takes_s=2.0), {"within_s": 3.0, "poll_s": 0.5}, 0, [0.0, 2.0, 4.0]),
        (Looks([1] * 9), {"within_s": 2.5}, 1, [0.0, 1.0, 2.0, 3.0]),
        # A hopeless look ends it at once, and one that holds is never hopeless.
        (Looks([1, 2, 0]), {"within_s": None, "hopeless": lambda seen: seen > 1}, 2, [0.0, 1.0]),
        (Looks([0]), {"within_s": None, "hopeless": lambda seen: True}, 0, [0.0]),
    ],
)
def test_a_wait_holds_by_the_look_that_decides(hand: Looks, more: dict[str, Any], seen: int, at: list[float]) -> None:
    meanwhile: list[int] = []
    usual: dict[str, Any] = {"within_s": 9.0, "poll_s": 1.0, "meanwhile": meanwhile.append}
    waited = until(cast("Hand", hand), hand.look, holds=lambda seen: seen == 0, **{**usual, **more})
    assert (waited, hand.at) == (Waited(seen, held=seen == 0), at)
    assert len(meanwhile) == len(at) - 1, "it gets each look after which the wait goes on"
