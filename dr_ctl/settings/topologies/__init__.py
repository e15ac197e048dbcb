"""A settings class for each topology, loaded when a file names that topology."""

from typing import Final

from dr_ctl.core.registry import Registry
from dr_ctl.settings.model import Settings

TOPOLOGIES: Final[Registry[type[Settings]]] = Registry(
    "SETTINGS",
    {
        "artemis-mirror": "dr_ctl.settings.topologies.artemis_mirror",
        "artemis-continuity": "dr_ctl.settings.topologies.artemis_continuity",
        "artemis-bridges": "dr_ctl.settings.topologies.artemis_bridges",
        "classic-brokersync": "dr_ctl.settings.topologies.classic_brokersync",
        "classic-shared-store": "dr_ctl.settings.topologies.classic_shared_store",
        "classic-fanout": "dr_ctl.settings.topologies.classic_fanout",
    },
    unknown="there is no topology",
)
