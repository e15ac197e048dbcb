"""The store that two brokers share, and the replica of it where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.common.link import NoLink
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.topology import LinkSeen, Stake

if TYPE_CHECKING:
    from dr_ctl.topologies.sharedstore.view import BrokerView


class StoreLink(NoLink["BrokerView"]):
    @property
    def to_ship(self) -> int | None:
        """The messages that a replica has not got; zero without a replica, as the sites use one store."""
        view = self.view
        if not view.own.replicated:
            return 0
        return view.lag.messages if view.lag is not None else None

    def unsettled(self) -> Iterator[str]:
        view = self.view
        if view.lock is None:
            yield f"the lock was not read: {view.unread}"
        if view.own.replicated and view.lag is None:
            yield "how far the replica is was not read"
        elif view.lag is not None and view.lag.size:
            yield f"{view.lag.size} byte(s) to replicate, {view.lag.messages} message(s) among them"

    def holds(self, call: Call) -> bool | None:
        match call.goal:
            case Goal.HAND_OVER:
                return not self.view.has_the_store
            case Goal.START | Goal.STOP:
                return self.view.runs is (call.goal is Goal.START)
        return None

    def linked(self, before: BrokerView | None, took_s: float) -> LinkSeen:
        del before, took_s
        view = self.view
        name = view.lock.holder if view.lock is not None else None
        more = {
            "held": view.lock.held if view.lock is not None else None,
            "holder": name,
            "lease_s": view.lock.left_s if view.lock is not None else None,
            "process": view.runs,
        }
        return LinkSeen(
            view.site, view.pair, None, None, None, self.to_ship, self.unapplied, None, (self._line(),), more
        )

    def _line(self) -> str:
        view = self.view
        lock = view.lock.text if view.lock is not None else f"who holds the store was not read: {view.unread}"
        if view.answered:
            return lock if view.lock is None or view.lock.holder is not None else "holds the store"
        state = {
            True: "waits: its ports refuse, its process runs",
            False: "its process does not run",
            None: "its ports refuse, as those of a waiting broker do",
        }[view.runs]
        return f"{state}; {lock}"

    def rows(self, peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Rows of the holder: messages that clients have in delivery would come twice."""
        del peer
        view = self.view
        if not view.has_the_store or self.to_ship is None:
            return
        yield Row(
            ts=at, site=view.site, pair=view.pair, kind="mirror", name="*", start=view.start,
            depth=self.to_ship, delivering=0, added=0, removed=0, link=True,
        )  # fmt: skip
        for name, queue in view.business.items():
            if queue.counted:
                yield replace(
                    queue.row(view, at), kind="acks", name=name, depth=queue.delivering, delivering=0,
                    added=queue.removed, removed=queue.removed - queue.delivering, link=True,
                )  # fmt: skip

    def stake(self, peer: BrokerView | None) -> Stake:
        del peer
        return Stake(self.to_ship, None, None)

    @property
    def residue(self) -> Residue | None:
        return Residue(0, 0)
