"""The tools of acts at brokers of a shared store."""

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

    def by_hand(self, site: str, by_console: str) -> str:
        """A broker that has ended has no console: the first broker that starts takes the store and serves."""
        del by_console
        others = [access for name in self.observer.brokers if name != site for access in self.observer.at(name)]
        starts = [access.own.start for access in (*others, *self.observer.at(site))]
        return f"{' or '.join(starts)}: the first that starts takes the store and serves"
