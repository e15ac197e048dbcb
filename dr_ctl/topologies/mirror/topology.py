"""The topology `artemis-mirror`: two sites that mirror each other over AMQP broker connections."""

from __future__ import annotations

from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.artemis.topology import ArtemisTopology
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.driver import MirrorDriver
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.view import BrokerView


def open_(installation: Installation, clock: Clock, documents: Path) -> ArtemisTopology[BrokerView]:
    """Make it ready for one command. No broker is asked yet."""
    del documents  # these brokers keep them
    settings = installation.settings
    observer, recipe = Observer(installation, clock), MirrorRecipe(settings.queues, settings.drain)
    return ArtemisTopology(observer, recipe, lambda sender: MirrorDriver(observer, recipe, sender))
