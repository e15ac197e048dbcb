"""A failover's findings on the lost site beyond its role, and the remedies that help now."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dr_ctl.application.findings import SICK_LATELY
from dr_ctl.application.opened import Opened
from dr_ctl.core.clock import stamp
from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine.findings import SOURCE_ALIVE, SOURCE_SILENT
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import Ask, Decision, Plan, Refusal
from dr_ctl.engine.runs import Runs
from dr_ctl.topologies.topology import Seen, keeps_one_store

LATELY: Final = timedelta(minutes=10)


def as_things_stand(decided: Decision, ask: Ask, seen: Seen, opened: Opened, *, under_way: bool = False) -> Decision:
    """The decision with what the history tells of the lost site. `under_way`: an open failover is judged again, and has
    to be ended first.

    A site that is silent and was sick lately is refused as a sick one. A person's word still counts: a host that was
    switched off is as silent as a process that froze for good, and waiting would only keep the service down."""
    left = opened.other(ask.target)
    silent = seen.roles[left] is Role.UNKNOWN
    if isinstance(decided, Plan) and silent and (at := _lately_sick(left, opened)) is not None:
        text = f"{left} was sick, and so alive, at {stamp(at)}: that it serves nobody now rests on your word alone"
        remedy = "Go on only where its process was ended, or its host cut off, since then."
        finding = SICK_LATELY(text, remedy)
        return replace(decided, findings=(finding, *decided.findings))
    if not isinstance(decided, Refusal):
        return decided
    away = [link.site for link in seen.links() if link.attached is False]
    is_whole = all(each.silent is None for each in seen.brokers if each.site == left)
    first, *others = decided.findings
    if under_way and first.id == SOURCE_ALIVE.id:
        return decided
    if first.id == SOURCE_ALIVE.id and seen.roles[left] is Role.SERVING and is_whole and away:
        remedy = (
            f"Leave {left} as it is, its clients are served. Nothing can be moved without loss before the link is "
            f"back. {opened.mending(away[0])}"
        )
        first = replace(first, remedy=remedy)
    if first.id == SOURCE_ALIVE.id and seen.roles[left] is Role.SICK and keeps_one_store(seen):
        remedy = (
            f"End that process for certain, or cut its host off: {ask.target} then takes the store that both share by "
            "itself, and no failover is needed. All that is stored is kept; what clients hold may come twice."
        )
        first = replace(first, remedy=remedy)
    if first.id == SOURCE_SILENT.id and (at := _lately_sick(left, opened)) is not None:
        remedy = f"End that process for certain, or cut its host off; only then: {first.remedy}"
        first = replace(first, text=f"{first.text}; it was sick, and so alive, at {stamp(at)}", remedy=remedy)
        decided = replace(decided, code=ExitCode.SERVING_SITE_ALIVE)
    return replace(decided, findings=(first, *others))


def taken_over(ask: Ask, seen: Seen, opened: Opened, runs: Runs) -> str | None:
    """Since when the target serves a store that it took by itself, for a person who finds that so; None where a run of
    this STATE moved the service since, or the history does not tell."""
    left = opened.other(ask.target)
    if ask.operation != FAILOVER or not keeps_one_store(seen) or seen.roles[left] is Role.SERVING:
        return None
    from dr_ctl.rpo.history.last_seen import last_seen  # noqa: PLC0415 - as below

    at = last_seen(opened.installation.history, left, Role.SERVING)
    ended = [each.result.stat().st_mtime for each in runs.all() if each.result.exists()]
    if at is None or any(moment >= at.timestamp() for moment in ended):
        return None
    return f"{ask.target} serves already: it took the store by itself, at about {stamp(at)} or soon after"


def _lately_sick(site: str, opened: Opened) -> datetime | None:
    """The latest time in the history when the silent site was sick, and so alive; None if that is long ago."""
    from dr_ctl.rpo.history.last_seen import last_seen  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

    at = last_seen(opened.installation.history, site, Role.SICK)
    return at if at is not None and opened.clock.now() - at < LATELY else None
