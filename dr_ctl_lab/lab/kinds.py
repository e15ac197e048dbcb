"""The kinds of labs, by topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.core.registry import Registry

if TYPE_CHECKING:
    from dr_ctl_lab.lab.spec import Kind

MIRROR: Final = "artemis-mirror"
CONTINUITY: Final = "artemis-continuity"
BRIDGES: Final = "artemis-bridges"
BROKERSYNC: Final = "classic-brokersync"
SHARED_STORE: Final = "classic-shared-store"
FAN_OUT: Final = "classic-fanout"

KINDS: Final[Registry[Kind]] = Registry(
    {
        MIRROR: "dr_ctl_lab.lab.artemis.mirror:KIND",
        CONTINUITY: "dr_ctl_lab.lab.artemis.continuity:KIND",
        BRIDGES: "dr_ctl_lab.lab.artemis.bridges:KIND",
        BROKERSYNC: "dr_ctl_lab.lab.classic.brokersync:KIND",
        SHARED_STORE: "dr_ctl_lab.lab.classic.sharedstore:KIND",
        FAN_OUT: "dr_ctl_lab.lab.classic.fanout:KIND",
    },
    unknown="no lab is made of",
)
