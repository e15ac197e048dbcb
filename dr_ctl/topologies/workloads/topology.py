"""Any topology, with the workloads of its installation around it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from dr_ctl.core.model import Json
from dr_ctl.core.patience import Patience
from dr_ctl.core.system import beside
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import Glance, Keeper, Seen, Topology, glance_of, keeper_of
from dr_ctl.topologies.workloads.driver import DriverWithWorkloads
from dr_ctl.topologies.workloads.recipe import RecipeWithWorkloads
from dr_ctl.topologies.workloads.seen import SeenWithWorkloads
from dr_ctl.topologies.workloads.sites import WorkloadSites

S = TypeVar("S", bound=Seen)


class TopologyWithWorkloads(Generic[S]):
    """Implements `Topology`."""

    def __init__(self, bare: Topology[S], installation: Installation, patience: Patience) -> None:
        self._bare, self._patience = bare, patience
        self._sites = WorkloadSites(installation, patience)
        self.recipe = RecipeWithWorkloads(bare.recipe, self._sites.told)

    def look(self, *, over_s: float = 0.0) -> SeenWithWorkloads[S]:
        """A bare look leaves the workloads out: the monitor makes several a second, and keeps nothing of them."""
        if not over_s:
            return SeenWithWorkloads(self._bare.look(), ())
        return self._beside(lambda: self._bare.look(over_s=over_s))

    def glance(self, *, whole: bool = False) -> Glance[SeenWithWorkloads[Seen]] | None:
        bare = glance_of(self._bare, whole=whole)
        return Glance(SeenWithWorkloads(bare.seen, ()), bare.ago_s, bare.took_s) if bare is not None else None

    def observe(self) -> SeenWithWorkloads[S]:
        return self._beside(self._bare.observe)

    def spend_at_most(self, seconds: float, site: str) -> None:
        self._bare.spend_at_most(seconds, site)
        self._sites.spend_at_most(seconds, site)

    def stores(self) -> Sequence[Store]:
        return self._bare.stores()

    def driver(self, lease: Lease | None = None) -> DriverWithWorkloads[S]:
        return DriverWithWorkloads(self._bare.driver(lease), self.recipe, self._sites, self._patience, lease)

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        return self._bare.why_not_so(site, serving=serving)

    def keeper(self, primary: str, remembered: Mapping[str, Json]) -> Keeper:
        return keeper_of(self._bare, primary, remembered)

    def close(self) -> None:
        self._bare.close()
        self._sites.close()

    def _beside(self, look: Callable[[], S]) -> SeenWithWorkloads[S]:
        """The brokers and the workloads are asked at the same time."""
        workloads = beside(self._sites.look, "workloads")
        try:
            seen = look()
        finally:
            workloads.wait()
        return SeenWithWorkloads(seen, workloads.result())
