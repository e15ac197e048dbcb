"""A run from its files alone, in any state: ended, open, cut off, torn, even altered. Never raises for a bad file.

Lines are checked as the journal's own reader does; `problems` names the lines and files that were left out. A part is
the work of one process: a run that was resumed or aborted later has several. A step that was undone appears twice.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from dr_ctl.core.document import items, mapping, moment, number, text
from dr_ctl.engine.context import STOPPED
from dr_ctl.engine.journal import Entry, StepEvent
from dr_ctl.engine.record import Material, step_id


class Mark(Enum):
    """How a step ended, or did not; the value is the word shown."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"
    NO_END = "no end written"
    UNDONE = "undone"
    NOT_UNDONE = "not undone"
    SIGNAL = "signal"


_ENDS: Final = {
    StepEvent.SUCCEEDED.value: Mark.DONE,
    StepEvent.UNNEEDED.value: Mark.NOT_NEEDED,
    StepEvent.FAILED.value: Mark.REFUSED,
    StepEvent.UNKNOWN.value: Mark.UNKNOWN,
    StepEvent.UNDONE.value: Mark.UNDONE,
    StepEvent.UNDO_FAILED.value: Mark.NOT_UNDONE,
}
NO_RETURN: Final = "point-of-no-return"
STARTS: Final = (StepEvent.STARTED.value, StepEvent.UNDO_STARTED.value)


@dataclass
class CallMade:
    """A call that went out; `ended` is None where the journal holds no result of it."""

    seq: int
    began: datetime
    call: Mapping[str, Any]
    ended: datetime | None = None
    outcome: str = "unknown"
    text: str = "the journal holds no result"

    @property
    def request(self) -> str:
        operation = text(self.call.get("operation")).partition("(")[0]
        arguments = ", ".join(
            json.dumps(argument, ensure_ascii=False) for argument in items(self.call.get("arguments"))
        )
        return f"{operation}({arguments}) on {text(self.call.get('bean'))}"

    @property
    def took_s(self) -> float | None:
        return None if self.ended is None else (self.ended - self.began).total_seconds()


@dataclass
class StepRecord:
    """A step being done or undone, or a signal. `event` is the last of it; `ended` is None where no end was written."""

    id: str
    verb: str
    site: str
    summary: str
    undo: bool
    began: datetime
    ended: datetime | None = None
    took_s: float | None = None
    mark: Mark = Mark.NO_END
    text: str = ""
    event: str = ""
    let_in_at: datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    calls: list[CallMade] = field(default_factory=list)
    samples: list[tuple[datetime, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The name that a runbook's reader knows: `06 fence`, `06 undo fence`."""
        if self.mark is Mark.SIGNAL:
            return f"signal: {self.verb}"
        number, _, verb = label(self.id).partition(" ")
        return f"{number} undo {verb}" if self.undo else f"{number} {verb}"

    @property
    def is_moment(self) -> bool:
        """Whether it is too short for a bar."""
        return self.mark is Mark.SIGNAL or self.verb == NO_RETURN


@dataclass
class Part:
    """The work of a process. `began` and `ended` are the times of the first and last entry."""

    kind: str
    began: datetime
    ended: datetime
    steps: list[StepRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Story:
    """The whole run. `not_begun`: steps of the last plan that never started; `back`: where the clock went back."""

    parts: tuple[Part, ...]
    not_begun: tuple[str, ...]
    back: tuple[int, ...]

    @property
    def steps(self) -> list[StepRecord]:
        return [step for part in self.parts for step in part.steps]

    def of(self, verb: str) -> list[StepRecord]:
        return [step for step in self.steps if step.verb == verb and not step.undo]


def story_of(material: Material) -> Story:
    """Replay the entries; tolerant of a journal that ends anywhere."""
    builder = _StoryBuilder(material.steps)
    for entry in material.entries:
        builder.add(entry)
    begun = {step.id for part in builder.parts for step in part.steps}
    steps = map(mapping, items(material.last_plan.get("steps")))
    not_begun = tuple(label(step_id(step)) for step in steps if step_id(step) not in begun)
    return Story(tuple(builder.parts), not_begun, tuple(builder.back))


def label(id_: str) -> str:
    number, _, verb = id_.partition("-")
    return f"{number} {verb.replace('-', ' ') if verb == NO_RETURN else verb}"


class _StoryBuilder:
    def __init__(self, planned: Mapping[str, Mapping[str, Any]]) -> None:
        self._planned = planned
        self.parts: list[Part] = []
        self.back: list[int] = []
        self._steps: dict[str, StepRecord] = {}
        self._calls: dict[int, CallMade] = {}
        self._now: datetime | None = None
        self._step_ended = False  # the last entry was one after which an undo follows by itself

    def add(self, entry: Entry) -> None:
        now = moment(entry.time) or self._now or datetime.fromtimestamp(0, UTC)
        if self._now is not None and now < self._now:
            self.back.append(entry.seq)
        self._now = now
        undo_begins = entry.kind == "step" and entry.outcome == StepEvent.UNDO_STARTED.value
        if entry.kind == "run" or not self.parts:
            self.parts.append(Part("resumed" if self.parts else "begun", now, now))
        elif undo_begins:
            # A run's own undo directly follows the end of a step or a signal; any other is another process's abort.
            before = self._steps.get(entry.step or "")
            if not self._step_ended or (before is not None and before.undo):
                self.parts.append(Part("aborted", now, now))
        self.parts[-1].ended = max(self.parts[-1].ended, now)
        match entry.kind:
            case "step":
                self._step(entry, now)
            case "intent":
                made = self._calls[entry.seq] = CallMade(entry.seq, now, mapping(entry.call))
                if (step := self._steps.get(entry.step or "")) is not None:
                    step.calls.append(made)
            case "result":
                seq = number(entry.evidence.get("intent"))
                if seq is not None and (sent := self._calls.get(int(seq))) is not None:
                    sent.ended, sent.outcome = now, entry.outcome or "unknown"
                    sent.text = text(entry.evidence.get("text"))
            case "sample" if step := self._steps.get(entry.step or ""):
                step.samples.append((now, entry.evidence))
            case "signal":
                word = entry.outcome or "signal"
                self.parts[-1].steps.append(
                    StepRecord("", word, "", "a stop was asked for", False, now, now, 0.0, Mark.SIGNAL)
                )
        self._step_ended = entry.kind == "signal" or (entry.kind == "step" and entry.outcome not in STARTS)

    def _step(self, entry: Entry, now: datetime) -> None:
        id_, event = entry.step or "", entry.outcome or ""
        if event in STARTS:
            verb = id_.partition("-")[2]
            planned = self._planned.get(id_, {})
            summary = text(entry.evidence.get("about")) or text(planned.get("about"))
            undo = event == StepEvent.UNDO_STARTED.value
            step = StepRecord(id_, verb or id_, text(planned.get("site")), summary, undo, now, event=event)
            self._steps[id_] = step
            self.parts[-1].steps.append(step)
        elif (ended := self._steps.get(id_)) is not None and event in _ENDS:
            ended.ended, ended.event, ended.mark, ended.evidence = now, event, _ENDS[event], entry.evidence
            ended.text = text(entry.evidence.get("text"))
            ended.let_in_at = (entry.let_in_at or now) if entry.lets_in else None
            if ended.mark is Mark.REFUSED and ended.text == STOPPED:
                ended.mark = Mark.INTERRUPTED
            # The step's own measure is by a clock that only grows; the entries' times are for people.
            took = number(entry.evidence.get("took_s"))
            ended.took_s = took if took is not None else max(0.0, (now - ended.began).total_seconds())


def calls_of(story: Story) -> Iterator[tuple[StepRecord, CallMade]]:
    made = [(step, call) for step in story.steps for call in step.calls]
    return iter(sorted(made, key=lambda pair: pair[1].seq))
