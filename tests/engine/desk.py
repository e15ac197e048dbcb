"""What an operator does with the machine: run, resume and abort, through planner, executor and journal as they are."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from dr_ctl.core.model import Finding, Json, Role, Severity
from dr_ctl.engine.context import StopRequest
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.executor import Answer, Callbacks, Execution, RunResult
from dr_ctl.engine.journal import Entry, Journal, RunState, read_entries, replay
from dr_ctl.engine.plan import Decision, Plan, PlannedStep, Spec
from dr_ctl.engine.planner import plan
from dr_ctl.engine.ports import LossExposure, NotNeeded, Outcome
from dr_ctl.engine.runbook import Runbook, load, shipped
from dr_ctl.telemetry.events import Event, EventSink, StepEnded, StepStarted, nobody
from tests.clocks import SetClock
from tests.engine.machine import Driver, Killed, Machine, Recipe, Snapshot

BOOK = load("swapover", shipped())
ASK = Spec("swapover", "paris")
LOSS = "DR-LOSS-001"
FAILOVER, REINSTATE, FAILBACK = Spec("failover", "paris"), Spec("reinstate", "london"), Spec("failback", "london")
DEBTS = tuple(Debt(kind, "london", "paris", "2026-11-21T02:00:00Z") for kind in DebtKind)
BY = {"user": "ada", "host": "desk-1", "version": "0.1.0"}

# What a run that nobody disturbs does, in its order, and what the sites are before and after it.
EFFECTS = [
    "pause orders at london",
    "pause bills at london",
    "close clients at london",
    "close legacy at london",
    "resume orders at london",
    "resume bills at london",
    "open clients at paris",
    "open legacy at paris",
]
REVERTIBLE = range(1, 7)  # calls before the point of no return
OPENING = range(7, 9)  # those of the activation
CALLS = [*REVERTIBLE, *OPENING]
BEFORE = ("observe", "check", "estimate", "catch-up", "quiesce", "fence", "drain", "verify")
AFTER = ("point-of-no-return", "activate", "probe")
START = Machine().dump()
MOVED = {
    "london": {
        "listeners": {"clients": False, "legacy": False, "admin": False},
        "paused": {"orders": False, "bills": False, "audit": True},
    },
    "paris": {"listeners": {"clients": True, "legacy": True}, "paused": {"orders": False, "bills": False}},
}
OPEN_PARIS = frozenset(EFFECTS[-2:])


@cache
def book_of(operation: str) -> Runbook:
    """The runbook that came with dr-ctl for an operation."""
    return load("failback" if operation == "reinstate" else operation, shipped())


class Clock(SetClock):
    """Every reading of it takes a while, so that no wait is endless. Kills its reader at one reading of the time of
    day, which the journal reads once for each block of lines, right before it writes them."""

    def __init__(self, dies_at: int | None = None, each_s: float = 0.01) -> None:
        self._dies_at, self._each_s = dies_at, each_s
        self._at = 0.0
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        if self.looks == self._dies_at:
            raise Killed
        return datetime(2026, 11, 21, 2, 0, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        self._at += self._each_s
        return self._at


@dataclass
class Cost:
    """What may be lost: so much at each time of asking, the last again and again; None is not known."""

    lost: Sequence[int | None] = (0,)
    asked: int = 0

    def bounds(self) -> Mapping[str, Json]:
        return {"lost": {"at_most": self.lost[0], "read_at": None}, "duplicates": {"at_most": 0, "read_at": None}}

    def findings(self) -> Sequence[Finding]:
        return ()

    def too_high(self, spec: Spec) -> Finding | None:
        now = self.lost[min(self.asked, len(self.lost) - 1)]
        self.asked += 1
        if spec.accept_loss == "unknown" or (now is not None and now <= (spec.accept_loss or 0)):
            return None
        return Finding(LOSS, Severity.ERROR, f"{now} may be lost", "Accept it.")


@dataclass
class Estimates:
    """An estimator that ends with the outcome that the test gives it."""

    outcome: Outcome = field(default_factory=lambda: NotNeeded("no history"))
    told: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.told.append("begin")

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        self.told.append(f"end within {within_s:g} s")
        return self.outcome

    def abandon(self) -> None:
        self.told.append("abandon")


@dataclass
class Desk:
    """One run directory and the machine that it moves."""

    folder: Path
    machine: Machine = field(default_factory=Machine)
    estimates: Estimates = field(default_factory=Estimates)
    spec: Spec = ASK
    exposure: LossExposure | None = None
    asker: Callable[[str], bool] = lambda sentence: True
    stepper: Callable[[PlannedStep, bool], Answer] = lambda step, may_undo: Answer.YES
    hooks: Callable[[str, Mapping[str, Json]], Outcome] | None = None
    book: Runbook | None = None

    @property
    def path(self) -> Path:
        return self.folder / "journal.jsonl"

    def entries(self) -> list[Entry]:
        return read_entries(self.path)

    def lines(self, kind: str) -> list[str]:
        rows = [(entry.step or "", entry.outcome) for entry in self.entries() if entry.kind == kind]
        return [f"{step} {outcome}" if outcome else step for step, outcome in rows]

    def past(self) -> RunState | None:
        """What the journal says so far; None where the run never began."""
        entries = self.entries() if self.path.exists() else []
        return replay(entries) if entries else None

    def decide(self) -> Decision:
        return plan(
            self.book or book_of(self.spec.operation),
            Recipe(),
            self.machine.read(),
            self.spec,
            self.past(),
            self.exposure,
        )

    def go(
        self,
        *,
        clock: Clock | None = None,
        stop: StopRequest | None = None,
        listener: EventSink = nobody,
        answers: Mapping[str, Outcome] | None = None,
    ) -> RunResult[Snapshot]:
        """Plan with what the journal says so far and carry it out: a first run, or a resumed one."""
        decided = self.decide()
        assert isinstance(decided, Plan), decided
        clock or Clock()
        with closing(Journal(self.path)) as journal:
            callbacks = Callbacks(asker=self.asker, stepper=self.stepper, hooks=self.hooks)
            driver, stop = Driver(self.machine, answers), stop or StopRequest()
            run = Execution(decided, driver, journal, listener, stop, self.exposure, callbacks)
            return run.execute(self.estimates, BY)

    def killed(self, clock: Clock | None = None, listener: EventSink = nobody) -> bool:
        try:
            self.go(clock=clock, listener=listener)
        except Killed:
            return True
        return False

    def at_call(self, number: int, act: Callable[[], object]) -> None:
        self.machine.during = lambda now: act() if now == number else None

    def may_abort(self) -> bool:
        """The rule of `abort`: no activating call may have had its effect."""
        past = self.past()
        return past is not None and not past.activation_sent and self.machine.read().roles["paris"] is Role.STANDBY

    def abort(self) -> RunResult[Snapshot]:
        past = self.past()
        assert past is not None
        Clock()
        with closing(Journal(self.path)) as journal:
            return Execution(past.plan, Driver(self.machine), journal, nobody).undo()


def a_plan() -> Plan:
    decided = plan(BOOK, Recipe(), Machine().read(), ASK)
    assert isinstance(decided, Plan)
    return decided


def at_the(moment: type[StepStarted | StepEnded], verb: str, act: Callable[[], None]) -> EventSink:
    """A listener that acts when a verb starts or ends."""

    def listener(event: Event) -> None:
        if isinstance(event, moment) and event.verb == verb:
            act()

    return listener
