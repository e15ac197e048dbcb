"""Two sites in memory with listeners, pauses and an outflow; they lose calls, fall silent, go down, kill their caller.

The machine is the judge as well: it fails at once when both sites let clients in, or when one is opened while the other
still holds what it lacks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from dr_ctl.core.model import ExitCode, Finding, Json, Role
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.operations import ENGINE_VERBS, FAILOVER
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import (
    Done,
    Failed,
    Move,
    NotNeeded,
    Outcome,
    SignsOfLife,
    StepContext,
    StepPlan,
    UnitSnapshot,
    Unknown,
)
from dr_ctl.engine.runbook import VERBS, RunbookStep

BRINGS = {
    Goal.OPEN: True,
    Goal.CLOSE: False,
    Goal.PAUSE: True,
    Goal.RESUME: False,
    Goal.LINK_UP: True,
    Goal.LINK_DOWN: False,
}
FLAGS = {Goal.PAUSE: "paused", Goal.RESUME: "paused", Goal.LINK_UP: "links", Goal.LINK_DOWN: "links"}
WORDS = {Goal.LINK_UP: "let in", Goal.LINK_DOWN: "keep out"}
DRAIN_S = 5.0


class Killed(BaseException):
    """The process ends here, as by SIGKILL: nothing on the way may catch it."""


class Silence(Exception):
    """A site was looked at and did not answer."""


class Fault(Enum):
    """What goes wrong with one call."""

    REFUSED = "no effect, and the answer says so"
    LOST = "no effect, no answer"
    UNANSWERED = "effect, no answer"
    BLIND = "effect, no answer, and the next reading finds nobody either"
    KILLED_BEFORE = "the caller dies, no effect"
    KILLED_AFTER = "the caller dies, the effect comes all the same"


KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)
NO_ANSWER = (Fault.LOST, Fault.UNANSWERED, Fault.BLIND)


@dataclass
class Site:
    listeners: dict[str, bool]
    paused: dict[str, bool]
    outflow: int = 0
    silent: bool = False
    down: bool = False
    links: dict[str, bool] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return not self.down and any(self.listeners.values())

    @property
    def role(self) -> Role:
        if self.silent or self.down:
            return Role.DOWN if self.down else Role.UNKNOWN
        return Role.SERVING if self.open else Role.STANDBY


def london() -> Site:
    """It serves; one of its listeners is closed and one of its queues paused for reasons of its own."""
    return Site({"clients": True, "legacy": True, "admin": False}, {"orders": False, "bills": False, "audit": True}, 3)


def paris() -> Site:
    return Site({"clients": False, "legacy": False}, {"orders": False, "bills": False})


def lost() -> dict[str, Site]:
    """London is down, and Paris waits; the link of London comes in through a listener of its own."""
    gone = Site({"clients": True, "legacy": True}, {"orders": False}, down=True)
    return {"london": gone, "paris": replace(paris(), links={"mirror": True})}


def back() -> dict[str, Site]:
    """London is back, with two messages that Paris lacks; meanwhile Paris serves and keeps them out."""
    returned = Site({"clients": False, "legacy": False}, {"orders": False}, 2)
    serving = Site({"clients": True, "legacy": True}, {"orders": False, "bills": True}, links={"mirror": False})
    return {"london": returned, "paris": serving}


@dataclass(frozen=True)
class Snapshot:
    """One reading: the roles, and the flags behind them as far as a site answered."""

    roles: Mapping[str, Role]
    flags: Mapping[str, Mapping[str, Mapping[str, bool]]] = field(default_factory=dict)

    debts: tuple[Debt, ...] = ()
    signs_of_life: Mapping[str, SignsOfLife] = field(default_factory=dict)

    @property
    def units(self) -> Sequence[UnitSnapshot]:
        serving = [site for site, role in self.roles.items() if role is Role.SERVING]
        return [UnitSnapshot("orders-1", serving[0] if len(serving) == 1 else None, tuple(serving))]


@dataclass
class Machine:
    """`faults` go by the number of the call; calls in `stuck` are refused whenever they come."""

    faults: Mapping[int, Fault] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    cut: bool = False
    sites: dict[str, Site] = field(default_factory=lambda: {"london": london(), "paris": paris()})
    during: Callable[[int], object] = lambda number: None
    debts: tuple[Debt, ...] = ()
    calls: int = 0
    effects: list[str] = field(default_factory=list)
    _blind: bool = False

    def dump(self) -> dict[str, dict[str, dict[str, bool]]]:
        """Everything that a run may set."""
        return {
            name: {"listeners": dict(site.listeners), "paused": dict(site.paused)}
            | ({"links": dict(site.links)} if site.links else {})
            for name, site in self.sites.items()
        }

    def read(self) -> Snapshot:
        remote = [name for name, site in self.sites.items() if not (site.silent or site.down)]
        flags = {name: value for name, value in self.dump().items() if name in remote}
        return Snapshot({name: site.role for name, site in self.sites.items()}, flags, self.debts)

    def ask(self, name: str) -> Site:
        """Look at one site; raises `Silence`."""
        blind, self._blind = self._blind, False
        if blind or self.sites[name].silent or self.sites[name].down:
            raise Silence(f"{name} does not answer")
        return self.sites[name]

    def under_way(self, name: str) -> int:
        """What a site still has to ship; between two readings the link ships one message, unless it is cut."""
        site = self.ask(name)
        site.outflow -= 0 if self.cut or site.outflow == 0 else 1
        return site.outflow

    def holds(self, call: Call) -> bool:
        return _flags(self.ask(call.site), call)[call.resource] is BRINGS[call.goal]

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        return [self._carry_out(call) for call in calls]

    def _carry_out(self, call: Call) -> Outcome:
        self.calls += 1
        fault = self.faults.get(self.calls)
        self.during(self.calls)
        if fault is Fault.KILLED_BEFORE:
            raise Killed
        if fault is Fault.LOST:
            return Unknown("no answer")
        if fault is Fault.REFUSED or call.summary in self.stuck:
            return Failed("the broker says no")
        self._change(call)
        if fault is Fault.KILLED_AFTER:
            raise Killed
        self._blind = self._blind or fault is Fault.BLIND
        return Unknown("no answer") if fault in NO_ANSWER else Done("answered")

    def _change(self, call: Call) -> None:
        flags = _flags(self.sites[call.site], call)
        if flags[call.resource] is BRINGS[call.goal]:
            return
        flags[call.resource] = BRINGS[call.goal]
        self.effects.append(call.summary)
        [other] = [site for name, site in self.sites.items() if name != call.site]
        if call.goal is Goal.OPEN:
            self.judge_opening(call, other)

    def judge_opening(self, call: Call, other: Site) -> None:
        assert not other.open, "both sites let clients in"
        assert not other.outflow or call.site == "london", "messages are lost"


def _flags(site: Site, call: Call) -> dict[str, bool]:
    return {"paused": site.paused, "links": site.links}.get(FLAGS.get(call.goal, "listeners"), site.listeners)


def _calls(goal: Goal, things: Sequence[str], site: str) -> tuple[Call, ...]:
    word = WORDS.get(goal, goal.value)
    return tuple(Call(site, "orders-1", goal, thing, {}, f"{word} {thing} at {site}") for thing in things)


def _both_ways(goal: Goal, things: Sequence[str], site: str, back: Goal) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Calls, and those that undo them."""
    return _calls(goal, things, site), _calls(back, things, site)


@dataclass(frozen=True)
class Recipe:
    """How this machine does each verb. `findings` speak on the move; verbs in `lacks` cannot be done."""

    findings: Sequence[Finding] = ()
    lacks: frozenset[str] = frozenset()

    moves_parts = False

    def verbs(self) -> frozenset[str]:
        return frozenset(VERBS) - ENGINE_VERBS - self.lacks

    def baseline(self, snapshot: Snapshot) -> Mapping[str, Json]:
        return {
            site: {kind: dict[str, Json](flag) for kind, flag in flags.items()}
            for site, flags in snapshot.flags.items()
        }

    def why_not(self, snapshot: Snapshot, move: Move) -> Sequence[Finding]:
        return self.findings

    def basis(self, snapshot: Snapshot) -> Mapping[str, Json]:
        return dict(self.baseline(snapshot))

    def holds_already(self, snapshot: Snapshot, move: Move) -> str | None:
        if move.spec.operation == FAILOVER:
            return "nothing is owed"
        return "taken in already" if not snapshot.debts and snapshot.roles[move.target] is Role.STANDBY else None

    def not_replicated(self, snapshot: Snapshot, move: Move) -> Sequence[str]:
        return (f"what is in memory at {move.source}",)

    def cannot_know(self, move: Move) -> Sequence[str]:
        return ("what clients do",)

    def draft(self, step: RunbookStep, snapshot: Snapshot, move: Move) -> StepPlan:
        source, target = move.source, move.target
        baseline: Any = move.baseline
        was, then = (
            {"listeners": {}, "paused": {}, "links": {}, **baseline.get(site, {})} for site in (source, target)
        )
        theirs = snapshot.flags.get(target, {"listeners": {}})["listeners"]
        queues = [queue for queue, paused in was["paused"].items() if not paused]
        resumes = _calls(Goal.RESUME, queues, source)
        within = {"within": move.spec.timeout_s or DRAIN_S}
        if step.verb == "reinstate":
            shut = [link for link, started in was["links"].items() if not started]
            let_in, kept_out = _both_ways(Goal.LINK_UP, shut, source, Goal.LINK_DOWN)
            pauses = _calls(Goal.PAUSE, queues, source)
            return StepPlan(target, "its residue let in", pauses + resumes + let_in, resumes + kept_out, within)
        if step.verb == "quarantine":
            links = [link for link, started in then["links"].items() if started]
            return StepPlan(source, "its residue kept out", *_both_ways(Goal.LINK_DOWN, links, target, Goal.LINK_UP))
        if step.verb == "quiesce":
            return StepPlan(source, "clients finish", *_both_ways(Goal.PAUSE, queues, source, Goal.RESUME))
        if step.verb == "fence" and step.site != "lost":
            listeners = [listener for listener, is_open in was["listeners"].items() if is_open]
            return StepPlan(source, "clients out", *_both_ways(Goal.CLOSE, listeners, source, Goal.OPEN))
        if step.verb == "drain":
            return StepPlan(target, "everything shipped", resumes, limits=within)
        if step.verb == "activate":
            closed = [listener for listener, is_open in theirs.items() if not is_open]
            opens, closes = _both_ways(Goal.OPEN, closed, target, Goal.CLOSE)
            # Where the target serves already, an interrupted run may have left pauses behind.
            return StepPlan(
                target, "clients in", opens + (resumes if snapshot.roles[target] is Role.SERVING else ()), closes
            )
        return StepPlan(source if step.site == "lost" else "", f"{step.verb} of {step.site}")


class Driver:
    """Acts on the machine. `answers` are outcomes that a verb ends with whatever was done."""

    def __init__(self, machine: Machine, answers: Mapping[str, Outcome] | None = None) -> None:
        self._machine = machine
        self._answers = answers or {}

    def observe(self) -> Snapshot:
        return self._machine.read()

    def apply(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if step.verb in self._answers:
            return self._answers[step.verb]
        verb = "fence" if step.verb == "quarantine" else step.verb
        act = getattr(self, f"_{verb}", lambda *_: Done("seen"))
        try:
            return act(step, move, context)  # type: ignore[no-any-return]
        except Silence as silence:
            return Unknown(str(silence))

    def undo(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        try:
            opens = any(call.goal is Goal.OPEN and not self._machine.holds(call) for call in step.inverse)
            if opens and self._machine.read().roles[move.target] is Role.SERVING:
                return Failed(f"{move.target} is open: {move.source} stays closed")
            return self._make(step.inverse, context)
        except Silence as silence:
            return Unknown(str(silence))

    def by_hand(self, site: str) -> str:
        return f"open {site}"

    def _quiesce(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if not self._machine.ask(move.source).open:
            return NotNeeded(f"{move.source} is closed to clients already")
        return self._make(step.calls, context)

    def _fence(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        return self._make(step.calls, context)

    def _make(self, calls: Sequence[Call], context: StepContext) -> Outcome:
        """Send what does not hold yet, then look whether it does."""
        missing = [call for call in calls if not self._machine.holds(call)]
        if not missing:
            return NotNeeded("it holds already")
        context.change(missing, self._machine.send)
        left = [call.summary for call in missing if not self._machine.holds(call)]
        return Failed(f"could not {', '.join(left)}") if left else Done("brought about")

    def _drain(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        lifted = self._make(step.calls, context)
        if isinstance(lifted, Failed):
            return lifted
        until = context.monotonic() + step.limits["within"]
        while left := self._machine.under_way(move.source):
            context.sample({"outflow": left})
            context.report_waiting("messages under way", left, None)
            if context.monotonic() > until:
                return Failed(f"not drained: {left} under way", code=ExitCode.DRAIN_TIMEOUT)
            context.wait(0)
        return Done("nothing is under way")

    def _reinstate(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Pause, let in, wait until its residue has come over, and only then resume."""
        last = tuple(call for call in step.calls if call.goal is Goal.RESUME)
        made = self._make([call for call in step.calls if call not in last], context)
        if isinstance(made, Failed):
            return made
        while self._machine.under_way(move.target):
            context.wait(0)
        self._make(last, context)
        self._machine.debts = ()
        return Done("taken in")

    def _verify(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        source = self._machine.ask(move.source)
        return Failed("the gate is not met") if source.open or source.outflow else Done("the gate is met")

    def _activate(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if move.spec.operation != FAILOVER and self._machine.ask(move.source).open:
            return Failed(f"{move.source} is open: a second site is never opened")
        made = self._make(step.calls, context)
        if isinstance(made, Failed) and self._machine.ask(move.target).open:
            return Failed(f"{move.target} serves, but not through every listener", code=ExitCode.INCOMPLETE)
        return made

    def _probe(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        return Done("it came back") if self._machine.ask(move.target).open else Failed("no client is let in")
