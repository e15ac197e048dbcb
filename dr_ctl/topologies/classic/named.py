"""The names of the checks of every Classic broker, and what each reads. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from dr_ctl.core.model import some
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.classic.findings import NO_CONSOLE_NAMED, POLICY_REFUSES, POLICY_REFUSES_PAUSE
from dr_ctl.topologies.common.named import Named


def _denied(view: ClassicBroker) -> str:
    return some(sorted(each.operation for each in view.denied)) or "nothing is refused"


BY_CONSOLE: Final[Sequence[Named[Any]]] = (
    Named(POLICY_REFUSES, _denied),
    Named(NO_CONSOLE_NAMED, lambda view: "Jolokia" if view.managed else "statistics only"),
    Named(POLICY_REFUSES_PAUSE, _denied),
)
