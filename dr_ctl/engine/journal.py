"""The journal of one run: every intent on disk before its call goes out, every result after it.

One JSON object a line: `seq, time, kind, step, call, outcome, evidence, previous, hash`. The hash is SHA-256 over the
line without it, so each line seals all before it. Times are for people; order is by `seq`. A torn last line is what a
crash leaves: it is cut off when the journal is opened again. Anything that cannot be written is not done.

| kind | means |
| --- | --- |
| `run` | a plan begins to be executed; evidence holds the plan (a resumed run has several) |
| `step` | a step moved; outcome is the event of `engine.states`, evidence what was seen |
| `intent`, `result` | a call goes out; what came of it (`evidence.intent` is the seq of its intent) |
| `sample` | a figure on the way |
| `lock` | an undo goes on under this lock; a run's own stands in its `run` line |
| `signal` | a stop was asked for |
| `end` | the run is over; evidence is the result |
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dr_ctl.core.clock import Clock, stamp
from dr_ctl.core.errors import DrCtlError, EnvironmentFault
from dr_ctl.core.model import Json
from dr_ctl.engine.disk import NO_ROOM, RESERVE, NoRoom, Reserve, sync_folder
from dr_ctl.engine.plan import Ask, Call, Plan, PlannedStep
from dr_ctl.engine.states import StepEvent, StepState, after
from dr_ctl.engine.verbs import ACTIVATING, FENCING

if TYPE_CHECKING:
    from pydantic import TypeAdapter

GENESIS: Final = "0" * 64
_SAMPLE: Final = "sample"
# A letter that no encoding has, out of a broker's answer, becomes its escape in JSON.
_ANY: Final = "backslashreplace"
_ASKED_WITHIN_S: Final = 0.05


class JournalDamaged(DrCtlError):
    """A line other than the last is torn, or a hash does not fit."""

    remedy = (
        "The file was altered or the disk lost data. `dr-ctl status` says who serves; then `dr-ctl abort --forget RUN "
        "--reason TEXT` gives the run up: nothing of it is undone, and other runs may begin."
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One line, as written and as read."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    seq: int
    time: str
    kind: str
    step: str | None
    call: Mapping[str, Json] | None
    outcome: str | None
    evidence: Mapping[str, Json]
    previous: str

    def body(self) -> dict[str, Json]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def hash(self) -> str:
        text = json.dumps(self.body(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", _ANY)).hexdigest()

    def to_line(self) -> str:
        return json.dumps({**self.body(), "hash": self.hash()}, ensure_ascii=False, separators=(",", ":")) + "\n"

    @classmethod
    def of_line(cls, line: bytes) -> tuple[Entry, str]:
        """The entry of a line, and the hash that seals it; raises ValueError saying what does not fit."""
        from pydantic import ValidationError  # noqa: PLC0415 - what reads no journal does without it

        try:
            row = json.loads(line)
            sealed = str(row.pop("hash"))
            return _shape().validate_python(row), sealed
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ValueError("; ".join(wrong)) from error
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


@cache
def _shape() -> TypeAdapter[Entry]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    return TypeAdapter(Entry)


def is_held(path: Path) -> bool:
    """Say whether a process writes this journal now. False where there is none."""
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
    """The lines of a journal that fit together, from the first on. `wrong` is the number of the one that does not, and
    why; `torn` says that one more begins, as a crash leaves it."""

    entries: list[Entry]
    wrong: tuple[int, str] | None = None
    torn: bool = False


def chain(raw: bytes) -> Chain:
    """Read what a journal holds, as far as it can be vouched for."""
    entries: list[Entry] = []
    previous = GENESIS
    *whole, rest = raw.split(b"\n")
    for number, line in enumerate(whole, start=1):
        try:
            entry, sealed = Entry.of_line(line)
        except ValueError as error:
            if number == len(whole):
                return Chain(entries, torn=True)  # with its newline, but not all of its middle
            return Chain(entries, (number, f"is not a journal line: {error}"))
        if entry.hash() != sealed or entry.previous != previous or entry.seq != number:
            return Chain(entries, (number, "does not fit the lines before it"))
        previous = sealed
        entries.append(entry)
    return Chain(entries, torn=bool(rest))


def read(path: Path) -> list[Entry]:
    """Read all whole lines; a torn last one is left out. Raises `JournalDamaged` naming the line that does not fit."""
    found = chain(path.read_bytes())
    if found.wrong is not None:
        number, why = found.wrong
        raise JournalDamaged(f"{path}: line {number} {why}")
    return found.entries


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
    """What a journal says of its run. `activation` is true once an activating call went out and was not disproved."""

    ask: Ask
    source: str
    baseline: Mapping[str, Json]
    steps: tuple[StepPast, ...]
    activation: bool
    ended: bool
    serving: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
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
    return {step.id: step for plan in plans for row in plan["steps"] for step in [PlannedStep.from_json(row)]}


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
        ask=Ask.from_json(first["ask"]),
        source=first["source"],
        baseline=first["baseline"],
        steps=tuple(StepPast(step, states[step.id]) for step in steps.values()),
        activation=activation,
        ended=ended,
        serving=tuple(first["serving"]),
        moved=tuple(first["moved"]),
        basis=dict(first.get("basis", {})),
    )


def outage_s(entries: Sequence[Entry]) -> float | None:
    """Seconds from the first call of the fence until clients were let in: at the target, or again at the source.

    By the journal's times, so that a resumed run counts what its predecessor's death took too. None where no fence's
    call went out, or nobody was let in since.
    """
    fenced = fenced_at(entries)
    if fenced is None:
        return None
    steps = _planned(entries)
    for entry in entries:
        step = steps.get(entry.step)
        if entry.kind == "step" and step is not None and entry.outcome in _LETS_IN.get(step.verb, ()):
            return (datetime.fromisoformat(entry.time) - fenced).total_seconds()
    return None


def fenced_at(entries: Sequence[Entry]) -> datetime | None:
    """When the first call of the fence went out; None where none did."""
    steps = _planned(entries)
    for entry in entries:
        step = steps.get(entry.step)
        if entry.kind == "intent" and step is not None and step.verb == FENCING:
            return datetime.fromisoformat(entry.time)
    return None


# How the steps end that let clients in, at the target or again at the source.
_LETS_IN: Final[Mapping[str, tuple[str, ...]]] = {
    ACTIVATING: (StepEvent.SUCCEEDED.value, StepEvent.UNNEEDED.value),
    FENCING: (StepEvent.UNDONE.value,),
}


class Journal:
    """The one writer of a run's journal. Safe to use from several threads; held by a lock on the file itself."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Locked before it is read: what another process still writes must not be cut off.
            self._hold()
            entries = read(path)
            self._states = {past.step.id: past.state for past in history(entries).steps} if entries else {}
        except BlockingIOError as error:
            os.close(self._file)
            raise EnvironmentFault(f"{path} is being written by another process") from error
        except DrCtlError:
            os.close(self._file)
            raise
        size = sum(len(entry.to_line().encode("utf-8", _ANY)) for entry in entries)
        self._path, self._size = path, size
        self._reserve = Reserve(path.with_name(RESERVE))
        self._cut()
        sync_folder(path.parent)
        self._seq = len(entries)
        self._hash = entries[-1].hash() if entries else GENESIS
        self._entries = [entry for entry in entries if entry.kind != _SAMPLE]

    def _hold(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_ASKED_WITHIN_S)  # a reader that asks `is_held` holds it for that moment itself
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _cut(self) -> None:
        """Take away what follows the last whole line."""
        os.ftruncate(self._file, self._size)
        os.lseek(self._file, self._size, os.SEEK_SET)

    @property
    def last_hash(self) -> str:
        return self._hash

    @property
    def count(self) -> int:
        return self._seq

    def entries(self) -> Iterator[Entry]:
        """All lines but the samples, which are very many; those of earlier processes first."""
        return iter(list(self._entries))

    def history(self) -> History:
        return history(self._entries)

    def close(self) -> None:
        os.close(self._file)

    def run(self, plan: Plan, by: Mapping[str, Json]) -> None:
        """Begin to execute a plan; `by` says who does, where, with which version. Raises `NoRoom` on a full disk."""
        try:
            self._reserve.take()
        except NoRoom:
            if self._seq == 0:
                self._path.unlink()  # it never began: no open run may remain of it
            raise
        self._append([("run", None, None, None, {"plan": plan.as_json(), "by": dict(by)})])
        self._states |= {step.id: StepState.PENDING for step in plan.steps}

    def step(self, step: PlannedStep, event: StepEvent, evidence: Mapping[str, Json]) -> None:
        """Move a step; raises `IllegalMove` before anything is written."""
        moved = after(self._states[step.id], event)
        self._append([("step", step.id, None, event.value, evidence)])
        self._states[step.id] = moved

    def intents(self, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        """Put all intents on disk with one sync; the seq of each."""
        first = self._append([("intent", step.id, call.as_json(), None, {}) for call in calls])
        return list(range(first, first + len(calls)))

    def results(self, step: PlannedStep, told: Sequence[tuple[int, str, Mapping[str, Json]]]) -> None:
        self._append(
            [("result", step.id, None, outcome, {**evidence, "intent": seq}) for seq, outcome, evidence in told]
        )

    def sample(self, step: PlannedStep, evidence: Mapping[str, Json]) -> None:
        """A figure for the report: written, but not worth a sync inside a wait, nor room kept for what is done."""
        self._append([(_SAMPLE, step.id, None, None, evidence)], sync=False)

    def lock(self, evidence: Mapping[str, Json]) -> None:
        """Note the lock that the run goes on under, and whom it was taken from."""
        self._append([("lock", None, None, None, evidence)])

    def signal(self, name: str) -> None:
        self._append([("signal", None, None, name, {})])

    def end(self, result: Mapping[str, Json]) -> None:
        self._append([("end", None, None, str(result["outcome"]), result)])
        self._reserve.release()  # what is left of it is for the result and the report

    def _append(
        self,
        rows: Sequence[tuple[str, str | None, Mapping[str, Json] | None, str | None, Mapping[str, Json]]],
        *,
        sync: bool = True,
    ) -> int:
        with self._mutex:
            now = stamp(self._clock.now())
            seq, sealed = self._seq, self._hash
            entries = []
            for kind, step, call, outcome, evidence in rows:
                seq += 1
                entry = Entry(seq, now, kind, step, call, outcome, evidence, sealed)
                sealed = entry.hash()
                entries.append(entry)
            block = "".join(entry.to_line() for entry in entries).encode("utf-8", _ANY)
            try:
                if not self._write(block, needed=sync):
                    return self._seq
                if sync:
                    self._sync()
            except OSError as error:
                raise EnvironmentFault(f"the journal could not be written: {error.strerror}") from error
            self._seq, self._hash = seq, sealed
            self._entries += [entry for entry in entries if entry.kind != _SAMPLE]
            return entries[0].seq if entries else seq

    def _sync(self) -> None:
        """Some file systems find out only here that there is no room: what was kept for this is given back."""
        while True:
            try:
                getattr(os, "fdatasync", os.fsync)(self._file)  # not every system has the cheaper of the two
            except OSError as error:
                if error.errno not in NO_ROOM or not self._reserve.give_back():
                    raise
            else:
                return

    def _write(self, block: bytes, *, needed: bool) -> bool:
        """Append a block whole or not at all. What is needed may draw on the reserve; what is not is given up."""
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
            self._cut()
            if not needed:
                return False
            if not self._reserve.give_back():
                raise full or EnvironmentFault("the journal could not be written in full: the disk is full")
