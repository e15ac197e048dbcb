"""Executes a plan that was decided and agreed to, records its end, and calls the installation's own commands (`after:`
of the settings).

These commands run after the result is recorded and the lock is released, and cannot change the result: a command that
fails, hangs or is missing is a warning.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dr_ctl.application import lock
from dr_ctl.application.caller import Caller
from dr_ctl.application.estimates import NoEstimator, Preflight
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.loss_bound import LossBound
from dr_ctl.application.lost_site import LostSiteOutage
from dr_ctl.application.plans import RESIDUE, Approvals
from dr_ctl.application.result import Result, of_error
from dr_ctl.application.standing import pending_debts
from dr_ctl.core.document import document, key, optional
from dr_ctl.core.errors import DrCtlError, EnvironmentFault, Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.context import StopAtOnce, StopRequest, stop_request
from dr_ctl.engine.disk import CannotWrite, refusing
from dr_ctl.engine.executor import Callbacks, Execution, RunResult
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.journal import Journal, JournalDamaged, RunState, fenced_at, let_in_at
from dr_ctl.engine.operations import FAILBACK, FAILOVER, SWAPOVER
from dr_ctl.engine.plan import Plan, RunOptions
from dr_ctl.engine.ports import Done, Estimator, UnitSnapshot
from dr_ctl.engine.record import approvers, authors
from dr_ctl.engine.roles import queues_option
from dr_ctl.engine.runs import RunFiles, write
from dr_ctl.processes.hooks import CommandContext, run_hook
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.settings.model import DEBT, Installation
from dr_ctl.topologies.registry import Snapshot
from dr_ctl.topologies.topology import WorkloadSnapshot


@dataclass(frozen=True, slots=True)
class RunEnd:
    outage_s: float | None = field(metadata=key(digits=3, description="for how long this run kept clients out"))
    report: Path = field(metadata=key(description="where the page is"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationData:
    """Data of a command that may change a broker. A dry run has `plan`; a run has `pairs`, `outage_s` and `report`; a
    refusal has the observations before it."""

    pairs: Sequence[UnitSnapshot] | None = optional()
    end: RunEnd | None = optional(flat=True)
    workloads: Sequence[WorkloadSnapshot] | None = optional()
    bounds: Any = optional(shape=Bounds, description="what a failover may lose")
    out_s: LostSiteOutage | None = optional()
    undone: bool | None = optional("whether everything was undone, and the undo verified")
    left: Mapping[str, Json] | None = optional("the evidence of an undo, as messages that a reinstatement left over")
    evidence: Mapping[str, Json] | None = optional("the evidence of a refusal, as the ids of messages by queue")
    residue: Mapping[str, Json] | None = optional(RESIDUE)
    next_steps: Sequence[str] | None = optional("facts and commands that a person needs now")
    plan: Plan | None = optional()
    approved_by: Sequence[str] | None = optional("the people who signed the plan of the run")


@dataclass(frozen=True, slots=True)
class Run:
    """A run under its lock; executing or undoing it gives the command's result."""

    opened: OpenInstallation
    files: RunFiles
    lease: Lease
    how: RunOptions
    approved: Approvals | None = None

    def execute(
        self,
        decided: Plan,
        exposure: LossBound | None,
        *,
        residue: Mapping[str, Json] | None,
        replaced_run: RunFiles | None = None,
    ) -> Result:
        """A `replaced_run` is closed once this one has begun, without undoing its changes."""
        decided = replace(decided, findings=(*decided.findings, *self.lease.findings()))
        people = self.opened.caller.people

        def begun() -> None:
            if replaced_run is not None:
                text = f"superseded by {self.files.name}: {if_known(decided.spec.reason)}"
                ended = Result(ExitCode.UNKNOWN, text, run=replaced_run.name)
                give_up(replaced_run, ended.envelope(decided.spec.operation))

        def act(execution: Execution[Snapshot]) -> RunResult[Snapshot]:
            entries, installation = execution.journal.entries(), self.opened.installation  # before this process
            is_out = fenced_at(entries) is not None and let_in_at(entries) is None
            estimator: Estimator = Preflight(installation, decided.source)
            if exposure is not None or is_out:
                estimator = NoEstimator(installation, None if exposure is None else exposure.site)
            of_run = {"run": self.files.name, **_where(self.opened)}
            callbacks = Callbacks(
                asker=lambda sentence: self.how.yes or people.says_yes(sentence),
                hooks=lambda name, facts: run_hook(installation, name, {**of_run, **facts}),
                on_begun=begun,
            )
            execution.callbacks = replace(callbacks, stepper=people.stepwise) if self.how.step else callbacks
            execution.exposure = exposure
            return execution.execute(estimator, {**self._by(), "lock": lock.facts(self.lease, self.how.reason)})

        return self._journaled(decided, act, residue, exposure)

    def undo(self, past: RunState) -> Result:
        """Undo the changes of the run. The first signal waits for the end of the undo."""

        def act(execution: Execution[Snapshot]) -> RunResult[Snapshot]:
            execution.journal.lock({**lock.facts(self.lease, self.how.reason), "by": self._by()})
            return replace(execution, stop=StopRequest()).undo()

        return self._journaled(past.plan, act)

    def _by(self) -> dict[str, Json]:
        """Return the user, the typed command and the installation of this part of the run."""
        about = installation_facts(self.opened.installation)
        by = {**lock.author(), "command": self.opened.caller.typed, "reason": self.how.reason, "about": about}
        return by if self.approved is None else {**by, "approved": document(self.approved)}

    def _journaled(
        self,
        plan: Plan,
        act: Callable[[Execution[Snapshot]], RunResult[Snapshot]],
        residue: Mapping[str, Json] | None = None,
        exposure: LossBound | None = None,
    ) -> Result:
        """Act with the run's journal open, then write its result and its report. From here on a signal is a request."""
        facts: dict[str, Json] = {"operation": plan.spec.operation, "source": plan.source, "target": plan.target}
        listener, driver = self.opened.caller.listener(), self.opened.topology.driver(self.lease)
        baseline: Mapping[str, Any] = plan.baseline
        for site, units in baseline.items():  # queues that were paused before the run stay paused after it
            for unit, state in units.items():
                self.lease.note_paused_before(site, unit, state.get("paused", ()))
        stop = stop_request()
        with refusing(self.files.folder):
            journal = Journal(self.files.journal)
        self.lease.facts = lambda: (journal.last_hash, journal.count)
        try:
            try:
                ended = act(Execution(plan, driver, journal, listener, stop))
            finally:
                stop.disarm()
            for broker in ended.snapshot.brokers:  # any host can resume queues that are still paused
                if broker.silent is None:
                    self.lease.keep_pauses(broker.site, broker.pair, broker.paused)
            steps = next_steps(plan, ended) if ended.undone is None else []
            entries = journal.entries()
            let_in = let_in_at(entries)
            result = self._result(ended, steps)
            data = replace(
                result.data,
                residue=residue,
                out_s=None if exposure is None or let_in is None else exposure.out(let_in),
                # The first process had the approvals: a resume needs none.
                approved_by=approvers(authors(entries)) or None,
            )
            result = _sealed(replace(result, data=data), journal, self.files, self.opened.caller.command)
        except StopAtOnce as stopped:
            key = "DR-RUN-002.not_undone" if journal.changed else "DR-RUN-002.nothing_changed"
            code, data = ExitCode(128 + stopped.signum), OperationData(undone=False)
            result = Result.of(code, found(key, why=stopped.why), data=data, run=self.files.name)
            return replace(result, ended=facts, stop=stop)
        except CannotWrite:
            raise  # the run has not begun
        except Exception as error:
            raise RunBroken(error, self.files, facts) from error
        finally:
            journal.close()
        from dr_ctl.report import trace  # noqa: PLC0415 - not before the clients are served

        result = _reported(result, self.files)
        lacking = trace.send(self.files, self.opened.installation.settings.traces)
        findings = result.findings if lacking is None else (*result.findings, lacking)
        return replace(result, findings=findings, ended=facts, stop=stop)

    def _result(self, ended: RunResult[Snapshot], next_steps: Sequence[str]) -> Result:
        debts, more = pending_debts(self.opened.caller, ended.snapshot)
        findings = (*ended.findings, *more)
        next_steps = next_steps if ended.code is ExitCode.OK else ()
        data = OperationData(
            pairs=ended.snapshot.units,
            end=RunEnd(ended.outage_s, self.files.report),
            workloads=ended.snapshot.workloads or None,
            bounds=ended.bounds,
            undone=ended.undone,
            left=ended.left or None,
            evidence=ended.evidence or None,
            next_steps=next_steps or None,
        )
        return Result(ended.code, ended.text, findings, data, self.files.name, "\n".join(next_steps), debts)


class RunBroken(DrCtlError):
    """A run that had to stop: the journal could not be written, or dr-ctl has a defect."""

    finding = "DR-RUN-002"

    def __init__(self, error: Exception, files: RunFiles, about: Mapping[str, Json]) -> None:
        why = str(error) if isinstance(error, DrCtlError) else f"a defect in dr-ctl: {type(error).__name__}: {error}"
        super().__init__(
            f"{why}; the run {files.name} stays open, nothing was undone, clients may be locked out of both sites",
            remedy="`dr-ctl status` says who is locked out; then `dr-ctl resume` or `dr-ctl abort`.",
        )
        self.run, self.ended = files.name, about


def give_up(files: RunFiles, result: Mapping[str, Json]) -> None:
    """Close an interrupted run as it is. A damaged journal is not sealed."""
    try:
        with closing(Journal(files.journal)) as journal:
            _seal(journal, files, result)
    except JournalDamaged:
        write(files.result, {**result, "journal": None})


def _reported(result: Result, files: RunFiles) -> Result:
    from dr_ctl.report.html import write_report  # noqa: PLC0415 - not before the clients are served

    try:
        return replace(result, report=str(write_report(files)))
    except Exception as error:  # noqa: BLE001 - a failed report does not change the result
        finding = found("DR-REPORT-001", kind=type(error).__name__, error=error, run=files.name)
        return replace(result, findings=(*result.findings, finding))


def _sealed(result: Result, journal: Journal, files: RunFiles, command: str) -> Result:
    """Store the result, and return it, with a finding if it cannot be written."""
    try:
        _seal(journal, files, result.envelope(command))
    except (OSError, EnvironmentFault) as error:
        finding = found("DR-REPORT-002", error=error, run=files.name)
        return replace(result, findings=(*result.findings, finding))
    return result


def _seal(journal: Journal, files: RunFiles, result: Mapping[str, Json]) -> None:
    """Record the end of a run in its journal, and in its result with the seal of the journal."""
    journal.end(result)
    sealed: dict[str, Json] = {"last_hash": journal.last_hash, "count": journal.count}
    write(files.result, {**result, "journal": sealed})


def call_then_notify(caller: Caller, act: Callable[[OpenInstallation], Result]) -> Result:
    """Call `act`, then, after a run, the commands of the settings for its end. The caller has no lock."""
    with OpenInstallation.of(caller) as opened:
        try:
            result = act(opened)
        except RunBroken as error:
            for finding in _notified(opened, replace(of_error(error), ended=error.ended)):
                caller.say(f"{finding.id}  {finding.text}")
            raise
        findings = _notified(opened, result)
    return replace(result, findings=(*result.findings, *findings))


def _where(opened: OpenInstallation) -> dict[str, Json]:
    return {"installation": opened.installation.settings.name, "state_dir": str(opened.caller.state())}


def _notified(opened: OpenInstallation, result: Result) -> list[Finding]:
    """Call the commands for the end of a run; return a finding for each that failed."""
    if result.ended is None:
        return []
    caller, words = opened.caller, {result.code.outcome, *([DEBT] if result.debts else [])}
    hooks = [command for command in opened.installation.settings.after if words.intersection(command.on)]
    if not hooks:
        return []
    caller.say(f"{result.code.outcome}: {result.summary}")
    place = CommandContext.of(opened.installation)
    document = result.envelope(caller.command)
    facts: dict[str, Json] = {
        **{key: document[key] for key in ("run", "command", "outcome", "exit_code", "summary")},
        **result.ended,
        **_where(opened),
    }
    findings: list[Finding] = []
    waiting, run = [*hooks], if_known(result.run)
    stop = stop_request()  # a closed terminal does not end this
    try:
        while waiting:
            caller.say(f"calling {waiting[0].run[0]}")
            command, why = waiting[0], ""
            try:
                outcome = place.run(command.run[0], command.run, command.timeout, facts, document, stop)
                why = "" if isinstance(outcome, Done) else outcome.text
            except (OSError, ValueError) as error:  # no room for its input, or an invalid variable
                why = f"{command.run[0]} could not be started: {error}"
            findings += [found("DR-HOOK-002", run=run, why=why)] if why else []
            waiting.pop(0)
    except Stopped as stopped:
        late = ", ".join(command.run[0] for command in waiting)
        findings.append(found("DR-HOOK-002.stopped", run=run, why=stopped, late=late))
    finally:
        stop.disarm()
    if result.stop is not None and stop.signum is not None:
        result.stop.ask(stop.signum)
    return findings


def installation_facts(installation: Installation) -> dict[str, Json]:
    """Return the facts of the settings. `sha256` is null if the file is gone."""
    settings, digest, limits = installation.settings, None, installation.settings.objectives
    with suppress(OSError):
        digest = hashlib.sha256(installation.file.read_bytes()).hexdigest()
    return {
        "name": settings.name,
        "topology": settings.topology,
        "settings": {"file": installation.file.name, "sha256": digest},
        "brokers": {
            site: [f"{pair} at {addresses[0]}" for pair, addresses in sorted(pairs.items())]
            for site, pairs in installation.addresses.items()
        },
        "objectives": None
        if limits is None
        else {
            "recovery_s": limits.recovery,
            "lost": limits.loss.messages,
            "lost_age_s": limits.loss.age,
            "duplicates": None if limits.duplicates is None else limits.duplicates.messages,
        },
    }


def next_steps(plan: Plan, ended: RunResult[Snapshot]) -> list[str]:
    """Return the facts and the commands that a person needs after a move; empty for any other operation."""
    source, target = plan.source, plan.target
    which = queues_option(plan.spec) if plan.untouched else ""
    unconfirmed = f"Unconfirmed sends to {source}: clients repeat them, which may make duplicates."
    of = f" of {brief([*(plan.spec.units or ())])}" if which else ""
    standby = f"Standby{of}: {source}. Keep it running: it holds the only other copy."
    missing = f"Standby: none until {source} is reinstated; new messages are at {target} only."
    if ended.snapshot.one_store:
        takes = "its broker takes the store while it runs and waits."
        standby = f"Standby: {source}, by the store that both sites share: {takes}"
        if any(finding.id == "DR-STORE-010" for finding in ended.findings):
            standby = f"Standby: none until the broker of {source} is started again: it then waits for the store."
        missing = standby
    if plan.spec.operation in (SWAPOVER, FAILBACK):
        come_back = f"To come back: `dr-ctl swapover --to {source}{which}`."
        if any(finding.id == "DR-LINK-009" for finding in plan.findings):
            standby = f"Standby: none: no link leads from {target} to {source}; new messages are at {target} only."
            come_back = "To come back: configure that link first (`dr-ctl explain DR-LINK-009`)."
        outage = f"Outage: ends when {target} accepts clients; the time to reconnect is not included."
        return [standby, unconfirmed, outage, come_back]
    if plan.spec.operation == FAILOVER:
        back = f"`dr-ctl failback --to {source}` once {source} is up, or `dr-ctl reinstate {source}`, then a swapover."
        return [missing, unconfirmed, f"To come back: {back}"]
    return []
