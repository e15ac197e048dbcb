"""The checks of a move by their names, each with what was read for it: what `validate` lists. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.ports import Check
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.common.view import Acceptor, Broker

V = TypeVar("V", bound=Broker)


@dataclass(frozen=True, slots=True)
class Named(Generic[V]):
    """One check: the finding that it makes, its name, and what was read for it; None where nothing was."""

    id: str
    name: str
    read: Callable[[V], str | None]


def doors(every: Iterable[Acceptor]) -> str:
    return some([f"{each.name} {'open' if each.started else 'closed'}" for each in every]) or "none"


OF_BROKER: Final[Sequence[Named[Any]]] = (
    Named("DR-DOOR-001", "the acceptors of the settings are there", lambda view: doors(view.acceptors)),
    Named("DR-DOOR-002", "the clients' doors are all open or all closed", lambda view: doors(view.doors)),
    Named("DR-DOOR-009", "probes come by a client's door", lambda view: f"port {view.config.greets_at or 'not named'}"),
    Named("DR-DOOR-004", "the door of the peer's link is open", lambda view: doors(view.mirror_doors)),
    Named(
        "DR-DOOR-005",
        "no client comes by a door that a fence leaves open",
        lambda view: f"{len(view.connections)} connection(s)",
    ),
    Named("DR-DOOR-006", "no other door is open", lambda view: doors(view.other_doors)),
    Named("DR-TX-001", "no transaction is prepared", lambda view: f"{len(view.prepared)} prepared"),
    Named("DR-QUEUE-003", "the counters of every queue can be told", lambda view: f"{len(view.business)} queue(s)"),
    Named("DR-LOCK-004", "no document of dr-ctl's is a client's", lambda view: f"{len(view.documents)} document(s)"),
    Named("DR-QUEUE-001", "no queue is paused", lambda view: f"{len(view.business)} queue(s)"),
    Named(
        "DR-STANDBY-001",
        "no consumer at a site that waits",
        lambda view: f"{view.role.value}, {len(view.consumers)} consumer(s)",
    ),
)
OF_PAIR: Final[Sequence[Named[Any]]] = (
    Named("DR-PAIR-002", "both run the same version", lambda view: f"{view.site} {view.version}"),
    Named("DR-QUEUE-002", "the target would deliver", lambda view: f"{view.site} {len(view.business)} queue(s)"),
)


def of_brokers(seen: Seen[V], table: Sequence[Named[V]], found: Callable[[V], Iterable[Finding]]) -> Iterator[Check]:
    """The checks of each broker by itself; of one that did not answer nothing was read."""
    for brokers in seen.sites.values():
        for view in brokers.values():
            where = f"{view.site}/{view.pair}"
            if isinstance(view, Silent):
                yield from (Check(each.name, where, None) for each in table)
                continue
            findings = list(found(view))
            for each in table:
                against = [finding for finding in findings if finding.id == each.id]
                # A broker that others tell of was asked for nothing that all brokers are.
                if view.answered or each not in OF_BROKER:
                    yield Check(each.name, where, each.read(view), against)


def of_pairs(
    seen: Seen[V],
    sites: tuple[str, str],
    table: Sequence[Named[V]],
    found: Callable[[V, V], Iterable[Finding]],
) -> Iterator[Check]:
    """The checks of two brokers beside each other."""
    for pair in seen.sites[sites[0]]:
        here, there = (seen.view(site, pair) for site in sites)
        if here is None or there is None:
            yield from (Check(each.name, pair, None) for each in table)
            continue
        if not (here.answered and there.answered):
            continue
        findings = list(found(here, there))
        for each in table:
            read = [each.read(view) for view in (here, there)]
            against = [finding for finding in findings if finding.id == each.id]
            yield Check(each.name, pair, None if None in read else ", ".join(map(str, read)), against)
