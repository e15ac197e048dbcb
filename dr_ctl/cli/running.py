"""Carries out a plan that was decided and agreed to, with its journal open, and writes down how it ended."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from dr_ctl import __version__
from dr_ctl.cli import locking, people
from dr_ctl.cli.estimates import StoredEstimate
from dr_ctl.cli.how import How, Theft
from dr_ctl.cli.owed import owed
from dr_ctl.cli.preflight import Preflight
from dr_ctl.cli.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.cli.wiring import World
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine import executor
from dr_ctl.engine.executor import Manner, RunResult
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.journal import History, Journal
from dr_ctl.engine.plan import Plan
from dr_ctl.engine.runs import RunFiles, write
from dr_ctl.engine.stopping import StopAtOnce, StopRequest, stoppable
from dr_ctl.processes.hooks import HookRunner
from dr_ctl.topologies.common.view import Broker, Seen

if TYPE_CHECKING:
    from dr_ctl.cli.price import FailoverPrice


def by() -> dict[str, Json]:
    """Who runs this, for the journal: a user without a name in the system's list is its number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return {"user": user, "host": socket.gethostname(), "version": __version__}


def execute(
    session: Session,
    world: World,
    files: RunFiles,
    decided: Plan,
    lease: Lease,
    how: How,
    price: FailoverPrice | None,
    *,
    brings: Mapping[str, Json] | None = None,
    superseded: RunFiles | None = None,
) -> Result:
    """Execute a plan under the lock, and give the command's result, with what a return `brings` in it. A run whose
    place it takes is closed once it has begun itself."""
    listener = session.listener()
    locking.note_pauses(lease, decided.baseline)
    decided = replace(decided, findings=(*decided.findings, *lease.findings()))
    settings = world.installation.settings
    facts: dict[str, Json] = {"run": files.name, "installation": settings.name, "state_dir": str(session.state())}
    manner = Manner(
        asker=lambda sentence: how.yes or people.says_yes(sentence),
        hooks=HookRunner(settings.hooks, world.installation.file.parent, facts),
    )
    if how.step:
        manner = replace(manner, stepper=people.stepwise)
    if superseded is not None:
        reason = decided.ask.reason
        manner = replace(manner, begun=lambda: _end_for(superseded, files.name, reason, world))

    def act(journal: Journal, stop: StopRequest) -> RunResult[Seen[Broker]]:
        return executor.execute(
            decided,
            world.driver(),
            journal,
            estimator=Preflight(world.installation, files.folder)
            if price is None
            else StoredEstimate(world.installation, price.lost),
            stop=stop,
            clock=world.clock,
            listener=listener,
            by={**by(), "lock": locking.told(lease, how.theft)},
            price=price,
            manner=manner,
        )

    return _journaled(session, world, files, act, brings or {})


def undo(session: Session, world: World, files: RunFiles, past: History, lease: Lease, theft: Theft) -> Result:
    """Put back under the lock what a run has changed."""
    listener = session.listener()
    locking.note_pauses(lease, past.baseline)

    def act(journal: Journal, stop: StopRequest) -> RunResult[Seen[Broker]]:
        del stop  # an undo is not stopped half way: the first signal waits for its end
        journal.lock(locking.told(lease, theft))
        return executor.undo(past, world.driver(), journal, clock=world.clock, listener=listener)

    return _journaled(session, world, files, act, {})


def _end_for(unfinished: RunFiles, successor: str, reason: str | None, world: World) -> None:
    """Close an interrupted run whose place another takes. What it had changed is seen, not undone."""
    text = f"superseded by {successor}: {reason}"
    with closing(Journal(unfinished.journal, world.clock)) as journal:
        _seal(journal, unfinished, Result(ExitCode.UNKNOWN, text, run=unfinished.name).envelope("failover"))


def _journaled(
    session: Session,
    world: World,
    files: RunFiles,
    act: Callable[[Journal, StopRequest], RunResult[Seen[Broker]]],
    brings: Mapping[str, Json],
) -> Result:
    """Act with the run's journal open, then write its result and its report. From here on signals only ask."""
    with stoppable() as stop:
        journal = Journal(files.journal, world.clock)
        if world.lease is not None:
            world.lease.facts = lambda: (journal.last_hash, journal.count)
        try:
            ended = act(journal, stop)
            stop.over()
            if world.lease is not None:
                locking.note_left(world.lease, ended.seen)
            roles = ended.seen.roles
            answered = [site for site, role in roles.items() if role in (Role.SERVING, Role.STANDBY)]
            debts = owed(session.state(), ended.seen.debts, answered)
            data = {**_data(ended, files), **brings}
            result = Result(ended.code, ended.text, ended.findings, data, files.name, debts=debts)
            _seal(journal, files, result.envelope(session.command))
        except StopAtOnce as stopped:
            return _stopped_at_once(stopped, files)
        finally:
            journal.close()
    return _reported(result, files)


def _reported(result: Result, files: RunFiles) -> Result:
    from dr_ctl.report.html import write_report  # noqa: PLC0415 - not before the clients are served

    try:
        return replace(result, text=f"report: {write_report(files)}")
    except Exception as error:  # noqa: BLE001 - how the run ended is known and said, whatever goes wrong in drawing it
        text = f"the report could not be written: {type(error).__name__}: {error}"
        finding = Finding("DR-REPORT-001", Severity.WARNING, text, f"`dr-ctl runs report {files.name}` tries again.")
        return replace(result, findings=(*result.findings, finding))


def _data(ended: RunResult[Seen[Broker]], files: RunFiles) -> dict[str, Json]:
    data: dict[str, Json] = {
        "pairs": [pair.as_json() for pair in ended.seen.pairs],
        "outage_s": round(ended.outage_s, 3) if ended.outage_s is not None else None,
        "report": str(files.report),
    }
    if ended.bounds is not None:
        data["bounds"] = dict(ended.bounds)
    return data | {"undone": ended.undone} if ended.undone is not None else data


def _stopped_at_once(stopped: StopAtOnce, files: RunFiles) -> Result:
    text = f"stopped {stopped.why}: nothing was undone, clients may be locked out of both sites"
    remedy = "`dr-ctl status` says who is locked out; then `dr-ctl resume` or `dr-ctl abort`."
    finding = Finding("DR-RUN-002", Severity.ERROR, text, remedy)
    return Result(ExitCode(128 + stopped.signum), text, (finding,), {"undone": False}, files.name)


def _seal(journal: Journal, files: RunFiles, told: Mapping[str, Json]) -> None:
    """Write down how a run ended: in its journal, and in its result with what seals the journal."""
    journal.end(told)
    sealed: dict[str, Json] = {"last_hash": journal.last_hash, "count": journal.count}
    write(files.result, {**told, "journal": sealed})
