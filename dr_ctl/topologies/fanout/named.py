"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named, doors
from dr_ctl.topologies.fanout.view import BrokerView

BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named("DR-FAN-001", "producers can write to it", lambda view: doors(view.producers_doors)),
    Named("DR-FAN-003", "messages can be copied", lambda view: view.config.own or "no connector of dr-ctl's own"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-FAN-002", "producers write to both sites", lambda view: f"{view.site} {len(view.producers)} producer(s)"),
    Named(
        "DR-PARITY-001",
        "the waiting site holds no fewer than the serving one",
        lambda view: f"{view.site} {sum(each.depth for each in view.business.values())} message(s)",
    ),
)
