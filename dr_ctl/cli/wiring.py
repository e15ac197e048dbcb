"""Puts engine and topology together for one command: the only place that knows which topology is meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.errors import UsageError
from dr_ctl.engine import runbook
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.planner import FAILBACK, FAILOVER, REINSTATE
from dr_ctl.engine.runbook import Runbook
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.driver import MirrorDriver
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.sending import Sender

if TYPE_CHECKING:
    from dr_ctl.cli.price import FailoverPrice

LOST_S = 5.0


@dataclass
class World:
    """One installation, wired for looking. `driver` adds what can change it; a dry run never asks for that."""

    installation: Installation
    observer: Observer
    recipe: MirrorRecipe
    clock: Clock
    lease: Lease | None = None
    _sender: Sender | None = None

    @classmethod
    def of(cls, installation: Installation, wait: Callable[[float], object]) -> World:
        settings, clock = installation.settings, SystemClock()
        return cls(
            installation, Observer(installation, clock, wait), MirrorRecipe(settings.queues, settings.drain), clock
        )

    def driver(self) -> MirrorDriver:
        self._sender = self._sender or Sender(self.observer, self.lease)
        return MirrorDriver(self.observer, self.recipe, self._sender)

    def runbook(self, operation: str) -> Runbook:
        book = FAILBACK if operation == REINSTATE else operation
        return runbook.load(book, folder(self.installation))

    def price(self, ask: Ask, book: Runbook) -> FailoverPrice | None:
        """What a failover may cost; None for a planned move. From here on the lost site is waited for within bounds."""
        if ask.operation != FAILOVER:
            return None
        lost = next(site for site in self.installation.settings.sites if site != ask.target)
        observe = next((step.limits for step in book.steps if step.verb == "observe"), {})
        self.observer.spend_at_most(observe.get("lost", LOST_S), lost)
        from dr_ctl.cli.price import FailoverPrice  # noqa: PLC0415 - a planned move does not pay for reading Parquet

        return FailoverPrice(self.installation, lost, self.clock)

    def must_know(self, ask: Ask) -> None:
        """Raise `UsageError` where a site that was named is not in the settings."""
        sites = list(self.installation.settings.sites)
        for named in (ask.target, ask.expect_serving, ask.presume_down):
            if named is not None and named not in sites:
                raise UsageError(f"no site {named} in the settings", remedy=f"The sites are {' and '.join(sites)}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.observer.close()
        if self._sender is not None:
            self._sender.close()


def folder(installation: Installation) -> Path:
    """Where the runbooks in force are: the installation's own, or those that came with dr-ctl."""
    own = installation.settings.runbooks
    return installation.path(own) if own is not None else runbook.shipped()
