"""The topologies by the id in the settings, each with the module that opens it, which is loaded on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.registry import Registry
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.jolokia.client import Account, Reader, Wire
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.common import snapshot
from dr_ctl.topologies.proposing import PROPOSERS, Family, Probed

if TYPE_CHECKING:
    from dr_ctl.topologies.common.topology import PairTopology

    Topology = PairTopology[Any]
    Opens = Callable[[Installation, Timeouts, Path], Topology]

Snapshot = snapshot.Snapshot[Any]
"""A reading of both sites, which every topology makes; a broker that did not answer is part of it."""

TOPOLOGIES: Final[Registry[Opens]] = Registry(
    {
        "artemis-mirror": "dr_ctl.topologies.mirror.procedure:TOPOLOGY",
        "artemis-continuity": "dr_ctl.topologies.continuity.procedure:TOPOLOGY",
        "artemis-bridges": "dr_ctl.topologies.bridges.procedure:TOPOLOGY",
        "classic-brokersync": "dr_ctl.topologies.brokersync.procedure:TOPOLOGY",
        "classic-shared-store": "dr_ctl.topologies.sharedstore.procedure:TOPOLOGY",
        "classic-fanout": "dr_ctl.topologies.fanout.procedure:TOPOLOGY",
    },
    unknown="there is no topology",
)


_PROBES: Final[Mapping[Family, str]] = {
    Family.ARTEMIS: "dr_ctl.topologies.artemis.reading",
    Family.CLASSIC: "dr_ctl.topologies.classic.reading",
}


def opened(installation: Installation, timeouts: Timeouts, documents: Path) -> Topology:
    """Open the topology of an installation for one command, without asking a broker. `documents` is the folder for
    documents of brokers that cannot store any."""
    topology = TOPOLOGIES.named(installation.settings.topology)(installation, timeouts, documents)
    if not any(site.workloads for site in installation.settings.sites.values()):
        return topology
    from dr_ctl.topologies.workloads.topology import with_workloads  # noqa: PLC0415 - most have none

    return with_workloads(topology, installation, timeouts)


def probed(account: Account, *, timeout_s: float) -> Probed | None:
    """Find the broker at an address, of any family; return None if there is none. Raises `BrokerError`."""
    wire = Wire(account)
    with closing(wire):
        for family, module in _PROBES.items():
            signs = sorted({sign for row in PROPOSERS.values() if row.family is family for sign in row.signs})
            probe: Callable[..., Probed | None] = import_module(module).probe
            if (found := probe(Reader(wire), signs, timeout_s=timeout_s)) is not None:
                return found
    return None
