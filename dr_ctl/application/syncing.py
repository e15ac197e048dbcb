"""The agent of a Classic standby as a command, and the words by which a person holds it and lets it go on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from dr_ctl.agents.exposing import Board, Metric, Shown, exposing
from dr_ctl.agents.sync import Phase, Standing, SyncAgent
from dr_ctl.application.caller import Caller
from dr_ctl.application.findings import NO_SITE_TO_WORK_FOR
from dr_ctl.application.opened import Opened
from dr_ctl.application.result import Result
from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import ExitCode, Json, Role
from dr_ctl.engine.notes import Notes
from dr_ctl.engine.runs import Runs
from dr_ctl.topologies.topology import Kept, keeper_of

LINE_EVERY_S: Final = 5.0
BY_OPERATOR: Final = "an operator"
FIGURES: Final = (
    ("deleted_total", "copies deleted at the waiting site", "deleted"),
    ("absent_total", "copies of consumed messages that lie at neither site", "absent"),
    ("waiting", "copies that are to be deleted", "waiting"),
    ("unconfirmed", "messages announced as consumed and not confirmed yet", "unconfirmed"),
    ("vanished", "messages that left otherwise than by a client", "vanished"),
)


def sync(caller: Caller, lasting_s: float | None, *, metrics: str | None) -> Result:
    """Keep the waiting site clean until the serving one serves no more, the time is over, or a signal ends it."""
    notes, clock = Notes(caller.state()), caller.clock
    runs = caller.runs()
    with Opened.of(caller) as opened, notes.only_agent(), exposing(metrics) as board:
        roles = opened.topology.look().roles
        serving = [site for site, role in roles.items() if role is Role.SERVING]
        if len(serving) != 1:
            keeper_of(opened.topology, next(iter(roles)), {}).close()  # which needs none says so
            summary = ", ".join(f"{site} is {role.value}" for site, role in roles.items())
            return _refused(f"which site serves cannot be told: {summary}")
        primary, standby = serving[0], opened.other(serving[0])
        with closing(keeper_of(opened.topology, primary, _remembered(notes, runs, primary))) as keeper:
            agent = SyncAgent(keeper, runs, notes, clock, {"primary": primary, "standby": standby})
            until = clock.monotonic() + lasting_s if lasting_s is not None else None
            try:
                standing = _followed(caller, agent, board, until)
            except Stopped as error:
                standing = agent.end(str(error))
    return _ended(standing)


def hold(caller: Caller, reason: str) -> Result:
    """Keep the agent from deleting, whether it runs now or later."""
    notes = Notes(_own(caller))
    notes.put_hold(BY_OPERATOR, reason, caller.clock.now())
    text = "the agent deletes nothing until `dr-ctl sync --go-on`; wait for `held` in sync.json before you purge"
    return Result(ExitCode.OK, text, data={"standing": str(notes.standing)})


def go_on(caller: Caller) -> Result:
    """Let the agent delete again; messages that vanished meanwhile count as consumed."""
    notes = Notes(_own(caller))
    was = notes.hold()
    notes.go_on(caller.clock.now())
    before = f"it was held by {was.text}; " if was is not None else "nothing held it; "
    return Result(
        ExitCode.OK, f"{before}what left the serving site meanwhile counts as consumed, its copies are deleted"
    )


def _remembered(notes: Notes, runs: Runs, primary: str) -> Mapping[str, Json]:
    """The last agent's knowledge, if that site has served ever since. A run in between makes the knowledge worthless:
    copies may have been deleted."""
    last = notes.read()
    if last.get("primary") != primary:
        return {}
    at = notes.standing.stat().st_mtime
    moved = any(run.result.exists() and run.result.stat().st_mtime > at for run in runs.all())
    memory: Mapping[str, Json] = {} if moved else last.get("remembers", {})
    return memory


def _own(caller: Caller) -> Path:
    caller.runs().own()
    return caller.state()


def _followed(caller: Caller, agent: SyncAgent, board: Board, until: float | None) -> Standing:
    clock = caller.clock
    before: tuple[Phase, str] | None = None
    line_at = clock.monotonic()
    while True:
        standing = agent.step()
        board.shown = _shown(standing)
        if (standing.phase, standing.why) != before or clock.monotonic() >= line_at:
            caller.line(agent.document(standing), standing.line)
            before, line_at = (standing.phase, standing.why), clock.monotonic() + LINE_EVERY_S
        if standing.phase is Phase.FINISHED:
            return standing
        if until is not None and clock.monotonic() >= until:
            return agent.end("the time is over")


def _ended(standing: Standing) -> Result:
    kept = standing.kept
    deleted, left = _sum(kept, "deleted"), _sum(kept, "waiting") + _sum(kept, "unconfirmed")
    text = f"{standing.why}; {deleted} copies deleted, {left} announced and not deleted"
    data: dict[str, Json] = {"deleted": deleted, "left": left, "queues": [each.as_json() for each in kept.queues]}
    return Result(ExitCode.OK, text, kept.findings, data)


def _refused(why: str) -> Result:
    remedy = "`dr-ctl status` says more; start the agent once one site serves."
    return Result(ExitCode.PRECHECK_FAILED, why, [NO_SITE_TO_WORK_FOR(why, remedy)])


def _sum(kept: Kept, what: str) -> int:
    return sum(int(getattr(each, what)) for each in kept.queues)


def _shown(standing: Standing) -> Shown:
    kept = standing.kept
    well = standing.phase is Phase.RUNNING and not kept.silent
    figures = [
        Metric("dr_ctl_sync_held", "1 while nothing may be deleted", int(standing.phase is Phase.HELD)),
        Metric("dr_ctl_sync_silent", "sites that could not be asked", len(kept.silent)),
    ]
    for name, help_, attribute in FIGURES:
        for each in kept.queues:
            labels = (("pair", each.pair), ("queue", each.name))
            figures.append(Metric(f"dr_ctl_sync_{name}", help_, int(getattr(each, attribute)), labels))
    health: dict[str, Json] = {"phase": standing.phase.value, "why": standing.why or None, "silent": dict(kept.silent)}
    return Shown(well, health, figures)
