"""What looks, waits and judges at a fan-out pair: its readings, its gate, and the tools of acts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json, Severity, brief
from dr_ctl.engine.ports import Done, Failed, Move, Outcome
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.checks import counts
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.fanout import checks
from dr_ctl.topologies.fanout.checks import Undecided, possible_duplicates
from dr_ctl.topologies.fanout.counting import Counted, Counters
from dr_ctl.topologies.fanout.ids import Comparing, kept, listed_to_the_end
from dr_ctl.topologies.fanout.reading import Session, counters
from dr_ctl.topologies.fanout.view import BrokerView

READINGS: Final = 15  # of counters, where messages come all the time
RESTS: Final = 3
LISTED_UP_TO: Final = 1000
Reading = tuple[Sequence[Counters], Sequence[Counters]]
"""The counters of several queues at the first site, and at the second."""
LISTED: Final = 1000  # ids of a queue; the calls in the journal name all of them


Observer = observer.Observer[BrokerView, Session]


def with_counters(observer: Observer, read: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Look, and read the counters of queues that do not hold the same several times: what is on its way to one of the
    sites differs each time, and a message that came to one site alone does not."""
    snapshot = read()
    if observer.all()[0].ids is not None:
        return snapshot
    counted = {}
    for local, peer in snapshot.both(*snapshot.sites):
        ends = tuple(observer.brokers[view.site][view.pair] for view in (local, peer))
        counted[local.pair] = _counted(observer, ends, local, peer)
    return snapshot.changed(lambda view: replace(view, counted=counted.get(view.pair, {})))


def _counted(
    observer: Observer, ends: tuple[Session, ...], view: BrokerView, peer: BrokerView
) -> Mapping[str, Counted]:
    def read(names: Sequence[str]) -> dict[str, Counted]:
        began = observer.clock.monotonic()
        readings = _readings(observer, ends, names)
        took_s = observer.clock.monotonic() - began
        return {
            name: checks.counted(view, peer, [(one[at], other[at]) for one, other in readings], took_s)
            for at, name in enumerate(names)
        }

    try:
        now = read([counted.queue for counted in counts(view, peer, Queues()) if counted.more])
        since = {name: kept(ends).since(name, counted.first, counted.second) for name, counted in now.items()}
        if apart := [name for name, at in since.items() if at is not None and not now[name].level(at.local, at.remote)]:
            observer.clock.sleep(observer.timeouts.apart_s)  # a message may have been on its way all that time
            now |= read(apart)
    except BrokerError:
        return {}  # it has just answered: what its counters say now the next reading tells
    return {name: _listed_by_id(ends, name, counted) for name, counted in now.items()}


def _readings(observer: Observer, ends: tuple[Session, ...], names: Sequence[str]) -> list[Reading]:
    readings: list[Reading] = []

    def read(session: Session) -> Sequence[Counters]:
        return counters(session.reader(), [session.names().by_name.get(name) for name in names])

    while names and len(readings) < READINGS:
        if len(readings) >= RESTS and all(reading == readings[-1] for reading in readings[-RESTS:]):
            break  # nothing came or left between the last ones: more of them would say the same
        if readings:
            observer.clock.sleep(observer.timeouts.poll_s)
        first, second = observer.ask_all(read, ends)
        readings.append((first, second))
    return readings


def _listed_by_id(ends: tuple[Session, ...], name: str, now: Counted) -> Counted:
    """With the ids of both sites, where no counter tells anything and the queue is shallow enough."""
    if kept(ends).since(name, now.first, now.second) is not None:
        return now
    if max(at.counters.depth for at in (now.first, now.second)) > LISTED_UP_TO:
        return now
    try:
        first, second = (listed_to_the_end(session, session.names().by_name.get(name)).ids for session in ends)
    except BrokerError:
        return now
    unmatched = {now.first.site: len(first - second), now.second.site: len(second - first)}
    return replace(now, unmatched=unmatched)


READS: Final = observer.Reads(
    Session.each,
    unlike=lambda source, *more: source.open and bool(checks.lacking(source, *more)),
    observed=with_counters,
)


class FanoutGate(Gate[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, comparing: Comparing, poll_s: float) -> None:
        self._comparing = comparing
        super().__init__(observer, poll_s)

    def differing(self, _now: PairReading[BrokerView], _move: Move) -> list[str]:
        """Counts say nothing while producers write to one site a moment before the other."""
        return []

    def same(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        brokers, clock = self.observer.brokers, self.observer.clock
        ends = brokers[view.site][view.pair], brokers[peer.site][peer.pair]
        rows = [counted for counted in counts(view, peer, Queues()) if counted.source or counted.target]
        queues = {row.queue: (view.by_name.get(row.queue), peer.by_name.get(row.queue)) for row in rows}
        compared: dict[str, Json] = {row.queue: row.source for row in rows}
        wrong, accepted = list[str](), move.spec.accept_difference
        ids: dict[str, dict[str, frozenset[str]]] = {}
        differences = self._comparing.apart(ends, queues, lambda: clock.sleep(self._poll_s), clock.monotonic)
        for name, apart in differences.items():
            for messages, what, where in (
                (apart.lacks, f"message(s) only at {view.site}", f"only at {view.site}"),
                (apart.consumed.ids, f"consumed at {view.site} lie at {peer.site}", f"consumed, and at {peer.site}"),
            ):
                if messages and accepted.get(name) != len(messages):
                    wrong.append(f"{name}: {len(messages)} {what}")
                    ids.setdefault(name, {})[where] = messages
        duplicates = possible_duplicates(self._comparing.undecided(differences), move, peer.site)
        if any(duplicate.severity is Severity.ERROR for duplicate in duplicates):
            return Failed(duplicates[0].text, findings=tuple(duplicates))
        if wrong:
            sizes = {name: len(names) for name, by in ids.items() for names in by.values()}
            return refused("DR-PARITY-004.either", ids, queues=brief(wrong), accepting=accepting(sizes))
        return Done("the gate holds", {"compared_by_id": compared}, tuple(duplicates))


@dataclass
class Reconciled:
    """Ids of messages by queue. `removed` ones were consumed at the other site, `copied` ones were put where they
    lacked. `unmatched` ones lie at one site, and nobody is known to have consumed them; `undecided` says why.
    `not_carried` ones lack, and cannot be copied whole."""

    removed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    copied: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unmatched: dict[str, set[str]] = field(default_factory=dict)
    undecided: dict[str, Undecided] = field(default_factory=dict)
    not_carried: dict[str, set[str]] = field(default_factory=dict)

    @property
    def copied_in_all(self) -> int:
        return sum(map(len, self.copied.values()))

    @property
    def removed_in_all(self) -> int:
        return sum(map(len, self.removed.values()))

    @property
    def text(self) -> str:
        removed = f"{self.removed_in_all} that were consumed at the other site removed"
        return f"{removed}, {self.copied_in_all} that it lacked copied"

    def as_json(self) -> dict[str, Json]:
        return {
            "duplicates": _listed(self.removed),
            "removed": self.removed_in_all,
            "copied": {queue: len(ids) for queue, ids in self.copied.items()},
            "alone": _listed(self.unmatched),
            "not_carried": _listed(self.not_carried),
        }


def _listed(ids_by_queue: Mapping[str, Collection[str]]) -> dict[str, Json]:
    return {queue: [*sorted(ids)[:LISTED]] for queue, ids in ids_by_queue.items()}


class FanoutTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        self.comparing = Comparing(observer.all()[0].ids, observer.timeouts.differs_s)
        gate = FanoutGate(observer, self.comparing, recipe.rules.drain.poll)
        super().__init__(observer, recipe, sender, gate)
