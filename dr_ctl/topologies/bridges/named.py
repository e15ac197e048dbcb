"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.core.printable import if_known
from dr_ctl.topologies.artemis.findings import MQTT_STAYS
from dr_ctl.topologies.bridges.findings import (
    ALL_BRIDGES_GONE,
    BRIDGE_STOPPED,
    CLIENTS_ROLES_UNKNOWN,
    COPY_HOLDS_PROCESSED,
    COPY_OPEN_TO_CLIENTS,
    COPY_TAKES_SENDS,
    COPY_WITHOUT_WAY,
    FORWARDED_BY_CLIENTS,
    IDS_NOT_SHIPPED,
    IDS_NOT_TAKEN,
    NO_QUEUE_THERE,
    NOT_BUFFERED,
    NOT_DUE,
    NOTHING_COPIED,
    ONE_ADDRESS_FORBIDDEN,
    ORIGIN_NOT_TOLD,
    QUEUE_WITHOUT_DIVERT,
)
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.evidence import said
from dr_ctl.topologies.common.findings import (
    LINK_NOT_ATTACHED,
    LINK_ROLE_KEPT_OUT,
    LINK_ROLES_UNKNOWN,
    OUTFLOW_PAUSED,
)
from dr_ctl.topologies.common.named import Named


def _fenced(view: BrokerView) -> str:
    return f"roles {', '.join(view.config.lasting.roles)}" if view.config.lasting is not None else "no roles are named"


def _bridges(view: BrokerView) -> str:
    every = [bridge for flow in view.carrying for bridge in flow.bridges]
    return f"{len(every)} bridge(s), {sum(bridge.started for bridge in every)} started"


def _buffers(view: BrokerView) -> str:
    return some([f"{said(flow.to_ship)} of {flow.unit} to ship" for flow in view.flows]) or "none"


def _forwarded(view: BrokerView) -> str:
    return f"{len(view.forwarded)} queue(s) counted"


def _ids(view: BrokerView) -> str | None:
    return f"{view.ids.unit}: {said(view.ids_to_ship)} id(s) to ship" if view.ids is not None else "no divert for them"


def _copies(view: BrokerView) -> str:
    return f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)"


def _closed(view: BrokerView) -> str:
    closed = [unit for unit, is_open in view.units.items() if not is_open]
    return f"{view.site} {len(closed)} of {len(view.units)} closed"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    Named(NOTHING_COPIED, lambda view: some([flow.unit for flow in view.flows]) or "none is"),
    Named(ALL_BRIDGES_GONE, _bridges),
    Named(IDS_NOT_SHIPPED, _ids),
    Named(BRIDGE_STOPPED, _bridges),
    Named(LINK_NOT_ATTACHED, _bridges),
    Named(OUTFLOW_PAUSED, _buffers),
    Named(QUEUE_WITHOUT_DIVERT, lambda view: f"{len(view.business)} queue(s)"),
    Named(COPY_WITHOUT_WAY, _buffers),
    Named(NOT_BUFFERED, lambda view: f"{sum(map(view.uncopied, view.carrying))} message(s) found no buffer"),
    Named(ORIGIN_NOT_TOLD, _bridges),
    Named(FORWARDED_BY_CLIENTS, _forwarded),
    Named(CLIENTS_ROLES_UNKNOWN, _fenced),
    Named(LINK_ROLES_UNKNOWN, _fenced),
    Named(LINK_ROLE_KEPT_OUT, _fenced),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named(ONE_ADDRESS_FORBIDDEN, _bridges),
    Named(IDS_NOT_TAKEN, lambda view: f"{view.site} {if_known(view.link.unapplied)} not applied"),
    Named(NO_QUEUE_THERE, lambda view: f"{view.site} {len(view.unrouted)} address(es)"),
    Named(COPY_OPEN_TO_CLIENTS, _closed),
    Named(COPY_TAKES_SENDS, _closed),
    Named(COPY_HOLDS_PROCESSED, _copies),
    Named(NOT_DUE, lambda view: f"{view.site} {sum(flow.not_due for flow in view.flows)} delayed"),
    Named(MQTT_STAYS, lambda view: f"{view.site} {some(view.stays) or 'nothing'}"),
)
