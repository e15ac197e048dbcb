"""Messages consumed at one site that still lie at the other: found by id, removed by evidence, and looked for again."""

from __future__ import annotations

from dataclasses import dataclass

from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.brokersync import in_time, parity
from dr_ctl.topologies.brokersync.access import Access, Way
from dr_ctl.topologies.brokersync.checks import not_compared, possible_duplicates, unproven
from dr_ctl.topologies.brokersync.listing import listed
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.sync.accounts import DELETED
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.unproven import own
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import removes
from dr_ctl.topologies.common.apart import accepting, refused
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.view import Queue


@dataclass(frozen=True, slots=True)
class Apart:
    """A queue of a fenced source and of its target, by id: what the target lacks; what may be removed there, or None;
    what lies there alone otherwise, and why that stays."""

    lacks: frozenset[str]
    gone: Consumed | None
    stays: frozenset[str]
    why: str

    @classmethod
    def of(cls, tools: SyncTools, way: Way, source: BrokerView, target: BrokerView, queue: str) -> Apart:
        """Raises `BrokerError`."""
        views = {source.site: source, target.site: target}
        here, there = tools.observer.together(
            lambda access: listed(access, views[access.site], views[access.site].named.get(queue)), way
        )
        copies = there.whole.ids - own(way[1], target, queue, there)
        lacks, alone = here.whole.ids - there.whole.ids, there.whole.ids - here.whole.ids
        gone = covered(source, queue, copies, here.whole)
        if isinstance(gone, Consumed):
            stays = alone - gone.ids
            why = f"{len(stays)} were sent at {target.site}, and never shipped"
            return cls(lacks, gone if gone.ids else None, stays, why)
        return cls(lacks, None, alone, gone)


def cleared(tools: SyncTools, way: Way, move: Move, hand: Hand) -> Outcome:
    """Compare every queue by id, then remove at the target what the fenced source has consumed, where its counters
    cover that and nobody holds. Nothing is removed where the target lacks what the source holds, or has what nothing
    proves. Raises `BrokerError`."""
    source, target = (access.look() for access in way)
    deep = in_time.too_deep(tools.rules, source, target, move)
    found: list[tuple[parity.Counts, Apart]] = []
    left: list[Finding] = []
    for each in parity.counts(source, target, tools.observer.queues):
        if each.queue not in source.copying or not (each.source or each.target):
            continue
        apart_by = abs(each.source - each.target)
        if each.queue not in deep:
            found.append((each, Apart.of(tools, way, source, target, each.queue)))
        elif apart_by and apart_by != move.ask.accept_difference.get(each.queue):  # equal numbers are the gate's
            text = f"{each.told(source.site, target.site)}: too many to compare by id in time"
            return Refused(text, findings=(not_compared(each, source.site, target.site),))
    for each, apart in found:
        accepted = move.ask.accept_difference.get(each.queue)
        if apart.lacks and len(apart.lacks) != accepted:
            return _lacks(each.queue, apart.lacks, source, target)
        if apart.stays and len(apart.stays) != accepted:
            finding = unproven(each, len(apart.stays), apart.why, source, target)
            return Refused(f"{each.queue}: {apart.why}", findings=(finding,))
        if apart.stays:
            left.append(possible_duplicates(each.queue, len(apart.stays), target.site))
    if any(apart.gone is not None for _, apart in found) and way[0].look().start != source.start:
        return Refused(f"the broker of {source.site} was restarted: its counters prove nothing any more")
    removed: dict[str, Json] = {}
    for each, apart in found:
        count = 0
        if apart.gone is not None:
            refused = remove(tools, way[1], target.named[each.queue], apart.gone, hand, (way[0], source))
            if refused is not None:
                return refused
            removed[each.queue] = count = len(apart.gone.ids)
        if not apart.lacks and not apart.stays:
            tools.compared.note(source, target, each.queue, count)
    stays: dict[str, Json] = {each.queue: len(apart.stays) for each, apart in found if apart.stays}
    return Done(
        "nothing of what was consumed lies there", {"removed": removed, "possible_duplicates": stays}, tuple(left)
    )


def _lacks(queue: str, ids: frozenset[str], source: BrokerView, target: BrokerView) -> Refused:
    text = f"{len(ids)} message(s) of {queue} lie at {source.site} and not at {target.site}"
    remedy = (
        f"Look at these messages, by their JMSMessageID; {accepting({queue: len(ids)})} leaves them at {source.site}."
    )
    return refused(text, remedy, {queue: {f"only at {source.site}": ids}})


def remove(
    tools: SyncTools, access: Access, queue: Queue, gone: Consumed, hand: Hand, serving: tuple[Access, BrokerView]
) -> Refused | None:
    """Remove these copies, and look whether they are gone; gives None where they are. `serving` is the broker whose
    clients consumed them. Raises `BrokerError`."""
    counts, view = serving
    # Noted first: if this process dies meanwhile, the broker's counters prove too little, not too much.
    counts.note(view.start, DELETED, queue.name, len(gone.ids))
    outcomes = tools.change(list(removes(access.names(), queue, gone)), hand)
    now = access.look().named.get(queue.name)
    if now is None or now.depth == queue.depth - len(gone.ids):
        return None
    left = ids.shown(access, now).keys() & gone.ids
    counts.note(view.start, DELETED, queue.name, -len(left))
    if not left:
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are still there")
    return Refused(
        f"{len(left)} of {len(gone.ids)} message(s) could not be removed from {queue.name} at {access.site}: {why}"
    )
