"""The topologies there are: the id that the settings name, and the module that opens it, loaded only then."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.findings import FindingKind, kinds_in
from dr_ctl.core.patience import Patience
from dr_ctl.core.registry import Registry
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import Opens, Topology

TOPOLOGIES: Final[Registry[Opens]] = Registry(
    "open_",
    {
        "artemis-mirror": "dr_ctl.topologies.mirror.procedure",
        "artemis-continuity": "dr_ctl.topologies.continuity.procedure",
        "artemis-bridges": "dr_ctl.topologies.bridges.procedure",
        "classic-brokersync": "dr_ctl.topologies.brokersync.procedure",
        "classic-replica": "dr_ctl.topologies.replica.procedure",
        "classic-shared-store": "dr_ctl.topologies.sharedstore.procedure",
        "classic-fanout": "dr_ctl.topologies.fanout.procedure",
    },
    unknown="there is no topology",
)


# Packages that several topologies share, what goes around any of them, and the agent of one.
_SHARED: Final = ("common", "classic", "workloads", "brokersync.sync")


def finding_kinds() -> Mapping[str, FindingKind]:
    """The kinds of findings of all topologies, by id: every registered package has its own in the module `findings`."""
    own = {module.rpartition(".")[0] for module in TOPOLOGIES.modules.values()}
    packages = [*sorted(own), *(f"dr_ctl.topologies.{name}" for name in _SHARED)]
    return kinds_in(*(import_module(f"{each}.findings") for each in packages if find_spec(f"{each}.findings")))


def opened(installation: Installation, clock: Clock, patience: Patience, documents: Path) -> Topology[Any]:
    """The topology that an installation names, ready for one command; see `Opens`."""
    topology = TOPOLOGIES.named(installation.settings.topology)(installation, clock, patience, documents)
    if not any(site.workloads for site in installation.settings.sites.values()):
        return topology
    from dr_ctl.topologies.workloads.topology import TopologyWithWorkloads  # noqa: PLC0415 - most have none

    return TopologyWithWorkloads(topology, installation, patience)
