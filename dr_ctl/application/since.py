"""Since when nobody is served, and since when a link is down: by the open run's journal and by the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dr_ctl.application.ways_out import Interrupted
from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Role
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import LinkSeen


@dataclass(frozen=True, slots=True)
class Since:
    """`at` is the moment, None where it is not known; `text` says it in words."""

    at: str | None
    text: str


def unserved(installation: Installation, interrupted: Interrupted | None) -> Since:
    """Since when nobody is served."""
    if interrupted is not None and interrupted.out_since is not None:
        begun = interrupted.out_since
        return Since(begun, f"nobody is served since {begun}: {interrupted.run.files.name} keeps clients out")
    from dr_ctl.rpo.history.since import last_seen  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

    history = installation.path(installation.settings.history.path)
    seen = [
        (at, site) for site in installation.settings.sites if (at := last_seen(history, site, Role.SERVING)) is not None
    ]
    if not seen:
        return Since(None, "nobody is served; since when is not known")
    latest, site = max(seen)
    return Since(stamp(latest), f"nobody is served; {site} was last seen to serve at {stamp(latest)}")


def links(installation: Installation, seen: Sequence[LinkSeen]) -> dict[tuple[str, str], Since]:
    """Since when each link is down that is not attached."""
    down = [link for link in seen if link.attached is False]
    if not down:
        return {}
    from dr_ctl.rpo.history.since import link_lost  # noqa: PLC0415

    history = installation.path(installation.settings.history.path)
    return {(each.site, each.pair): _of(link_lost(history, each.site, each.pair)) for each in down}


def _of(at: datetime | None) -> Since:
    if at is None:
        return Since(None, "not known since when")
    return Since(stamp(at), f"last seen attached at {stamp(at)}")
