"""The topology `artemis-mirror`: two sites that mirror each other over AMQP broker connections."""

from __future__ import annotations

from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.core.patience import Patience
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.artemis.documents import Documents
from dr_ctl.topologies.common.topology import CommonTopology
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.procedure import driver, recipe
from dr_ctl.topologies.mirror.view import BrokerView


def open_(installation: Installation, clock: Clock, patience: Patience, documents: Path) -> CommonTopology[BrokerView]:
    """Make it ready for one command. No broker is asked yet."""
    del documents  # these brokers keep them
    settings = installation.settings
    observer = Observer(installation, clock, patience)
    decides = recipe(settings.queues, settings.drain, patience)
    return CommonTopology(
        observer,
        decides,
        lambda sender: driver(observer, decides, sender),
        lambda: [Documents(access) for site in settings.sites for access in observer.at(site)],
    )
