"""The topology `artemis-continuity`: two sites that the continuity plugin joins."""

from __future__ import annotations

from pathlib import Path

from dr_ctl.core.clock import Clock
from dr_ctl.core.patience import Patience
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.common.topology import PairTopology
from dr_ctl.topologies.continuity import procedure
from dr_ctl.topologies.continuity.access import Observer
from dr_ctl.topologies.continuity.view import SiteView


def open_(installation: Installation, clock: Clock, patience: Patience, documents: Path) -> PairTopology[SiteView]:
    """Make it ready for one command. No broker is asked yet."""
    del documents  # these brokers keep them
    observer = Observer(installation, clock, patience)
    recipe = procedure.recipe(installation.settings.queues, installation.settings.drain, patience)
    return PairTopology(observer, recipe, lambda sender: procedure.driver(observer, recipe, sender))
