"""Findings of what keeps clients from working at a broker whose doors are open. Pure."""

from collections.abc import Callable, Iterator

from dr_ctl.core.model import Finding, Severity
from dr_ctl.topologies.common.findings import CLIENTS_CANNOT_WORK
from dr_ctl.topologies.common.view import Broker


def of_obstacles(
    view: Broker, severity: Severity, includes: Callable[[str], bool] = lambda _: True, *, unknown: bool = True
) -> Iterator[Finding]:
    """Everything of the kind, with what a broker cannot tell yet unless `unknown` is false; of addresses, only those
    that are included."""
    for each in view.obstacles:
        if (each.known or unknown) and (not each.addresses or any(includes(name) for name in each.addresses)):
            yield CLIENTS_CANNOT_WORK(f"{view.site}/{view.pair}: {each.text}", each.remedy, severity=severity)
