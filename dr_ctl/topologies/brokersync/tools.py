"""The gate of a BrokerSync pair, how its queues are listed by id, and the tools of acts at it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.document import key
from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.ports import Done, Failed, Move, Outcome
from dr_ctl.jolokia.client import Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync import checks
from dr_ctl.topologies.brokersync.checks import DEEP, not_compared
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.reading import Observer, Session
from dr_ctl.topologies.brokersync.sync.queue import SHOWN
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.beans import COUNT, Count
from dr_ctl.topologies.classic.ids import Listed
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.gate import Gate, PairReading, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.view import Queue

BEFORE: Final = "original-destination"
_Counts = tuple[str, int, int]


def listed(session: Session, view: BrokerView, name: str, *, tries: int = 1) -> Listed:
    """List a queue of that broker whole. What the peer ships may come to a closed site meanwhile."""
    queue, grows = view.by_name.get(name), not view.open and not view.prepared
    if queue is None or queue.depth <= DEEP or (listener := session.agents_listener()) is None:
        return ids.listed(session, queue, tries=tries, grows=grows)
    before = _count(session, queue)
    # Noted first: if this process dies meanwhile, the broker's counters prove too little, not too much.
    session.noted.note(view.start, SHOWN, queue.name, before.depth)
    origins: dict[str, str | None] = {}
    for frame in ids.browsed(listener, queue.name, client=AGENT):
        was = frame.headers.get(BEFORE)
        origins[frame.headers["message-id"]] = was.removeprefix("/queue/") if was is not None else None
    session.noted.note(view.start, SHOWN, queue.name, len(origins) - before.depth)
    return ids.complete(session.site, queue.name, origins, before, _count(session, queue), grows=grows)


def _count(session: Session, queue: Queue) -> Count:
    answer = session.reader().read([Read(queue.bean, COUNT)])[0]
    return Count.of(Fields(queue.name, answer.value()))


@dataclass(slots=True)
class Compared:
    """Queues that lay alike at both sites, by id, with their counters then: these are not listed again."""

    _alike: dict[tuple[str, str], tuple[_Counts, _Counts]] = field(default_factory=dict)

    def note(self, source: BrokerView, target: BrokerView, queue: str, removed: int) -> None:
        """Both views are from before the listing; so many copies were removed at the target after it."""
        self._alike[source.pair, queue] = _counts(source, queue), _counts(target, queue, removed)

    def alike(self, source: BrokerView, target: BrokerView, queue: str) -> bool:
        return self._alike.get((source.pair, queue)) == (_counts(source, queue), _counts(target, queue))


def _counts(view: BrokerView, queue: str, removed: int = 0) -> _Counts:
    named = view.by_name.get(queue)
    return (view.start, named.added, named.removed + removed) if named is not None else (view.start, 0, 0)


def own(session: Session, view: BrokerView, queue: str, listing: Listed) -> frozenset[str]:
    """The messages that only this broker ever had: not shipped yet, or sent here where nothing is shipped."""
    if queue in view.copying:
        copies = view.copying[queue]
        return listed(session, view, copies.name).complete.ids if copies.depth else frozenset()
    arrives = view.arrives_by(queue)
    return frozenset(id_ for id_, by in listing.came_by.items() if by != arrives)


def copies_alone(
    ends: tuple[Session, Session], views: tuple[BrokerView, BrokerView], queue: str
) -> tuple[frozenset[str], Consumed | str]:
    """The copies of a queue that lie at the waiting site alone, and the proof that they were consumed, or why there is
    none. Serving site first; clients work there, so the other one is listed before it. Raises `BrokerError`."""
    (serving, waiting), (view, peer) = ends, views
    lie = listed(waiting, peer, queue, tries=ids.TRIES)
    copies = lie.complete.ids - own(waiting, peer, queue, lie)
    listing = listed(serving, view, queue, tries=ids.TRIES).complete
    return copies - listing.ids, covered(view, queue, copies, listing)


def both_listed(observer: Observer, views: Sequence[BrokerView], queue: str) -> list[Listed]:
    """List a queue at both sites, side by side: no client works. Raises `BrokerError`."""
    by_site = {view.site: view for view in views}
    ends = [observer.brokers[view.site][view.pair] for view in views]
    return observer.ask_all(lambda session: listed(session, by_site[session.site], queue), ends)


class SyncGate(Gate[BrokerView]):
    """`compared` are queues that an act of the same run has compared already."""

    observer: Observer

    def __init__(self, observer: Observer, rules: Rules, compared: Compared) -> None:
        self._rules, self._compared = rules, compared
        super().__init__(observer, rules.drain.poll)

    def differing(self, now: PairReading[BrokerView], move: Move) -> list[str]:
        accepted = move.spec.accept_difference
        return [
            counted.text(move.source, move.target)
            for counted in checks.counts(now.source, now.target, self.observer.queues)
            if counted.more and accepted.get(counted.queue) != abs(counted.more)
        ]

    def same(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        depths: dict[str, Json] = {}
        compared, findings = 0, list[Finding]()
        deep = checks.too_deep(self._rules, view, peer, move)
        for counted in checks.counts(view, peer, self.observer.queues):
            if counted.source:
                depths[counted.queue] = counted.source
            if counted.more or not counted.source:
                continue
            if not self._compared.alike(view, peer, counted.queue):
                if counted.queue in deep:
                    findings.append(not_compared(counted, view.site, peer.site))
                    continue
                if (failed := self._differ(counted.queue, view, peer)) is not None:
                    return failed
            compared += counted.source
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(findings))

    def _differ(self, queue: str, local: BrokerView, peer: BrokerView) -> Failed | None:
        serving, waiting = (lists.complete.ids for lists in both_listed(self.observer, (local, peer), queue))
        if serving == waiting:
            return None
        ids = {f"only at {local.site}": serving - waiting, f"only at {peer.site}": waiting - serving}
        counts = ", ".join(f"{len(messages)} {place}" for place, messages in ids.items())
        return refused("DR-PARITY-004.equal_counts", {queue: ids}, queue=queue, counts=counts)


@dataclass
class ReturnResult:
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
        recovered, done_there, done_here, duplicates = (sum(counts.values()) for counts in every)
        text = (
            f"{recovered} message(s) recovered; not delivered again: {done_there} that had left their queue there "
            f"before the loss, {done_here} that were consumed since"
        )
        return f"{text}; {duplicates} may come as duplicates" if duplicates else text


class SyncTools(Tools[BrokerView]):
    """`rejoined` is what a return has found out; `compared` are queues that were compared by id."""

    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, SyncGate(observer, recipe.rules, compared := Compared()))
        self.compared = compared
        self.rejoined = ReturnResult()
        self.link_connects_s = self.timeouts.link_attach_s
