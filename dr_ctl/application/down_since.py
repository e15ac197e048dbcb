"""Since when nobody is served, a link is down, or nobody looks, and after how long without looks that is a finding: by
the open run's journal and by the history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from dr_ctl.application.findings import NO_MONITOR
from dr_ctl.application.unread import unread
from dr_ctl.application.ways_out import Interrupted
from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding, Role
from dr_ctl.core.printable import if_known
from dr_ctl.engine.debts import DebtKind
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import LinkSeen, Seen

LATE_S: Final = 60.0
LATE_LOOKS: Final = 3
"""A monitor that lives looks several times within `history.every`."""


@dataclass(frozen=True, slots=True)
class Since:
    """`at` is the moment, None where it is not known; `text` says it in words."""

    at: str | None
    text: str


def unserved(installation: Installation, interrupted: Interrupted | None, *, sure: bool) -> Since:
    """Since when nobody is served. Not `sure` where a site may serve that did not say so."""
    if interrupted is not None and interrupted.out_since is not None:
        begun = interrupted.out_since
        return Since(begun, f"nobody is served since {begun}: {interrupted.run.files.name} keeps clients out")
    try:
        from dr_ctl.rpo.history.last_seen import last_seen  # noqa: PLC0415 - what reads Parquet takes a tenth of a second
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
    if not seen:
        return Since(None, f"{nobody}; since when is not known")
    latest, site = max(seen)
    return Since(stamp(latest), f"{nobody}; {site} was last seen to serve at {stamp(latest)}")


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
        from dr_ctl.rpo.history.last_seen import newest_look  # noqa: PLC0415 - as above
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
    yield NO_MONITOR(text, "Start `dr-ctl monitor` again, on a machine that reaches both sites.")


def links(installation: Installation, seen: Seen, shown: Sequence[LinkSeen]) -> dict[tuple[str, str], Since]:
    """Since when each link is down that is not attached, or why it is not to be attached."""
    down = [link for link in shown if link.attached is False]
    if not down:
        return {}
    try:
        from dr_ctl.rpo.history.last_seen import link_lost  # noqa: PLC0415
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
