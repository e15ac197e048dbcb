"""The tools of acts at a BrokerSync pair, and the results of a return."""

from dataclasses import dataclass, field

from dr_ctl.core.model import Json
from dr_ctl.topologies.brokersync.access import Observer
from dr_ctl.topologies.brokersync.in_time import Compared
from dr_ctl.topologies.brokersync.verifier import SyncVerifier
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.sender import Sender
from dr_ctl.topologies.common.tools import Tools


@dataclass
class TakenIn:
    """Messages of the returned site, sorted by a return, by queue. `recovered` ones were shipped late. `done_there`
    ones were not shipped and had left their queue there: they are kept aside. `done_here` ones still lay there, the
    other site had consumed them since, and they were removed. `duplicates`: so many more that nothing proves."""

    recovered: dict[str, int] = field(default_factory=dict)
    done_there: dict[str, int] = field(default_factory=dict)
    done_here: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        every = (self.recovered, self.done_there, self.done_here, self.duplicates)
        recovered, there, here, duplicates = (sum(each.values()) for each in every)
        text = (
            f"{recovered} message(s) recovered; not delivered again: {there} that had left their queue there before "
            f"the loss, {here} that were consumed since"
        )
        return f"{text}; {duplicates} may come twice" if duplicates else text

    def as_json(self) -> dict[str, Json]:
        return {
            "recovered": sum(self.recovered.values()),
            "consumed_before_the_loss": dict(self.done_there),
            "consumed_since": dict(self.done_here),
            "possible_duplicates": dict(self.duplicates),
        }


class SyncTools(Tools[BrokerView]):
    """`taken_in` is what a return has found out; `compared` are queues that were compared by id."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, SyncVerifier(observer, recipe.rules, compared := Compared()))
        self.compared = compared
        self.taken_in = TakenIn()
