"""The gate of a fan-out pair: clients are out, both sites hold the same by the producers' ids; producers go on."""

from __future__ import annotations

from dr_ctl.core.model import Json, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.fanout import parity
from dr_ctl.topologies.fanout.access import Observer
from dr_ctl.topologies.fanout.ids import Comparing
from dr_ctl.topologies.fanout.view import BrokerView


class FanoutVerifier(Verifier):
    def __init__(self, observer: Observer, comparing: Comparing, poll_s: float) -> None:
        self._brokers, self._comparing = observer, comparing
        super().__init__(observer, poll_s, observer.patience.mirror_window_s)

    def differing(self, now: Sample, move: Move) -> list[str]:
        """Counts say nothing while producers write to one site a moment before the other."""
        del now, move
        return []

    def same(self, now: Sample, move: Move) -> Outcome:
        here, there = now.source, now.target
        assert isinstance(here, BrokerView)
        assert isinstance(there, BrokerView)
        way = (self._brokers.brokers[here.site][here.pair], self._brokers.brokers[there.site][there.pair])
        compared: dict[str, Json] = {}
        wrong = []
        for each in parity.counts(here, there, Queues()):
            if not each.source and not each.target:
                continue
            queues = here.named.get(each.queue), there.named.get(each.queue)
            apart = self._comparing.apart(way, queues, self._pause, self._brokers.clock.monotonic)
            compared[each.queue] = each.source
            if apart.lacks and move.ask.accept_difference.get(each.queue) != len(apart.lacks):
                wrong.append(f"{each.queue}: {len(apart.lacks)} message(s) only at {here.site}")
            if apart.done and move.ask.accept_difference.get(each.queue) != len(apart.done):
                wrong.append(f"{each.queue}: {len(apart.done)} consumed at {here.site} lie at {there.site}")
        if wrong:
            return Refused(
                some(wrong), findings=(SAME_COUNT_OTHER_MESSAGES(some(wrong), "Find out why before moving."),)
            )
        return Done("the gate holds", {"compared_by_id": compared})

    def _pause(self) -> None:
        self._brokers.clock.sleep(self._poll_s)
