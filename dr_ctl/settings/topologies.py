"""A settings class for each topology, loaded when a file names a topology of its family of brokers."""

from typing import Final

from dr_ctl.core.registry import Registry
from dr_ctl.settings.model import Settings

TOPOLOGIES: Final[Registry[type[Settings]]] = Registry(
    {
        "artemis-mirror": "dr_ctl.settings.artemis:ArtemisMirror",
        "artemis-continuity": "dr_ctl.settings.artemis:ArtemisContinuity",
        "artemis-bridges": "dr_ctl.settings.artemis:ArtemisBridges",
        "classic-brokersync": "dr_ctl.settings.classic:ClassicBrokerSync",
        "classic-shared-store": "dr_ctl.settings.classic:ClassicSharedStore",
        "classic-fanout": "dr_ctl.settings.classic:ClassicFanout",
    },
    unknown="there is no topology",
)
