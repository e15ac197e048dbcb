"""Compares a mirrored pair at the gate: counts, queue by queue, and origin ids where a queue is shallow."""

from __future__ import annotations

from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.look import scheduled
from dr_ctl.topologies.mirror.origins import Origin, origin_ids
from dr_ctl.topologies.mirror.view import BrokerView


class MirrorVerifier(Verifier[BrokerView]):
    def __init__(self, observer: Observer, poll_s: float) -> None:
        self._brokers = observer
        super().__init__(observer, poll_s, observer.patience.window_s)

    def differing(self, now: Sample[BrokerView], move: Move) -> list[str]:
        found = parity.differences(now.source, now.target, self.observer.queues)
        wrong = parity.not_accepted(found, move.ask.accept_difference)
        return [each.told(move.source, move.target) for each in wrong]

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        """Compare the messages by identity, where a queue is shallow enough to look at each."""
        here = selected(now.source, self.observer.queues)
        there = selected(now.target, self.observer.queues)
        shallow = [
            name
            for name, queue in here.items()
            if name in there and 0 < queue.depth == there[name].depth <= parity.ORIGINS_UP_TO
        ]
        if shallow:  # delayed messages are in no listing
            source = self._brokers.brokers[move.source][now.source.pair]
            waiting = scheduled(source.reader(), [here[name] for name in shallow])
            shallow = [name for name, count in zip(shallow, waiting, strict=True) if not count]

        def ids(access: Access) -> list[frozenset[Origin]]:
            view, queues = (now.source, here) if access.site == now.source.site else (now.target, there)
            return origin_ids(access.reader(), view, [queues[name] for name in shallow], limit=parity.ORIGINS_UP_TO)

        sites = self._brokers.brokers
        mine, others = self.observer.together(
            ids, [sites[site][now.source.pair] for site in (move.source, move.target)]
        )
        for name, ours, theirs in zip(shallow, mine, others, strict=True):
            if ours != theirs:
                text = f"{name}: {len(ours - theirs)} message(s) only at {now.source.site}, {len(theirs - ours)} only "
                text += f"at {now.target.site}, although the counts are equal"
                return Refused(text, findings=(SAME_COUNT_OTHER_MESSAGES(text, "Find out why before moving."),))
        depths: dict[str, Json] = {name: queue.depth for name, queue in here.items() if queue.depth}
        compared = sum(len(each) for each in mine)
        return Done("the gate holds", {"ids_compared": compared, "depths": depths})
