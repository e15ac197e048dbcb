"""The topologies there are: the id that the settings name, and the module that opens it, loaded only then.

A new topology is one line here; its module offers `open_`, as `topologies.topology.Opens` says.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dr_ctl.core.clock import Clock
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import Topology

MODULES: dict[str, str] = {
    "artemis-mirror": "dr_ctl.topologies.mirror.topology",
    "artemis-continuity": "dr_ctl.topologies.continuity.topology",
}


def opened(installation: Installation, clock: Clock) -> Topology[Any]:
    """The topology that an installation names, ready for one command. No broker is asked yet."""
    module = import_module(MODULES[installation.settings.topology])
    topology: Topology[Any] = module.open_(installation, clock)
    return topology
