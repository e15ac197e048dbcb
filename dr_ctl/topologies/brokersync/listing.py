"""Lists a queue by id for a run: how, within which time, and the copies that nothing proves to be consumed."""

from dataclasses import dataclass, field
from typing import Final

from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import Read
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.reading import Access
from dr_ctl.topologies.brokersync.sync.accounts import SHOWN
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView
from dr_ctl.topologies.classic import browsing, ids
from dr_ctl.topologies.classic.ids import Listed
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Queue

DEEP: Final = 1000
"""A browse counts as a dispatch of each message that it shows, as for a client: small queues are left to the console,
which leaves no trace."""
BY_STOMP_S: Final = 0.0002  # a message; 40 000 of 500 bytes took 1.7 s
BY_CONSOLE_S: Final = 0.001  # 40 000 took 20 s
BEFORE: Final = "original-destination"
SHARE: Final = 0.5
"""Of a drain's time, for listings; copies are to be shipped in it, too."""
_Counts = tuple[str, int, int]


def listed(access: Access, view: BrokerView, queue: Queue | None, *, tries: int = 1) -> Listed:
    """List a queue of that broker whole. What the peer ships may come to a closed site meanwhile. Raises
    `BrokerError`."""
    grows = not view.open and not view.prepared
    if queue is None or queue.depth <= DEEP or (listener := access.agents_listener()) is None:
        return ids.listed(access, queue, tries=tries, grows=grows)
    before = _depth(access, queue)
    # Noted first: if this process dies meanwhile, the broker's counters prove too little, not too much.
    access.note(view.start, SHOWN, queue.name, before)
    found: dict[str, str | None] = {}
    for frame in browsing.browsed(listener, queue.name, client=AGENT):
        was = frame.headers.get(BEFORE)
        found[frame.headers["message-id"]] = was.removeprefix("/queue/") if was is not None else None
    access.note(view.start, SHOWN, queue.name, len(found) - before)
    return ids.whole(access.site, queue.name, found, before, _depth(access, queue), grows=grows)


def takes_s(view: BrokerView, depth: int) -> float:
    """How long a listing of so many messages may take."""
    return depth * (BY_STOMP_S if depth > DEEP and view.own.agent is not None else BY_CONSOLE_S)


def _depth(access: Access, queue: Queue) -> int:
    answer = access.reader().look([Read(queue.bean, ("QueueSize",))])[0]
    return ids.depth_of(answer.value())


@dataclass(slots=True)
class Compared:
    """Queues that lay alike at both sites, by id, with their counters then: where nothing came or left since, both
    sites need not be listed again."""

    _alike: dict[tuple[str, str], tuple[_Counts, _Counts]] = field(default_factory=dict)

    def note(self, source: BrokerView, target: BrokerView, queue: str, removed: int) -> None:
        """Both views are from before the listing; so many copies were removed at the target after it."""
        self._alike[source.pair, queue] = _counts(source, queue), _counts(target, queue, removed)

    def alike(self, source: BrokerView, target: BrokerView, queue: str) -> bool:
        return self._alike.get((source.pair, queue)) == (_counts(source, queue), _counts(target, queue))


def _counts(view: BrokerView, queue: str, removed: int = 0) -> _Counts:
    found = view.named.get(queue)
    return (view.start, found.added, found.removed + removed) if found is not None else (view.start, 0, 0)


def too_deep(rules: Rules, source: BrokerView, target: BrokerView, move: Move) -> frozenset[str]:
    """The queues whose listings would take longer than the run has, the deepest of them first left out."""
    left_s, found = rules.within(move) * SHARE, set[str]()
    for each in sorted(parity.counts(source, target, rules.queues), key=lambda each: max(each.source, each.target)):
        left_s -= max(takes_s(source, each.source), takes_s(target, each.target))
        if left_s < 0 and each.queue in source.copying:
            found.add(each.queue)
    return frozenset(found)


def own(access: Access, view: BrokerView, queue: str, listing: Listed) -> frozenset[str]:
    """The messages that only this broker ever had: not shipped yet, or sent here where nothing is shipped. Raises
    `BrokerError`."""
    if queue in view.copying:
        copies = view.copying[queue]
        return listed(access, view, copies).whole.ids if copies.depth else frozenset()
    arrives = view.arrives_by(queue)
    return frozenset(each for each, by in listing.came_by.items() if by != arrives)


def unproven(way: tuple[Access, Access], views: tuple[BrokerView, BrokerView], queue: str) -> frozenset[str]:
    """The copies of a queue that lie at the waiting site alone, unless the counters of the serving one cover them all.
    Serving site first. Raises `BrokerError`."""
    (serving, waiting), (here, there) = way, views
    lie = listed(waiting, there, there.named.get(queue), tries=ids.TRIES)
    copies = lie.whole.ids - own(waiting, there, queue, lie)
    listing = listed(serving, here, here.named.get(queue), tries=ids.TRIES).whole
    gone = covered(here, queue, copies, listing)
    return frozenset() if isinstance(gone, Consumed) else copies - listing.ids
