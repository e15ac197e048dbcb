"""The gate of a BrokerSync pair: no copy is left to ship, and both sites hold the same messages by id."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.access import Observer
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.verifier import Verifier

COMPARED: Final = 1000  # messages of a queue that are compared by id, beside their number


class SyncVerifier(Verifier):
    def __init__(self, observer: Observer, poll_s: float) -> None:
        self._brokers = observer
        super().__init__(observer, poll_s, observer.patience.mirror_window_s)

    def differing(self, now: Sample, move: Move) -> list[str]:
        found = parity.differing(*_views(now), self.observer.queues)
        return [
            each.told(move.source, move.target)
            for each in found
            if move.ask.accept_difference.get(each.queue) != abs(each.source - each.target)
        ]

    def same(self, now: Sample, move: Move) -> Outcome:
        del move
        here, there = _views(now)
        depths: dict[str, Json] = {}
        compared = 0
        for each in parity.counts(here, there, self.observer.queues):
            if each.source:
                depths[each.queue] = each.source
            if each.source != each.target or not 0 < each.source <= COMPARED:
                continue
            ours, theirs = here.named.get(each.queue), there.named.get(each.queue)
            sites = self._brokers.brokers
            difference = ids.differing(sites[here.site][here.pair], ours, sites[there.site][there.pair], theirs)
            if difference.only_here or difference.only_there:
                text = (
                    f"{each.queue}: {len(difference.only_here)} message(s) only at {here.site}, "
                    f"{len(difference.only_there)} only at {there.site}, although the counts are equal"
                )
                return Refused(text, findings=(SAME_COUNT_OTHER_MESSAGES(text, "Find out why before moving."),))
            compared += each.source
        return Done("the gate holds", {"ids_compared": compared, "depths": depths})


def _views(now: Sample) -> tuple[BrokerView, BrokerView]:
    assert isinstance(now.source, BrokerView)
    assert isinstance(now.target, BrokerView)
    return now.source, now.target
