"""The monitor as a command: samples both sites, keeps the stored estimate fresh, shows figures to Prometheus, and makes
runs by itself if its options say so."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from dr_ctl import __version__
from dr_ctl.agents import exposing
from dr_ctl.agents.exposing import Metric, MonitorData, Sample
from dr_ctl.agents.monitor import Monitor, Refresher, served_state
from dr_ctl.application import lost_site, maintenance, rehearsing
from dr_ctl.application.automation import AUTOMATIC, AutoQuarantine
from dr_ctl.application.caller import Caller
from dr_ctl.application.diagnosis import paged
from dr_ctl.application.estimates import request
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.result import Result
from dr_ctl.application.standing import agent_findings, pending_debts
from dr_ctl.application.verdicts import Assessment, default_target
from dr_ctl.core.document import document
from dr_ctl.core.errors import Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.operations import ALL, FAILBACK, FAILOVER, REHEARSE, SWAPOVER
from dr_ctl.engine.record import Record, record
from dr_ctl.engine.runs import Runs
from dr_ctl.rpo.bounds.result import Bound
from dr_ctl.rpo.estimate.request import stored
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.registry import Snapshot

SLOW_EVERY_S: Final = 15.0  # run files, debts and readiness change slowly: read them only so often
QUARANTINE: Final = "quarantine"
SHOWN_RUNS: Final = (SWAPOVER, FAILOVER, QUARANTINE, FAILBACK, REHEARSE)
QUANTILES: Final = ("now", "p50", "p95", "p99", "max")
_ESTIMATED: Final = {
    "loss": ("dr_ctl_estimate_loss_messages", "messages that a failure of the serving site would lose"),
    "age_s": ("dr_ctl_estimate_loss_age_seconds", "age of the oldest of these messages"),
    "duplicates": ("dr_ctl_estimate_duplicate_messages", "messages that would be duplicates"),
    "drain_s": ("dr_ctl_estimate_drain_seconds", "time until all messages under way would have arrived"),
}
_READY: Final = {ExitCode.OK: True, ExitCode.PRECHECK_FAILED: False}
MIN_MEMORY: Final = 4 << 30  # of a machine that keeps a Spark session


def monitor(caller: Caller, lasting_s: float | None, options: Sequence[str], *, metrics: str | None) -> Result:
    """Sample at least once, until the time is over or a signal ends the monitor. `options` are keys of `AUTOMATIC`."""
    installation = caller.installation()
    until = system().monotonic() + lasting_s if lasting_s is not None else None
    automatics = [
        kind(replace(caller, command=kind.operation)) if option in options else None
        for option, kind in AUTOMATIC.items()
    ]
    recorded = Recorded(caller)
    with (
        exposing.exposing(metrics) as board,
        OpenInstallation.of(caller) as opened,
        closing(Monitor(installation, opened.topology)) as watching,
        _refreshing(installation) as refreshing,
    ):
        figures = Figures(caller, opened) if metrics is not None else None
        try:
            while until is None or system().monotonic() < until or not watching.readings:
                reading = watching.sample()
                if refreshing is not None and watching.is_on_disk and (why := refreshing.read()) is not None:
                    caller.say(why)
                recorded.report(reading)
                if figures is not None:
                    board.shown = served_state(
                        watching, reading, figures.of(reading.snapshot, reading.at), figures.problems
                    )
                exposing.notify(exposing.READY, exposing.ALIVE, f"STATUS={reading.line}")
                caller.line(document(reading), reading.line)
                present = maintenance.now(caller)
                recorded.maintained(present)
                for automatic in filter(None, automatics):
                    automatic.held = present is not None and not isinstance(automatic, AutoQuarantine)
                    automatic.act(reading.snapshot)
                watching.wait(until)
        except Stopped:
            pass
    exposing.notify(exposing.STOPPING)
    runs = [f"{len(automatic.runs)} run(s) to {automatic.purpose}" for automatic in automatics if automatic is not None]
    place = installation.history.shown
    text = "; ".join([f"{watching.readings} reading(s), {watching.rows} row(s) written to {place}", *runs])
    made = (None if automatic is None else automatic.runs for automatic in automatics)
    data = MonitorData(watching.readings, watching.rows, *made)
    return Result(ExitCode.OK, text, [*recorded.troubles.values()], data=data)


def _refreshing(installation: Installation) -> AbstractContextManager[Refresher | None]:
    how = installation.settings.monitor.estimate
    has_room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= MIN_MEMORY
    stays = has_room if how is None else how == "resident"
    return nullcontext() if how == "off" else closing(Refresher(request(installation), stays=stays))


@dataclass
class Recorded:
    """Reports trouble with writing the history, and a maintenance: once when it begins, once when it ends."""

    caller: Caller
    _trouble: str | None = None
    _maintenance: maintenance.Maintenance | None = None
    _dropped: int = 0
    troubles: dict[str, Finding] = field(default_factory=dict)

    def maintained(self, present: maintenance.Maintenance | None) -> None:
        if present != self._maintenance:
            text = "the maintenance has ended" if present is None else present.text
            self.caller.line(document(maintenance.MaintenanceData(present)), text)
        self._maintenance = present

    def report(self, reading: Sample) -> None:
        before, self._trouble = self._trouble, reading.trouble
        if reading.trouble is not None and reading.trouble != before:
            self.caller.say(
                f"{reading.trouble}; the monitor goes on, and keeps {reading.waiting} row(s) until it is over"
            )
            finding = found("DR-MON-001", trouble=reading.trouble, at=stamp(reading.at))
            self.troubles.setdefault(reading.trouble, finding)
        if reading.trouble is None and before is not None:
            lost = reading.dropped - self._dropped
            loss = f"{lost} row(s) were dropped meanwhile, the oldest of queues first" if lost else "nothing was lost"
            self.caller.say(f"the history is written again; {loss}")
            self._dropped = reading.dropped


@dataclass
class Figures:
    """The metrics of a monitor. Slow metrics are kept for `SLOW_EVERY_S`."""

    caller: Caller
    opened: OpenInstallation
    problems: Sequence[Finding] | None = None
    _slow: tuple[float, list[Metric]] | None = None

    def of(self, snapshot: Snapshot, at: datetime) -> list[Metric]:
        now = system().monotonic()
        if self._slow is None or now - self._slow[0] >= SLOW_EVERY_S:
            assessment = Assessment.of(self.opened, snapshot, snapshot.links())
            debts, last = pending_debts(self.caller, snapshot).debts, lost_site.last_sample(self.opened.installation)
            installation, estimate = self._installation_metrics(snapshot, debts), self._estimate(assessment)
            self._slow = now, [*installation, *estimate, *self._runs(), *self._ready(snapshot, assessment)]
            self.problems = paged(assessment, debts, last, system().now())
        return [*self._seen(snapshot, at), *self._slow[1]]

    def _seen(self, snapshot: Snapshot, at: datetime) -> Iterator[Metric]:
        yield Metric("dr_ctl_last_reading_timestamp_seconds", "when both sites were read last", at)
        for site, role in snapshot.roles.items():
            for possible in Role:
                labels = (("site", site), ("role", possible.value))
                yield Metric("dr_ctl_site_role", "1 for the role that a site has", role is possible, labels)
        links = {(link.site, link.pair): link.attached for link in snapshot.links()}
        for broker in snapshot.brokers:
            labels = (("site", broker.site), ("pair", broker.pair))
            # A broker that waits for a shared store does not answer, so whether it runs is unknown.
            started = True if broker.start else None
            attached = started and links.get((broker.site, broker.pair))
            known = [depth for depth in broker.depths.values() if depth is not None]
            depth = sum(known) if started and len(known) == len(broker.depths) else None
            answers = started if broker.silent is None else False
            yield Metric("dr_ctl_broker_answers", "1 if the broker answered", answers, labels)
            yield Metric("dr_ctl_link_attached", "1 if the broker ships to its peer", attached, labels)
            ships = started and broker.to_ship
            yield Metric("dr_ctl_outflow_messages", "messages that a broker still has to ship", ships, labels)
            yield Metric("dr_ctl_queue_messages", "messages in the business queues of a broker", depth, labels)

    def _installation_metrics(self, snapshot: Snapshot, debts: Sequence[Debt]) -> Iterator[Metric]:
        settings = self.opened.installation.settings
        build = (("version", __version__), ("installation", settings.name), ("topology", settings.topology))
        yield Metric("dr_ctl_build_info", "this dr-ctl, and what it watches", 1, build)
        present = maintenance.now(self.caller)
        yield Metric("dr_ctl_maintenance", "1 while a maintenance goes on", present is not None)
        until = present.until if present is not None else None
        yield Metric("dr_ctl_maintenance_end_timestamp_seconds", "when it ends by itself", until)
        limits = settings.objectives
        wanted = {
            "loss_messages": limits.loss.messages if limits else None,
            "loss_age_seconds": limits.loss.age if limits else None,
            "duplicate_messages": limits.duplicates.messages if limits and limits.duplicates else None,
            "recovery_seconds": limits.recovery if limits else None,
        }
        for name, most in wanted.items():
            yield Metric(f"dr_ctl_objective_{name}", "the limit in the settings", most)
        for kind in DebtKind:
            since = [datetime.fromisoformat(debt.since) for debt in debts if debt.kind is kind]
            labels = (("kind", kind.value),)
            oldest = min(since, default=None)
            yield Metric("dr_ctl_debts", "debts that are pending", len(since), labels)
            yield Metric("dr_ctl_debt_oldest_timestamp_seconds", "since when the oldest is pending", oldest, labels)
        text = "1 if the agent of `sync` does its work; NaN without one"
        is_healthy = not agent_findings(self.opened, snapshot) if self.opened.has_agent else None
        yield Metric("dr_ctl_agent_healthy", text, is_healthy)

    def _estimate(self, assessment: Assessment) -> Iterator[Metric]:
        site = assessment.served_by
        estimate = stored(self.opened.installation.history, site)[0] if site is not None else None
        made = None if estimate is None else estimate.made_at
        data: Mapping[str, Any] = {"verdict": "unknown"} if estimate is None else estimate.data
        yield Metric("dr_ctl_estimate_timestamp_seconds", "when the stored estimate was made", made)
        for word in ("met", "missed", "unknown"):
            text, which = "1 for the verdict of the estimate on the objectives", (("verdict", word),)
            yield Metric("dr_ctl_estimate_verdict", text, data.get("verdict") == word, which)
        total = data.get("total", {})
        for key, (name, text) in _ESTIMATED.items():
            row = total.get(key) or {}
            for basis, of in (("bound", row), ("likely", row.get("likely") or {})):
                for quantile in QUANTILES:
                    yield Metric(name, text, of.get(quantile), (("basis", basis), ("of", quantile)))
        # The bounds of a failover, as if the serving site was lost at the newest sample.
        unread = Bound(None, None)
        bounds = assessment.if_lost(site).now() if site is not None else None
        lost, duplicates = (unread, unread) if bounds is None else (bounds.lost, bounds.duplicates)
        for key, what, bound in (("lost", "loss", lost), ("duplicates", "duplicate", duplicates)):
            name, text = f"dr_ctl_failover_{what}_messages", f"the bound of a failover now on {key}"
            yield Metric(name, text, bound.at_most, (("basis", "bound"),))
            yield Metric(name, text, bound.likely, (("basis", "likely"),))

    def _runs(self) -> Iterator[Metric]:
        runs = self.caller.runs()
        unfinished = runs.unfinished()
        yield Metric("dr_ctl_open_run", "1 while a run is open: under way, or interrupted", unfinished is not None)
        begun = record(unfinished).began if unfinished is not None else None
        yield Metric("dr_ctl_open_run_start_timestamp_seconds", "when the open run began", begun)
        for kind in SHOWN_RUNS:
            newest, labels = _newest(runs, kind), (("operation", kind),)
            at, code = (None, None) if newest is None else (newest.began, newest.exit_code)
            out = None if newest is None or newest.out is None else newest.out.at_most_s
            text = "for how long it kept clients out, at most"
            yield Metric("dr_ctl_last_run_start_timestamp_seconds", "when the last such run began", at, labels)
            yield Metric("dr_ctl_last_run_exit_code", "how it ended", code, labels)
            yield Metric("dr_ctl_last_run_outage_seconds", text, out, labels)
        text = "when the last successful rehearsal began"
        yield Metric("dr_ctl_rehearsal_timestamp_seconds", text, rehearsing.last(runs))

    def _ready(self, snapshot: Snapshot, assessment: Assessment) -> Iterator[Metric]:
        for operation in ALL:
            code = assessment.verdict(operation, default_target(snapshot, operation)).code
            text = "1 if `validate` calls the operation ready, 0 if it is refused"
            yield Metric("dr_ctl_ready", text, _READY.get(code), (("operation", operation),))


def _newest(runs: Runs, kind: str) -> Record | None:
    """Return the last run of that kind that has ended, by reading only runs with its operation in their names."""
    operation = FAILOVER if kind == QUARANTINE else kind
    for files in reversed(runs.all()):
        if f"-{operation}-" in files.name and files.result.exists():
            newest = record(files)
            if shown_as(newest) == kind:
                return newest
    return None


def shown_as(run: Record) -> str:
    """Return the operation of a run; a failover to a site that served already only keeps the lost site out."""
    return QUARANTINE if run.operation == FAILOVER and run.target in run.served_before else run.operation
