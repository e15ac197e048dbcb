"""The agent of all pairs of an installation whose sites are joined by BrokerSync, from its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.debts import Debt
from dr_ctl.topologies.brokersync import proven
from dr_ctl.topologies.brokersync.reading import Observer
from dr_ctl.topologies.brokersync.sync.brokers import Primary, Standby
from dr_ctl.topologies.brokersync.sync.pair import Pair
from dr_ctl.topologies.classic.operations import REMOVES
from dr_ctl.topologies.common.debts import debts_of
from dr_ctl.topologies.topology import Kept, QueueKept


class PairsKeeper:
    """Implements `Keeper`: the pairs take turns."""

    def __init__(
        self, pairs: Sequence[Pair], primary: str, standby: str, debts: Callable[[], Sequence[Debt]] = list
    ) -> None:
        """`debts` are those that the documents of both sites say are owed."""
        self._pairs, self._primary, self._standby = pairs, primary, standby
        self._debts = debts

    def step(self, held: Callable[[], str | None]) -> Kept:
        for pair in self._pairs:
            pair.step(lambda: held() or self._owed())
        return self._kept()

    def _owed(self) -> str | None:
        """Say which site was lost and is not taken in: only its return can sort its messages. If the followed site was
        lost, the other took over, and a message there alone may be new."""
        lost = {each.about for each in self._debts()}
        sites = [site for site in (self._primary, self._standby) if site in lost]
        verbs = ("was", "is") if len(sites) == 1 else ("were", "are")
        return f"{' and '.join(sites)} {verbs[0]} lost, and {verbs[1]} not taken in again" if sites else None

    def go_on(self) -> None:
        for pair in self._pairs:
            pair.go_on()

    def close(self) -> None:
        for pair in self._pairs:
            pair.close()

    def _kept(self) -> Kept:
        over = [f"{self._primary}, {pair.name}: {pair.over}" for pair in self._pairs if pair.over is not None]
        reasons = {self._primary: lambda pair: pair.primary_silent, self._standby: lambda pair: pair.standby_silent}
        silent = {
            site: "; ".join(filter(None, map(why, self._pairs)))
            for site, why in reasons.items()
            if any(map(why, self._pairs))
        }
        queues = self._seen()
        return Kept(
            queues,
            over="; ".join(over) or None,
            silent=silent,
            findings=self._findings(queues),
            remembers={pair.name: pair.remembers() for pair in self._pairs},
        )

    def _seen(self) -> list[QueueKept]:
        """No queue is kept clean whole where its copies may not be deleted."""
        return [
            replace(queue.snapshot, whole=False) if pair.refused is not None else queue.snapshot
            for pair in self._pairs
            for queue in pair.queues.values()
        ]

    def _findings(self, queues: Sequence[QueueKept]) -> list[Finding]:
        primary, standby = self._primary, self._standby
        excess = [queue for pair in self._pairs for queue in pair.queues.values() if queue.excess]
        names = {(each.pair, each.name) for each in excess}
        findings = [
            found("DR-AGENT-001.vanished", count=each.vanished, queue=each.name, site=primary)
            for each in queues
            if each.vanished and (each.pair, each.name) not in names
        ]
        findings += [
            found("DR-AGENT-001.beyond", count=each.excess, queue=each.name, standby=standby, primary=primary)
            for each in excess
        ]
        findings += [found("DR-AGENT-002", why=each.why_not) for each in queues if each.why_not]
        findings += [
            found("DR-AGENT-006", unheard=each.unheard, name=each.name, site=primary) for each in queues if each.unheard
        ]
        findings += [
            found("DR-AGENT-007", unproven=each.unproven, name=each.name, site=standby)
            for each in queues
            if each.unproven
        ]
        if (why := self._owed()) is not None:
            findings.append(found("DR-AGENT-005", why=why, lost=why.split(" ")[0]))
        refusals = [pair.refused for pair in self._pairs if pair.refused is not None]
        return findings + [
            found("DR-AGENT-003", site=standby, why=why, name=REMOVES.name, what=REMOVES.what, line=REMOVES.line)
            for why in refusals
        ]


def keeper(observer: Observer, primary: str, remembered: Mapping[str, Any]) -> PairsKeeper:
    """Ready for its first step. Raises `UsageError` where the settings do not let it in."""
    standby = observer.installation.other(primary)
    pairs = []
    for access in observer.at(primary):
        here, there = Primary(access), Standby(observer.brokers[standby][access.pair])
        mine: Mapping[str, Json] = remembered.get(access.pair, {})
        noted = partial(proven.by_runs, observer.documents, primary, access.pair)
        pairs.append(Pair(access.pair, here, there, observer.clock, mine, noted))

    def debts() -> list[Debt]:
        return [debt for access in observer.all() for debt in debts_of(access.document_files.texts())]

    return PairsKeeper(pairs, primary, standby, debts)
