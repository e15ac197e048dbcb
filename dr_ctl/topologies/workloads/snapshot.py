"""A look at both sites, with their workloads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.lease import Look
from dr_ctl.engine.ports import Hints, UnitSnapshot
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.topology import BrokerSnapshot, FenceStrength, LinkSnapshot, Snapshot, Stake, WorkloadSnapshot
from dr_ctl.topologies.workloads import checks

S = TypeVar("S", bound=Snapshot)


@dataclass(frozen=True, slots=True)
class SnapshotWithWorkloads(Generic[S]):
    """Implements `Snapshot`: the topology's look, unchanged, and the look at the workloads."""

    bare: S
    workloads: Sequence[WorkloadSnapshot]

    def at(self, site: str) -> Iterator[WorkloadSnapshot]:
        return (each for each in self.workloads if each.site == site)

    @property
    def roles(self) -> Mapping[str, Role]:
        return self.bare.roles

    @property
    def units(self) -> Sequence[UnitSnapshot]:
        return self.bare.units

    @property
    def debts(self) -> Sequence[Debt]:
        return self.bare.debts

    @property
    def hints(self) -> Mapping[str, Hints]:
        return self.bare.hints

    @property
    def brokers(self) -> Sequence[BrokerSnapshot]:
        return self.bare.brokers

    @property
    def locks(self) -> Sequence[Look]:
        return self.bare.locks

    def links(self) -> Sequence[LinkSnapshot]:
        return self.bare.links()

    def rows(self, at: datetime) -> Sequence[Row]:
        return self.bare.rows(at)

    def differing(self) -> Collection[str]:
        return self.bare.differing()

    def stake(self, site: str) -> Sequence[Stake]:
        return self.bare.stake(site)

    def residue(self, site: str) -> Mapping[str, Json]:
        return self.bare.residue(site)

    def findings(self) -> Sequence[Finding]:
        return [*checks.as_they_are(self.roles, self.workloads), *self.bare.findings()]

    def fence_strength(self, site: str) -> FenceStrength | None:
        return self.bare.fence_strength(site)

    def as_if_lost(self, site: str) -> SnapshotWithWorkloads[Snapshot]:
        """The lost site's workloads are gone with their hosts."""
        return SnapshotWithWorkloads(self.bare.as_if_lost(site), [each for each in self.workloads if each.site != site])
