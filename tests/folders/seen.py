"""One look at two sites of folders, as commands take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.engine.debts import Debt
from dr_ctl.engine.lease import Look
from dr_ctl.engine.ports import UnitSeen
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.topology import BrokerSeen, FenceStrength, LinkSeen, Stake
from tests.folders.broker import Gone, View


@dataclass(frozen=True)
class FoldersSeen:
    """Each site has one broker; None where it does not live."""

    sites: Mapping[str, View | Gone]
    debts: Sequence[Debt]
    locks: Sequence[Look]
    pair: str

    @property
    def roles(self) -> Mapping[str, Role]:
        return {site: view.role if isinstance(view, View) else Role.DOWN for site, view in self.sites.items()}

    @property
    def units(self) -> Sequence[UnitSeen]:
        """Each queue has a door of its own, so that it can move by itself."""
        return [self._unit(name) for name in sorted({name for view in self._views() for name in view.queues})]

    def _unit(self, queue: str) -> UnitSeen:
        open_at = tuple(view.site for view in self._views() if view.doors.get(queue))
        closed_at = tuple(view.site for view in self._views() if not view.doors.get(queue))
        return UnitSeen(queue, open_at[0] if len(open_at) == 1 else None, open_at, closed_at)

    def _views(self) -> Sequence[View]:
        return [view for view in self.sites.values() if isinstance(view, View)]

    @property
    def brokers(self) -> Sequence[BrokerSeen]:
        return [
            BrokerSeen(site, self.pair, Role.DOWN, silent=view)
            if isinstance(view, Gone)
            else BrokerSeen(
                site,
                self.pair,
                view.role,
                doors=view.doors,
                depths={name: len(lines) for name, lines in view.queues.items()},
                paused=tuple(name for name, is_paused in view.paused.items() if is_paused),
                to_ship=len(view.outflow),
            )
            for site, view in self.sites.items()
        ]

    def view(self, site: str) -> View | None:
        view = self.sites[site]
        return view if isinstance(view, View) else None

    def links(self) -> Sequence[LinkSeen]:
        return [
            LinkSeen(
                view.site,
                self.pair,
                "folder",
                started=True,
                attached=None,
                outflow=len(view.outflow),
                unapplied=0,
                rate=None,
                lines=(f"{len(view.outflow)} to ship",),
            )
            for view in self._views()
        ]

    def rows(self, at: datetime) -> Sequence[Row]:
        del at
        return ()  # a folder counts nothing, so there is no history of it

    def stake(self, site: str) -> Sequence[Stake]:
        view = self.view(site)
        return [] if view is None else [Stake(len(view.outflow), 0, None)]

    def residue(self, site: str) -> Mapping[str, Json]:
        view = self.view(site)
        return {} if view is None else {"messages": len(view.outflow)}

    def findings(self) -> Sequence[Finding]:
        return ()

    def as_if_lost(self, site: str) -> FoldersSeen:
        return replace(self, sites={**self.sites, site: Gone(f"{site} is taken for lost")})

    def fence_strength(self, site: str) -> FenceStrength | None:
        return "lasting" if self.view(site) is not None else None
