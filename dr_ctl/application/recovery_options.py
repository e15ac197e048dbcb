"""Finds the interrupted run, reads its journal, and lists the commands that end it, each with its cost and the site
that serves then."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Self

from dr_ctl.application.plans import title
from dr_ctl.application.result import Result
from dr_ctl.core.document import key
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, Severity
from dr_ctl.core.notation import duration
from dr_ctl.engine.executor import steps_to_undo
from dr_ctl.engine.journal import Journal, RunState, is_held, read_entries, replay
from dr_ctl.engine.operations import ACTIVATE, CLOSING, FAILOVER, REINSTATE, REINSTATING, SINGLE_STEPS
from dr_ctl.engine.plan import RunOptions, Spec
from dr_ctl.engine.roles import as_resumed, open_again, part_of, sites_serving, source_alive, source_of
from dr_ctl.engine.runs import RunFiles, Runs
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import LinkSnapshot


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The newest open run, and whether its process lives here. `past` is an interrupted run, if it can be read."""

    files: RunFiles
    lives: bool
    past: RunState | None = None

    @classmethod
    def of(cls, runs: Runs) -> Self | None:
        files = runs.unfinished()
        if files is not None and is_held(files.journal):
            return cls(files, lives=True)
        if files is None or not files.open():
            return None  # the run ended between the two readings
        try:
            return cls(files, lives=False, past=replay(read_entries(files.journal)))
        except (DrCtlError, OSError):
            return cls(files, lives=False)

    @property
    def operation(self) -> str:
        return "its journal cannot be read" if self.past is None else title(self.past.plan)

    def process(self, snapshot: Snapshot) -> str:
        """Say where the run's process was; on this host it does not live, because the journal is not locked."""
        locks = (lock for reading in snapshot.locks for lock in reading.documents)
        lock = next((lock for lock in locks if lock.run == self.files.name), None)
        if lock is not None and lock.host and lock.host != socket.gethostname():
            return f"its process {lock.pid} was on {lock.host}, and does not write here any more"
        number = f" {lock.pid}" if lock is not None else ""
        return f"its process{number} on this host is gone"

    def options(self, snapshot: Snapshot, links: Sequence[LinkSnapshot]) -> list[RecoveryOption]:
        if self.past is None:
            return [self._forget_option(snapshot)]
        return list(self._list(self.past, snapshot, links))

    def first(self, snapshot: Snapshot, links: Sequence[LinkSnapshot]) -> RecoveryOption:
        return max(self.options(snapshot, links), key=lambda option: option.recommended)

    def _forget_option(self, snapshot: Snapshot) -> RecoveryOption:
        typed = f"abort --forget {self.files.name} --reason TEXT"
        return RecoveryOption(typed, _one(sites_serving(snapshot)), "gives it up, undoes nothing")

    def _list(self, past: RunState, snapshot: Snapshot, links: Sequence[LinkSnapshot]) -> Iterator[RecoveryOption]:
        can_undo = why_not_undone(past, snapshot, self.files.name) is None
        refused = refused_onward(past, snapshot)
        # A resume is better if both sites hold the same messages, or if the run is no planned move: that can wait.
        same = bool(links) and all(link.attached and link.outflow == 0 for link in links)
        prefers_resume = not refused and (not can_undo or same or past.plan.spec.operation in (FAILOVER, *REINSTATING))
        answers = all(role in (Role.SERVING, Role.STANDBY) for role in snapshot.roles.values())
        serves = past.plan.source if snapshot.roles.get(past.plan.source) is Role.SERVING else _one(past.plan.serving)
        if can_undo:
            steps = steps_to_undo(past)
            cost = f"about 2 s, {len(steps)} step(s) are undone" if steps else "there is nothing to undo"
            if silent := unreached(past, snapshot):
                cost = f"only once {' and '.join(silent)} answers again: {len(steps)} step(s) are to be undone"
            recommended = not prefers_resume and not silent
            yield RecoveryOption("abort", None if silent else serves, cost, recommended=recommended)
        elif refused:
            yield replace(self._forget_option(snapshot), recommended=True)
        if refused:
            return
        if answers or past.plan.spec.operation == FAILOVER:
            cost = self._resume_cost(past, snapshot, links)
            yield RecoveryOption("resume", _serving_after(past), cost, recommended=prefers_resume)
            return
        silent_site = next(site for site, role in snapshot.roles.items() if role not in (Role.SERVING, Role.STANDBY))
        other = next(site for site in snapshot.roles if site != silent_site)
        if snapshot.signs_of_life[silent_site].takeovers:
            cost = f"once a node of {silent_site} is active"
            yield RecoveryOption("resume", _serving_after(past), cost, recommended=prefers_resume)
        else:
            cost = f"only if {silent_site} is lost: `--dry-run` says what that costs"
            yield RecoveryOption(f"failover --to {other} --reason TEXT", other, cost)

    def _resume_cost(self, past: RunState, snapshot: Snapshot, links: Sequence[LinkSnapshot]) -> str:
        if past.plan.spec.target in sites_serving(as_resumed(snapshot, past.plan.spec, past)):
            return "the remaining steps are done, nobody is disconnected"
        if not {"drain", "reinstate"} & {step.verb for step in past.plan.steps}:
            return "a few seconds, nothing is drained"
        detached = [f"{link.site}/{link.pair}" for link in links if link.attached is False]
        if detached:
            return f"the link of {', '.join(detached)} is not attached, so it cannot drain now"
        outflows = [link.outflow for link in links]
        if outflows and not any(outflow is None or outflow for outflow in outflows):
            return "both sites hold the same now, a few seconds"
        drains_s = [link.drain_s for link in links]
        if not drains_s or None in drains_s:
            return "how long the drain takes is not known"
        return f"about {duration(max(seconds or 0.0 for seconds in drains_s))} to drain"


def find_open_run(runs: Runs, how: RunOptions) -> RunFiles | None:
    """Return the open run. A run without a journal line has changed nothing and is removed here."""
    unfinished = runs.unfinished()
    if unfinished is None or read_entries(unfinished.journal):
        return unfinished
    if how.dry_run:
        return None
    unfinished.journal.unlink()
    unfinished.reserve.unlink(missing_ok=True)
    return runs.unfinished()


def read_past(files: RunFiles, how: RunOptions) -> RunState:
    """Replay the interrupted run. Opening the journal for writing proves that the run's process has ended."""
    if how.dry_run:
        return replay(read_entries(files.journal))
    with closing(Journal(files.journal)) as journal:
        return journal.replay()


def no_open_run() -> Result:
    return Result.of(ExitCode.PRECHECK_FAILED, found("DR-RUN-004.none"))


def still_open(unfinished: RunFiles, asked: Spec) -> Result:
    key = "DR-RUN-003.before_failover" if asked.operation == FAILOVER else "DR-RUN-003.still_open"
    finding = found(key, severity=Severity.ERROR, run=unfinished.name)
    return Result.of(ExitCode.PRECHECK_FAILED, finding, run=unfinished.name)


def left_open(declined: Result, files: RunFiles) -> Result:
    text = f"{declined.summary}, and {files.name} stays open: `dr-ctl status` says who is served"
    return replace(declined, summary=text, run=files.name)


def why_not_undone(past: RunState, snapshot: Snapshot, run: str) -> Finding | None:
    """Report why a run cannot be undone: the run, or somebody else, may have opened its target."""
    target = past.plan.spec.target
    role = part_of(snapshot, past.plan.spec).roles[target]
    if not past.activation_sent and (role is Role.STANDBY or target in past.plan.serving):
        return None
    if refused_onward(past, snapshot):
        return found("DR-RUN-005.given_up", target=target, role=role.value, run=run)
    if not past.activation_sent and role is Role.SERVING:
        return found("DR-RUN-005.opened", target=target, source=past.plan.source)
    if not past.activation_sent:
        return found("DR-RUN-005.silent", target=target, role=role.value)
    return found("DR-RUN-005", target=target, role=role.value)


def unreached(past: RunState, snapshot: Snapshot) -> list[str]:
    """Return the silent sites that an undo has to reach; a site that is down and never served can wait."""
    sites = dict.fromkeys(call.site for step in steps_to_undo(past) for call in step.inverse)
    needed = [site for site in sites if site in past.plan.serving or snapshot.roles[site] is not Role.DOWN]
    answering = {broker.site for broker in snapshot.brokers if broker.silent is None}
    return [site for site in needed if site not in answering]


def refused_onward(past: RunState, snapshot: Snapshot) -> bool:
    """Say whether the present roles exclude a resume, even if a silent site answers again."""
    spec = replace(past.plan.spec, expect_serving=None)
    part = part_of(snapshot, spec)
    if spec.operation == FAILOVER:
        return not open_again(snapshot, past) and source_alive(part, spec) is not None
    answer = all(role in (Role.SERVING, Role.STANDBY) for role in part.roles.values())
    return spec.operation in (*SINGLE_STEPS, REINSTATE) and answer and isinstance(source_of(part, spec, past), Finding)


@dataclass(frozen=True, slots=True)
class RecoveryOption:
    """A command that ends the run. `serves` is the site that serves then, if any."""

    command: str = field(metadata=key(of="typed"))
    serves: str | None
    cost: str
    recommended: bool = False

    @property
    def typed(self) -> str:
        return f"dr-ctl {self.command}"

    @property
    def line(self) -> str:
        serves = f"{self.serves} serves" if self.serves else "no site serves yet"
        return f"`{self.typed}`: {serves}; {self.cost}{' (recommended)' if self.recommended else ''}"


def _serving_after(past: RunState) -> str | None:
    spec = past.plan.spec
    if spec.operation in SINGLE_STEPS:
        served = None if spec.operation in CLOSING else _one(past.plan.serving)
        return spec.target if spec.operation == ACTIVATE else served
    return past.plan.source if spec.operation == REINSTATE else spec.target


def _one(sites: Sequence[str]) -> str | None:
    return sites[0] if len(sites) == 1 else None


def open_run_findings(
    run: OpenRun | None, snapshot: Snapshot | None = None, links: Sequence[LinkSnapshot] = ()
) -> list[Finding]:
    """Report the open run; with a reading, also each command that ends it."""
    if run is None:
        return []
    name = run.files.name
    if run.lives:
        return [found("DR-RUN-003.under_way", severity=Severity.INFO, run=name)]
    if snapshot is None:
        return [found("DR-RUN-003.interrupted", run=name)]
    options = run.options(snapshot, links)
    remedy = "; ".join(option.line for option in sorted(options, key=lambda option: not option.recommended))
    process = run.process(snapshot)
    return [found("DR-RUN-003.ways", operation=run.operation, run=name, process=process, ways=remedy)]
