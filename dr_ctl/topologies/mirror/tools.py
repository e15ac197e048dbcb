"""What acts at a mirror work with, and what they remember while a lost site is taken in."""

from __future__ import annotations

from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.origins import Residue
from dr_ctl.topologies.mirror.recovered import TakenIn
from dr_ctl.topologies.mirror.verifier import MirrorVerifier
from dr_ctl.topologies.mirror.view import BrokerView


class MirrorTools(Tools[BrokerView]):
    """`residue` is what each pair's returned broker held when it was counted, `taken_in` what became of it."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, MirrorVerifier(observer, recipe.rules.drain.poll))
        self.residue: dict[str, Residue] = {}
        self.taken_in = TakenIn()
