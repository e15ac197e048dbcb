"""The kinds of twins, by topology."""

from typing import Final

from dr_ctl.core.registry import Registry
from dr_ctl_lab.twin.kind import Kind

MIRROR: Final = "artemis-mirror"
CONTINUITY: Final = "artemis-continuity"
BRIDGES: Final = "artemis-bridges"
BROKERSYNC: Final = "classic-brokersync"
SHARED_STORE: Final = "classic-shared-store"
FANOUT: Final = "classic-fanout"

KINDS: Final[Registry[Kind]] = Registry(
    {
        MIRROR: "dr_ctl_lab.twin.mirror.kind:KIND",
        CONTINUITY: "dr_ctl_lab.twin.continuity.kind:KIND",
        BRIDGES: "dr_ctl_lab.twin.bridges.kind:KIND",
        BROKERSYNC: "dr_ctl_lab.twin.classic.brokersync.kind:KIND",
        SHARED_STORE: "dr_ctl_lab.twin.classic.sharedstore.kind:KIND",
        FANOUT: "dr_ctl_lab.twin.classic.fanout.kind:KIND",
    },
    unknown="no twin is made of",
)
