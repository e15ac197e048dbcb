"""Whether the waiting site holds the serving site's messages, queue by queue and by count. Pure.

Other messages there were consumed at the serving site, or are on their way to it: ids tell which.
"""

from collections import Counter as Times
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.rules import Counts, at_both
from dr_ctl.topologies.fanout.counting import Checkpoints, Counted, Counters, QueueAtSite
from dr_ctl.topologies.fanout.view import BrokerView


def counts(source: BrokerView, target: BrokerView, queues: Queues) -> list[Counts]:
    """Count every selected queue of clients, by name; dead letters are left out, because every broker fills its own."""
    return [
        counts
        for counts, either in at_both(source, target, queues)
        if not any(queue is not None and queue.dead_letter_address is not None for queue in either)
    ]


def lacking(source: BrokerView, target: BrokerView, queues: Queues, traffic: Mapping[str, int]) -> list[Counts]:
    """Queues of which the target holds fewer, by more than what moved between two readings can explain."""
    counted = counts(source, target, queues)
    return [row for row in counted if row.source - row.target > traffic.get(row.queue, 0)]


def counted(
    view: BrokerView, peer: BrokerView, readings: Sequence[tuple[Counters, Counters]], took_s: float
) -> Counted:
    """What several readings of one queue's counters at both sites say together; there is one at least."""
    ahead = sorted(other.added - one.added for one, other in readings)
    [(often, times)] = Times(ahead).most_common(1)
    apart = len(ahead) // 4  # a reading that met a lull of one site's says nothing
    quartiles = (often, often) if 2 * times > len(ahead) else (ahead[apart], ahead[-1 - apart])
    first, last = readings[0], readings[-1]
    taken = [(now.removed - was.removed) / took_s if took_s > 0 else 0.0 for was, now in zip(first, last, strict=True)]
    return Counted(
        QueueAtSite(view.site, view.start, last[0]),
        QueueAtSite(peer.site, peer.start, last[1]),
        quartiles,
        {view.site: taken[0], peer.site: taken[1]},
    )


@dataclass(frozen=True, slots=True)
class Undecided:
    """Messages of a queue at the waiting site that nothing proves to be consumed, and `why`; `taken_per_s` is how fast
    they become more while clients work."""

    count: int
    why: str
    taken_per_s: float = 0.0


UNMATCHED: Final = "known by their ids to lie there alone"
ONE_SITE_ALONE: Final = "a message came to one site alone since both were compared"
NOT_COUNTED: Final = "a broker was restarted since both were compared"
TAKEN: Final = "clients took messages while both were compared"


def undecided(source: BrokerView, target: BrokerView) -> Mapping[str, Undecided]:
    """The queues of which messages at the target may come as duplicates, as the gate will judge once clients are out;
    none where consumers write down what they have done."""
    if source.own.stored:
        return {}
    checkpoints = Checkpoints.read({**source.documents, **target.documents})
    by_queue = {}
    for row in counts(source, target, Queues()):
        unmatched = sum(
            len(mark.unmatched) for site, mark in checkpoints.queues.get(row.queue, {}).items() if site == target.site
        )
        copies = _undecided(row, min(unmatched, row.target), source.counted.get(row.queue), checkpoints, source.site)
        if copies.count:
            by_queue[row.queue] = copies
    return by_queue


def _undecided(counts: Counts, unmatched: int, now: Counted | None, checkpoints: Checkpoints, source: str) -> Undecided:
    if now is None:
        return Undecided(unmatched, UNMATCHED)
    forward = now.first.site == source
    view, peer = (now.first, now.second) if forward else (now.second, now.first)
    taken = now.taken_per_s[source]
    more = max(counts.more, unmatched)
    since = checkpoints.since(counts.queue, view, peer)
    if since is None:
        return Undecided(now.unmatched.get(peer.site, more), NOT_COUNTED, taken)
    first, second = (since.local, since.remote) if forward else (since.remote, since.local)
    if now.level(first, second) and counts.more - unmatched <= since.consumed(view.counters, peer.counters):
        return Undecided(unmatched, UNMATCHED)
    return Undecided(more, ONE_SITE_ALONE, taken)
