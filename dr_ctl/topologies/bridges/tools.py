"""The tools of acts at brokers that diverts and bridges join, and the results of a return."""

from dr_ctl.topologies.bridges.access import Observer
from dr_ctl.topologies.bridges.verifier import BridgesVerifier
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools


class BridgesTools(Tools[BrokerView]):
    """`residue` is what each pair's returned broker
    held when it was counted."""

    observer: Observer
    gate: BridgesVerifier

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, BridgesVerifier(observer, recipe.rules.drain.poll))
        self.residue: dict[str, Residue] = {}
