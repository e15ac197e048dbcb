"""The journal of one run: every intent on disk before its call is sent, every result after it.

The journal has one JSON object a line: `seq, time, kind, step, call, outcome, evidence, previous, hash`. The hash is
SHA-256 over the line without it, so each line seals all before it. Times are for people; order is by `seq`. A crash can
leave a torn last line; the next opening of the journal removes it. A call that cannot be recorded is not sent.

| kind | means |
| --- | --- |
| `run` | a plan begins to be executed; evidence holds the plan (a resumed run has several) |
| `step` | a step changed its state; outcome is the event of the diagram below |
| `intent`, `result` | a call will be sent; the outcome of that call (`evidence.intent` is the seq of its intent) |
| `sample` | a figure during a step |
| `lock` | the lock of an undo in another process; a run's own is in its `run` line |
| `takeover` | how long a takeover kept clients out of a serving site |
| `signal` | a signal requested a stop |
| `end` | the run is over; evidence is the result |

A step is pending until its start is on disk. After a crash, the end of a started step is unknown: dr-ctl reads the
brokers and never repeats the step blindly. Only a started step can be undone, even if its end is unknown. An illegal
transition raises and changes nothing.

    PENDING ── started ──> RUNNING ── succeeded ──> DONE ─────┐
                              ├────── unneeded ───> UNNEEDED ─┤
                              ├────── failed ─────> FAILED ───┼── undo-started ──> UNDOING ── undone ──> UNDONE
                              └────── lost ───────> UNKNOWN ──┘                       └───── undo-failed ──> STUCK

A run goes back to its drain if a takeover outdates its proofs: the steps since then are started again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final

from dr_ctl.core.document import document, mapping, moment, read
from dr_ctl.core.errors import NO_ROOM, DrCtlError, EnvironmentFault
from dr_ctl.core.model import Json
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.disk import RESERVE, CannotWrite, Reserve, sync_folder
from dr_ctl.engine.operations import ACTIVATE, FENCE, UNFENCE
from dr_ctl.engine.plan import Call, Goal, Plan, PlannedStep

GENESIS: Final = "0" * 64
# A lone surrogate in a broker's answer cannot be encoded: its escape is written instead.
ENCODE_ERRORS: Final = "backslashreplace"


class JournalDamaged(DrCtlError):
    """A line other than the last is torn, or a hash does not fit."""

    remedy = (
        "The file was altered or the disk lost data. `dr-ctl status` says who serves; then `dr-ctl abort --forget RUN "
        "--reason TEXT` gives the run up: nothing is undone, and other runs may begin."
    )


@dataclass(frozen=True, slots=True)
class Entry:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    seq: int
    time: str
    kind: str
    step: str | None
    call: Mapping[str, Json] | None
    outcome: str | None
    evidence: Mapping[str, Json]
    previous: str

    @property
    def verb(self) -> str:
        return (self.step or "").partition("-")[2]

    @property
    def at(self) -> datetime | None:
        return moment(self.time)

    @property
    def fences(self) -> bool:
        """Say whether the line is the intent of a call that may keep clients out. The fence of a lost site that cannot
        be reached only records a debt."""
        return self.kind == "intent" and self.verb == FENCE and mapping(self.call).get("goal") not in _RECORD_GOALS

    @property
    def let_in_at(self) -> datetime | None:
        """The moment at which clients got in: an activation goes on until all messages held back are delivered too."""
        return moment(self.evidence.get(LET_IN_AT)) or self.at

    def body(self) -> dict[str, Json]:
        return {member.name: getattr(self, member.name) for member in fields(self)}

    def hash(self) -> str:
        text = json.dumps(self.body(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", ENCODE_ERRORS)).hexdigest()

    def to_line(self) -> str:
        return json.dumps({**self.body(), "hash": self.hash()}, ensure_ascii=False, separators=(",", ":")) + "\n"

    @classmethod
    def of_line(cls, line: bytes, *, exact: bool = False) -> tuple[Entry, str]:
        """Read a line and its hash; raises ValueError. If `exact`, the bytes must be those that the journal writes."""
        try:
            row = json.loads(line)
            sealed = str(row.pop("hash"))
            entry = read(cls, row)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if exact and entry.to_line().encode("utf-8", ENCODE_ERRORS) != line + b"\n":
            raise ValueError("was altered")
        return entry, sealed


def is_held(path: Path) -> bool:
    """Say whether a process writes this journal now; False without a journal."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@dataclass(frozen=True, slots=True)
class Chain:
    """A valid chain of lines. `wrong` has the number of the first line that does not fit, and why; `torn` says that an
    incomplete last line follows."""

    entries: list[Entry]
    wrong: tuple[int, str] | None = None
    torn: bool = False


def chain(raw: bytes, *, exact: bool = False) -> Chain:
    """Read the valid chain of lines. If `exact`, every byte must be as written, and a single torn line is damaged."""
    entries: list[Entry] = []
    previous = GENESIS
    *lines, rest = raw.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            entry, sealed = Entry.of_line(line, exact=exact)
        except ValueError as error:
            if number == len(lines) and not (exact and (rest or not entries)):
                return Chain(entries, torn=True)  # the crash lost a part of the middle
            return Chain(entries, (number, "was altered" if exact else f"is not a journal line: {error}"))
        if exact and (entry.previous != previous or entry.seq != number):
            return Chain(entries, (number, "does not follow the line before it"))
        if entry.hash() != sealed or entry.previous != previous or entry.seq != number:
            return Chain(entries, (number, "does not fit the lines before it"))
        previous = sealed
        entries.append(entry)
    return Chain(entries, torn=bool(rest))


def read_entries(path: Path) -> list[Entry]:
    """Read all whole lines, without a torn last line. Raises `JournalDamaged` with the line that does not fit."""
    checked = chain(path.read_bytes())
    if checked.wrong is not None:
        number, why = checked.wrong
        raise JournalDamaged(f"{path}: line {number} {why}")
    return checked.entries


class StepState(Enum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    UNNEEDED = "unneeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    UNDOING = "undoing"
    UNDONE = "undone"
    STUCK = "stuck"


class StepEvent(Enum):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    UNNEEDED = "unneeded"
    FAILED = "failed"
    UNKNOWN = "lost"
    UNDO_STARTED = "undo-started"
    UNDONE = "undone"
    UNDO_FAILED = "undo-failed"


# Each event leads from any of a set of states to a state.
_TRANSITIONS: Final[Mapping[StepEvent, tuple[StepState, set[StepState]]]] = {
    StepEvent.STARTED: (StepState.RUNNING, {StepState.PENDING, StepState.DONE, StepState.UNNEEDED, StepState.FAILED}),
    StepEvent.SUCCEEDED: (StepState.DONE, {StepState.RUNNING}),
    StepEvent.UNNEEDED: (StepState.UNNEEDED, {StepState.RUNNING}),
    StepEvent.FAILED: (StepState.FAILED, {StepState.RUNNING}),
    StepEvent.UNKNOWN: (StepState.UNKNOWN, {StepState.RUNNING}),
    # Another process undoes a step of a process that died. A second `abort` repeats undos that failed or were
    # interrupted.
    StepEvent.UNDO_STARTED: (StepState.UNDOING, {*StepState} - {StepState.PENDING, StepState.UNDONE}),
    StepEvent.UNDONE: (StepState.UNDONE, {StepState.UNDOING}),
    StepEvent.UNDO_FAILED: (StepState.STUCK, {StepState.UNDOING}),
}


class IllegalMove(DrCtlError):
    """A step's state does not permit an event: a defect in dr-ctl, or an altered journal."""


def next_state(state: StepState, event: StepEvent) -> StepState:
    """Return the state that follows; raises `IllegalMove` where the table has no row."""
    following, states = _TRANSITIONS[event]
    if state not in states:
        raise IllegalMove(f"a step that is {state.value} cannot be {event.value}")
    return following


@dataclass(frozen=True, slots=True)
class PastStep:
    """A planned step with its state by the journal."""

    step: PlannedStep
    state: StepState

    @property
    def succeeded(self) -> bool:
        return self.state in (StepState.DONE, StepState.UNNEEDED)


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run by its journal. `plan` is the first plan, with the state before the run; `steps` has the steps
    of later plans too. `activation_sent` is true once an activating call was sent and its effect is not disproved."""

    plan: Plan
    steps: tuple[PastStep, ...]
    activation_sent: bool

    @property
    def last_number(self) -> int:
        return max((past.step.number for past in self.steps), default=0)

    def started(self) -> list[PlannedStep]:
        """List the steps that may have changed something, the last first, in the order of undoing."""
        return [past.step for past in reversed(self.steps) if past.state not in (StepState.PENDING, StepState.UNDONE)]


def replay(entries: Sequence[Entry]) -> RunState:
    """Derive the state of a run from its lines; raises `JournalDamaged` if they are no run of dr-ctl."""
    try:
        plans = [read(Plan, entry.evidence["plan"]) for entry in entries if entry.kind == "run"]
        if not plans:
            raise JournalDamaged("the journal holds no plan", remedy="The run never began: nothing was changed by it.")
        steps = {step.id: step for plan in plans for step in plan.steps}
        states = dict.fromkeys(steps, StepState.PENDING)
        activation = False
        for entry in entries:
            if entry.kind == "step" and entry.step is not None and entry.outcome is not None:
                states[entry.step] = next_state(states[entry.step], StepEvent(entry.outcome))
                if entry.verb == ACTIVATE and entry.outcome == StepEvent.FAILED.value:
                    activation = False
            elif entry.kind == "intent" and entry.verb == ACTIVATE:
                activation = True
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalDamaged(f"the journal holds no run that can be read: {type(error).__name__}: {error}") from error
    return RunState(plans[0], tuple(PastStep(step, states[step.id]) for step in steps.values()), activation)


def outage_s(entries: Sequence[Entry]) -> float | None:
    """Return the seconds from the first call of the fence until clients were let in, at the target or again at the
    source, plus the seconds for which a takeover kept them out before or after that. Rounded once, for all texts.

    The journal's times count, so a resumed run includes the time between the two processes. Returns None without a
    fence's call, without clients let in since, or if the clock was set back.
    """
    fenced, let_in = fenced_at(entries), let_in_at(entries)
    if fenced is None or let_in is None or let_in < fenced:
        return None
    others = [entry.evidence.get(OUT_AGAIN_S) for entry in entries if entry.at and not fenced <= entry.at <= let_in]
    return round((let_in - fenced).total_seconds() + sum(out_s for out_s in others if isinstance(out_s, float)), 3)


def let_in_at(entries: Sequence[Entry]) -> datetime | None:
    """Return the time at which clients were first let in, at the target or again at the source, or None."""
    return next((entry.let_in_at for entry in letting_in(entries)), None)


def letting_in(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the ends of steps that let clients in. The undo of a fence that kept nobody out lets nobody in."""
    fenced = False
    for entry in entries:
        fenced = fenced or entry.fences
        if entry.kind == "step" and (entry.verb, entry.outcome) in _LETS_IN and (fenced or entry.verb != FENCE):
            yield entry


def fenced_at(entries: Sequence[Entry]) -> datetime | None:
    """Return the time of the fence's first call, or None before that call."""
    return next((entry.at for entry in entries if entry.fences), None)


OUT_AGAIN_S: Final = "out_again_s"
"""The evidence key for the longest time that a takeover kept clients out of a serving site."""
LET_IN_AT: Final = "let_in_at"
"""The evidence key for the moment when clients got in: the activation ends later, with the held messages."""
_RECORD_GOALS: Final = (Goal.CREATE.value, Goal.DELETE.value)
# These ends of steps let clients in, at the target or again at the source.
_LETS_IN: Final = {
    (ACTIVATE, StepEvent.SUCCEEDED.value),
    (ACTIVATE, StepEvent.UNNEEDED.value),
    (FENCE, StepEvent.UNDONE.value),
    (UNFENCE, StepEvent.SUCCEEDED.value),
}


_SAMPLE: Final = "sample"
_ASKED_WITHIN_S: Final = 0.05


class Journal:
    """The only writer of a journal, for several threads; locks the file itself. `last_hash` seals all `count` lines."""

    def __init__(self, path: Path) -> None:
        self._mutex = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Lock before reading, so that lines of another process are not removed.
            self._lock_file()
            entries = read_entries(path)
            self._states = {past.step.id: past.state for past in replay(entries).steps} if entries else {}
        except BlockingIOError as error:
            os.close(self._file)
            raise EnvironmentFault(f"{path} is being written by another process") from error
        except DrCtlError:
            os.close(self._file)
            raise
        self._path, self._size = path, sum(len(entry.to_line().encode("utf-8", ENCODE_ERRORS)) for entry in entries)
        self._reserve = Reserve(path.with_name(RESERVE))
        self._truncate()
        sync_folder(path.parent)
        self.count = len(entries)
        self.last_hash = entries[-1].hash() if entries else GENESIS
        self._entries = [entry for entry in entries if entry.kind != _SAMPLE]

    def _lock_file(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            system().sleep(_ASKED_WITHIN_S)  # a reader holds the lock for a moment in `is_held`
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _truncate(self) -> None:
        os.ftruncate(self._file, self._size)
        os.lseek(self._file, self._size, os.SEEK_SET)

    @property
    def changed(self) -> bool:
        """Say whether this process or an earlier one sent a call."""
        return any(entry.kind == "intent" for entry in self._entries)

    def entries(self) -> list[Entry]:
        """Return all lines in order, with those of earlier processes, without samples."""
        return [*self._entries]

    def replay(self) -> RunState:
        return replay(self._entries)

    def close(self) -> None:
        os.close(self._file)

    def run(self, plan: Plan, started_by: Mapping[str, Json]) -> None:
        """Begin to execute a plan; `started_by` has the user, the host and the version. Raises `CannotWrite`."""
        try:
            self._reserve.take()
        except CannotWrite:
            if self.count == 0:
                self._path.unlink()  # the run never began, so no open run may remain
            raise
        self._append([("run", None, None, None, {"plan": document(plan), "by": dict(started_by)})])
        self._states |= {step.id: StepState.PENDING for step in plan.steps}

    def step(self, step: PlannedStep, event: StepEvent, evidence: Mapping[str, Json]) -> None:
        """Record an event of a step; raises `IllegalMove` before anything is written."""
        state = next_state(self._states[step.id], event)
        self._append([("step", step.id, None, event.value, evidence)])
        self._states[step.id] = state

    def intents(self, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        """Put all intents on disk with one sync; returns their `seq` numbers."""
        first = self._append([("intent", step.id, document(call), None, {}) for call in calls])
        return list(range(first, first + len(calls)))

    def results(self, step: PlannedStep, outcomes: Sequence[tuple[int, str, Mapping[str, Json]]]) -> None:
        self._append(
            [("result", step.id, None, outcome, {**evidence, "intent": seq}) for seq, outcome, evidence in outcomes]
        )

    def sample(self, step: PlannedStep, evidence: Mapping[str, Json]) -> None:
        """Write a figure for the report, without a sync and without the reserve."""
        self._append([(_SAMPLE, step.id, None, None, evidence)], sync=False)

    def lock(self, evidence: Mapping[str, Json]) -> None:
        self._append([("lock", None, None, None, evidence)])

    def out_again(self, step: PlannedStep, out_s: float) -> None:
        self._append([("takeover", step.id, None, None, {OUT_AGAIN_S: round(out_s, 3)})])

    def signal(self, name: str) -> None:
        self._append([("signal", None, None, name, {})])

    def end(self, result: Mapping[str, Json]) -> None:
        self._append([("end", None, None, str(result["outcome"]), result)])
        self._reserve.release()  # the result and the report may use the rest of the reserve

    def _append(
        self,
        rows: Sequence[tuple[str, str | None, Mapping[str, Json] | None, str | None, Mapping[str, Json]]],
        *,
        sync: bool = True,
    ) -> int:
        with self._mutex:
            now = stamp(system().now())
            sealed, entries = self.last_hash, list[Entry]()
            for seq, row in enumerate(rows, self.count + 1):
                entries.append(Entry(seq, now, *row, sealed))
                sealed = entries[-1].hash()
            block = "".join(entry.to_line() for entry in entries).encode("utf-8", ENCODE_ERRORS)
            try:
                if not self._write(block, needed=sync):
                    return self.count
                if sync:
                    self._sync()
            except OSError as error:
                raise EnvironmentFault(f"the journal could not be written: {error.strerror or error}") from error
            self.count, self.last_hash = self.count + len(entries), sealed
            self._entries += [entry for entry in entries if entry.kind != _SAMPLE]
            return self.count - len(entries) + 1

    def _sync(self) -> None:
        """Put the lines on disk; some file systems notice a full disk only here, and then the reserve helps."""
        while True:
            try:
                getattr(os, "fdatasync", os.fsync)(self._file)  # not every system has fdatasync
            except OSError as error:
                if error.errno not in NO_ROOM or not self._reserve.give_back():
                    raise
            else:
                return

    def _write(self, block: bytes, *, needed: bool) -> bool:
        """Append a block whole or not at all. Only a needed block uses the reserve of a full disk."""
        while True:
            full: OSError | None = None
            try:
                if os.write(self._file, block) == len(block):
                    self._size += len(block)
                    return True
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                full = error
            self._truncate()
            if not needed:
                return False
            if not self._reserve.give_back():
                raise full or EnvironmentFault("the journal could not be written in full: the disk is full")
