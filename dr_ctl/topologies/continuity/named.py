"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Final

from dr_ctl.core.model import some
from dr_ctl.topologies.artemis.findings import MQTT_STAYS
from dr_ctl.topologies.common.findings import PLUGIN_BRIDGE_AWAY, PLUGIN_NOT_STARTED
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.continuity.findings import (
    ACKS_NOT_APPLIED,
    CLOCKS_BEYOND_STAGING,
    COMMANDS_WAITING,
    COUNTED_NOT_NAMED,
    DEEPER_THAN_ID_CACHE,
    FLOWS_DIFFER,
    NOT_DELIVERING,
    OPEN_BUT_NOT_ACTIVE,
    PLUGIN_BRIDGE_STOPPED,
    SAME_SITE_ID,
    SEVERAL_QUEUES_ON_ADDRESS,
    STAGING_PAUSED,
)
from dr_ctl.topologies.continuity.view import SiteView


def _started(view: SiteView) -> bool:
    """Where the plugin has not, nothing of it was judged."""
    return view.service is not None and view.service.started


def _of_doors(view: SiteView) -> str | None:
    return doors(view.doors) if _started(view) else None


def _service(view: SiteView) -> str | None:
    if view.service is None or not view.service.started:
        return None
    active = "active" if view.service.activated else "not active"
    return f"{active}, {'delivering' if view.service.delivering else 'not delivering'}"


def _flows_read(view: SiteView) -> str | None:
    return f"{view.site} {len(view.flows)} flow(s)" if _started(view) else None


def _remembered(view: SiteView) -> str | None:
    size = "as many as broker.xml says" if view.config.id_cache is None else str(view.config.id_cache)
    return f"{size} remembered" if _started(view) else None


def _bridges(view: SiteView) -> str | None:
    return (
        f"{len(view.link.ships)} bridge(s), {'' if view.link.attached else 'not '}connected" if _started(view) else None
    )


def _commands(view: SiteView) -> str | None:
    return f"{view.commands.out.depth + view.commands.into.depth} waiting" if view.commands is not None else None


def _named(view: SiteView) -> str | None:
    return f"{view.site} is {view.service.site_id}" if view.service is not None else None


BY_BROKER: Final[Sequence[Named[SiteView]]] = (
    Named(PLUGIN_NOT_STARTED, lambda view: "read" if view.service is not None else "not there"),
    Named(OPEN_BUT_NOT_ACTIVE, _of_doors),
    Named(NOT_DELIVERING, _service),
    Named(SEVERAL_QUEUES_ON_ADDRESS, _flows_read),
    Named(DEEPER_THAN_ID_CACHE, _remembered),
    Named(PLUGIN_BRIDGE_STOPPED, _bridges),
    Named(PLUGIN_BRIDGE_AWAY, _bridges),
    Named(ACKS_NOT_APPLIED, _flows_read),
    Named(STAGING_PAUSED, _flows_read),
    Named(COMMANDS_WAITING, _commands),
)
BY_PAIR: Final[Sequence[Named[SiteView]]] = (
    Named(SAME_SITE_ID, _named),
    Named(FLOWS_DIFFER, _flows_read),
    Named(COUNTED_NOT_NAMED, _flows_read),
    Named(CLOCKS_BEYOND_STAGING, lambda view: f"{view.site} {view.now_ms}"),
    Named(MQTT_STAYS, lambda view: f"{view.site} {some(view.stays) or 'nothing'}"),
)
