"""`trim` removes copies whose ids the stores of both sites hold. Every other copy stays."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Severity, brief
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia.client import Read
from dr_ctl.jolokia.http import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.reading import identity
from dr_ctl.topologies.bridges.messages import NUMBER, Message, pages
from dr_ctl.topologies.bridges.reading import LinkEnds, Session
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import ORIGIN, BrokerView
from dr_ctl.topologies.common.calls import batches, call, request
from dr_ctl.topologies.common.consumed import Consumed, done_in_both_stores
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Queue

REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the id stores of both sites hold its id"
BATCH: Final = 100  # messages of one call: a broker looks at the whole queue for each call
CALLS: Final = 50
LOOK_S: Final = 30.0
PAGES: Final = 50  # a trim reads so many pages of a queue: each takes longer than the one before


def draft(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    calls: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        for unit in view.among(move.spec.includes):
            if peer is None or view.units[unit] or not peer.units.get(unit):
                continue
            for queue in [queue for queue in view.queues_of(unit) if queue.depth]:
                asked = request(queue.bean, REMOVE, ("…",))  # before anything was compared
                text = f"remove processed copies of {queue.name}, {queue.depth} at the most,"
                calls.append(call(view, Goal.REMOVE, queue.name, asked, text, PROCESSED, CALLS))
    summary = f"copies at {move.source} that both sites have processed are removed, by the ids in both id stores"
    return StepPlan(move.source, summary, tuple(calls))


def removes(view: BrokerView, queue: Queue, consumed: Consumed) -> Iterator[Call]:
    names = sorted((id_.rpartition(":")[0], int(id_.rpartition(":")[2])) for id_ in consumed.ids)
    for origin, group in groupby(names, key=itemgetter(0)):
        quoted = "'" + origin.replace("'", "''") + "'"
        for batch in batches([number for _, number in group], BATCH):
            # A selector's list may hold texts alone, and no numbers.
            chosen = " OR ".join(f"{ORIGIN} = {quoted} AND {NUMBER} = {number}" for number in batch)
            text = f"remove {len(batch)} processed copies of {queue.name}"
            yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (chosen,)), text)


@dataclass(frozen=True, slots=True)
class Compared:
    ends: LinkEnds  # the serving broker, then the waiting one
    queue: str
    copies: frozenset[str]
    serving: frozenset[str]
    waiting: frozenset[str]

    @property
    def consumed(self) -> Consumed:
        return Consumed(self.serving & self.waiting, done_in_both_stores(self.serving, self.waiting))

    @property
    def unproven(self) -> frozenset[str]:
        return self.copies - self.consumed.ids

    def __str__(self) -> str:
        alone = zip(self.ends, (self.serving - self.waiting, self.waiting - self.serving), strict=True)
        counts = ", ".join(f"{len(ids)} in the store of {session.site} alone" for session, ids in alone if ids)
        return f"{len(self.unproven)} of {self.queue}{f' ({counts})' if counts else ''}"


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(f"{move.source} waits with no copies while {move.target} serves")
    sites, asked = tools.observer.brokers, sorted({(call.unit, call.thing) for call in step.calls})
    try:
        comparisons = [
            comparison
            for pair, queues in groupby(asked, key=itemgetter(0))
            for comparison in _compared((sites[move.target][pair], sites[move.source][pair]), [q for _, q in queues])
        ]
    except BrokerError as error:
        return Failed(f"which copies are processed cannot be told: {error}", code=ExitCode.PRECHECK_FAILED)
    removed, stay = Counter[str](), Counter[str]()
    for comparison in comparisons:
        consumed, waiting, name = comparison.consumed, comparison.ends[1], comparison.queue
        left, copies = frozenset[str](), comparison.unproven
        if not context.read_only:
            view = waiting.read()
            if consumed.ids:
                tools.change(list(removes(view, view.business[name], consumed)), context)
            queue = waiting.read().business[name]
            copies = frozenset(_copies(waiting, queue, view.origin_of(queue.address) or view.site))
            left = consumed.ids & copies
        removed[name] += len(consumed.ids - left)
        stay[name] += len(copies - left)
        if left:
            text = f"{len(left)} of {len(consumed.ids)} processed copies of {name} are still at {waiting.site}"
            return Failed(text, {"removed": {**removed}})
    count = removed.total()
    text = f"{count} processed copies {'could be ' if context.read_only else ''}removed at {move.source}"
    findings = _stays([comparison for comparison in comparisons if comparison.unproven], text, none=not count)
    return Done(text, {"removed": {**removed}, "stay": {**stay}}, tuple(findings))


def _stays(comparisons: Sequence[Compared], removed: str, *, none: bool) -> Iterator[Finding]:
    remedy, severity = "", Severity.INFO
    if none and any(comparison.serving or comparison.waiting for comparison in comparisons):
        severity = Severity.WARNING
        serving, waiting = (session.last_view() for session in comparisons[0].ends)
        at_serving = any(comparison.serving for comparison in comparisons)
        remedy = _lacking(waiting, serving) if at_serving else _lacking(serving, waiting)
    if comparisons:
        left = brief([str(comparison) for comparison in comparisons])
        yield found("DR-BRIDGE-017", remedy=remedy, severity=severity, removed=removed, left=left)


def _lacking(one: BrokerView, other: BrokerView) -> str:
    if one.link.unapplied:
        waits = f"{one.link.unapplied} id(s) of {other.site} wait to be applied at {one.site}"
        return f"{waits}: see that the processor of the ids runs there, and writes to the file that `ids:` names."
    if other.ids_to_ship:
        return f"{other.ids_to_ship} id(s) wait to be shipped from {other.site}: `dr-ctl link restart {other.site}`."
    return (
        f"No id is on its way to {one.site}: see that its consumers and the processor of the ids write to the file, "
        f"the table and the columns that `ids:` of broker {one.pair} at {one.site} names."
    )


def _compared(ends: LinkEnds, queues: Sequence[str]) -> Iterator[Compared]:
    """Compare the copies at the waiting broker with both sites' stores. Raises `BrokerError`."""
    waiting = ends[1]
    view, peer = (session.read() for session in ends)
    for name in queues:
        copy = peer.business.get(name)
        own = peer.origin_of(copy.address) if copy is not None else None
        if copy is None or own is None:
            raise BadValue(f"{name} is not at {peer.site}, or its bridge does not say where it comes from")
        if peer.units.get(copy.address) or not view.units.get(copy.address):
            raise BadValue(f"{name} is not served at {view.site} alone any more")
        if Fields(copy.bean, waiting.reader().read([Read(copy.bean, ("AutoDelete",))])[0].value()).flag("AutoDelete"):
            # A later message would find no queue.
            raise BadValue(f"{name} is deleted by its broker once it is empty; set auto-delete to false there first")
        copies = _copies(waiting, copy, own)
        yield Compared(ends, name, frozenset(copies), *(_held(session, name, [*copies.values()]) for session in ends))


def _copies(waiting: Session, copy: Queue, own: str) -> Mapping[str, Message]:
    listed = islice(pages(waiting.reader(), copy, own, timeout_s=LOOK_S), PAGES)
    return {identity(message.copied): message for page in listed for message in page if message.copied is not None}


def _held(session: Session, queue: str, messages: list[Message]) -> frozenset[str]:
    if (processed := session.processed(queue, messages)) is None:
        raise BadValue(
            f"the settings name no id store of {session.site}",
            remedy=f"Name it as `ids: {{sqlite: FILE, header: PROPERTY}}` of {session.pair} at {session.site}.",
        )
    return frozenset(map(identity, processed))
