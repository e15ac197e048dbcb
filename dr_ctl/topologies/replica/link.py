"""The replication plugin of one broker: the events that its replica lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dr_ctl.core.model import Json
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.link import Link
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Acceptor
from dr_ctl.topologies.replica import beans
from dr_ctl.topologies.topology import LinkSeen, Stake, drain_s

if TYPE_CHECKING:
    from dr_ctl.topologies.replica.view import BrokerView


class ReplicaLink(Link["BrokerView"]):
    @property
    def attached(self) -> bool | None:
        """Say whether its replica fetches; a replica does not tell whether it is connected."""
        view = self.view
        return view.main.consumers > 0 if view.is_source and view.main is not None else None

    @property
    def to_ship(self) -> int | None:
        """A replica ships nothing, whatever an earlier part has left in its queues."""
        return 0 if self.view.is_replica else self.view.backlog

    @property
    def unapplied(self) -> int | None:
        """A replica does at once what it fetches."""
        return 0

    def unsettled(self) -> Iterator[str]:
        view = self.view
        if view.plugin is None:
            yield f"{view.site}: its replication plugin does not answer"
        elif view.is_source:
            if not self.attached:
                yield f"{view.site}: no replica fetches from it"
            if self.to_ship != 0:
                yield f"{view.site}: {self.to_ship} event(s) that the replica lacks"

    @property
    def ships(self) -> Mapping[str, bool]:
        """A plugin cannot be stopped: the source always writes down events for its replica."""
        return {beans.DOOR: True} if self.view.plugin is not None else {}

    @property
    def settable(self) -> Mapping[str, Json]:
        return {"part": self.view.plugin.part if self.view.plugin is not None else None}

    @property
    def doors(self) -> tuple[Acceptor, ...]:
        """Always empty: a replica fetches its events itself, so no door has to be closed."""
        return ()

    @property
    def reserved(self) -> Collection[str]:
        return {beans.DOOR}

    @property
    def hears_peer(self) -> bool:
        """By the peer's plugin at its door, too."""
        view = self.view
        return bool(self.attached) or any(each.protocol == beans.DOOR for each in (*view.connections, *view.bridges))

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        view = self.view
        rate = self._rate(before, took_s)
        figures: dict[str, Json] = {}
        if view.plugin is not None:
            figures = {"part": view.plugin.part, "lag_ms": view.plugin.lag_ms, "wait_ms": view.plugin.wait_ms}
        return LinkSeen(
            view.site, view.pair, beans.DOOR, view.is_source if view.plugin is not None else None, self.attached,
            self.to_ship, self.unapplied, rate, (self._line(drain_s(self.to_ship, rate)),), figures,
        )  # fmt: skip

    def _line(self, even_s: float | None) -> str:
        view = self.view
        if view.plugin is None:
            return "its replication plugin does not answer: nothing is known of what the other site has"
        lag_ms = view.plugin.lag_ms
        lag = f", {duration(lag_ms / 1000)} behind" if lag_ms else ""
        if view.is_replica:
            return f"replica{lag}"
        state = "a replica fetches" if self.attached else "no replica fetches"
        left = f", {duration(even_s)} to drain" if even_s is not None else ""
        return f"{view.plugin.part}: {state}; {self.to_ship} event(s) to ship{lag}{left}"

    def _rate(self, before: BrokerView | None, took_s: float) -> float | None:
        now, was = self.view.main, before.main if before is not None and before.start == self.view.start else None
        return (now.removed - was.removed) / took_s if now is not None and was is not None else None

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """A single stream carries messages and acknowledgements of all queues."""
        del peer
        view = self.view
        if view.is_source and view.main is not None and self.to_ship is not None:
            row = view.main.row(view, at)
            yield replace(row, kind="mixed", name="*", depth=self.to_ship, pending=0, link=self.attached)

    def stake(self, peer: BrokerView | None) -> Stake:
        """The events are messages and acknowledgements, and do not say of which queue."""
        del peer
        return Stake(self.to_ship, self.to_ship, None)

    @property
    def residue(self) -> Residue | None:
        """Which of it are messages, and which were only consumed there, is known by ids, as the return does."""
        return Residue(self.to_ship, 0) if self.to_ship is not None else None
