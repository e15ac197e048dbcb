"""The run so far, replayed from its journal: the steps, the sites opened, how long clients were out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dr_ctl.core.document import read
from dr_ctl.core.model import Json
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.entries import Entry, JournalDamaged
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.states import StepEvent, StepState, after
from dr_ctl.engine.verbs import ACTIVATING, FENCING


@dataclass(frozen=True, slots=True)
class StepPast:
    """A step of the run, and how far it came."""

    step: PlannedStep
    state: StepState

    @property
    def succeeded(self) -> bool:
        return self.state in (StepState.DONE, StepState.UNNEEDED)


@dataclass(frozen=True, slots=True)
class History:
    """The state of a run as its journal tells it. `activation` is true once an activating call went out and was not
    disproved."""

    ask: Ask
    source: str
    baseline: Mapping[str, Json]
    steps: tuple[StepPast, ...]
    activation: bool
    ended: bool
    serving: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    served: Mapping[str, str] = field(default_factory=dict)
    basis: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_number(self) -> int:
        return max((past.step.number for past in self.steps), default=0)

    def started(self) -> list[PlannedStep]:
        """Steps that may have changed something, the last first: the order of undoing."""
        return [past.step for past in reversed(self.steps) if past.state not in (StepState.PENDING, StepState.UNDONE)]


def _planned(entries: Iterable[Entry]) -> dict[str | None, PlannedStep]:
    """Every step that a run was to do, those of resumed runs last, by the id that its lines have."""
    plans: list[Any] = [entry.evidence["plan"] for entry in entries if entry.kind == "run"]
    return {step.id: step for plan in plans for row in plan["steps"] for step in [read(PlannedStep, row)]}


def history(entries: Sequence[Entry]) -> History:
    """Replay a journal through the table of states; raises `JournalDamaged` when it holds no run, or one that does not
    fit what dr-ctl writes."""
    try:
        return _replayed(entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalDamaged(f"the journal holds no run that can be read: {type(error).__name__}: {error}") from error


def _replayed(entries: Sequence[Entry]) -> History:
    steps = _planned(entries)
    states = dict.fromkeys(steps, StepState.PENDING)
    first: Mapping[str, Any] | None = None
    activation = ended = False
    for entry in entries:
        activates = entry.step in steps and steps[entry.step].verb == ACTIVATING
        if entry.kind == "run":
            plan: Any = entry.evidence["plan"]
            first = first or plan
        elif entry.kind == "step" and entry.step is not None and entry.outcome is not None:
            states[entry.step] = after(states[entry.step], StepEvent(entry.outcome))
            if activates and entry.outcome == StepEvent.FAILED.value:
                activation = False
        elif entry.kind == "intent" and activates:
            activation = True
        elif entry.kind == "end":
            ended = True
    if first is None:
        raise JournalDamaged("the journal holds no plan", remedy="The run never began: nothing was changed by it.")
    return History(
        ask=read(Ask, first["ask"]),
        source=first["source"],
        baseline=first["baseline"],
        steps=tuple(StepPast(step, states[step.id]) for step in steps.values()),
        activation=activation,
        ended=ended,
        serving=tuple(first["serving"]),
        moved=tuple(first["moved"]),
        served=dict(first.get("served", {})),
        basis=dict(first.get("basis", {})),
    )


def outage_s(entries: Sequence[Entry]) -> float | None:
    """Seconds from the first call of the fence until clients were let in: at the target, or again at the source.

    The journal's times count, so a resumed run includes the time between the two processes. Returns None where no
    fence's call went out, or no client was let in since.
    """
    fenced, let_in = fenced_at(entries), let_in_at(entries)
    return None if fenced is None or let_in is None else (let_in - fenced).total_seconds()


def let_in_at(entries: Sequence[Entry]) -> datetime | None:
    """The time at which clients were let in first: at the target, or again at the source. None where they were not."""
    steps = _planned(entries)
    for entry in entries:
        step = steps.get(entry.step)
        if entry.kind == "step" and step is not None and entry.outcome in _LETS_IN.get(step.verb, ()):
            let_in: Any = entry.evidence.get(LET_IN_AT, entry.time)
            return datetime.fromisoformat(let_in)
    return None


def fenced_at(entries: Sequence[Entry]) -> datetime | None:
    """The time of the fence's first call, or None before that call."""
    steps = _planned(entries)
    for entry in entries:
        step = steps.get(entry.step)
        if entry.kind == "intent" and step is not None and step.verb == FENCING:
            return datetime.fromisoformat(entry.time)
    return None


LET_IN_AT: Final = "let_in_at"
"""The evidence key for the moment clients got in: the activation itself ends later, with the delivery of held
messages."""
# How the steps end that let clients in, at the target or again at the source.
_LETS_IN: Final[Mapping[str, tuple[str, ...]]] = {
    ACTIVATING: (StepEvent.SUCCEEDED.value, StepEvent.UNNEEDED.value),
    FENCING: (StepEvent.UNDONE.value,),
}
