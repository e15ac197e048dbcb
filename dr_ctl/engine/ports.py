"""Protocols that topologies and outer layers implement for the engine, and the outcomes of their steps.

A topology has two halves. The recipe is pure and turns an observation and a verb into steps. The driver observes
brokers, applies steps and proves them. The planner has only a recipe, the executor only a driver. An outcome is done,
not needed, refused or unknown: a timeout is unknown, not a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol, Self, TypeVar

from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.core.system import system
from dr_ctl.telemetry.events import EventSink, Notice, WaitProgress

if TYPE_CHECKING:
    from dr_ctl.engine.debts import Debt
    from dr_ctl.engine.plan import Call, PlannedStep, Spec
    from dr_ctl.engine.runbook import RunbookStep


@dataclass(frozen=True, slots=True)
class _OutcomeBase:
    """The fields of every outcome. `word` is its name in journal, screen and report."""

    word: ClassVar[str]

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, *findings: Finding, evidence: Mapping[str, Json] | None = None, **fields: Any) -> Self:
        """Make an outcome with the text of the first of these findings."""
        return cls(findings[0].text, evidence or {}, findings, **fields)


@dataclass(frozen=True, slots=True)
class Done(_OutcomeBase):
    """The goal was reached, and verified."""

    word = "done"


@dataclass(frozen=True, slots=True)
class NotNeeded(_OutcomeBase):
    """The goal held already, so no call was made."""

    word = "not needed"


@dataclass(frozen=True, slots=True)
class Failed(_OutcomeBase):
    """The goal was certainly not reached; journals call that refused. The undone run ends with `code`. `proof_outdated`
    says that the proofs since the drain do not hold any more, and can be repeated with the clients kept out."""

    word = "refused"

    code: ExitCode = ExitCode.REVERTED
    proof_outdated: bool = False


@dataclass(frozen=True, slots=True)
class Unknown(_OutcomeBase):
    """No answer came, and a reading did not show whether the call had an effect."""

    word = "unknown"


Outcome = Done | NotNeeded | Failed | Unknown


@dataclass(frozen=True, slots=True)
class UnitSnapshot:
    """The site that serves one unit: a pair of brokers, or a queue where a topology can move part of a site.

    `serving` is None if no site serves, or the answer is unknown. `open_at` lists the sites that let clients in;
    `closed_at` lists the sites that answered and let no client in. A lasting fence keeps the clients' roles out at the
    sites `lasting_fence_at`, which are open.
    """

    name: str
    serving: str | None = field(metadata=key(description="the site that serves it; null where none is seen to"))
    open_at: tuple[str, ...] = field(default=(), metadata=HIDDEN)
    closed_at: tuple[str, ...] = field(default=(), metadata=HIDDEN)
    lasting_fence_at: tuple[str, ...] = field(default=(), metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class SignsOfLife:
    """Evidence against the loss of a site, as sentences. `nodes` are processes of its brokers that the settings do not
    name, which may serve, or take over. `takeovers` are brokers without an active node that may get one, with the state
    of each node. `signs` show that a silent broker lives, `open_ports` that something accepts connections at its port.
    A `late` broker accepts connections and answers late. A local fault has a `remedy`."""

    nodes: tuple[str, ...] = ()
    takeovers: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    open_ports: tuple[str, ...] = ()
    late: bool = False
    remedy: str = ""


NO_SIGNS: Final = SignsOfLife()


class Observation(Protocol):
    """A reading of both sites. An unreachable broker is part of the observation, not an error."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """Roles by site name."""

    @property
    def units(self) -> Sequence[UnitSnapshot]: ...

    @property
    def debts(self) -> Sequence[Debt]:
        """Debts in documents on the brokers that answered."""

    @property
    def signs_of_life(self) -> Mapping[str, SignsOfLife]:
        """The signs of life by site, maybe without sites that have none."""


@dataclass(frozen=True, slots=True)
class Move:
    """Source, target and the state before the run, which a recipe needs with the observation. In a reinstatement the
    source is the site that serves, and the target the site that came back.

    `spec` names the units to move, of which the target serves `already_moved` before the run. `activation_sent` says
    whether the run, also by an earlier process, has sent a call that opens the target.
    """

    spec: Spec
    source: str
    baseline: Mapping[str, Json]
    already_moved: tuple[str, ...] = ()
    activation_sent: bool = False

    @property
    def target(self) -> str:
        return self.spec.target

    def moves(self, unit: str | None) -> bool:
        """Say whether a unit is to move: requested, and not yet served by the target. False for None."""
        return self.spec.includes(unit) and unit not in self.already_moved


T = TypeVar("T")
O_contra = TypeVar("O_contra", bound=Observation, contravariant=True)
O_co = TypeVar("O_co", bound=Observation, covariant=True)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step without its number, as a recipe returns for one line of a runbook."""

    site: str
    summary: str
    calls: tuple[Call, ...] = ()
    inverse: tuple[Call, ...] = ()
    limits: Mapping[str, float] | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A named check before a move. `evidence` is the text that was read, None if nothing was read: then the check does
    not hold. `found` are the findings against the move."""

    name: str
    where: str
    evidence: str | None
    found: Sequence[Finding] = field(default=(), metadata=HIDDEN)
    age_s: float | None = field(default=None, metadata=key(digits=3))

    @derived
    def verdict(self) -> Literal["holds", "warns", "fails", "not read"]:
        if self.evidence is None:
            return "not read"
        worst = {finding.severity for finding in self.found}
        return "fails" if Severity.ERROR in worst else "warns" if Severity.WARNING in worst else "holds"

    @derived
    def findings(self) -> list[str]:
        return [finding.id for finding in self.found]

    def aged(self, age_s: float) -> Check:
        return replace(self, age_s=age_s if self.evidence is not None else None)


class Recipe(Protocol[O_contra]):
    """Describes as values how a topology implements each verb. Pure: uses no broker, no file, no clock."""

    @property
    def moves_parts(self) -> bool:
        """Say whether a unit can move without the others. Units served at different sites are then no error."""

    def verbs(self) -> frozenset[str]:
        """Return the verbs of a runbook that this topology implements."""

    def baseline(self, snapshot: O_contra) -> Mapping[str, Json]:
        """Return the present value of everything that dr-ctl may set, for an undo to restore.

        The shape is site -> unit -> {"paused": [names of the queues whose dispatch is stopped], …}; the rest is the
        topology's own. The lock at the broker of the unit's name (`Store.pair`) records these pauses, so that nobody
        lifts them with those of a run: units that share a broker have one entry, under the broker's name.
        """

    def why_not(self, snapshot: O_contra, move: Move) -> Sequence[Finding]:
        """Return the findings on this move, errors first. Any error refuses the operation, also right before acting."""

    def checks(self, snapshot: O_contra, move: Move) -> Sequence[Check]:
        """Return every check on a planned move, also of brokers that did not answer."""

    def draft(self, step: RunbookStep, snapshot: O_contra, move: Move) -> StepPlan:
        """Decide a step with its exact calls, and the complete inverse from the baseline."""

    def basis(self, snapshot: O_contra) -> Mapping[str, Json]:
        """Return the basis of a plan without the roles: listeners, links, queues, pauses, versions; no counters."""

    def holds_already(self, snapshot: O_contra, move: Move) -> str | None:
        """Return the text that the operation's goal holds already, or None if there is something to do."""

    def not_replicated(self, snapshot: O_contra, move: Move) -> Sequence[str]:
        """Return sentences on data that the target will not have."""

    def cannot_know(self, move: Move) -> Sequence[str]:
        """Return sentences on facts that a plan of this operation cannot know."""


@dataclass(frozen=True, slots=True)
class Waited(Generic[T]):
    """The end of a wait: the last reading, and whether it satisfied the condition."""

    reading: T
    satisfied: bool


class StepContext:
    """The services to a driver during a step. This class serves commands that change nothing: it refuses every change.
    The executor's subclass records every call first."""

    read_only: ClassVar[bool] = True

    def __init__(self, listener: EventSink) -> None:
        self._listener = listener

    def change(self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Outcome]]) -> list[Outcome]:
        """Put the intents on disk, send, put the results on disk. Raises `Stopped` only before the intents."""
        del send
        return [Failed("this command changes nothing") for _ in calls]

    def sample(self, evidence: Mapping[str, Json]) -> None:
        """Record figures during a step, for the report's charts."""

    def report_waiting(self, subject: str, depth: int | None, why_not_moving: str | None) -> None:
        """Show the state of a wait; the rate and the time left follow from the earlier calls."""
        self._listener(WaitProgress(subject, depth, None, None, why_not_moving))

    def notice(self, text: str) -> None:
        self._listener(Notice(text))

    def report(self, finding: Finding, out_s: float = 0.0) -> None:
        """Add a finding to the run; clients were kept out again for at most `out_s` before it."""

    def outage_over(self) -> None:
        """Record that clients get in at the target, which ends the outage, although the step may go on."""

    def wait(self, seconds: float) -> None:
        """Wait. Raises `Stopped` on a signal while stopping is still safe."""
        system().sleep(seconds)

    def monotonic(self) -> float:
        """Seconds, for deadlines."""
        return system().monotonic()

    def until(
        self,
        read: Callable[[], T],
        *,
        holds: Callable[[T], bool],
        within_s: float | None,
        poll_s: float,
        max_s: float = 0.0,
        stable_for: int = 1,
        hopeless: Callable[[T], bool] | None = None,
        meanwhile: Callable[[T], object] | None = None,
    ) -> Waited[T]:
        """Read until `holds` was true of `stable_for` readings in a row. `poll_s` is the time from the beginning of one
        reading to that of the next; it doubles after each reading, up to `max_s`. `meanwhile` gets each reading after
        which the wait goes on.

        A `hopeless` reading ends the wait at once, and `within_s` after one last reading that began after the deadline.
        """
        began_s, in_a_row = self.monotonic(), 0
        while True:
            read_s = self.monotonic()
            reading = read()
            in_a_row = in_a_row + 1 if holds(reading) else 0
            if in_a_row >= stable_for:
                return Waited(reading, satisfied=True)
            late = within_s is not None and read_s >= began_s + within_s
            if late or (hopeless is not None and hopeless(reading)):
                return Waited(reading, satisfied=False)
            if meanwhile is not None:
                meanwhile(reading)
            self.until_next(read_s, poll_s)
            poll_s = max(poll_s, min(2 * poll_s, max_s))

    def until_next(self, began_s: float, every_s: float) -> None:
        """Wait until so long has passed since the last reading began."""
        self.wait(max(0.0, began_s + every_s - self.monotonic()))


class Driver(Protocol[O_co]):
    """Acts on the sites. The rules: every act is idempotent; report the state without judging it; bound every wait;
    never report "no" for "not known"; zero counts only if that figure was read."""

    def observe(self) -> O_co:
        """Observe both sites, in bounded time. An unreachable site is an observation, not an error."""

    def apply(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Reach the goal of the step and verify it; return NotNeeded, without a call, if it holds already."""

    def undo(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Make those calls of `step.inverse` whose effect does not hold, and verify the effect of all."""

    def by_hand(self, site: str) -> str:
        """Say how a person lets clients in at a site again, as the end of a sentence after "by hand, "."""


class Estimator:
    """The estimate before a run, which is made in the background of the checks."""

    def begin(self) -> None:
        """Start it; returns at once."""

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        """Return the result after at most `within_s`, and kill a process that still runs. Never refuses a run."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Kill a process that still runs: the run ended early."""


class LossExposure(Protocol):
    """The loss and the duplicates of a failover, by the last knowledge of the lost site. Contacts no broker."""

    def bounds(self) -> Mapping[str, Json]:
        """Return the bounds as of now, in the shape of `data.bounds`; null stands for not known."""

    def findings(self) -> Sequence[Finding]:
        """Return findings on the data of the bounds."""

    def too_high(self, spec: Spec) -> Finding | None:
        """Return the finding that asks for a higher `--accept-loss`, if the bounds exceed the accepted loss."""
