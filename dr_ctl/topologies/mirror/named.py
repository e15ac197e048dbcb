"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.mirror.view import BrokerView


def _fenced(view: BrokerView) -> str:
    return "no lasting fence is set" if view.config.lasting is None else f"roles {', '.join(view.config.lasting.roles)}"


def _linking(view: BrokerView) -> str | None:
    if view.link is None:
        return None
    return f"{view.link.name} {'attached' if view.attached else 'started' if view.link.started else 'stopped'}"


def _shipping(view: BrokerView) -> str | None:
    if view.link is None:
        return None
    return f"{view.outflow.depth} to ship" if view.outflow is not None else "no outflow"


def _holding(view: BrokerView) -> str:
    return f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-SITE-002", "the broker is active", lambda view: "active" if view.active else "not active"),
    Named("DR-DOOR-003", "the door of the peer's link is known", lambda view: doors(view.mirror_doors)),
    Named(
        "DR-DOOR-007",
        "the clients' doors stay closed at boot",
        lambda view: some([f"{door.name} boots {'open' if door.opens_at_boot else 'closed'}" for door in view.doors]),
    ),
    Named("DR-DOOR-008", "no lock coordinator holds a door", lambda view: some(view.lock_coordinators) or "none"),
    Named("DR-FENCE-004", "no lasting fence stands beside open doors", _fenced),
    Named("DR-FENCE-005", "the roles of the link's user are known", _fenced),
    Named("DR-FENCE-006", "a lasting fence leaves the link alone", _fenced),
    Named("DR-LINK-001", "the link to the peer is known", lambda view: some([each.name for each in view.links])),
    Named("DR-LINK-002", "the link has mirrored", _shipping),
    Named("DR-LINK-003", "the link is started", _linking),
    Named("DR-LINK-004", "the link is attached", _linking),
    Named("DR-LINK-005", "the outflow is not paused", _shipping),
    Named("DR-LINK-006", "nothing is under way inside the site", lambda view: f"{len(view.queues)} queue(s) read"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-PAIR-003", "the clocks agree", lambda view: f"{view.site} {view.now_ms}"),
    Named("DR-PARITY-001", "the queues hold the same", _holding),
    Named("DR-PARITY-002", "so do those that need not", _holding),
)
