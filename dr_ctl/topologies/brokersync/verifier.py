"""The gate of a BrokerSync pair: no copy is left to ship, and both sites hold the same messages by id."""

from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.access import Observer
from dr_ctl.topologies.brokersync.checks import not_compared
from dr_ctl.topologies.brokersync.in_time import Compared, too_deep
from dr_ctl.topologies.brokersync.listing import listed
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common.apart import refused
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verifier import Verifier


class SyncVerifier(Verifier[BrokerView]):
    """`compared` are queues that an act of the same run has compared already."""

    def __init__(self, observer: Observer, rules: Rules, compared: Compared) -> None:
        self._brokers, self._rules, self._compared = observer, rules, compared
        super().__init__(observer, rules.drain.poll, observer.patience.window_s)

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
        way = [self._brokers.brokers[site][here.pair] for site in views]
        ours, theirs = self._brokers.together(
            lambda access: listed(access, views[access.site], views[access.site].named.get(queue)).whole.ids, way
        )
        if ours == theirs:
            return None
        text = (
            f"{queue}: {len(ours - theirs)} message(s) only at {here.site}, {len(theirs - ours)} only at "
            f"{there.site}, although the counts are equal"
        )
        ids = {f"only at {here.site}": ours - theirs, f"only at {there.site}": theirs - ours}
        return refused(text, "Look at these messages, by their JMSMessageID; then run the command again.", {queue: ids})
