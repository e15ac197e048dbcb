"""The tools of acts at brokers of a shared store."""

from __future__ import annotations

from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.sharedstore.access import Observer
from dr_ctl.topologies.sharedstore.verifier import StoreVerifier
from dr_ctl.topologies.sharedstore.view import BrokerView


class StoreTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, StoreVerifier(observer, recipe.rules.drain.poll))
