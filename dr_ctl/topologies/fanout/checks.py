"""The named checks of a fan-out pair: everything that speaks against a move, all at once, and what each reads. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, brief
from dr_ctl.core.notation import if_known
from dr_ctl.engine.operations import DRAIN, FAILBACK, SWAPOVER
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic import checks as classic
from dr_ctl.topologies.classic.checks import BY_CONSOLE
from dr_ctl.topologies.classic.operations import LISTS, REMOVES
from dr_ctl.topologies.common import reasons
from dr_ctl.topologies.common.checks import Case, Checks, Named, listeners, of_listeners, of_pair, of_queues
from dr_ctl.topologies.fanout import parity
from dr_ctl.topologies.fanout.view import BrokerView, FanoutSnapshot

# Findings that a return itself mends.
_MENDED: Final = frozenset({"DR-PARITY-001"})
# Operations after which clients get what lies at the waiting site.
_LEADS_TO_OPEN: Final = (SWAPOVER, FAILBACK, DRAIN)
ROOM_S: Final = 60  # a person types the word meanwhile, and clients go on


def of_return(case: Case[BrokerView]) -> Iterator[Finding]:
    yield from reasons.of_return(case, of_broker, _MENDED, "DR-RETURN-001.classic")
    for both in case.snapshot.both(case.move.source, case.move.target):
        yield from of_undecided(case.move, *both)


def of_undecided(move: Move, source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    """Find messages of the waiting site that may come as duplicates, judged as the gate does; only a move opens the
    site for clients."""
    yield from possible_duplicates(parity.undecided(source, target), move, target.site)


def possible_duplicates(undecided: Mapping[str, parity.Undecided], move: Move, site: str) -> list[Finding]:
    """Messages by queue that lie at that site, and that nothing proves to be consumed: refused where a move opens the
    site, unless a person accepts as many."""
    count = sum(copies.count for copies in undecided.values())
    if not count:
        return []
    why = dict.fromkeys(copies.why for copies in undecided.values())
    more = math.ceil(ROOM_S * sum(copies.taken_per_s for copies in undecided.values()))
    room = f", with room for what clients take in {ROOM_S} s" if more else ""
    accepted = move.spec.accept_duplicates
    over = not isinstance(accepted, int) or accepted < count
    refuses = over and move.spec.operation in _LEADS_TO_OPEN
    finding = found(
        "DR-FAN-007.failback" if move.spec.operation == FAILBACK else "DR-FAN-007.unproven",
        accepted=not refuses,
        count=count,
        site=site,
        why="; ".join(why),
        queues=brief([f"{name}: {copies.count}" for name, copies in undecided.items()]),
        most=count + more,
        room=room,
    )
    return [replace(finding, duplicates=count + more)]


def of_failover(case: Case[BrokerView]) -> Iterator[Finding]:
    """Find that the store of ids, by which copies of consumed messages are removed before clients are let in, cannot
    be read: refused, unless a person accepts as many duplicates as messages lie there."""
    move = case.move
    views = [view for view in case.snapshot.views(move.target) if view.own.unread is not None]
    count = sum(queue.depth for view in views for queue in view.business.values() if queue.dead_letter_address is None)
    accepted = move.spec.accept_duplicates
    if not count or accepted == "unknown" or (accepted is not None and accepted >= count):
        return
    yield replace(
        found("DR-FAN-007.unread", count=count, target=move.target, why=if_known(views[0].own.unread)), duplicates=count
    )


def nothing_owed(snapshot: FanoutSnapshot, move: Move) -> bool:
    """Say whether the target is taken in already: no debt is left, and it lacks no message of the serving site."""
    pairs = [(view, snapshot.view(move.target, view.pair)) for view in snapshot.views(move.source)]
    lacks = any(
        peer is None or parity.lacking(local, peer, Queues(), snapshot.traffic.get(local.pair, {}))
        for local, peer in pairs
    )
    return reasons.is_settled(snapshot, move) and not lacks


def of_broker(view: BrokerView, case: Case[BrokerView] | None = None) -> Iterator[Finding]:
    name = f"{view.site}/{view.pair}"
    yield from of_listeners(name, view)
    yield from classic.of_permits(view, (REMOVES, LISTS))
    yield from _producers(name, view)
    yield from of_queues(name, view)
    if view.own.unread is not None:
        yield found("DR-FAN-009", broker=name, unread=view.own.unread)
    if view.own.connector is None:
        yield found("DR-FAN-003", broker=name)
    yield from classic.of_pausing(view, case)


def _producers(name: str, view: BrokerView) -> Iterator[Finding]:
    started = {listener.name: listener.started for listener in view.producers_listeners}
    if missing := [producer for producer in view.own.producers if producer not in started]:
        connectors = ", ".join(acceptor.name for acceptor in view.acceptors) or "none"
        yield found("DR-FAN-001.missing", broker=name, missing=", ".join(missing), connectors=connectors)
    elif shut := [name for name, is_open in started.items() if not is_open]:
        yield found("DR-FAN-001.closed", broker=name, closed=", ".join(shut))


def of_both(case: Case[BrokerView], source: BrokerView, target: BrokerView) -> Iterator[Finding]:
    yield from of_pair(source, target)
    if bool(source.producers) is not bool(target.producers):
        one, none = (source, target) if source.producers else (target, source)
        yield found("DR-FAN-002", producers=len(one.producers), site=one.site, other_site=none.site)
    if source.role is not Role.SERVING:
        return  # both closed: the gate of the run itself judges, over time; or clients of the target have worked since
    yield from of_undecided(case.move, source, target)
    wrong = [
        counts
        for counts in parity.lacking(source, target, case.rules.queues, case.snapshot.traffic.get(source.pair, {}))
        if case.move.spec.accept_difference.get(counts.queue) != counts.source - counts.target
    ]
    if wrong:
        yield found(
            "DR-PARITY-001.not_written",
            target=target.site,
            differences=brief([finding.text(source.site, target.site) for finding in wrong]),
        )


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *BY_CONSOLE,
    Named("DR-FAN-001", lambda view: listeners(view.producers_listeners)),
    Named("DR-FAN-009", lambda view: "it was read" if view.tells_done else "none is named"),
    Named("DR-FAN-003", lambda view: view.own.connector or "no connector of dr-ctl's own"),
)
BY_PAIR: Final[Sequence[Named[BrokerView]]] = (
    Named("DR-FAN-002", lambda view: f"{view.site} {len(view.producers)} producer(s)"),
    Named(
        "DR-PARITY-001",
        lambda view: f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)",
        "the waiting site holds no fewer than the serving one",
    ),
    Named("DR-FAN-007", lambda view: "by the store of ids" if view.own.stored else "by counters"),
)
CHECKS: Final = Checks(of_broker, of_both, of_return, nothing_owed, BY_BROKER, BY_PAIR, of_failover=of_failover)
