"""Acts on a mirrored pair: what the links ask for, beside what all Artemis brokers have in common."""

from __future__ import annotations

from dr_ctl.topologies.artemis.driver import ArtemisDriver
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.draining import Draining
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.reinstating import Reinstating
from dr_ctl.topologies.mirror.verifying import Verifying
from dr_ctl.topologies.mirror.view import BrokerView


class MirrorDriver(ArtemisDriver[BrokerView]):
    """The acting half of the topology; one instance serves one command."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        super().__init__(
            observer,
            recipe,
            sender,
            verifying=Verifying(observer, recipe.poll_s),
            draining=Draining(observer, recipe, sender),
            returning=Reinstating(observer, recipe, sender),
        )
