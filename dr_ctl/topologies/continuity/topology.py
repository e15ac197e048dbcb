"""The topology `artemis-continuity`: two sites that the continuity plugin joins."""

from __future__ import annotations

from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.artemis.topology import ArtemisTopology
from dr_ctl.topologies.continuity.access import Observer
from dr_ctl.topologies.continuity.driver import ContinuityDriver
from dr_ctl.topologies.continuity.recipe import ContinuityRecipe
from dr_ctl.topologies.continuity.view import SiteView


def open_(installation: Installation, clock: Clock, documents: Path) -> ArtemisTopology[SiteView]:
    """Make it ready for one command. No broker is asked yet."""
    del documents  # these brokers keep them
    settings = installation.settings
    observer, recipe = Observer(installation, clock), ContinuityRecipe(settings.queues, settings.drain)
    return ArtemisTopology(observer, recipe, lambda sender: ContinuityDriver(observer, recipe, sender))
