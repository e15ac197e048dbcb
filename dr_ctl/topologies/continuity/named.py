"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.topologies.common.named import Named, doors
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
    told = "as many as broker.xml says" if view.config.id_cache is None else str(view.config.id_cache)
    return f"{told} remembered" if _started(view) else None


def _bridges(view: SiteView) -> str | None:
    return f"{len(view.ships)} bridge(s), {'' if view.attached else 'not '}connected" if _started(view) else None


def _commands(view: SiteView) -> str | None:
    return f"{view.commands.out.depth + view.commands.into.depth} waiting" if view.commands is not None else None


def _named(view: SiteView) -> str | None:
    return f"{view.site} is {view.service.site_id}" if view.service is not None else None


BY_BROKER: Final[Sequence[Named[SiteView]]] = (
    Named("DR-CONT-001", "the plugin has started", lambda view: "read" if view.service is not None else "not there"),
    Named("DR-CONT-006", "no door is open that the plugin does not know", _of_doors),
    Named("DR-CONT-007", "an active site delivers", _service),
    Named("DR-CONT-002", "each queue has its own address", _flows_read),
    Named("DR-CONT-003", "no queue is deeper than the ids that are remembered", _remembered),
    Named("DR-CONT-008", "no bridge is stopped", _bridges),
    Named("DR-CONT-009", "the bridges are connected", _bridges),
    Named("DR-CONT-011", "acknowledgements are applied", _flows_read),
    Named("DR-CONT-015", "what is staged is delivered", _flows_read),
    Named("DR-CONT-010", "no command of the plugin waits", _commands),
)
BY_PAIR: Final[Sequence[Named[SiteView]]] = (
    Named("DR-CONT-004", "each site has its own id", _named),
    Named("DR-CONT-005", "both sites have the same flows", _flows_read),
    Named("DR-CONT-012", "the clocks agree", lambda view: f"{view.site} {view.now_ms}"),
)
