"""Messages consumed at one site that still lie at the other: found by id, removed, and looked for again."""

from __future__ import annotations

from collections.abc import Collection

from dr_ctl.core.model import Finding, Json
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.access import Access, Way
from dr_ctl.topologies.brokersync.checks import may_come_twice, unproven
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.verifier import COMPARED
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import removes
from dr_ctl.topologies.common.findings import SAME_COUNT_OTHER_MESSAGES
from dr_ctl.topologies.common.view import Queue


def cleared(tools: SyncTools, way: Way, move: Move, hand: Hand) -> Outcome:
    """Remove at the target what the fenced source has consumed, of every queue, where its counters cover that and
    nobody holds; refused where the target lacks what the source holds. Raises `BrokerError`."""
    source, target = (access.look() for access in way)
    removed: dict[str, Json] = {}
    left: list[Finding] = []
    for each in parity.counts(source, target, tools.observer.queues):
        # Equal numbers of a deep queue are believed, as the gate believes them.
        if each.queue not in source.copying or (each.source == each.target and each.source > COMPARED):
            continue
        if not each.source and not each.target:
            continue
        differing = ids.differing(way[0], source.named.get(each.queue), way[1], target.named.get(each.queue))
        if differing.only_here and len(differing.only_here) != move.ask.accept_difference.get(each.queue):
            return _lacks(each.queue, len(differing.only_here), source, target)
        if differing.only_there and (why := source.why_kept(each.queue, len(differing.only_there))) is not None:
            if len(differing.only_there) != move.ask.accept_difference.get(each.queue):
                return Refused(
                    f"{each.queue}: {why}", findings=(unproven(each, len(differing.only_there), why, source, target),)
                )
            left.append(may_come_twice(each.queue, len(differing.only_there), target.site))
        elif differing.only_there:
            refused = remove(tools, way[1], target, target.named[each.queue], differing.only_there, hand)
            if refused is not None:
                return refused
            removed[each.queue] = len(differing.only_there)
    return Done("nothing of what was consumed lies there", {"removed": removed}, tuple(left))


def _lacks(queue: str, count: int, source: BrokerView, target: BrokerView) -> Refused:
    text = f"{count} message(s) of {queue} lie at {source.site} and not at {target.site}"
    remedy = "Find out why before moving; --accept-difference QUEUE=N moves with exactly that difference."
    return Refused(text, findings=(SAME_COUNT_OTHER_MESSAGES(text, remedy),))


def remove(
    tools: SyncTools, access: Access, view: BrokerView, queue: Queue, gone: Collection[str], hand: Hand
) -> Refused | None:
    """Remove these messages, and look whether they are gone; gives None where they are. Raises `BrokerError`."""
    outcomes = tools.change(list(removes(view, queue, gone)), hand)
    left = ids.lying(access, queue).keys() & frozenset(gone)
    if not left:
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are still there")
    return Refused(
        f"{len(left)} of {len(gone)} message(s) could not be removed from {queue.name} at {view.site}: {why}"
    )
