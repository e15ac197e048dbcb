"""The gate of a fan-out pair: clients are out, both sites hold the same by the producers' ids; producers go on."""

from dr_ctl.core.model import Json, Severity, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.apart import accepting, refused
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.fanout import parity
from dr_ctl.topologies.fanout.checks import possible_duplicates
from dr_ctl.topologies.fanout.ids import Comparing
from dr_ctl.topologies.fanout.observer import Observer
from dr_ctl.topologies.fanout.view import BrokerView


class FanoutVerifier(Verifier[BrokerView]):
    def __init__(self, observer: Observer, comparing: Comparing, poll_s: float) -> None:
        self._brokers, self._comparing = observer, comparing
        super().__init__(observer, poll_s, observer.patience.window_s)

    def differing(self, now: Sample[BrokerView], move: Move) -> list[str]:
        """Counts say nothing while producers write to one site a moment before the other."""
        del now, move
        return []

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        here, there = now.source, now.target
        way = (self._brokers.brokers[here.site][here.pair], self._brokers.brokers[there.site][there.pair])
        counts = [each for each in parity.counts(here, there, Queues()) if each.source or each.target]
        queues = {each.queue: (here.named.get(each.queue), there.named.get(each.queue)) for each in counts}
        compared: dict[str, Json] = {each.queue: each.source for each in counts}
        wrong, accepted = list[str](), move.ask.accept_difference
        ids: dict[str, dict[str, frozenset[str]]] = {}
        found = self._comparing.apart(way, queues, self._pause, self._brokers.clock.monotonic)
        for name, apart in found.items():
            if apart.lacks and accepted.get(name) != len(apart.lacks):
                wrong.append(f"{name}: {len(apart.lacks)} message(s) only at {here.site}")
                ids.setdefault(name, {})[f"only at {here.site}"] = apart.lacks
            if apart.done.ids and accepted.get(name) != len(apart.done.ids):
                wrong.append(f"{name}: {len(apart.done.ids)} consumed at {here.site} lie at {there.site}")
                ids.setdefault(name, {})[f"consumed, and at {there.site}"] = apart.done.ids
        duplicates = possible_duplicates(self._comparing.untold(found), move, there.site)
        if any(each.severity is Severity.ERROR for each in duplicates):
            return Refused(duplicates[0].text, findings=tuple(duplicates))
        if wrong:
            sizes = {name: len(each) for name, by in ids.items() for each in by.values()}
            return refused(some(wrong), f"Look at these messages; {accepting(sizes)} moves with them as they are.", ids)
        return Done("the gate holds", {"compared_by_id": compared}, tuple(duplicates))

    def _pause(self) -> None:
        self._brokers.clock.sleep(self._poll_s)
