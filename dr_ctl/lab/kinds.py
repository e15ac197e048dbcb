"""The kinds of labs there are, by the topology that joins their sites: what of a broker each makes differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dr_ctl.core.errors import UsageError
from dr_ctl.lab import brokers, continuity, distribution
from dr_ctl.lab.admin import Admin
from dr_ctl.lab.continuity import ContinuityAdmin
from dr_ctl.lab.state import MIRROR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dr_ctl.lab.distribution import Coordinates
    from dr_ctl.lab.state import SiteState

CONTINUITY = "artemis-continuity"
_ADMINS = {MIRROR: Admin, CONTINUITY: ContinuityAdmin}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the brokers of one topology are made. `jar` goes into the broker's own library folder."""

    distribution: Coordinates
    create_options: tuple[str, ...]
    profile: Callable[[str], str]
    configured: Callable[[str, brokers.Make], str]
    jar: Path | None = None


def of(topology: str, plugin: Path | None) -> Kind:
    """UsageError for a topology that no lab is made of; EnvironmentFault where what it needs is not there."""
    if topology == MIRROR:
        return Kind(distribution.ARTEMIS, ("--java-memory", "512M"), brokers.profile, brokers.configured)
    if topology == CONTINUITY:
        jar = continuity.find_jar(plugin)
        return Kind(continuity.ARTEMIS, (), continuity.profile, continuity.configured, jar)
    raise UsageError(f"no lab is made of {topology}", remedy=f"There are {' and '.join(_ADMINS)}.")


def admin(topology: str, site: SiteState, *, timeout_s: float = 5.0) -> Admin:
    """Management of one site's broker, as its topology wants it."""
    return _ADMINS[topology](site, timeout_s=timeout_s)
