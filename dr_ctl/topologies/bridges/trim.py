"""`trim`: copies go whose ids the stores of both sites hold. Every other copy stays."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity, brief
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.http import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.bridges.messages import NUMBER, Message, Origin, pages
from dr_ctl.topologies.bridges.reading import LinkEnds, Session
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import ORIGIN, BrokerView
from dr_ctl.topologies.common.calls import batches, call, request
from dr_ctl.topologies.common.consumed import Consumed, DoneInBothStores
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Queue

REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the id stores of both sites hold its id"
BATCH: Final = 100  # messages of one call: a broker looks at the whole queue for each call
CALLS: Final = 50
LOOK_S: Final = 30.0
PAGES: Final = 50  # of one queue and one trim: each page of a deep queue takes longer than the one before


def draft(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    calls: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        for unit in view.among(move.spec.includes):
            if peer is None or view.units[unit] or not peer.units.get(unit):
                continue
            calls += [_may_remove(view, queue) for queue in view.queues_of(unit) if queue.depth]
    summary = f"copies at {move.source} that both sites have processed are removed, by the ids in both id stores"
    return StepPlan(move.source, summary, tuple(calls))


def removes(view: BrokerView, queue: Queue, consumed: Consumed) -> Iterator[Call]:
    """Remove these copies, named by origin and number, in batches."""
    names = sorted((id_.rpartition(":")[0], int(id_.rpartition(":")[2])) for id_ in consumed.ids)
    for origin, group in groupby(names, key=lambda origin_number: origin_number[0]):
        for batch in batches([number for _, number in group], BATCH):
            # Selectors know lists of texts alone.
            chosen = " OR ".join(f"{ORIGIN} = {_quoted(origin)} AND {NUMBER} = {number}" for number in batch)
            text = f"remove {len(batch)} processed copies of {queue.name}"
            yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (chosen,)), text)


def _may_remove(view: BrokerView, queue: Queue) -> Call:
    """Plan it, before anything was compared."""
    text = f"remove processed copies of {queue.name}, {queue.depth} at the most,"
    return call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, ("…",)), text, PROCESSED, CALLS)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Compared:
    """The copies of one queue by their names, and which of them each site's id store holds."""

    copies: frozenset[str]
    serving: frozenset[str]
    waiting: frozenset[str]

    @property
    def consumed(self) -> Consumed:
        return Consumed(self.serving & self.waiting, DoneInBothStores(self.serving, self.waiting))


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(f"{move.source} waits with no copies while {move.target} serves")
    sites = tools.observer.brokers
    asked = {(call.unit, call.thing) for call in step.calls}
    link_ends = [(sites[move.target][pair], sites[move.source][pair]) for pair in sorted({pair for pair, _ in asked})]
    removed: dict[str, Json] = {}
    stay: dict[str, Json] = {}
    try:
        comparisons = {
            ends[1].pair: _compared(*ends, {name for pair, name in asked if pair == ends[1].pair}) for ends in link_ends
        }
    except BrokerError as error:
        return Failed(f"which copies are processed cannot be told: {error}", code=ExitCode.PRECHECK_FAILED)
    for _, waiting in link_ends:
        outcome = _removed(tools, waiting, comparisons[waiting.pair], removed, stay, context)
        if outcome is not None:
            return outcome
    total = sum(count for count in removed.values() if isinstance(count, int))
    text = f"{total} processed copies {'could be ' if context.read_only else ''}removed at {move.source}"
    return Done(text, {"removed": removed, "stay": stay}, tuple(_left(text, link_ends, comparisons, total)))


def _left(
    text: str, link_ends: Sequence[LinkEnds], compared: Mapping[str, Mapping[str, Compared]], total: int
) -> Iterator[Finding]:
    """What stays, and which of the two stores does not hold it."""
    left = [
        (name, comparison)
        for queues in compared.values()
        for name, comparison in queues.items()
        if comparison.copies - comparison.consumed.ids
    ]
    if not left:
        return
    view, peer = link_ends[0][0].names(), link_ends[0][1].names()
    named = [
        f"{len(comparison.copies - comparison.consumed.ids)} of {name}{_in_one(comparison, view.site, peer.site)}"
        for name, comparison in left
    ]
    remedy, severity = "", Severity.INFO
    if not total and any(comparison.serving or comparison.waiting for _, comparison in left):
        severity = Severity.WARNING
        one, other = (peer, view) if any(comparison.serving for _, comparison in left) else (view, peer)
        remedy = _lacking(one, other)
    yield found("DR-BRIDGE-017", remedy=remedy, severity=severity, removed=text, left=brief(named))


def _in_one(comparison: Compared, local: str, peer: str) -> str:
    alone = {local: len(comparison.serving - comparison.waiting), peer: len(comparison.waiting - comparison.serving)}
    counts = ", ".join(f"{count} in the store of {site} alone" for site, count in alone.items() if count)
    return f" ({counts})" if counts else ""


def _lacking(one: BrokerView, other: BrokerView) -> str:
    """Why the store of that site lacks all ids that the other's has."""
    if one.link.unapplied:
        waits = f"{one.link.unapplied} id(s) of {other.site} wait to be applied at {one.site}"
        return f"{waits}: see that the processor of the ids runs there, and writes to the file that `ids:` names."
    if other.ids_to_ship:
        return f"{other.ids_to_ship} id(s) wait to be shipped from {other.site}: `dr-ctl link restart {other.site}`."
    return (
        f"No id is on its way to {one.site}: see that its consumers and the processor of the ids write to the file, "
        f"the table and the columns that `ids:` of broker {one.pair} at {one.site} names."
    )


def _compared(serving: Session, waiting: Session, names: set[str]) -> Mapping[str, Compared]:
    """Compare the copies with both sites' stores, by queue. Raises `BrokerError`."""
    view, peer = serving.read(), waiting.read()
    comparisons = {}
    for name in sorted(names):
        copy = peer.business.get(name)
        own = peer.origin_of(copy.address) if copy is not None else None
        if copy is None or own is None:
            raise BadValue(f"{name} is not at {peer.site}, or its bridge does not say where it comes from")
        if peer.units.get(copy.address) or not view.units.get(copy.address):
            raise BadValue(f"{name} is not served at {view.site} alone any more")
        _stays(waiting.reader(), copy)
        copies = _copies(waiting, copy, own)
        stores = [_held(session, name, list(copies.values())) for session in (serving, waiting)]
        comparisons[name] = Compared(frozenset(copies), *stores)
    return comparisons


def _copies(waiting: Session, copy: Queue, own: str) -> Mapping[str, Message]:
    """The copies of the other site's messages, by their names as text."""
    messages: dict[str, Message] = {}
    for number, page in enumerate(pages(waiting.reader(), copy, own, timeout_s=LOOK_S)):
        messages |= {_text(message.copied): message for message in page if message.copied is not None}
        if number + 1 == PAGES:
            break
    return messages


def _text(name: Origin) -> str:
    return f"{name[0]}:{name[1]}"


def _held(session: Session, queue: str, messages: list[Message]) -> frozenset[str]:
    """The names of those that the store of that site holds. Raises `BrokerError`."""
    processed = session.processed(queue, messages)
    if processed is None:
        raise BadValue(
            f"the settings name no id store of {session.site}",
            remedy=f"Name it as `ids: {{sqlite: FILE, header: PROPERTY}}` of {session.pair} at {session.site}.",
        )
    return frozenset(_text(name) for name in processed)


def _stays(reader: Reader, copy: Queue) -> None:
    """Raises `BadValue` for a copy that its broker deletes once it is empty: a later message would find no queue."""
    if Fields(copy.bean, reader.read([Read(copy.bean, ("AutoDelete",))])[0].value()).flag("AutoDelete"):
        raise BadValue(f"{copy.name} is deleted by its broker once it is empty; set auto-delete to false there first")


def _removed(
    tools: BridgesTools, waiting: Session, comparisons: Mapping[str, Compared], removed: dict[str, Json],
    stay: dict[str, Json], context: StepContext,
) -> Outcome | None:  # fmt: skip
    """Remove them, queue by queue, and look again; gives None where all are gone. Raises `BrokerError`."""
    view = waiting.read()
    for name, compared in comparisons.items():
        consumed = compared.consumed
        if context.read_only:
            removed[name], stay[name] = len(consumed.ids), len(compared.copies - consumed.ids)
            continue
        queue = view.business[name]
        if consumed.ids:
            tools.change(list(removes(view, queue, consumed)), context)
        queue = waiting.read().business[name]
        copies = _copies(waiting, queue, view.origin_of(queue.address) or view.site)
        left = consumed.ids & copies.keys()
        removed[name], stay[name] = len(consumed.ids) - len(left), len(copies) - len(left)
        if left:
            text = f"{len(left)} of {len(consumed.ids)} processed copies of {name} are still at {view.site}"
            return Failed(text, {"removed": removed})
    return None
