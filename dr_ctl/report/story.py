"""Reads a run from its files alone, in any state: ended, open, cut off, torn, altered. Never raises for a bad file.

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
from dr_ctl.engine.journal import Entry, StepEvent, letting_in
from dr_ctl.engine.operations import NO_RETURN
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
        arguments = ", ".join(json.dumps(value, ensure_ascii=False) for value in items(self.call.get("arguments")))
        return f"{operation}({arguments}) on {text(self.call.get('bean'))}"

    @property
    def took_s(self) -> float | None:
        return None if self.ended is None else (self.ended - self.began).total_seconds()


@dataclass
class StepRecord:
    """A step being done or undone, or a signal. `event` is its last event; `ended` is None where no end was written."""

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
        """Whether the step is too short for a bar of the time line."""
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
    """The whole run. `not_begun`: steps of the last plan that never started; `back`: entries with a clock put back."""

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
    parts, back, planned = list[Part](), list[int](), material.steps
    steps, calls = dict[str, StepRecord](), dict[int, CallMade]()
    now: datetime | None = None
    let_in = {entry.seq for entry in letting_in(material.entries)}
    has_ended = False  # the last entry was one after which an undo follows by itself
    for entry in material.entries:
        last, now = now, moment(entry.time) or now or datetime.fromtimestamp(0, UTC)
        if last is not None and now < last:
            back.append(entry.seq)
        step = steps.get(entry.step or "")
        undo_begins = entry.kind == "step" and entry.outcome == StepEvent.UNDO_STARTED.value
        if entry.kind == "run" or not parts:
            parts.append(Part("resumed" if parts else "begun", now, now))
        elif undo_begins and (not has_ended or (step is not None and step.undo)):
            # A run's own undo directly follows the end of a step or a signal; any other is an abort by another process.
            parts.append(Part("aborted", now, now))
        part = parts[-1]
        part.ended = max(part.ended, now)
        match entry.kind:
            case "step" if entry.outcome in STARTS:
                id_ = entry.step or ""
                step = steps[id_] = _begun(id_, entry, planned.get(id_, {}), now)
                part.steps.append(step)
            case "step" if step is not None and entry.outcome in _ENDS:
                _end(step, entry, now, let_in=entry.seq in let_in)
            case "intent":
                made = calls[entry.seq] = CallMade(entry.seq, now, mapping(entry.call))
                if step is not None:
                    step.calls.append(made)
            case "result":
                seq = number(entry.evidence.get("intent"))
                if seq is not None and (sent := calls.get(int(seq))) is not None:
                    sent.ended, sent.outcome = now, entry.outcome or "unknown"
                    sent.text = text(entry.evidence.get("text"))
            case "sample" if step is not None:
                step.samples.append((now, entry.evidence))
            case "signal":
                word, summary = entry.outcome or "signal", "a stop was asked for"
                part.steps.append(StepRecord("", word, "", summary, False, now, now, 0.0, Mark.SIGNAL))
        has_ended = entry.kind == "signal" or (entry.kind == "step" and entry.outcome not in STARTS)
    begun = {step.id for part in parts for step in part.steps}
    ids = map(step_id, map(mapping, items(material.last_plan.get("steps"))))
    return Story(tuple(parts), tuple(label(id_) for id_ in ids if id_ not in begun), tuple(back))


def _begun(id_: str, entry: Entry, planned: Mapping[str, Any], now: datetime) -> StepRecord:
    summary = text(entry.evidence.get("about")) or text(planned.get("about"))
    event, verb = entry.outcome or "", id_.partition("-")[2] or id_
    undo = event == StepEvent.UNDO_STARTED.value
    return StepRecord(id_, verb, text(planned.get("site")), summary, undo, now, event=event)


def _end(step: StepRecord, entry: Entry, now: datetime, *, let_in: bool) -> None:
    step.event = entry.outcome or ""
    step.ended, step.mark, step.evidence = now, _ENDS[step.event], entry.evidence
    step.text = text(entry.evidence.get("text"))
    step.let_in_at = (entry.let_in_at or now) if let_in else None
    if step.mark is Mark.REFUSED and step.text == STOPPED:
        step.mark = Mark.INTERRUPTED
    # The step's own measure is by a clock that only grows; the entries' times are for people.
    took = number(entry.evidence.get("took_s"))
    step.took_s = took if took is not None else max(0.0, (now - step.began).total_seconds())


def label(id_: str) -> str:
    number, _, verb = id_.partition("-")
    return f"{number} {verb.replace('-', ' ') if verb == NO_RETURN else verb}"


def calls_of(story: Story) -> Iterator[tuple[StepRecord, CallMade]]:
    made = [(step, call) for step in story.steps for call in step.calls]
    return iter(sorted(made, key=lambda pair: pair[1].seq))
