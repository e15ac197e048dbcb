"""Two looks at both sites, begun before what tells of them is loaded: the time between them is waited for anyway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dr_ctl.core.system import Work, beside
from dr_ctl.topologies import registry
from dr_ctl.topologies.topology import Snapshot, Topology

if TYPE_CHECKING:
    from dr_ctl.application.caller import Caller
    from dr_ctl.settings.model import Installation


@dataclass(frozen=True, slots=True)
class Looking:
    """An installation that is looked at, twice, so that rates are known; `snapshot` is there when both have
    answered."""

    installation: Installation
    topology: Topology[Any]
    snapshot: Work[Snapshot]


@contextmanager
def looking(caller: Caller) -> Iterator[Looking]:
    """Begin to look. The topology is closed after the block, which also ends a look that still runs."""
    installation = caller.installation()
    topology = registry.opened(installation, caller.clock, caller.timeouts, caller.runs().documents)
    snapshot = beside(lambda: topology.look(over_s=caller.timeouts.rates_s), "both looks")
    try:
        with closing(topology):
            yield Looking(installation, topology, snapshot)
    finally:
        snapshot.wait()
