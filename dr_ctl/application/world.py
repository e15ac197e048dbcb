"""One installation for one command: its topology opened for looking, its runbooks, its decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dr_ctl.application.caller import Caller
from dr_ctl.application.price import FailoverPrice
from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.engine import runbook
from dr_ctl.engine.journal import History
from dr_ctl.engine.operations import (
    ALONE,
    AT_SOURCE,
    FAILBACK,
    FAILOVER,
    FENCE,
    QUIESCE,
    REINSTATE,
    RESTART,
    RETURNS,
    alone,
)
from dr_ctl.engine.plan import Ask, Decision, Plan
from dr_ctl.engine.planner import plan
from dr_ctl.engine.runbook import FENCING, Runbook, with_hooks
from dr_ctl.engine.verbs import GENERAL, HOOK
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry
from dr_ctl.topologies.topology import Seen, Topology

LOST_S = 5.0
_PASSWORDS = {"__all__": {"password"}}


@dataclass(frozen=True, slots=True)
class World:
    """Wired for looking; the topology's driver adds what can change it, and a dry run never asks for that."""

    installation: Installation
    topology: Topology[Any]
    clock: Clock

    @classmethod
    @contextmanager
    def of(cls, caller: Caller) -> Iterator[World]:
        """What was opened for this block is closed after it."""
        installation = caller.installation()
        topology = registry.opened(installation, caller.clock, caller.patience, caller.runs().documents)
        with closing(topology):
            yield cls(installation, topology, caller.clock)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.installation.settings.sites)

    def other(self, site: str) -> str:
        return next(each for each in self.sites if each != site)

    def must_know(self, ask: Ask) -> None:
        """Raise `UsageError` where a site that was named is not in the settings."""
        for named in (ask.target, ask.expect_serving, ask.presume_down):
            if named is not None and named not in self.sites:
                raise UsageError(
                    f"no site {named} in the settings", remedy=f"The sites are {' and '.join(self.sites)}."
                )

    def named(self, ask: Ask) -> str:
        """The site that the command names: some steps are done at the one that is left."""
        return ask.target if ask.operation not in AT_SOURCE else self.other(ask.target)

    def must_be_able(self, ask: Ask) -> None:
        """Raise `UsageError` where this topology has no such step."""
        if ask.operation not in ALONE:
            return
        own = {step.verb for step in alone(ask.operation).steps}
        if own - self.topology.recipe.verbs() - GENERAL:
            kind = self.installation.settings.topology
            text = f"{ask.operation}: {kind} has nothing that dr-ctl could do this with"
            remedy = "The links of that topology connect by themselves; its brokers' console stops and starts them."
            raise UsageError(text, remedy=remedy if ask.operation == RESTART else "`dr-ctl --help` has the others.")

    def look(self, price: FailoverPrice | None) -> Seen:
        """Look at both sites; what a failover may cost follows from what was seen."""
        seen: Seen = self.topology.observe()
        if price is not None:
            price.saw(seen)
        return seen

    def decide(
        self,
        ask: Ask,
        seen: Seen,
        past: History | None = None,
        price: FailoverPrice | None = None,
        *,
        anew: bool = False,
    ) -> Decision:
        """Plan; what the plan rests on includes the settings."""
        decided = plan(self.runbook(ask.operation), self.topology.recipe, seen, ask, past, price, anew=anew)
        decided = replace(decided, findings=(*decided.findings, *self.unverified()))
        if not isinstance(decided, Plan):
            return decided
        told = self.installation.settings.model_dump_json(exclude={"sites": {"__all__": {"brokers": _PASSWORDS}}})
        return replace(decided, basis={**decided.basis, "settings": hashlib.sha256(told.encode()).hexdigest()})

    def runbook(self, operation: str) -> Runbook:
        """The lines of an operation; raises `UsageError` where they name a hook that the settings do not have."""
        hooks = self.installation.settings.hooks
        if operation in ALONE:
            book = alone(operation)
            if operation == FENCE:
                book = replace(book, steps=with_hooks(book.steps, [name for name in hooks if name.startswith(FENCING)]))
            return book
        of = FAILBACK if operation == REINSTATE else operation
        book = runbook.load(of, folder(self.installation), self.installation.settings.order)
        for step in book.steps:
            if step.verb == HOOK and (name := str(step.words["name"])) not in hooks:
                text = f"{book.path.name}:{step.line}: the settings have no hook {name}"
                raise UsageError(text, remedy=f"Name it under `hooks:` in {self.installation.file.name}.")
        return book

    def unverified(self) -> list[Finding]:
        """The sites whose certificates nobody checks: every command says so."""
        return [
            Finding(
                "DR-TLS-001",
                Severity.WARNING,
                f"{name}: the certificates of its brokers are not verified (`tls.verify: false`)",
                f"Name the file of their authority as `tls.ca` of {name} in {self.installation.file.name}.",
            )
            for name, site in self.installation.settings.sites.items()
            if not site.tls.verify
        ]

    def price(self, ask: Ask) -> FailoverPrice | None:
        """What a failover may cost; None for a planned move. From here on the lost site is waited for within bounds."""
        if ask.operation != FAILOVER:
            return None
        lost = self.other(ask.target)
        steps = self.runbook(ask.operation).steps
        observe = next((step.limits for step in steps if step.verb == "observe"), {})
        self.topology.spend_at_most(observe.get("lost", LOST_S), lost)
        return FailoverPrice(self.installation, lost, self.clock, ask.silent_since)

    def residue(self, ask: Ask, seen: Seen) -> dict[str, Json]:
        """What a return brings, and what of it comes twice at most, as `data`: empty for all else, and where the
        topology cannot say so beforehand."""
        told: Mapping[str, Json] = seen.residue(ask.target) if ask.operation in RETURNS else {}
        return {"residue": dict(told)} if told else {}

    def why_not_so(self, ask: Ask) -> str | None:
        """What a look says that holds already is attempted before anybody is told: flags lie."""
        if ask.operation == REINSTATE:
            return None  # there all brokers have answered what they hold and owe
        site = self.named(ask)
        try:
            why = self.topology.why_not_so(site, serving=ask.operation not in (QUIESCE, FENCE))
        except BrokerError as error:
            why = f"it does not answer any more: {error}"
        return f"{why}: look at {site} first" if why is not None else None


def folder(installation: Installation) -> Path:
    """Where the runbooks in force are: the installation's own, or those that came with dr-ctl."""
    own = installation.settings.runbooks
    return installation.path(own) if own is not None else runbook.shipped()
