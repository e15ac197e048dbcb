"""Deletes copies of consumed messages at the standby, as long as the other site serves.

The topology decides on deletions. The agent stops them during an open run or on request, and writes its state to a
file.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from dr_ctl.core.document import document, key
from dr_ctl.core.model import Json
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import BY_AGENT, Hold, Notes
from dr_ctl.engine.runs import Runs
from dr_ctl.topologies.topology import Cleaner, Progress


class Phase(Enum):
    RUNNING = "running"
    HELD = "held"  # the agent follows consumed messages, and deletes nothing
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """The state of the agent of `sync`, as in `sync.json` and in the JSON lines of the command."""

    agent: Mapping[str, Json] = field(metadata=key(flat=True))
    at: datetime
    phase: Phase
    why: str = field(metadata=key(blank=True))
    run: str | None = field(metadata=key("held_by"))
    kept: Progress = field(metadata=key(flat=True))

    @property
    def state(self) -> object:
        """The part whose changes are written at once."""
        return self.phase, self.why, tuple(sorted(self.kept.silent)), self.kept.vanished

    @property
    def line(self) -> str:
        queues = self.kept.queues
        counts = [
            f"{sum(queue.deleted for queue in queues)} deleted",
            f"{sum(queue.waiting + queue.unconfirmed for queue in queues)} waiting",
        ]
        silent = [f"{site} does not answer: {why}" for site, why in self.kept.silent.items()]
        return "; ".join([f"{self.phase.value}{': ' if self.why else ''}{self.why}", *counts, *silent])


class SyncAgent:
    def __init__(self, cleaner: Cleaner, runs: Runs, notes: Notes, sites: Mapping[str, str]) -> None:
        """`sites` names the `primary` and the `standby`."""
        self._cleaner, self._runs, self._notes = cleaner, runs, notes
        self._agent: dict[str, Json] = {
            **sites,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": stamp(system().now()),
        }
        self._written: object = None
        self._write_at = 0.0
        self._last: Progress = Progress()

    def step(self) -> SyncStatus:
        if self._notes.consume_go_on():
            self._cleaner.go_on()
        self._last = self._cleaner.step(self.held)
        # If a run cuts clients off, a message may count as acknowledged and not as delivered.
        if self._last.vanished and self._runs.unfinished() is None:
            self._put_hold()
        if self._last.over is not None:
            return self.end(self._last.over)
        held, run = self.held(), self._runs.unfinished()
        phase = Phase.HELD if held is not None else Phase.RUNNING
        return self._write(phase, held or "", run.name if run is not None else None)

    def end(self, why: str) -> SyncStatus:
        return self._write(Phase.FINISHED, why, None)

    def held(self) -> str | None:
        run = self._runs.unfinished()
        if run is not None:
            return f"the run {run.name} is open"
        hold = self._notes.hold()
        return hold.text if hold is not None else None

    def _put_hold(self) -> None:
        """Hold the agent, and update the count: a first reading may be made during a removal."""
        vanished = [queue for queue in self._last.queues if queue.vanished]
        losses = "; ".join(f"{queue.vanished} message(s) left {queue.name} unconsumed" for queue in vanished)
        hold = self._notes.hold()
        if hold is None or (hold.by == BY_AGENT and hold.reason != losses):
            since = hold.since if hold is not None else stamp(system().now())
            self._notes.put_hold(Hold(BY_AGENT, losses, since))

    def _write(self, phase: Phase, why: str, run: str | None) -> SyncStatus:
        """Write the state when it has changed, and every second."""
        status = SyncStatus(self._agent, system().now(), phase, why, run, self._last)
        now = system().monotonic()
        if status.state != self._written or now >= self._write_at:
            self._notes.write(document(status))
            self._written, self._write_at = status.state, now + 1.0
        return status
