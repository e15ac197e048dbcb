"""The gate of a BrokerSync pair, and the tools of acts at it."""

from dataclasses import dataclass, field

from dr_ctl.core.document import key
from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.ports import Done, Move, Outcome, Refused
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.checks import not_compared
from dr_ctl.topologies.brokersync.listing import Compared, listed, too_deep
from dr_ctl.topologies.brokersync.reading import Observer
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common.gate import Sample, Verifier, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import Sender, Tools


class SyncVerifier(Verifier[BrokerView]):
    """`compared` are queues that an act of the same run has compared already."""

    observer: Observer

    def __init__(self, observer: Observer, rules: Rules, compared: Compared) -> None:
        self._rules, self._compared = rules, compared
        super().__init__(observer, rules.drain.poll)

    def differing(self, now: Sample[BrokerView], move: Move) -> list[str]:
        found = parity.differing(now.source, now.target, self.observer.queues)
        return [
            each.told(move.source, move.target)
            for each in found
            if move.ask.accept_difference.get(each.queue) != abs(each.source - each.target)
        ]

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        here, there = now.source, now.target
        depths: dict[str, Json] = {}
        compared, left = 0, list[Finding]()
        deep = too_deep(self._rules, here, there, move)
        for each in parity.counts(here, there, self.observer.queues):
            if each.source:
                depths[each.queue] = each.source
            if each.source != each.target or not each.source:
                continue
            if not self._compared.alike(here, there, each.queue):
                if each.queue in deep:
                    left.append(not_compared(each, here.site, there.site))
                    continue
                if (refused := self._differ(each.queue, here, there)) is not None:
                    return refused
            compared += each.source
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(left))

    def _differ(self, queue: str, here: BrokerView, there: BrokerView) -> Refused | None:
        views = {view.site: view for view in (here, there)}
        way = [self.observer.brokers[site][here.pair] for site in views]
        ours, theirs = self.observer.together(
            lambda access: listed(access, views[access.site], views[access.site].named.get(queue)).whole.ids, way
        )
        if ours == theirs:
            return None
        ids = {f"only at {here.site}": ours - theirs, f"only at {there.site}": theirs - ours}
        counts = ", ".join(f"{len(messages)} {place}" for place, messages in ids.items())
        return refused("DR-PARITY-004.equal_counts", {queue: ids}, queue=queue, counts=counts)


@dataclass
class TakenIn:
    """Messages of the returned site, sorted by a return, by queue. `recovered` ones were shipped late. `done_there`
    ones were not shipped and had left their queue there: they are kept aside. `done_here` ones still lay there, the
    other site had consumed them since, and they were removed. `duplicates`: so many more that nothing proves."""

    recovered: dict[str, int] = field(default_factory=dict, metadata=key(of="recovered_in_all"))
    done_there: dict[str, int] = field(default_factory=dict, metadata=key("consumed_before_the_loss"))
    done_here: dict[str, int] = field(default_factory=dict, metadata=key("consumed_since"))
    duplicates: dict[str, int] = field(default_factory=dict, metadata=key("possible_duplicates"))

    @property
    def recovered_in_all(self) -> int:
        return sum(self.recovered.values())

    @property
    def text(self) -> str:
        every = (self.recovered, self.done_there, self.done_here, self.duplicates)
        recovered, there, here, duplicates = (sum(each.values()) for each in every)
        text = (
            f"{recovered} message(s) recovered; not delivered again: {there} that had left their queue there before "
            f"the loss, {here} that were consumed since"
        )
        return f"{text}; {duplicates} may come as duplicates" if duplicates else text


class SyncTools(Tools[BrokerView]):
    """`rejoined` is what a return has found out; `compared` are queues that were compared by id."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, SyncVerifier(observer, recipe.rules, compared := Compared()))
        self.compared = compared
        self.rejoined = TakenIn()
        self.connects_s = self.timeouts.link_attach_s
