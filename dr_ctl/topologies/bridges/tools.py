"""The gate and the tools of acts at brokers whose queues diverts and bridges copy. They compare both sites message by
message, and by the ids in both id stores. `trim` removes copies whose ids both stores hold. Every other copy stays."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from shlex import quote
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity, brief
from dr_ctl.engine.plan import Call, Goal, PlannedStep, Spec
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia.client import Read
from dr_ctl.jolokia.http import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.reading import Origin, identity
from dr_ctl.topologies.bridges.reading import NUMBER, PAGE, LinkEnds, Message, Observer, Session, listed, pages
from dr_ctl.topologies.bridges.view import COMPARED, ORIGIN, BrokerView, Chosen, every_unit
from dr_ctl.topologies.common.calls import batches, call, request, still
from dr_ctl.topologies.common.consumed import Consumed, done_in_both_stores
from dr_ctl.topologies.common.gate import Gate, PairReading, counters_changed
from dr_ctl.topologies.common.idstore import WITHIN_S, NotRead, Store
from dr_ctl.topologies.common.recipe import Recipe, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import ROLES, Sender, Tools
from dr_ctl.topologies.common.view import Queue, Residue, count_text
from dr_ctl.topologies.common.waiting import Barrier

PAGES: Final = 20  # so many pages of the copy are read: each takes longer than the one before
REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the id stores of both sites hold its id"
BATCH: Final = 100  # messages of one call: a broker looks at the whole queue for each call
CALLS: Final = 50
COMPARE_WITHIN_S: Final = 30.0  # the time limit of one look at the messages of a serving broker
TRIMMED_PAGES: Final = 50  # a trim reads so many pages of a queue: each takes longer than the one before
Lacking = Mapping[str, frozenset[str]]


def ids_lacking(store: Store, other: Store, queues: Collection[str] | None = None) -> Lacking:
    """Find by queue the ids that `store` has and `other` lacks, compared by the database. Raises `NotRead`."""
    lacking_ids: dict[str, set[str]] = {}
    of = "" if queues is None else " WHERE q = ?"
    asked = f"SELECT * FROM ({store.rows('main')}){of} EXCEPT SELECT * FROM ({other.rows('other')}){of}"  # noqa: S608
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as own:
            own.execute("ATTACH DATABASE ? AS other", (other.uri,))
            for names in [()] if queues is None else [(queue, queue) for queue in queues]:
                for queue, id_ in own.execute(asked, names):
                    lacking_ids.setdefault(str(queue), set()).add(str(id_))
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
    return {queue: frozenset(ids) for queue, ids in lacking_ids.items()}


def missing(ends: LinkEnds, queue: Queue, copy: Queue, origins: Sequence[str], *, timeout_s: float) -> int | None:
    """Count the messages that lie only in `queue` and that no id store knows, without delayed ones; None if unknown."""
    (local, peer), (own, other) = ends, origins
    lying = listed(local.reader(), queue, own, timeout_s=timeout_s) if queue.depth <= COMPARED else None
    if lying is None:
        return None
    forwarded = sum(message.forwarded for message in lying)
    wanted, oldest, looked = [message for message in lying if not message.forwarded], None, 0
    for page in pages(peer.reader(), copy, other, timeout_s=timeout_s):
        if not wanted or looked == PAGES:
            break
        looked += 1
        if not all(message.named for message in page):
            return None
        present = {origin for message in page for origin in message.origins}
        wanted = [message for message in wanted if not message.origins & present]
        numbers = [message.copied[1] for message in page if message.copied is not None and message.copied[0] == own]
        oldest = min([*numbers, *([oldest] if oldest is not None else [])], default=None)
    # A delay that AMQP tells in milliseconds begins anew at the copy, which is in no listing until then.
    if wanted and (looked == PAGES or copy.scheduled):
        return None
    if not wanted:
        return forwarded
    processed = [session.processed(queue.name, wanted) for session in ends]
    done = frozenset[Origin]().union(*(origins for origins in processed if origins is not None))
    wanted = [message for message in wanted if message.name not in done]
    if None in processed:
        # A message older than every copy may have been processed there, or may never have come.
        numbered = [{number for origin, number in message.origins if origin == own} for message in wanted]
        newer = sum(oldest is not None and max(numbers, default=-1) >= oldest for numbers in numbered)
        return forwarded + newer if newer or not wanted else None
    return forwarded + len(wanted)


def lacking(ends: LinkEnds, copies: BrokerView, chosen: Chosen) -> Lacking | None:
    """Find by queue the ids that the target's store lacks; None if a store is not in the settings. Raises `NotRead`."""
    own, other = (session.ids for session in ends)
    if own is None or other is None:
        return None
    queues = [queue.name for unit in copies.among(chosen) for queue in copies.queues_of(unit)]
    return ids_lacking(own, other, queues)


def copies_done(ends: LinkEnds, copies: BrokerView, ids: Lacking, spec: Spec, *, timeout_s: float) -> Iterator[Finding]:
    """Report each queue whose copy holds messages of these ids, unless their number was accepted."""
    local, peer = ends
    for name, lost in ids.items():
        copy, most = copies.business[name], len(lost)
        # All of them may lie in a copy that cannot be listed whole.
        if copy.depth <= PAGES * PAGE and not copy.scheduled and copy.depth_known:
            own = copies.origin_of(copy.address) or peer.site
            lying = listed(peer.reader(), copy, own, timeout_s=timeout_s)
            most = sum(message.id(peer.id_header) in lost for message in lying) if lying is not None else most
        if most and most != spec.accept_difference.get(name):
            yield found(
                "DR-BRIDGE-018", most=most, name=name, view=local, peer=peer, difference=quote(f"{name}={most}")
            )


def done_at(ends: LinkEnds, copies: BrokerView) -> Iterator[Finding]:
    """Report messages at the second broker that were done at the first, and that the second's store does not know."""
    local, peer = ends
    if (lost := lacking(ends, copies, every_unit)) is None:
        yield found("DR-RETURN-010.no_store", site=local.site, other_site=peer.site)
        return
    for name, ids in lost.items():
        queue = copies.business[name]
        origin = copies.origin_of(queue.address) or peer.site
        lying = {
            message.id(peer.id_header)
            for page in pages(peer.reader(), queue, origin, timeout_s=COMPARE_WITHIN_S)
            for message in page
        }
        if done := sorted(ids & lying):
            count, ids_ = len(done), brief(done)
            yield found("DR-RETURN-010.unannounced", view=local, peer=peer, count=count, queue=name, ids=ids_)


def ids_left(barrier: Barrier, view: BrokerView, peer: BrokerView) -> int | None:
    """Count the ids of the barrier that are not applied at the peer, or None if not known. The buffer of the ids never
    empties while other queues work, and ids keep their order on the way."""
    buffer = view.ids.buffer if view.ids is not None else None
    return barrier.remaining(view, [buffer], peer, peer.arrived) if buffer is not None and peer.arrived else None


class BridgesGate(Gate[BrokerView]):
    """The gate compares no counts: a copy keeps processed messages, and so does a served queue until its clients have
    passed over them. A sent message that is not at the other site lies in a buffer, or found no queue there. `barriers`
    tell whether the ids from before the gate are applied. The drain begins them, so that nobody waits for newer ids."""

    observer: Observer

    def __init__(self, observer: Observer, poll_s: float) -> None:
        super().__init__(observer, poll_s)
        self.barriers = defaultdict[tuple[str, str], Barrier](Barrier)

    def blockers(self, now: PairReading[BrokerView], before: PairReading[BrokerView] | None, move: Move) -> list[str]:
        local, peer = now.source, now.target
        reasons = [*_closed(local, move), *_closed(peer, move), *_shipped(local, move)]
        left = ids_left(self.barriers[local.site, local.pair], local, peer)
        if left != 0:
            reasons.append(f"{peer.site}: {count_text(left)} id(s) not applied yet")
        if before is not None:
            for was, view in ((before.source, local), (before.target, peer)):
                reasons += counters_changed(view, was, move.moves)
                units = view.among(move.moves) if was.start == view.start else ()
                unrouted = (unit for unit in units if view.unrouted.get(unit) != was.unrouted.get(unit))
                reasons += (f"{view.site}: messages for {unit} find no queue there" for unit in unrouted)
        return reasons

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        """Look for each message that is left in its copy. An empty buffer does not show that all messages arrived: a
        bridge that its peer refuses may count what it had in hand as shipped."""
        view, peer = now.source, now.target
        ends = self.observer.brokers[view.site][view.pair], self.observer.brokers[peer.site][peer.pair]
        depths: dict[str, Json] = {}
        unread: list[str] = []
        compared = 0
        # Queues that only this site has are compared too.
        lying = (queue for unit in view.among(move.moves) for queue in view.queues_of(unit) if queue.depth)
        for queue in lying:
            depths[queue.name] = queue.depth
            copy = next((other for other in peer.queues_of(queue.address) if other.name == queue.name), None)
            origins = [origin for both in (view, peer) if (origin := both.origin_of(queue.address)) is not None]
            lacks = queue.depth if copy is None else None
            if copy is not None and len(origins) == len(ends):
                lacks = missing(ends, queue, copy, origins, timeout_s=self.timeouts.flag_s)
            flow = view.flow(queue.address)
            not_due = flow.not_due if flow is not None else 0
            unread += [queue.name] if lacks is None or queue.scheduled > not_due else []
            compared += queue.depth - queue.scheduled if lacks is not None else 0
            accepted = move.spec.accept_difference.get(queue.name, 0)
            # Nobody can name the number of delayed messages beforehand, as it falls with each moment.
            lacks = (lacks or 0) + (not_due if lacks or not_due > accepted else 0)
            if lacks and lacks != accepted:
                return Failed.of(found("DR-PARITY-004.one_queue", view=view, peer=peer, count=lacks, queue=queue))
        findings, duplicates = list[Finding](), list[Finding]()
        try:
            # The ids from before the gate are applied, so an id that the target's store lacks does not come any more.
            ids = lacking(ends, peer, move.moves) or {}
            duplicates += copies_done(ends, peer, ids, move.spec, timeout_s=self.timeouts.flag_s)
        except NotRead as error:
            findings.append(found("DR-RECONCILE-004.not_compared", why=error))
        if duplicates:
            return Failed.of(*duplicates)
        if unread:
            findings.append(found("DR-BRIDGE-016", unread=brief(unread)))
        figures: dict[str, Json] = {"ids_compared": compared, "depths": depths, "not_compared": [*unread]}
        return Done("the gate holds", figures, tuple(findings))


def _closed(view: BrokerView, move: Move) -> Iterator[str]:
    for unit in view.among(move.moves):
        if view.units[unit]:
            yield f"{view.site} lets clients of {unit} in"
        for queue in view.queues_of(unit):
            if not queue.depth_known:
                yield f"{view.site}: what lies in {queue.name} cannot be determined"
            elif queue.delivering:
                yield f"{view.site} has {queue.delivering} message(s) of {queue.name} in delivery"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def _shipped(view: BrokerView, move: Move) -> Iterator[str]:
    for flow in view.flows:
        if not move.moves(flow.unit):
            continue
        if not flow.attached:
            yield f"{view.site}: the bridge of {flow.unit} is not connected"
        if (left := flow.to_ship_now(move.spec.accept_difference)) != 0:
            yield f"{view.site}: {count_text(left)} to ship of {flow.unit}"
    for queue in (queue for unit in view.among(move.moves) for queue in view.queues_of(unit) if queue.consumers):
        who = next((consumer.who for consumer in view.consumers if consumer.queue == queue.name), "somebody")
        yield f"{view.site} has a consumer of {queue.name}: {who}"


class BridgesTools(Tools[BrokerView]):
    observer: Observer
    gate: BridgesGate
    by_console = "give the clients' roles their rights at each queue's address back"

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, BridgesGate(observer, recipe.rules.drain.poll))
        self.residue: dict[str, Residue] = {}

    def open_at(self, view: BrokerView, move: Move) -> Sequence[str]:
        return view.open_among(move.moves)

    def open_again(self, site: str, calls: Sequence[Call], context: StepContext, _within_s: float = 0.0) -> str | None:
        """Let clients in by rights last: until then each unit is closed, whatever its queues deliver."""
        queues = [call for call in calls if call.goal is Goal.OPEN]
        self.change(queues, context)
        if (why := self.admit(site, [call for call in calls if call.goal in ROLES], context)) is not None:
            return why
        left = still(queues, self.observer.read_at(site))
        return left.text if left is not None else None


def draft_trim(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
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


def trim(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
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
        return Failed(f"which copies are processed cannot be determined: {error}", code=ExitCode.PRECHECK_FAILED)
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
        remedy = _why_lacking(waiting, serving) if at_serving else _why_lacking(serving, waiting)
    if comparisons:
        left = brief([str(comparison) for comparison in comparisons])
        yield found("DR-BRIDGE-017", remedy=remedy, severity=severity, removed=removed, left=left)


def _why_lacking(one: BrokerView, other: BrokerView) -> str:
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
    """Compare the copies at the standby's broker with both sites' stores. Raises `BrokerError`."""
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
    read = islice(pages(waiting.reader(), copy, own, timeout_s=COMPARE_WITHIN_S), TRIMMED_PAGES)
    return {identity(message.copied): message for page in read for message in page if message.copied is not None}


def _held(session: Session, queue: str, messages: list[Message]) -> frozenset[str]:
    if (processed := session.processed(queue, messages)) is None:
        raise BadValue(
            f"the settings name no id store of {session.site}",
            remedy=f"Name it as `ids: {{sqlite: FILE, header: PROPERTY}}` of {session.pair} at {session.site}.",
        )
    return frozenset(map(identity, processed))


TRIM: Final = VerbHandler(draft_trim, trim)
