"""Both sites of folders, as their topology looks at them and changes them; debts stand in documents of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dr_ctl.core.clock import Clock, stamp
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.lease import look_at
from dr_ctl.engine.plan import Call
from dr_ctl.engine.stores import FolderStore
from tests.folders.broker import FolderBroker, Gone, View
from tests.folders.seen import FoldersSeen


@dataclass(frozen=True)
class FolderSites:
    """`stores` hold the documents of each site: a folder creates none atomically for two machines."""

    brokers: Mapping[str, FolderBroker]
    stores: Mapping[str, FolderStore]
    clock: Clock

    @property
    def pair(self) -> str:
        return next(iter(self.brokers.values())).pair

    def look(self) -> FoldersSeen:
        self._ship()
        locks = [look_at(store) for store in self.stores.values()]
        return FoldersSeen({site: self._seen(site) for site in self.brokers}, self._debts(), locks, self.pair)

    def view(self, site: str) -> View:
        """Raises `Gone`."""
        self._ship()
        return self.brokers[site].look()

    def holds(self, call: Call) -> bool:
        if call.goal in (Goal.WRITE, Goal.STRIKE):
            return bool(self.stores[call.site].read(_kind(call))[1]) is (call.goal is Goal.WRITE)
        broker = self.brokers[call.site]
        broker.look()
        return broker.file(str(call.request["file"])).exists() is call.request["present"]

    def change(self, call: Call) -> None:
        if call.goal is Goal.WRITE:
            since = {"since": stamp(self.clock.now()), "lasting": True}
            self.stores[call.site].create(_kind(call), 0, json.dumps(since))
        elif call.goal is Goal.STRIKE:
            self.stores[call.site].delete(_kind(call), 0)
        else:
            self.brokers[call.site].put(str(call.request["file"]), call.request["present"] is True)

    def _seen(self, site: str) -> View | Gone:
        try:
            return self.brokers[site].look()
        except Gone as gone:
            return gone

    def _ship(self) -> None:
        first, second = self.brokers.values()
        first.ship(second)
        second.ship(first)

    def _debts(self) -> Sequence[Debt]:
        return [
            Debt(kind, about, site, json.loads(text)["since"], lasting=True)
            for site, store in self.stores.items()
            for kind in DebtKind
            for about in self.brokers
            for _, text in store.read(f"debt.{kind.value}.{about}")[1]
        ]


def _kind(call: Call) -> str:
    return f"debt.{call.thing}"
