"""The gate of a pair with the replication plugin: the replica has every event, and both sites hold the same by id."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.replica import parity
from dr_ctl.topologies.replica.access import Observer
from dr_ctl.topologies.replica.view import BrokerView

COMPARED: Final = 1000  # messages of a queue that are compared by id, beside their number


class ReplicaVerifier(Verifier[BrokerView]):
    def __init__(self, observer: Observer, poll_s: float) -> None:
        self._brokers = observer
        super().__init__(observer, poll_s, observer.patience.window_s)

    def why_not_yet(self, now: Sample[BrokerView], before: Sample[BrokerView] | None, move: Move) -> list[str]:
        here, there = now.source, now.target
        found = super().why_not_yet(now, before, move)
        if not (here.is_source and there.is_replica):
            found.append(f"{here.site} is not the source of {there.site}")
        return found

    def differing(self, now: Sample[BrokerView], move: Move) -> list[str]:
        found = parity.differences(now.source, now.target, self.observer.queues)
        wrong = parity.not_accepted(found, move.ask.accept_difference)
        return [each.told(move.source, move.target) for each in wrong]

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        del move
        here, there = now.source, now.target
        brokers = self._brokers.brokers
        ours, theirs = brokers[here.site][here.pair], brokers[there.site][there.pair]
        depths: dict[str, Json] = {}
        compared = 0
        for name, queue in selected(here, self.observer.queues).items():
            other = there.named.get(name)
            if queue.depth:
                depths[name] = queue.depth
            if other is None or queue.depth != other.depth or not 0 < queue.depth <= COMPARED:
                continue
            difference = ids.differing(ours, queue, theirs, other)
            if difference.only_here or difference.only_there:
                text = (
                    f"{name}: {len(difference.only_here)} message(s) only at {here.site}, "
                    f"{len(difference.only_there)} only at {there.site}, although the counts are equal"
                )
                return Refused(text, findings=(SAME_COUNT_OTHER_MESSAGES(text, "Find out why before moving."),))
            compared += queue.depth
        return Done("the gate holds", {"ids_compared": compared, "depths": depths})
