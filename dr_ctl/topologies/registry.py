"""The topologies there are, by the id that the settings name: what a command needs of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.model import Json
from dr_ctl.rpo.history import Row
from dr_ctl.settings.model import Drain, Installation, Queues
from dr_ctl.topologies.artemis.access import Observer
from dr_ctl.topologies.artemis.driver import ArtemisDriver
from dr_ctl.topologies.artemis.recipe import ArtemisRecipe
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.showing import Carried
from dr_ctl.topologies.artemis.verifying import Verifying
from dr_ctl.topologies.continuity import access as continuity_access
from dr_ctl.topologies.continuity import showing as continuity_showing
from dr_ctl.topologies.continuity.driver import ContinuityDriver
from dr_ctl.topologies.continuity.recipe import ContinuityRecipe
from dr_ctl.topologies.continuity.verifying import Verifying as ContinuityVerifying
from dr_ctl.topologies.mirror import access as mirror_access
from dr_ctl.topologies.mirror import showing as mirror_showing
from dr_ctl.topologies.mirror.driver import MirrorDriver
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.verifying import Verifying as MirrorVerifying


@dataclass(frozen=True, slots=True)
class Topology:
    """The parts of one topology. What they are made of is its own: whoever holds one does not look inside."""

    observer: Callable[[Installation, Clock, Callable[[float], object]], Observer[Any]]
    recipe: Callable[[Queues, Drain], ArtemisRecipe[Any]]
    driver: Callable[[Any, Any, Sender], ArtemisDriver[Any]]
    verifying: Callable[[Any, float], Verifying]
    link: Callable[[Any, Any, float], dict[str, Json]]
    lines: Callable[[Mapping[str, Json]], list[str]]
    rows: Callable[[Any, Any, datetime], list[Row]]
    carried: Callable[[Any, Any], Carried]


TOPOLOGIES: Final[Mapping[str, Topology]] = {
    "artemis-mirror": Topology(
        observer=mirror_access.Observer,
        recipe=MirrorRecipe,
        driver=MirrorDriver,
        verifying=MirrorVerifying,
        link=mirror_showing.link,
        lines=mirror_showing.lines,
        rows=mirror_showing.rows,
        carried=mirror_showing.carried,
    ),
    "artemis-continuity": Topology(
        observer=continuity_access.Observer,
        recipe=ContinuityRecipe,
        driver=ContinuityDriver,
        verifying=ContinuityVerifying,
        link=continuity_showing.link,
        lines=continuity_showing.lines,
        rows=continuity_showing.rows,
        carried=continuity_showing.carried,
    ),
}


def of(installation: Installation) -> Topology:
    """The topology that an installation names."""
    return TOPOLOGIES[installation.settings.topology]
