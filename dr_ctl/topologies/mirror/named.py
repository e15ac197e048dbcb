"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.engine.findings import COUNTS_DIFFER
from dr_ctl.topologies.artemis.findings import MQTT_STAYS
from dr_ctl.topologies.common.findings import (
    LINK_DOOR_UNKNOWN,
    LINK_NEVER_MIRRORED,
    LINK_NOT_ATTACHED,
    LINK_NOT_CONFIGURED,
    LINK_ROLE_KEPT_OUT,
    LINK_ROLES_UNKNOWN,
    LINK_STOPPED,
    LINK_UNKNOWN,
    LOCK_COORDINATOR,
    OUTFLOW_PAUSED,
)
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.mirror.findings import (
    CLOCKS_DIFFER,
    COUNTS_MAY_DIFFER,
    MESSAGES_BETWEEN_BROKERS,
    OPENS_AT_BOOT,
    ROLES_KEPT_OUT_BESIDE_OPEN_DOORS,
)
from dr_ctl.topologies.mirror.view import BrokerView

_NONE: Final = "no link is configured"


def _fenced(view: BrokerView) -> str:
    return "no lasting fence is set" if view.config.lasting is None else f"roles {', '.join(view.config.lasting.roles)}"


def _links(view: BrokerView) -> str:
    return some([each.name for each in view.links]) or "none"


def _linking(view: BrokerView) -> str | None:
    link = view.broker_connection
    if link is None:
        return _NONE if view.link.missing else None
    return f"{link.name} {'attached' if view.link.attached else 'started' if link.started else 'stopped'}"


def _shipping(view: BrokerView) -> str | None:
    if view.broker_connection is None:
        return _NONE if view.link.missing else None
    return f"{view.outflow.depth} to ship" if view.outflow is not None else "no outflow"


def _holding(view: BrokerView) -> str:
    return f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    Named(LINK_DOOR_UNKNOWN, lambda view: doors(view.link.doors)),
    Named(
        OPENS_AT_BOOT,
        lambda view: some([f"{door.name} boots {'open' if door.opens_at_boot else 'closed'}" for door in view.doors]),
    ),
    Named(LOCK_COORDINATOR, lambda view: some(view.lock_coordinators) or "none"),
    Named(ROLES_KEPT_OUT_BESIDE_OPEN_DOORS, _fenced),
    Named(LINK_ROLES_UNKNOWN, _fenced, "the roles of the link's user are known"),
    Named(LINK_ROLE_KEPT_OUT, _fenced, "a lasting fence leaves the link alone"),
    Named(LINK_NOT_CONFIGURED, _links),
    Named(LINK_UNKNOWN, _links, "the link to the peer is known"),
    Named(LINK_NEVER_MIRRORED, _shipping),
    Named(LINK_STOPPED, _linking),
    Named(LINK_NOT_ATTACHED, _linking, "the link is attached"),
    Named(OUTFLOW_PAUSED, _shipping, "the outflow is not paused"),
    Named(MESSAGES_BETWEEN_BROKERS, lambda view: f"{len(view.queues)} queue(s) read"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named(CLOCKS_DIFFER, lambda view: f"{view.site} {view.now_ms}"),
    Named(COUNTS_DIFFER, _holding, "the queues hold the same"),
    Named(COUNTS_MAY_DIFFER, _holding),
    Named(MQTT_STAYS, lambda view: f"{view.site} {some(view.stays) or 'nothing'}"),
)
