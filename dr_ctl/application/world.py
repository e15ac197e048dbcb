"""One installation for one command: its topology opened for looking, its runbooks, its decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dr_ctl.application.caller import Caller
from dr_ctl.application.price import FailoverPrice
from dr_ctl.core.clock import Clock, stamp
from dr_ctl.core.errors import BrokerError, UsageError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.core.patterns import matches
from dr_ctl.engine import runbook
from dr_ctl.engine.history import History
from dr_ctl.engine.operations import (
    ALONE,
    AT_SOURCE,
    FAILBACK,
    FAILOVER,
    FENCE,
    QUIESCE,
    REINSTATE,
    RELEASE,
    RESTART,
    RETURNS,
    alone,
)
from dr_ctl.engine.plan import Ask, Decision, Plan, Refusal
from dr_ctl.engine.planner import plan
from dr_ctl.engine.roles import is_split
from dr_ctl.engine.runbook import FENCING, Runbook, with_hooks
from dr_ctl.engine.verbs import GENERAL, HOOK
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry
from dr_ctl.topologies.topology import Seen, Topology

LOST_S = 5.0
LATELY = timedelta(minutes=10)
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

    def must_move_parts(self, ask: Ask) -> None:
        """Raise `UsageError` where queues were named and this topology moves whole sites."""
        if ask.queues is not None and not self.topology.recipe.moves_parts:
            kind = self.installation.settings.topology
            text = f"--queues {ask.queues}: with {kind} all queues of a pair move together"
            raise UsageError(text, remedy="Leave --queues out: what ships between the sites cannot tell queues apart.")

    def chosen(self, ask: Ask, seen: Seen) -> Ask:
        """With the units that its pattern names, of those that were seen. A step at one site that names none is about
        what the other does not serve, where both serve a part."""
        if ask.units is not None or not self.topology.recipe.moves_parts:
            return ask
        if ask.queues is not None:
            return replace(ask, units=tuple(unit.name for unit in seen.units if matches((ask.queues,), unit.name)))
        if ask.operation in (QUIESCE, FENCE, RELEASE) and is_split(seen):
            return replace(ask, units=tuple(unit.name for unit in seen.units if unit.serving != ask.target))
        return ask

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
        decided = self._as_things_stand(decided, ask, seen) if ask.operation == FAILOVER else decided
        is_priced = isinstance(decided, Plan) or (
            isinstance(decided, Refusal) and decided.code is ExitCode.LOSS_REFUSED
        )
        if past is None and price is not None and is_priced and (contradiction := price.contradiction()) is not None:
            decided = Refusal((contradiction,))
        decided = replace(decided, findings=(*decided.findings, *self.unverified()))
        if not isinstance(decided, Plan):
            return decided
        secret = {"sites": {"__all__": {"brokers": _PASSWORDS, "workloads": _PASSWORDS}}}
        told = self.installation.settings.model_dump_json(exclude=secret)
        return replace(decided, basis={**decided.basis, "settings": hashlib.sha256(told.encode()).hexdigest()})

    def _as_things_stand(self, decided: Decision, ask: Ask, seen: Seen) -> Decision:
        """What the roles alone do not tell: the remedies that help now, and a site that is silent and was sick lately.

        That is refused as a sick one. A person's word still counts: a host that was switched off is as silent as a
        process that froze for good, and waiting would only keep the service down."""
        left = self.other(ask.target)
        silent = seen.roles[left] is Role.UNKNOWN
        if isinstance(decided, Plan) and silent and (at := self._lately_sick(left)) is not None:
            text = f"{left} was sick, and so alive, at {stamp(at)}: that it serves nobody now rests on your word alone"
            remedy = "Go on only where its process was ended, or its host cut off, since then."
            told = Finding("DR-ALIVE-004", Severity.WARNING, text, remedy)
            return replace(decided, findings=(told, *decided.findings))
        if not isinstance(decided, Refusal):
            return decided
        away = [link.site for link in seen.links() if link.attached is False]
        is_whole = all(each.silent is None for each in seen.brokers if each.site == left)
        first, *others = decided.findings
        if first.id == "DR-ALIVE-001" and seen.roles[left] is Role.SERVING and is_whole and away:
            remedy = (
                f"Leave {left} as it is, its clients are served. Nothing can be moved without loss before the link is "
                f"back. {self.mending(away[0])}"
            )
            first = replace(first, remedy=remedy)
        if first.id == "DR-ALIVE-002" and (at := self._lately_sick(left)) is not None:
            remedy = f"End that process for certain, or cut its host off; only then: {first.remedy}"
            first = replace(first, text=f"{first.text}; it was sick, and so alive, at {stamp(at)}", remedy=remedy)
            decided = replace(decided, code=ExitCode.SERVING_SITE_ALIVE)
        return replace(decided, findings=(first, *others))

    def mending(self, site: str) -> str:
        """What helps where the link of a site is not attached."""
        restarts = {step.verb for step in alone(RESTART).steps} <= self.topology.recipe.verbs()
        restart = f"`dr-ctl link restart {site}`; if that does not help, look" if restarts else "Look"
        return f"{restart} at what stands between the sites."

    def _lately_sick(self, site: str) -> datetime | None:
        """When the history last saw a silent site give a sign of life without its management; None where not lately."""
        from dr_ctl.rpo.history.since import last_seen  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

        at = last_seen(self.installation.path(self.installation.settings.history.path), site, Role.SICK)
        return at if at is not None and self.clock.now() - at < LATELY else None

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
        return [found for name in self.sites if (found := self.unverified_at(name)) is not None]

    def unverified_at(self, name: str) -> Finding | None:
        if self.installation.settings.sites[name].tls.verify:
            return None
        text = f"{name}: the certificates of its brokers are not verified (`tls.verify: false`)"
        remedy = f"Name the file of their authority as `tls.ca` of {name} in {self.installation.file.name}."
        return Finding("DR-TLS-001", Severity.WARNING, text, remedy)

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
