"""The named checks of a fan-out pair. They report all obstacles to a move, and compare the sites' depths. Further
messages at the standby were consumed, or are under way; only ids show which."""

import math
from collections import Counter as Times
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.operations import DRAIN, FAILBACK, SWAPOVER
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.beans import LISTS, REMOVES
from dr_ctl.topologies.classic.broker import BY_CONSOLE, both_counts, lacking, pausing_findings, policy_findings
from dr_ctl.topologies.common import checks, reasons
from dr_ctl.topologies.common.checks import Case, Checks, NamedCheck
from dr_ctl.topologies.common.rules import Counts, depth_text, not_accepted
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.fanout.counting import Checkpoints, Counted, Counters, QueueAtSite
from dr_ctl.topologies.fanout.view import BrokerView


def counted(
    view: BrokerView, peer: BrokerView, readings: Sequence[tuple[Counters, Counters]], took_s: float
) -> Counted:
    ahead = sorted(other.added - one.added for one, other in readings)
    [(mode, times)] = Times(ahead).most_common(1)
    quarter = len(ahead) // 4  # equal readings during a lull at one site prove nothing
    quartiles = (mode, mode) if 2 * times > len(ahead) else (ahead[quarter], ahead[-1 - quarter])
    first, last = readings[0], readings[-1]
    rates = [(now.removed - was.removed) / took_s if took_s > 0 else 0.0 for was, now in zip(first, last, strict=True)]
    return Counted(
        QueueAtSite(view.site, view.start, last[0]),
        QueueAtSite(peer.site, peer.start, last[1]),
        quartiles,
        {view.site: rates[0], peer.site: rates[1]},
    )


@dataclass(frozen=True, slots=True)
class Undecided:
    """Messages at the standby without a proof that they were consumed; `taken_per_s` is how fast their number grows."""

    count: int
    why: str
    taken_per_s: float = 0.0


UNMATCHED: Final = "by their ids they are at that site only"
ONE_SITE_ONLY: Final = "a message was added at one site only since both were compared"
NOT_COUNTED: Final = "a broker was restarted since both were compared"
CLIENTS_WORKED: Final = "clients took messages while both were compared"


def undecided(source: BrokerView, target: BrokerView) -> Mapping[str, Undecided]:
    """Find the possible duplicates of each queue, as the gate will; the consumers' id store prevents all."""
    if source.fanout.stored:
        return {}
    checkpoints = Checkpoints.read({**source.documents, **target.documents})
    counts = both_counts(source, target, Queues())
    by_queue = {counted.queue: _undecided(counted, source, target.site, checkpoints) for counted in counts}
    return {name: copies for name, copies in by_queue.items() if copies.count}


def _undecided(counts: Counts, source: BrokerView, target: str, checkpoints: Checkpoints) -> Undecided:
    mark, counted = checkpoints.queues.get(counts.queue, {}).get(target), source.counted.get(counts.queue)
    unmatched = min(len(mark.unmatched), counts.target) if mark is not None else 0
    if counted is None:
        return Undecided(unmatched, UNMATCHED)
    forward = counted.first.site == source.site
    view, peer = (counted.first, counted.second) if forward else (counted.second, counted.first)
    taken_per_s, unproven = counted.taken_per_s[source.site], max(counts.difference, unmatched)
    if (since := checkpoints.since(counts.queue, view, peer)) is None:
        return Undecided(counted.unmatched.get(target, unproven), NOT_COUNTED, taken_per_s)
    first, second = (since.local, since.remote) if forward else (since.remote, since.local)
    if counted.level(first, second) and counts.difference - unmatched <= since.consumed(view.counters, peer.counters):
        return Undecided(unmatched, UNMATCHED)
    return Undecided(unproven, ONE_SITE_ONLY, taken_per_s)


# Findings that a return itself fixes.
_FIXED: Final = frozenset({"DR-PARITY-001"})
# Clients get the messages of the standby after these operations.
_OPENING: Final = (SWAPOVER, FAILBACK, DRAIN)
ROOM_S: Final = 60  # clients work while a person types


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    yield from reasons.of_return(case, of_broker, _FIXED, "DR-RETURN-001.classic")
    for pair in case.snapshot.both(case.move.source, case.move.target):
        yield from possible_duplicates(undecided(*pair), case.move, pair[1].site)


def possible_duplicates(undecided: Mapping[str, Undecided], move: Move, site: str) -> list[Finding]:
    if not (count := sum(copies.count for copies in undecided.values())):
        return []
    why = "; ".join(dict.fromkeys(copies.why for copies in undecided.values()))
    growth = math.ceil(ROOM_S * sum(copies.taken_per_s for copies in undecided.values()))
    room = f", with the messages that clients take in {ROOM_S} s" if growth else ""
    accepted = move.spec.accept_duplicates
    not_accepted = not isinstance(accepted, int) or accepted < count
    refused = not_accepted and move.spec.operation in _OPENING
    queues, most = brief([f"{name}: {copies.count}" for name, copies in undecided.items()]), count + growth
    key = "DR-FAN-007.failback" if move.spec.operation == FAILBACK else "DR-FAN-007.unproven"
    finding = found(key, accepted=not refused, count=count, site=site, why=why, queues=queues, most=most, room=room)
    return [replace(finding, duplicates=most)]


def of_failover(case: Case[BrokerView]) -> Iterator[Finding]:
    """Refuse a failover if the id store cannot be read, by which copies are removed before clients are let in."""
    move = case.move
    views = [view for view in case.snapshot.views(move.target) if view.fanout.unread is not None]
    count = sum(queue.depth for view in views for queue in view.without_dead_letters.values())
    accepted = move.spec.accept_duplicates
    if not count or accepted == "unknown" or (accepted is not None and accepted >= count):
        return
    finding = found("DR-FAN-007.unread", count=count, target=move.target, why=if_known(views[0].fanout.unread))
    yield replace(finding, duplicates=count)


def is_reinstated(snapshot: Snapshot[BrokerView], move: Move) -> bool:
    """Say whether the target is reinstated already: no debt is left, and it lacks no message of the serving site."""
    is_behind = any(
        peer is None or lacking(view, peer, Queues(), snapshot.traffic.get(view.pair, {}))
        for view in snapshot.views(move.source)
        for peer in (snapshot.view(move.target, view.pair),)
    )
    return reasons.is_settled(snapshot, move) and not is_behind


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    yield from checks.listener_findings(view)
    yield from policy_findings(view, (REMOVES, LISTS))
    yield from _of_producers(view)
    yield from checks.queue_findings(view)
    if view.fanout.unread is not None:
        yield found("DR-FAN-009", broker=view, unread=view.fanout.unread)
    if view.config.agent is None:
        yield found("DR-FAN-003", broker=view)
    yield from pausing_findings(view, case)


def _of_producers(view: BrokerView) -> Iterator[Finding]:
    started = {listener.name: listener.started for listener in view.producers_listeners}
    if missing := [producer for producer in view.fanout.producers if producer not in started]:
        connectors = ", ".join(acceptor.name for acceptor in view.acceptors) or "none"
        yield found("DR-FAN-001.missing", broker=view, missing=", ".join(missing), connectors=connectors)
    elif closed := [name for name, is_open in started.items() if not is_open]:
        yield found("DR-FAN-001.closed", broker=view, closed=", ".join(closed))


def of_both(case: Case[BrokerView], source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    yield from checks.pair_findings(source, target)
    if bool(source.producers) is not bool(target.producers):
        fed, unfed = (source, target) if source.producers else (target, source)
        yield found("DR-FAN-002", producers=len(fed.producers), site=fed.site, other_site=unfed.site)
    if source.role is not Role.SERVING:
        return  # if both are closed, the gate compares, over its window; else clients of the target have worked since
    yield from possible_duplicates(undecided(source, target), case.move, target.site)
    missing = lacking(source, target, case.rules.queues, case.snapshot.traffic.get(source.pair, {}))
    if differences := [counts.text(source.site, target.site) for counts in not_accepted(missing, case.move)]:
        yield found("DR-PARITY-001.not_written", target=target.site, differences=brief(differences))


BY_BROKER: Final[Sequence[NamedCheck[BrokerView]]] = (
    *BY_CONSOLE,
    NamedCheck("DR-FAN-001", lambda view: checks.listener_states(view.producers_listeners)),
    NamedCheck("DR-FAN-009", lambda view: "it was read" if view.has_id_store else "the settings name none"),
    NamedCheck("DR-FAN-003", lambda view: view.config.agent or "no connector of dr-ctl's own"),
)
BY_PAIR: Final[Sequence[NamedCheck[BrokerView]]] = (
    NamedCheck("DR-FAN-002", lambda view: f"{view.site} {len(view.producers)} producer(s)"),
    NamedCheck("DR-PARITY-001", depth_text, "the standby has no fewer messages than the serving site"),
    NamedCheck("DR-FAN-007", lambda view: "by the id store" if view.fanout.stored else "by counters"),
)
CHECKS: Final = Checks(of_broker, of_both, of_return, is_reinstated, BY_BROKER, BY_PAIR, of_failover=of_failover)
