"""The names of the checks of every Classic broker, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dr_ctl.core.model import some
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common.named import Named


def _denied(view: ClassicBroker) -> str:
    return some(sorted(each.operation for each in view.denied)) or "nothing is refused"


BY_CONSOLE: Final[Sequence[Named[Any]]] = (
    Named("DR-POLICY-001", "the console lets through what a run needs", _denied),
    Named("DR-POLICY-003", "it can be managed", lambda view: "Jolokia" if view.managed else "statistics only"),
    Named("DR-POLICY-002", "the console lets queues be paused", _denied),
)
