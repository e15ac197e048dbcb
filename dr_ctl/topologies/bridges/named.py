"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.named import Named


def _fenced(view: BrokerView) -> str:
    return f"roles {', '.join(view.config.lasting.roles)}" if view.config.lasting is not None else "no roles are named"


def _bridges(view: BrokerView) -> str:
    every = [bridge for flow in view.carrying for bridge in flow.bridges]
    return f"{len(every)} bridge(s), {sum(bridge.started for bridge in every)} started"


def _buffers(view: BrokerView) -> str:
    return some([f"{flow.unit} {flow.to_ship} to ship" for flow in view.flows]) or "none"


def _forwarded(view: BrokerView) -> str:
    return f"{len(view.forwarded)} queue(s) counted"


def _ids(view: BrokerView) -> str | None:
    return f"{view.ids.unit}: {view.ids_to_ship} to ship" if view.ids is not None else "no divert for them"


def _copies(view: BrokerView) -> str:
    return f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)"


def _closed(view: BrokerView) -> str:
    closed = [unit for unit, is_open in view.units.items() if not is_open]
    return f"{view.site} {len(closed)} of {len(view.units)} closed"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-SITE-002", "the broker is active", lambda view: "active" if view.active else "not active"),
    Named("DR-BRIDGE-001", "its queues are copied", lambda view: some([flow.unit for flow in view.flows]) or "none is"),
    Named("DR-BRIDGE-002", "its bridges are there", _bridges),
    Named("DR-BRIDGE-003", "the processed ids are shipped", _ids),
    Named("DR-BRIDGE-004", "its bridges are started", _bridges),
    Named("DR-LINK-004", "its bridges are connected", _bridges),
    Named("DR-LINK-005", "no buffer is paused", _buffers),
    Named("DR-BRIDGE-005", "no queue is left without a copy", lambda view: f"{len(view.business)} queue(s)"),
    Named("DR-BRIDGE-006", "each copy has a buffer and a bridge", _buffers),
    Named("DR-BRIDGE-007", "each message says where it comes from", _bridges),
    Named("DR-BRIDGE-015", "no client writes where a message comes from", _forwarded),
    Named("DR-BRIDGE-009", "the roles of the clients are known", _fenced),
    Named("DR-FENCE-005", "the roles of the bridges' user are known", _fenced),
    Named("DR-FENCE-006", "a fence leaves the bridges alone", _fenced),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-BRIDGE-008", "no bridge is refused by the peer", _bridges),
    Named("DR-BRIDGE-010", "processed ids are applied", lambda view: f"{view.site} {view.unapplied} not applied"),
    Named("DR-BRIDGE-011", "each copy finds its queue", lambda view: f"{view.site} {len(view.unrouted)} address(es)"),
    Named("DR-BRIDGE-012", "nobody is let in to a copy", _closed),
    Named("DR-BRIDGE-013", "nobody may send to a copy", _closed),
    Named("DR-BRIDGE-014", "how much a copy's clients pass over", _copies),
)
