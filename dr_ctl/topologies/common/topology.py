"""A topology of brokers in pairs as a whole: one installation, opened for one command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.engine.ports import Driver, Recipe
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Glance

V = TypeVar("V", bound=Broker)


class PairTopology(Generic[V]):
    """Implements `Topology`."""

    def __init__(
        self, observer: Observer[V, Access[V]], recipe: Recipe[Seen[V]], driver: Callable[[Sender], Driver[Seen[V]]]
    ) -> None:
        """`driver` makes what acts, out of the only way to change a broker."""
        self.recipe = recipe
        self._observer, self._driver = observer, driver
        self._senders: list[Sender] = []

    def look(self, *, over_s: float = 0.0) -> Seen[V]:
        return self._observer.observe_over(over_s) if over_s else self._observer.look_once()

    def glance(self, *, whole: bool = False) -> Glance[Seen[V]] | None:
        return self._observer.glance(whole=whole)

    def observe(self) -> Seen[V]:
        return self._observer.observe()

    def spend_at_most(self, seconds: float, site: str) -> None:
        self._observer.spend_at_most(seconds, site)

    def stores(self) -> Sequence[Store]:
        return [access.store() for access in self._observer.all()]

    def driver(self, lease: Lease | None = None) -> Driver[Seen[V]]:
        sender = Sender(self._observer, lease)
        self._senders.append(sender)
        return self._driver(sender)

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        return Doors(self._observer).why_not(site, serving=serving)

    def close(self) -> None:
        self._observer.close()
        for sender in self._senders:
            sender.close()
