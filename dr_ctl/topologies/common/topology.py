"""One installation opened for one command, whatever its brokers are: what looks, what decides, what acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.engine.ports import Driver, Recipe
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.view import Seen, V_co


class CommonTopology(Generic[V_co]):
    """Implements `Topology`."""

    def __init__(
        self,
        observer: Observer[V_co],
        recipe: Recipe[Seen[V_co]],
        driver: Callable[[Sender], Driver[Seen[V_co]]],
        stores: Callable[[], Sequence[Store]],
    ) -> None:
        """`driver` makes what acts, out of the only way to change a broker; `stores` opens the documents of each."""
        self.recipe, self.stores = recipe, stores
        self._observer, self._driver = observer, driver
        self._senders: list[Sender] = []

    def look(self, *, over_s: float = 0.0) -> Seen[V_co]:
        return self._observer.observe_over(over_s) if over_s else self._observer.look_once()

    def observe(self) -> Seen[V_co]:
        return self._observer.observe()

    def spend_at_most(self, seconds: float, site: str) -> None:
        self._observer.spend_at_most(seconds, site)

    def driver(self, lease: Lease | None = None) -> Driver[Seen[V_co]]:
        sender = Sender(self._observer, lease)
        self._senders.append(sender)
        return self._driver(sender)

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        return Doors(self._observer).why_not(site, serving=serving)

    def close(self) -> None:
        self._observer.close()
        for sender in self._senders:
            sender.close()
