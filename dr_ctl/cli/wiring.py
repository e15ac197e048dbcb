"""Puts engine and topology together for one command: the only place that knows which topology is meant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dr_ctl.cli.price import FailoverPrice
from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.model import Json
from dr_ctl.engine import runbook
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.journal import History
from dr_ctl.engine.onlooker import Onlooker
from dr_ctl.engine.operations import (
    ALONE,
    AT_SOURCE,
    FAILBACK,
    FAILOVER,
    FENCE,
    QUIESCE,
    REINSTATE,
    RETURNS,
    VERIFY,
    alone,
)
from dr_ctl.engine.outcome import Outcome, Unknown
from dr_ctl.engine.plan import Ask, Decision, Plan, PlannedStep
from dr_ctl.engine.planner import plan
from dr_ctl.engine.ports import Move
from dr_ctl.engine.runbook import FENCING, Runbook, with_hooks
from dr_ctl.engine.verbs import HOOK
from dr_ctl.settings.model import Installation
from dr_ctl.telemetry.events import Listener
from dr_ctl.topologies import registry
from dr_ctl.topologies.common.doors import Doors
from dr_ctl.topologies.common.driver import Driver
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.view import Broker, Seen

LOST_S = 5.0
_PASSWORDS = {"__all__": {"password"}}


@dataclass
class World:
    """One installation, wired for looking. `driver` adds what can change it; a dry run never asks for that."""

    installation: Installation
    topology: registry.Topology
    observer: Observer[Any]
    recipe: Recipe[Any]
    clock: Clock
    lease: Lease | None = None
    _sender: Sender | None = None

    @classmethod
    def of(cls, installation: Installation, wait: Callable[[float], object]) -> World:
        settings, clock = installation.settings, SystemClock()
        topology = registry.of(installation)
        return cls(
            installation,
            topology,
            topology.observer(installation, clock, wait),
            topology.recipe(settings.queues, settings.drain),
            clock,
        )

    def driver(self) -> Driver[Any]:
        self._sender = self._sender or Sender(self.observer, self.lease)
        return self.topology.driver(self.observer, self.recipe, self._sender)

    def verify(self, move: Move, listener: Listener, within_s: float) -> Outcome:
        """Look at the gate, without a run: nothing is written down, and nothing could be changed."""
        settings = self.installation.settings.drain
        limits = {"within": within_s, "stable": float(settings.stable)}
        step = PlannedStep(1, VERIFY, move.target, "the whole gate", limits=limits)
        try:
            return self.topology.verifying(self.observer, settings.poll).verify(
                step, move, Onlooker(self.clock, listener)
            )
        except BrokerError as error:
            return Unknown(str(error))

    def why_not_so(self, ask: Ask) -> str | None:
        """What a look says that holds already is attempted before anybody is told: flags lie."""
        if ask.operation == REINSTATE:
            return None  # there all brokers have answered what they hold and owe
        site = self.named(ask)
        try:
            why = Doors(self.observer).why_not(site, serving=ask.operation not in (QUIESCE, FENCE))
        except BrokerError as error:
            why = f"it does not answer any more: {error}"
        return f"{why}: look at {site} first" if why is not None else None

    def runbook(self, operation: str) -> Runbook:
        """The lines of an operation; raises `UsageError` where they name a hook that the settings do not have."""
        hooks = self.installation.settings.hooks
        if operation in ALONE:
            book = alone(operation)
            if operation == FENCE:
                book = replace(book, steps=with_hooks(book.steps, [name for name in hooks if name.startswith(FENCING)]))
            return book
        book = runbook.load(FAILBACK if operation == REINSTATE else operation, folder(self.installation))
        for step in book.steps:
            if step.verb == HOOK and (name := str(step.words["name"])) not in hooks:
                text = f"{book.path.name}:{step.line}: the settings have no hook {name}"
                raise UsageError(text, remedy=f"Name it under `hooks:` in {self.installation.file.name}.")
        return book

    def decide(
        self, ask: Ask, seen: Seen[Broker], past: History | None = None, price: FailoverPrice | None = None
    ) -> Decision:
        """Plan; what the plan rests on includes the settings."""
        decided = plan(self.runbook(ask.operation), self.recipe, seen, ask, past, price)
        if not isinstance(decided, Plan):
            return decided
        told = self.installation.settings.model_dump_json(exclude={"sites": {"__all__": {"brokers": _PASSWORDS}}})
        return replace(decided, basis={**decided.basis, "settings": hashlib.sha256(told.encode()).hexdigest()})

    def named(self, ask: Ask) -> str:
        """The site that the command names: some steps are done at the one that is left."""
        if ask.operation not in AT_SOURCE:
            return ask.target
        return next(site for site in self.installation.settings.sites if site != ask.target)

    def price(self, ask: Ask) -> FailoverPrice | None:
        """What a failover may cost; None for a planned move. From here on the lost site is waited for within bounds."""
        if ask.operation != FAILOVER:
            return None
        lost = next(site for site in self.installation.settings.sites if site != ask.target)
        steps = self.runbook(ask.operation).steps
        observe = next((step.limits for step in steps if step.verb == "observe"), {})
        self.observer.spend_at_most(observe.get("lost", LOST_S), lost)
        return FailoverPrice(self.installation, lost, self.clock, self.topology.carried)

    def residue(self, ask: Ask, seen: Seen[Broker]) -> dict[str, Json]:
        """What a return brings, and what of it comes twice at most, as `data`: empty for all else, and where the
        topology cannot say so beforehand."""
        if ask.operation not in RETURNS or self.topology.residue is None:
            return {}
        return {"residue": self.topology.residue(seen.views(ask.target))}

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
