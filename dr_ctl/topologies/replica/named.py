"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.replica.view import BrokerView


def _part(view: BrokerView) -> str | None:
    return f"{view.site} {view.plugin.part}" if view.plugin is not None else None


def _lag(view: BrokerView) -> str:
    lag_ms = view.plugin.lag_ms if view.plugin is not None else None
    return f"{view.site} {'no lag measured' if lag_ms is None else f'{duration(lag_ms / 1000)} behind'}"


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named("DR-REPLICA-001", "the plugin was tried by dr-ctl's makers", lambda _: "published names and states only"),
    Named("DR-REPLICA-002", "the replication plugin tells its part", _part),
    Named("DR-DOOR-003", "the plugin has a connector of its own", lambda view: doors(view.acceptors)),
    Named("DR-LINK-004", "a replica fetches from the source", lambda view: f"{view.to_ship} event(s) to ship"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-REPLICA-003", "one is the source, the other its replica", _part),
    Named("DR-REPLICA-006", "the replica is not far behind", _lag),
    Named(
        "DR-PARITY-001",
        "the sites differ by no more than what is under way",
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
    ),
)
