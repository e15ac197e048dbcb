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
    ("absent_total", "copies of consumed messages that lie at neither site", "absent"),
    ("waiting", "copies that are to be deleted", "waiting"),
    ("unconfirmed", "messages announced as consumed and not confirmed yet", "unconfirmed"),
    ("vanished", "messages that left otherwise than by a client", "vanished"),
    ("unproven", "copies of which nothing proves that they were consumed", "unproven"),
    ("unheard", "messages that left and were not announced", "unheard"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleData(OperationData):
    """Data of `sync --settle` and of the agent's end; `sync --hold` has `standing`."""

    queues: Sequence[Any] | None = optional(shape=list[dict[str, Any]])
    deleted: int | None = optional()
    left: Any = optional()
    standing: Path | None = optional()


def sync(caller: Caller, lasting_s: float | None, *, metrics: str | None) -> Result:
    """Keep the standby clean until the serving site no longer serves, the time is over, or a signal ends it."""
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
        with closing(opened.topology.cleaner(primary, _remembered(notes, runs, primary))) as cleaner:
            agent = SyncAgent(cleaner, runs, notes, {"primary": primary, "standby": standby})
            until = system().monotonic() + lasting_s if lasting_s is not None else None
            try:
                standing = _followed(caller, agent, board if metrics is not None else None, until)
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
    """Keep the agent from deleting, whether it runs now or later."""
    notes = _notes(caller)
    notes.put_hold(Hold("an operator", reason, stamp(system().now())))
    text = "the agent deletes nothing until `dr-ctl sync --go-on`; wait for `held` in sync.json before you purge"
    return Result(ExitCode.OK, text, data=SettleData(standing=notes.standing))


def go_on(caller: Caller) -> Result:
    """Let the agent delete again; messages that vanished meanwhile count as consumed."""
    notes = _notes(caller)
    was = notes.hold()
    notes.go_on(system().now())
    before = f"it was held by {was.text}; " if was is not None else "nothing held it; "
    return Result(
        ExitCode.OK, f"{before}what left the serving site meanwhile counts as consumed, its copies are deleted"
    )


def settle(caller: Caller, asked: Spec, how: RunOptions) -> Result:
    """Keep aside the standby's copies that nothing proves, or put them back. A dry run lists their ids."""
    if not (how.dry_run and asked.operation == KEEP_ASIDE):
        return run.run(caller, asked, how)
    with OpenInstallation.of(caller) as opened:
        waiting = opened.other(asked.target)
        snapshot = opened.topology.read()
        if (snapshot.roles[asked.target], snapshot.roles[waiting]) != (Role.SERVING, Role.STANDBY):
            return Result.of(ExitCode.PRECHECK_FAILED, found("DR-AGENT-004.settle", roles=roles_text(snapshot)))
        unproven = opened.topology.unproven(waiting, asked.queues)
    texts = [copies.why_not or f"{len(copies.ids)} of {copies.name}, the first {copies.ids[0]}" for copies in unproven]
    text = f"{waiting}: nothing proves that these copies were consumed: {brief(texts)}" if texts else ""
    return Result(ExitCode.OK, text or f"{waiting} has no copies that nothing proves", data=SettleData(queues=unproven))


def _remembered(notes: Notes, runs: Runs, primary: str) -> Mapping[str, Json]:
    """Return the memory of the last agent for that site. A run since then, which cuts clients off, makes vanished
    messages count anew."""
    last = notes.read()
    if last.get("primary") != primary:
        return {}
    at = notes.standing.stat().st_mtime
    moved = any(run.result.exists() and run.result.stat().st_mtime > at for run in runs.all())
    memory: Mapping[str, dict[str, Json]] = last.get("remembers", {})
    return {pair: {**known, "known": {}} if moved else known for pair, known in memory.items()}


def _notes(caller: Caller) -> Notes:
    caller.runs().own()
    return Notes(caller.state())


def _followed(caller: Caller, agent: SyncAgent, board: Board | None, until: float | None) -> SyncStatus:
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
    """Make a refused login a usage error: a service that starts the agent again would lock the account out."""
    return Result.of(ExitCode.USAGE, found("DR-AGENT-009", remedy=error.remedy, why=error))


def _shown(standing: SyncStatus) -> ServedState:
    kept = standing.kept
    well = standing.phase is Phase.RUNNING and not kept.silent
    figures = [
        Metric("dr_ctl_sync_held", "1 while nothing may be deleted", int(standing.phase is Phase.HELD)),
        Metric("dr_ctl_sync_silent", "sites that could not be asked", len(kept.silent)),
    ]
    for name, help_, attribute in FIGURES:
        for queue in kept.queues:
            labels = (("pair", queue.pair), ("queue", queue.name))
            figures.append(Metric(f"dr_ctl_sync_{name}", help_, int(getattr(queue, attribute)), labels))
    health: dict[str, Json] = {"phase": standing.phase.value, "why": standing.why or None, "silent": dict(kept.silent)}
    return ServedState(well, health, figures)
