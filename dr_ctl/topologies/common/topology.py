"""A topology of brokers in pairs, for one installation, opened for one command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from dr_ctl.core.clock import Clock
from dr_ctl.core.patience import Patience
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.engine.ports import Driver, Recipe
from dr_ctl.settings.model import Drain, Installation, Queues
from dr_ctl.topologies.common import driver, recipe
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.procedure import Procedure
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


@dataclass(frozen=True, slots=True)
class Kind(Generic[V]):
    """The parts that a topology of brokers in pairs is put together from; implements `Opens`. `by_console` says how a
    person opens a site in its console, `lost_on_the_way` which messages its link does not bring over, `cannot_tell`
    what of them cannot be read."""

    procedure: Procedure[Rules, Any, Any]
    checks: recipe.Checks[V]
    observer: Callable[[Installation, Clock, Patience, Path], Observer[V, Any]]
    tools: Callable[[Any, recipe.Recipe[V], Sender], Tools[V]]
    by_console: str
    lost_on_the_way: tuple[str, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    moves_parts: bool = False
    decides: type[recipe.Recipe[V]] = recipe.Recipe
    made: Callable[..., PairTopology[V]] = PairTopology

    def recipe(self, queues: Queues, drain: Drain, patience: Patience) -> recipe.Recipe[V]:
        """The half that decides."""
        rules = Rules(queues, drain, patience)
        untold = self.lost_on_the_way, self.cannot_tell
        return self.decides(rules, self.procedure, self.checks, *untold, moves_parts=self.moves_parts)

    def __call__(
        self, installation: Installation, clock: Clock, patience: Patience, documents: Path
    ) -> PairTopology[V]:
        observer = self.observer(installation, clock, patience, documents)
        decides = self.recipe(installation.settings.queues, installation.settings.drain, patience)

        def acts_by(sender: Sender) -> driver.Driver[V]:
            return driver.Driver(self.procedure, self.tools(observer, decides, sender), self.by_console)

        return self.made(observer, decides, acts_by)
