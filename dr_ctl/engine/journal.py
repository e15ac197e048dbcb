"""The journal of one run: every intent on disk before its call goes out, every result after it.

The journal has one JSON object a line: `seq, time, kind, step, call, outcome, evidence, previous, hash`. The hash is
SHA-256 over the line without it, so each line seals all before it. Times are for people; order is by `seq`. A crash can
leave a torn last line; the next opening of the journal cuts that line off. A call that cannot be written down is not
made.

| kind | means |
| --- | --- |
| `run` | a plan begins to be executed; evidence holds the plan (a resumed run has several) |
| `step` | a step moved; outcome is the event of `engine.replay`, evidence what was seen |
| `intent`, `result` | a call goes out; the outcome of that call (`evidence.intent` is the seq of its intent) |
| `sample` | a figure on the way |
| `lock` | an undo goes on under this lock; a run's own stands in its `run` line |
| `signal` | a stop was asked for |
| `end` | the run is over; evidence is the result |
"""

import fcntl
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dr_ctl.core.document import document
from dr_ctl.core.errors import NO_ROOM, DrCtlError, EnvironmentFault
from dr_ctl.core.model import Json
from dr_ctl.core.system import Clock, stamp, system
from dr_ctl.engine.disk import RESERVE, NoRoom, Reserve, sync_folder
from dr_ctl.engine.plan import Call, Plan, PlannedStep
from dr_ctl.engine.replay import ANY, GENESIS, Entry, RunState, StepEvent, StepState, after, read_entries, replay

_SAMPLE: Final = "sample"
_ASKED_WITHIN_S: Final = 0.05


class Journal:
    """The one writer of a run's journal. Safe to use from several threads; held by a lock on the file itself."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Lock before reading: lines that another process still writes must not be cut off.
            self._hold()
            entries = read_entries(path)
            self._states = {past.step.id: past.state for past in replay(entries).steps} if entries else {}
        except BlockingIOError as error:
            os.close(self._file)
            raise EnvironmentFault(f"{path} is being written by another process") from error
        except DrCtlError:
            os.close(self._file)
            raise
        size = sum(len(entry.to_line().encode("utf-8", ANY)) for entry in entries)
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
            system().sleep(_ASKED_WITHIN_S)  # a reader that asks `is_held` holds it for that moment itself
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

    @property
    def changed(self) -> bool:
        """Say whether a call went out, of this process or an earlier one."""
        return any(entry.kind == "intent" for entry in self._entries)

    def entries(self) -> list[Entry]:
        """All lines but the very many samples, in order, with the lines of earlier processes."""
        return [*self._entries]

    def replay(self) -> RunState:
        return replay(self._entries)

    def close(self) -> None:
        os.close(self._file)

    def run(self, plan: Plan, by: Mapping[str, Json]) -> None:
        """Begin to execute a plan; `by` says who does, where, with which version. Raises `NoRoom` on a full disk."""
        try:
            self._reserve.take()
        except NoRoom:
            if self._seq == 0:
                self._path.unlink()  # the run never began, so no open run may remain
            raise
        self._append([("run", None, None, None, {"plan": document(plan), "by": dict(by)})])
        self._states |= {step.id: StepState.PENDING for step in plan.steps}

    def step(self, step: PlannedStep, event: StepEvent, evidence: Mapping[str, Json]) -> None:
        """Move a step; raises `IllegalMove` before anything is written."""
        moved = after(self._states[step.id], event)
        self._append([("step", step.id, None, event.value, evidence)])
        self._states[step.id] = moved

    def intents(self, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        """Put all intents on disk with one sync; returns their `seq` numbers."""
        first = self._append([("intent", step.id, document(call), None, {}) for call in calls])
        return list(range(first, first + len(calls)))

    def results(self, step: PlannedStep, outcomes: Sequence[tuple[int, str, Mapping[str, Json]]]) -> None:
        self._append(
            [("result", step.id, None, outcome, {**evidence, "intent": seq}) for seq, outcome, evidence in outcomes]
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
        self._reserve.release()  # the result and the report may use the rest of the reserve

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
            block = "".join(entry.to_line() for entry in entries).encode("utf-8", ANY)
            try:
                if not self._write(block, needed=sync):
                    return self._seq
                if sync:
                    self._sync()
            except OSError as error:
                raise EnvironmentFault(f"the journal could not be written: {error.strerror or error}") from error
            self._seq, self._hash = seq, sealed
            self._entries += [entry for entry in entries if entry.kind != _SAMPLE]
            return entries[0].seq if entries else seq

    def _sync(self) -> None:
        """Put the lines on disk. Some file systems only notice here that there is no room; then the reserve is used."""
        while True:
            try:
                getattr(os, "fdatasync", os.fsync)(self._file)  # not every system has the cheaper of the two
            except OSError as error:
                if error.errno not in NO_ROOM or not self._reserve.give_back():
                    raise
            else:
                return

    def _write(self, block: bytes, *, needed: bool) -> bool:
        """Append a block whole or not at all. A needed block may use the reserve; other blocks are given up on a full
        disk."""
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
