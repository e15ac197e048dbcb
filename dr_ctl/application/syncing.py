"""The agent of a Classic standby as a command, and the commands to hold the agent and let it go on."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dr_ctl.agents.exposing import Board, Metric, ServedState, exposing
from dr_ctl.agents.sync import Phase, SyncAgent, SyncStatus
from dr_ctl.application import run
from dr_ctl.application.caller import Caller
from dr_ctl.application.execution import OperationData
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.result import Result
from dr_ctl.core.document import document, optional
from dr_ctl.core.errors import LoginRefused, Stopped
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, Role, brief
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.debts import Hold, Notes
from dr_ctl.engine.operations import KEEP_ASIDE
from dr_ctl.engine.plan import RunOptions, Spec
from dr_ctl.engine.roles import roles_text, sites_serving
from dr_ctl.engine.runs import Runs

LINE_EVERY_S: Final = 5.0
FIGURES: Final = (
    ("deleted_total", "copies deleted at the standby", "deleted"),
    ("absent_total", "copies of consumed messages that are at neither site", "absent"),
    ("waiting", "copies that are to be deleted", "waiting"),
    ("unconfirmed", "messages announced as consumed and not confirmed yet", "unconfirmed"),
    ("vanished", "messages that left otherwise than by a client", "vanished"),
    ("unproven", "copies without evidence that they were consumed", "unproven"),
    ("unheard", "messages that left without an announcement", "unheard"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleData(OperationData):
    """Data of `sync --settle` and of the agent's end; `sync --hold` has `standing`."""

    queues: Sequence[Any] | None = optional(shape=list[dict[str, Any]])
    deleted: int | None = optional()
    left: Any = optional()
    standing: Path | None = optional()


def sync(caller: Caller, lasting_s: float | None, *, metrics: str | None) -> Result:
    """Delete consumed copies at the standby until the serving site stops serving, the time is over, or a signal."""
    notes = Notes(caller.state())
    runs = caller.runs()
    with OpenInstallation.of(caller) as opened, notes.only_agent(), exposing(metrics) as board:
        snapshot = opened.topology.read()
        serving = sites_serving(snapshot)
        if len(serving) != 1:
            opened.topology.cleaner(next(iter(snapshot.roles)), {}).close()  # raises for a topology without an agent
            refused = (broker.silent for broker in snapshot.brokers if isinstance(broker.silent, LoginRefused))
            if (error := next(refused, None)) is not None:
                return _not_let_in(error)
            return Result.of(ExitCode.PRECHECK_FAILED, found("DR-AGENT-004", roles=roles_text(snapshot)))
        primary, standby = serving[0], opened.other(serving[0])
        with closing(opened.topology.cleaner(primary, _last_memory(notes, runs, primary))) as cleaner:
            agent = SyncAgent(cleaner, runs, notes, {"primary": primary, "standby": standby})
            until = system().monotonic() + lasting_s if lasting_s is not None else None
            try:
                standing = _follow(caller, agent, board if metrics is not None else None, until)
            except Stopped as error:
                standing = agent.end(str(error))
            except LoginRefused as error:
                agent.end(str(error))
                return _not_let_in(error)
    kept = standing.kept
    deleted = sum(queue.deleted for queue in kept.queues)
    left = sum(queue.waiting + queue.unconfirmed for queue in kept.queues)
    text = f"{standing.why}; {deleted} copies deleted, {left} announced and not deleted"
    return Result(ExitCode.OK, text, kept.findings, SettleData(deleted=deleted, left=left, queues=kept.queues))


def hold(caller: Caller, reason: str) -> Result:
    """Keep the agent from deleting, now and after a restart."""
    notes = _notes(caller)
    notes.put_hold(Hold("an operator", reason, stamp(system().now())))
    text = "the agent deletes nothing until `dr-ctl sync --go-on`; wait for `held` in sync.json before you purge"
    return Result(ExitCode.OK, text, data=SettleData(standing=notes.standing))


def go_on(caller: Caller) -> Result:
    """Let the agent delete again; messages that vanished meanwhile count as consumed."""
    notes = _notes(caller)
    ended = notes.hold()
    notes.go_on(system().now())
    before = f"it was held by {ended.text}; " if ended is not None else "nothing held it; "
    text = "messages that left the serving site meanwhile count as consumed, and their copies are deleted"
    return Result(ExitCode.OK, f"{before}{text}")


def settle(caller: Caller, asked: Spec, how: RunOptions) -> Result:
    """Keep aside the standby's copies without evidence, or put them back. A dry run lists their ids."""
    if not (how.dry_run and asked.operation == KEEP_ASIDE):
        return run.run(caller, asked, how)
    with OpenInstallation.of(caller) as opened:
        standby = opened.other(asked.target)
        snapshot = opened.topology.read()
        if (snapshot.roles[asked.target], snapshot.roles[standby]) != (Role.SERVING, Role.STANDBY):
            return Result.of(ExitCode.PRECHECK_FAILED, found("DR-AGENT-004.settle", roles=roles_text(snapshot)))
        unproven = opened.topology.unproven(standby, asked.queues)
    texts = [copies.why_not or f"{len(copies.ids)} of {copies.name}, the first {copies.ids[0]}" for copies in unproven]
    text = f"{standby}: copies without evidence that they were consumed: {brief(texts)}" if texts else ""
    return Result(ExitCode.OK, text or f"{standby} has no copies without evidence", data=SettleData(queues=unproven))


def _last_memory(notes: Notes, runs: Runs, primary: str) -> Mapping[str, Json]:
    """Return the data that the last agent of that site left. After a run since then, which disconnects clients, the
    count of vanished messages begins again."""
    last = notes.read()
    if last.get("primary") != primary:
        return {}
    at = notes.standing.stat().st_mtime
    has_run = any(run.result.exists() and run.result.stat().st_mtime > at for run in runs.all())
    memory: Mapping[str, dict[str, Json]] = last.get("remembers", {})
    return {pair: {**known, "known": {}} if has_run else known for pair, known in memory.items()}


def _notes(caller: Caller) -> Notes:
    caller.runs().record_owner()
    return Notes(caller.state())


def _follow(caller: Caller, agent: SyncAgent, board: Board | None, until: float | None) -> SyncStatus:
    before = None
    line_at = system().monotonic()
    while True:
        standing = agent.step()
        if board is not None:
            board.shown = _shown(standing)
        if (standing.phase, standing.why) != before or system().monotonic() >= line_at:
            caller.line(document(standing), standing.line)
            before, line_at = (standing.phase, standing.why), system().monotonic() + LINE_EVERY_S
        if standing.phase is Phase.FINISHED:
            return standing
        if until is not None and system().monotonic() >= until:
            return agent.end("the time is over")


def _not_let_in(error: LoginRefused) -> Result:
    """Make a refused login a usage error, so that a service does not start the agent again and lock the account out."""
    return Result.of(ExitCode.USAGE, found("DR-AGENT-009", remedy=error.remedy, why=error))


def _shown(standing: SyncStatus) -> ServedState:
    kept = standing.kept
    is_healthy = standing.phase is Phase.RUNNING and not kept.silent
    figures = [
        Metric("dr_ctl_sync_held", "1 while nothing may be deleted", int(standing.phase is Phase.HELD)),
        Metric("dr_ctl_sync_silent", "sites that could not be asked", len(kept.silent)),
    ]
    for name, help_, attribute in FIGURES:
        for queue in kept.queues:
            labels = (("pair", queue.pair), ("queue", queue.name))
            figures.append(Metric(f"dr_ctl_sync_{name}", help_, int(getattr(queue, attribute)), labels))
    health: dict[str, Json] = {"phase": standing.phase.value, "why": standing.why or None, "silent": dict(kept.silent)}
    return ServedState(is_healthy, health, figures)
