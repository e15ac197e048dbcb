"""The checks of a move by name, each with the value that was read: the list of `validate`. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.findings import FindingKind
from dr_ctl.core.model import Finding, some
from dr_ctl.engine.findings import NODES_NOT_NAMED, QUEUES_PAUSED
from dr_ctl.engine.ports import Check
from dr_ctl.topologies.common.findings import (
    CLIENTS_BY_LINK_DOOR,
    CLIENTS_BY_OTHER_DOOR,
    CLIENTS_CANNOT_WORK,
    CONSUMERS_AT_STANDBY,
    COUNTED_BELOW_ZERO,
    DOOR_CLOSED_WHILE_SERVING,
    DOOR_MISSING,
    FENCE_CUTS_NODES,
    FORGEABLE_DOCUMENTS,
    LINK_DOOR_CLOSED,
    OTHER_DOOR_OPEN,
    PAUSED_AT_TARGET,
    PREPARED_TRANSACTIONS,
    PROBE_PORT_UNKNOWN,
    QUARANTINE_CUTS_NODES,
    VERSIONS_DIFFER,
)
from dr_ctl.topologies.common.seen import Seen, Silent
from dr_ctl.topologies.common.view import Acceptor, Broker

V = TypeVar("V", bound=Broker)


@dataclass(frozen=True, slots=True)
class Named(Generic[V]):
    """A check: the finding it makes, and a text of the value that was read, None where no value was. `own_name`
    replaces the check's common name."""

    kind: FindingKind
    read: Callable[[V], str | None]
    own_name: str = ""

    @property
    def name(self) -> str:
        return self.own_name or self.kind.check


def doors(every: Iterable[Acceptor]) -> str:
    return some([f"{each.name} {'open' if each.started else 'closed'}" for each in every]) or "none"


OF_BROKER: Final[Sequence[Named[Any]]] = (
    Named(DOOR_MISSING, lambda view: doors(view.acceptors)),
    Named(DOOR_CLOSED_WHILE_SERVING, lambda view: doors(view.doors)),
    Named(PROBE_PORT_UNKNOWN, lambda view: f"port {view.config.greets_at or 'not named'}"),
    Named(LINK_DOOR_CLOSED, lambda view: doors(view.link.doors)),
    Named(
        CLIENTS_BY_OTHER_DOOR,
        lambda view: f"{len(view.connections)} connection(s)",
    ),
    Named(OTHER_DOOR_OPEN, lambda view: doors(view.fence.leaves_open)),
    Named(FENCE_CUTS_NODES, lambda view: f"{len(view.inner_ports)} port(s) of the site's own brokers"),
    Named(QUARANTINE_CUTS_NODES, lambda view: "replicates" if view.replicates else "does not replicate"),
    Named(PREPARED_TRANSACTIONS, lambda view: f"{len(view.prepared)} prepared"),
    Named(COUNTED_BELOW_ZERO, lambda view: f"{len(view.business)} queue(s)"),
    Named(FORGEABLE_DOCUMENTS, lambda view: f"{len(view.documents)} document(s)"),
    Named(QUEUES_PAUSED, lambda view: f"{len(view.business)} queue(s)"),
    Named(
        CONSUMERS_AT_STANDBY,
        lambda view: f"{view.role.value}, {len(view.consumers)} consumer(s)",
    ),
)


def _room(view: Broker) -> str:
    disk = f"disk {view.disk_used:.0%} full" if view.disk_used is not None else "disk not told"
    return f"{view.site} {disk}, {len(view.obstacles)} limit(s) reached"


OF_PAIR: Final[Sequence[Named[Any]]] = (
    Named(NODES_NOT_NAMED, lambda view: f"{view.site} {len(view.nodes)} other node(s)"),
    Named(CLIENTS_BY_LINK_DOOR, lambda view: f"{view.site} {len(view.link.at_doors())} connection(s)"),
    Named(CLIENTS_CANNOT_WORK, _room),
    Named(VERSIONS_DIFFER, lambda view: f"{view.site} {view.version}"),
    Named(PAUSED_AT_TARGET, lambda view: f"{view.site} {len(view.business)} queue(s)"),
)


def of_brokers(seen: Seen[V], table: Sequence[Named[V]], found: Callable[[V], Iterable[Finding]]) -> Iterator[Check]:
    """The checks of each broker by itself; a broker that did not answer has no values."""
    for brokers in seen.sites.values():
        for view in brokers.values():
            where = f"{view.site}/{view.pair}"
            if isinstance(view, Silent):
                yield from (Check(each.name, where, None) for each in table)
                continue
            findings = list(found(view))
            for each in table:
                against = [finding for finding in findings if finding.id == each.kind.id]
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
            against = [finding for finding in findings if finding.id == each.kind.id]
            yield Check(each.name, pair, None if None in read else ", ".join(map(str, read)), against)
