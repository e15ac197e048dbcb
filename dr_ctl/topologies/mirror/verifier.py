"""Compares a mirrored pair at the gate: counts, queue by queue, and origin ids where a queue is shallow."""

from collections.abc import Iterable
from dataclasses import dataclass

from dr_ctl.core.model import Finding, Json, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.common.apart import accepting, refused
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.verifier import Verifier
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.findings import COMPARED_BY_COUNT
from dr_ctl.topologies.mirror.look import scheduled
from dr_ctl.topologies.mirror.origins import Browsed, Origin, browsed, told
from dr_ctl.topologies.mirror.view import BrokerView


@dataclass(frozen=True, slots=True)
class _Apart:
    """The messages of one queue that lie at one site alone."""

    queue: str
    only_here: frozenset[Origin]
    only_there: frozenset[Origin]

    @property
    def size(self) -> int:
        return max(len(self.only_here), len(self.only_there))


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

        def ids(access: Access) -> list[Browsed]:
            view, queues = (now.source, here) if access.site == now.source.site else (now.target, there)
            return browsed(access.reader(), view, [queues[name] for name in shallow], limit=parity.ORIGINS_UP_TO)

        sites = self._brokers.brokers
        mine, others = self.observer.together(
            ids, [sites[site][now.source.pair] for site in (move.source, move.target)]
        )
        both = dict(zip(shallow, zip(mine, others, strict=True), strict=True))
        apart = [_Apart(name, *_alone(*each)) for name, each in both.items()]
        wrong = [each for each in apart if each.size and move.ask.accept_difference.get(each.queue) != each.size]
        if wrong:
            return _refused(wrong, move)
        unnamed = {name: max(ours.unnamed, theirs.unnamed) for name, (ours, theirs) in both.items()}
        depths: dict[str, Json] = {name: queue.depth for name, queue in here.items() if queue.depth}
        compared = sum(len(each.numbers) for each in mine)
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(_by_count(unnamed)))


def _alone(here: Browsed, there: Browsed) -> tuple[frozenset[Origin], frozenset[Origin]]:
    """The messages at one site alone; none while those whose origin is not shown can be all of them."""
    only_here, only_there = here.ids - there.ids, there.ids - here.ids
    explained = len(only_here) <= there.unnamed and len(only_there) <= here.unnamed
    return (frozenset(), frozenset()) if explained else (only_here, only_there)


def _refused(wrong: list[_Apart], move: Move) -> Refused:
    source, target = move.source, move.target
    counts = [
        f"{each.queue}: {len(each.only_here)} message(s) only at {source}, {len(each.only_there)} only at {target}"
        for each in wrong
    ]
    remedy = (
        "An id is the node where a message was born, and its messageID there. Run the command again where clients "
        f"worked meanwhile. {accepting({each.queue: each.size for each in wrong})} moves all the same: what lies only "
        f"at {source} stays there, and what lies only at {target} is delivered."
    )
    ids = {each.queue: {f"only at {source}": each.only_here, f"only at {target}": each.only_there} for each in wrong}
    named = {queue: {what: {*map(told, each)} for what, each in both.items()} for queue, both in ids.items()}
    return refused(f"{some(counts)}, although the counts are equal", remedy, named)


def _by_count(unnamed: dict[str, int]) -> Iterable[Finding]:
    if named := [f"{count} of {name}" for name, count in unnamed.items() if count]:
        yield COMPARED_BY_COUNT(f"compared by count alone, as their broker shows no origin of them: {some(named)}")
