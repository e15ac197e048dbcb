"""Samples both sites of an installation into the history, and keeps the stored estimate fresh. The monitor changes
nothing. An unread value has no row.

A separate process makes the estimates. It keeps its Spark session between two estimates, or ends after each and frees
its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dr_ctl.agents.exposing import Metric, Sample, ServedState
from dr_ctl.core.document import document
from dr_ctl.core.errors import DrCtlError, EnvironmentFault
from dr_ctl.core.model import ExitCode, Finding, total
from dr_ctl.core.system import BackgroundTask, boottime_s, in_background, system
from dr_ctl.rpo.estimate.request import Estimating, Request
from dr_ctl.rpo.history.row import OUTFLOW_READING_KINDS, Row, Takeover
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.history.writer import Writer, another_monitor
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import TimedReading

FLUSH_EVERY_S = 60.0
RECENT_S: Final = 60.0  # a reading is recent for this time: a working monitor reads every few seconds
MIN_INTERVAL_S: Final = 0.25  # between two complete readings
READING_FACTOR: Final = 20  # complete readings take at most a twentieth of the time, unless `history.every` is shorter
LINGERS_S: Final = 5.0  # a link may be shown as attached for so long after its broker has died
GAPS_WITHIN_S: Final = 900.0
"""The largest gap of this time is shown. The loss bound counts a gap's messages as one burst."""
ESTIMATE_EVERY_S: Final = 300.0
ESTIMATE_FACTOR: Final = 20
"""Estimates take at most a twentieth of the time, so slow ones are made less often."""


class AnotherMonitor(DrCtlError):
    """A monitor records into this history already; the rows of two monitors would be counted twice."""

    exit_code = ExitCode.LOCKED
    remedy = "One is enough: end one of the two."


class Monitor:
    """Reads both sites completely, with an interval between `MIN_INTERVAL_S` and `history.every` in which readings take
    at most a twentieth of the time. In between it reads the outflows only, if there is time and the topology can.

    Every reading is on disk within a second, because this machine may be lost with the site. The history's files appear
    once a minute, at the end, and at once when a site changes its role or a broker falls silent or answers again."""

    def __init__(
        self, installation: Installation, topology: registry.Topology, *, every_s: float | None = None
    ) -> None:
        """`every_s` replaces the settings' `history.every`. Raises AnotherMonitor."""
        settings = installation.settings
        self._topology = topology
        self.every_s = every_s if every_s is not None else settings.history.every
        self._outflow_s: float | None = settings.history.outflow  # None if the topology cannot read outflows only
        history = installation.history
        if (other := another_monitor(history.near)) is not None:
            raise AnotherMonitor(f"another monitor records into {history.shown}: {other}")
        self._is_remote = history.folder is None
        self._upkeep = Upkeep(history, keep_s=settings.history.keep)
        if (host := self._upkeep.another()) is not None:
            raise AnotherMonitor(f"another monitor records into {history.shown}: on {host}, within the last minutes")
        self._writer = Writer(history.near, every_s=FLUSH_EVERY_S, whole_every_s=self.every_s)
        self._upkeep_task: BackgroundTask[bool] | None = None
        self._next = self._complete_at = self._outflow_at = system().monotonic()
        self._state: object = None
        self._gaps = deque[tuple[float, float]]()
        self._active: dict[tuple[str, str | None], Row] = {}
        self._silent: dict[tuple[str, str], float] = {}
        self._unreported: list[Takeover] = []
        self.takeovers: dict[tuple[str, str], list[Takeover]] = {}
        self.readings = 0
        self.rows = 0
        self.cost_s = 0.0

    def close(self) -> None:
        """Write the rows that are not on disk yet. Raises EnvironmentFault if they are lost."""
        if self._upkeep_task is not None:
            self._upkeep_task.wait()
        self._writer.flush()
        self._end_upkeep()
        if self._is_remote and self._upkeep.trouble is None:
            self._upkeep.step(system().now())
        self._upkeep.close()
        if self._writer.trouble is not None:
            raise EnvironmentFault(f"{self._writer.waiting} row(s) are lost: {self._writer.trouble}")

    @property
    def is_on_disk(self) -> bool:
        """Say whether a file of this history has been written, without which nothing can be estimated."""
        return self._writer.files > 0

    @property
    def interval_s(self) -> float:
        """The time between two complete readings, by the duration of the last one (`cost_s`)."""
        return min(self.every_s, max(MIN_INTERVAL_S, READING_FACTOR * self.cost_s))

    @property
    def gap_s(self) -> float:
        """The largest time between two readings of the last minutes, or since the newest one."""
        now = system().monotonic()
        since = now - self._gaps[-1][0] if self._gaps else 0.0
        return max([since, *(gap for at, gap in self._gaps if now - at < GAPS_WITHIN_S)])

    def sample(self) -> Sample:
        """Read both sites once, and add the rows of the brokers that answered."""
        snapshot, at, _ = self._read_everything()
        outflows = {site: total(broker.to_ship for broker in snapshot.brokers_at(site)) for site in snapshot.roles}
        trouble = self._writer.trouble or self._upkeep.trouble
        takeovers, self._unreported = self._unreported, []
        waiting, dropped = self._writer.waiting, self._writer.dropped
        return Sample(at, snapshot.roles, outflows, snapshot, trouble, waiting, dropped, takeovers)

    def _read_everything(self) -> tuple[Snapshot, datetime, bool]:
        """Read everything once. Return the reading, the time of the answers, and whether a site or a broker changed."""
        began = system().monotonic()
        polled = self._topology.poll(full=True)
        if polled is None:
            snapshot = self._topology.read()
            polled = TimedReading(snapshot, 0.0, system().monotonic() - began)
        at, has_changed = self._record(polled)
        self.readings += 1
        self.cost_s = system().monotonic() - began - polled.ago_s
        self._complete_at = began + self.interval_s
        self._outflow_at = began + (self._outflow_s or 0.0)
        return polled.snapshot, at, has_changed

    def _record(self, polled: TimedReading[Snapshot], *, only: Collection[str] | None = None) -> tuple[datetime, bool]:
        """Keep the rows of a reading, or those of the kinds in `only`. Return the time of the answers, and whether a
        site or a broker changed; a change is written to disk at once."""
        at = system().now() - timedelta(seconds=polled.ago_s)
        rows = polled.snapshot.recorded(at, polled.took_s)
        silent = {(broker.site, broker.pair) for broker in polled.snapshot.brokers if broker.silent is not None}
        now = system().monotonic()
        self._silent = {broker: self._silent.get(broker, now) for broker in silent}
        dying = {broker for broker, since in self._silent.items() if now - since < LINGERS_S}
        rows = [row for row in rows if row.kind != "node" or (row.site, row.pair) not in dying]
        rows = [row for row in rows if only is None or row.kind in only]
        self.rows += len(rows)
        self._gaps.append((now, now - self._gaps[-1][0] if self._gaps else 0.0))
        while now - self._gaps[0][0] >= GAPS_WITHIN_S:
            self._gaps.popleft()
        for row in rows:
            if row.kind != "site" or row.start is None:
                continue
            last = self._active.get((row.site, row.pair), row)
            self._active[row.site, row.pair] = row
            if (takeover := Takeover.between(last, row)) is not None:
                self._unreported.append(takeover)
                self.takeovers.setdefault((takeover.site, takeover.pair), []).append(takeover)
        if self._writer.add(rows) and (self._upkeep_task is None or self._upkeep_task.wait(0)):
            self._end_upkeep()
            self._upkeep_task = in_background(partial(self._upkeep.step, at), "upkeep")  # joining an hour takes seconds
        answers = {(broker.site, broker.pair): broker.silent is None for broker in polled.snapshot.brokers}
        before, self._state = self._state, (polled.snapshot.roles, answers)
        has_changed = before not in (None, self._state)
        if has_changed:
            self._writer.flush()
        return at, has_changed

    def _end_upkeep(self) -> None:
        """Raise an unexpected error of the last upkeep; its thread would not show it."""
        if self._upkeep_task is not None:
            self._upkeep_task.result()

    def wait(self, until: float | None) -> None:
        """Wait for the next sample, and read meanwhile. Missed readings are skipped."""
        began = system().monotonic()
        self._next = max(self._next + self.every_s, began)
        deadline = self._next if until is None else min(self._next, until)
        while True:
            # The next reading is a complete one, unless there is time for a reading of outflows only before it.
            outflows_only = self._outflow_s is not None and self._outflow_at + self._outflow_s / 2 < self._complete_at
            at = self._outflow_at if outflows_only else self._complete_at
            if at > deadline - MIN_INTERVAL_S / 2:
                break
            system().sleep(max(0.0, at - system().monotonic()))
            has_changed = self._read_everything()[2] if at == self._complete_at else self._read_outflows()
            if has_changed:
                self._next = system().monotonic()
                return  # the caller gets a sample at once after a change
        system().sleep(max(0.0, deadline - system().monotonic()))

    def _read_outflows(self) -> bool:
        began = system().monotonic()
        polled = self._topology.poll()
        if polled is None:
            self._outflow_s = None
            return False
        self._outflow_at = began + (self._outflow_s or 0.0)
        return self._record(polled, only=OUTFLOW_READING_KINDS)[1]


def served_state(
    monitor: Monitor, reading: Sample, figures: Sequence[Metric] = (), problems: Sequence[Finding] | None = None
) -> ServedState:
    """Return what the monitor serves: metrics of itself and of its history, with the `figures` and `problems` of the
    sites. The monitor is ready once any broker has answered."""
    metrics = [
        Metric("dr_ctl_monitor_readings_total", "full readings", monitor.readings),
        Metric("dr_ctl_monitor_reading_seconds", "duration of the last full reading", round(monitor.cost_s, 6)),
        Metric("dr_ctl_monitor_apart_seconds", "interval between full readings", round(monitor.interval_s, 6)),
        Metric("dr_ctl_monitor_gap_seconds", "largest time between readings", round(monitor.gap_s, 6)),
        Metric("dr_ctl_monitor_rows_total", "rows of the history that were recorded", monitor.rows),
        Metric("dr_ctl_monitor_waiting_rows", "rows that are not in a file of the history yet", reading.waiting),
        Metric(
            "dr_ctl_monitor_dropped_rows_total", "rows that were dropped because the disk was full", reading.dropped
        ),
        Metric(
            "dr_ctl_monitor_trouble",
            "1 while the history cannot be written, joined or pruned",
            int(bool(reading.trouble)),
        ),
    ]
    for broker in reading.snapshot.brokers:
        if broker.nodes:
            takeovers = monitor.takeovers.get((broker.site, broker.pair), [])
            labels = (("site", broker.site), ("pair", broker.pair))
            metrics.append(Metric("dr_ctl_takeovers_total", "takeovers that the monitor saw", len(takeovers), labels))
            first, duration_s = (takeovers[-1].first, takeovers[-1].at_most_s) if takeovers else (None, None)
            name, text = ("dr_ctl_last_takeover_timestamp_seconds", "first reading with the present node active")
            metrics.append(Metric(name, text, first, labels))
            name, text = "dr_ctl_last_takeover_seconds", "longest time for which no node can have been active"
            metrics.append(Metric(name, text, duration_s, labels))
    answers = any(broker.silent is None for broker in reading.snapshot.brokers)
    good_for_s = max(RECENT_S, 3 * monitor.every_s)
    return ServedState(reading.trouble is None, document(reading), [*metrics, *figures], answers, good_for_s, problems)


class Refresher:
    """Requests an estimate when it is due, and fetches the result, without a wait."""

    def __init__(self, request: Request, *, stays: bool, every_s: float = ESTIMATE_EVERY_S) -> None:
        """With `stays` the process waits for the next estimate; else it ends after each one."""
        self._request, self._stays, self._every_s = request, stays, every_s
        self._estimating: Estimating | None = None
        self._is_requested = False
        self._began = 0.0
        self._next = boottime_s()
        self._last_reason: str | None = None

    def read(self) -> str | None:
        """Request an estimate that is due. Return the reason why there is none, each reason once."""
        now = boottime_s()
        if not self._is_requested:
            if now >= self._next:
                self._began, self._is_requested = now, True
                if self._stays and self._estimating is not None and self._estimating.lives:
                    self._estimating.ask(self._request)
                else:
                    self.close()
                    self._estimating = Estimating(self._request, stays=self._stays)
            return None
        if self._estimating is None or self._estimating.runs:
            return None
        answer, self._is_requested = self._estimating.answer(), False
        self._next = now + max(self._every_s, ESTIMATE_FACTOR * (now - self._began))
        why = ". ".join(filter(None, (answer["error"], answer["remedy"]))) if "error" in answer else None
        is_new, self._last_reason = why != self._last_reason, why
        return f"no estimate: {why}" if why is not None and is_new else None

    def close(self) -> None:
        if self._estimating is not None:
            self._estimating.end()
            self._estimating = None
