"""Since when nobody is served, a link is down, or nobody looks, and after how long without looks that is a finding: by
the runs' journals and by the history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from dr_ctl.application.missing_package import unread
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import stamp
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.entries import read
from dr_ctl.engine.history import fenced_at, history, outage_s
from dr_ctl.engine.operations import ACTIVATING, UNFENCE
from dr_ctl.engine.runs import Runs
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import LinkSnapshot, Snapshot

LATE_S: Final = 60.0
LATE_LOOKS: Final = 3
"""A monitor that lives looks several times within `history.every`."""
SO_MANY: Final = 10  # single steps that follow a fence


@dataclass(frozen=True, slots=True)
class Since:
    """`at` is the moment, None where it is not known; `text` says it in words."""

    at: str | None
    text: str


def unserved(installation: Installation, runs: Runs, *, sure: bool) -> Since:
    """Since when nobody is served. Not `sure` where a site may serve that did not say so."""
    try:
        from dr_ctl.rpo.history.newest import last_seen  # noqa: PLC0415 - what reads Parquet takes a tenth of a second
    except ModuleNotFoundError as error:
        unread(error)  # the newest look's finding names the package
        seen = []
    else:
        seen = [
            (at, site)
            for site in installation.settings.sites
            if (at := last_seen(installation.history, site, Role.SERVING)) is not None
        ]
    nobody = "nobody is served" if sure else "nobody was seen to be served"
    latest, site = max(seen, default=(None, ""))
    at, run = _closed_by(runs)
    if at is not None and (latest is None or latest <= at):
        return Since(stamp(at), f"{nobody} since {stamp(at)}: {run} keeps clients out")
    if latest is None:
        return Since(None, f"{nobody}; since when is not known")
    return Since(stamp(latest), f"{nobody}; {site} was last seen to serve at {stamp(latest)}")


def _closed_by(runs: Runs) -> tuple[datetime | None, str]:
    """When a run closed the only site that served, and its name, where no run has let anybody in since."""
    for files in islice(reversed(runs.all()), SO_MANY):
        try:
            entries = read(files.journal)
            past = history(entries)
        except (DrCtlError, OSError):
            break
        if (at := fenced_at(entries)) is not None:
            served = past.serving == (past.source,) and outage_s(entries) is None
            return (at, files.name) if served else (None, "")
        if {ACTIVATING, UNFENCE} & {each.step.verb for each in past.steps}:
            break
    return None, ""


class LastLook(NamedTuple):
    """When a monitor looked last, at either site; None where none has ever looked. `silent`: a store did not answer
    that may have later looks, or a package is missing that reads them."""

    at: datetime | None
    silent: Sequence[Finding] = ()


def last_look(installation: Installation) -> LastLook:
    history = installation.history
    if history.folder is not None and not history.folder.exists():
        return LastLook(None)
    try:
        from dr_ctl.rpo.history.newest import newest_look  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        return LastLook(None, [unread(error)])
    return LastLook(*newest_look(history, installation.settings.sites))


def unwatched(installation: Installation, looked: LastLook, now: datetime) -> Iterator[Finding]:
    """That no monitor looks any more, or that nobody can tell; nothing while one lives, or where none has ever
    looked."""
    late_s = max(LATE_S, LATE_LOOKS * installation.settings.history.every)
    if looked.at is not None and (now - looked.at).total_seconds() <= late_s:
        return
    yield from looked.silent
    if looked.at is None or looked.silent:
        return
    text = f"no monitor has looked since {stamp(looked.at)}: what a failover would cost is known less and less"
    yield found("DR-MON-002", text, "Start `dr-ctl monitor` again, on a machine that reaches both sites.")


def links(installation: Installation, seen: Snapshot, shown: Sequence[LinkSnapshot]) -> dict[tuple[str, str], Since]:
    """Since when each link is down that is not attached, or why it is not to be attached."""
    down = [link for link in shown if link.attached is False]
    if not down:
        return {}
    try:
        from dr_ctl.rpo.history.newest import link_lost  # noqa: PLC0415
    except ModuleNotFoundError as error:
        unread(error)
        lost = {}
    else:
        lost = {(each.site, each.pair): link_lost(installation.history, each.site, each.pair) for each in down}
    kept = {debt.about: debt.kept_at for debt in seen.debts if debt.kind is DebtKind.QUARANTINE}
    kept = {site: by for site, by in kept.items() if seen.roles.get(site) is Role.STANDBY}
    return {
        (each.site, each.pair): _of(lost.get((each.site, each.pair)), each.site, kept.get(each.site)) for each in down
    }


def _of(at: datetime | None, site: str, kept_by: str | None) -> Since:
    moment = None if at is None else stamp(at)
    if kept_by is not None:
        return Since(
            moment,
            f"{kept_by} keeps it out on purpose until `dr-ctl reinstate {site}`; it grows by echoes of what {kept_by} "
            "does, which is harmless",
        )
    return Since(
        moment,
        f"the link is down: {'not known since when' if at is None else f'last seen attached at {if_known(moment)}'}",
    )
