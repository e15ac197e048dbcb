"""The gate and the tools of the verbs' handlers for diverts and bridges. They compare both sites message by message,
and by the ids in both id stores. `trim` removes copies whose ids both stores hold. Every other copy stays."""

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
from dr_ctl.topologies.bridges import reading
from dr_ctl.topologies.bridges.reading import NUMBER, LinkEnds, Message, Observer, Session
from dr_ctl.topologies.bridges.view import COMPARED, ORIGIN, BrokerView, UnitFilter, every_unit
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

PAGES: Final = 20  # the pages of a copy that are read: each takes longer than the one before
REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the id stores of both sites hold its id"
BATCH: Final = 100  # messages of one call: a broker reads the whole queue for each call
CALLS: Final = 50
COMPARE_WITHIN_S: Final = 30.0  # the time limit for one page of a serving broker's messages
TRIMMED_PAGES: Final = 50  # the pages of a queue that a trim reads
IdsByQueue = Mapping[str, frozenset[str]]


def missing_ids(store: Store, other: Store, queues: Collection[str] | None = None) -> IdsByQueue:
    """Find by queue the ids that `store` has and `other` lacks; SQLite compares them. Raises `NotRead`."""
    lacking_ids: dict[str, set[str]] = {}
    where = "" if queues is None else " WHERE q = ?"
    query = f"SELECT * FROM ({store.rows('main')}){where} EXCEPT SELECT * FROM ({other.rows('other')}){where}"  # noqa: S608
    try:
        with closing(sqlite3.connect(store.uri, uri=True, timeout=WITHIN_S)) as connection:
            connection.execute("ATTACH DATABASE ? AS other", (other.uri,))
            for names in [()] if queues is None else [(queue, queue) for queue in queues]:
                for queue, id_ in connection.execute(query, names):
                    lacking_ids.setdefault(str(queue), set()).add(str(id_))
    except sqlite3.Error as error:
        raise NotRead(f"{store.path.name} beside {other.path.name}: {error}") from error
    return {queue: frozenset(ids) for queue, ids in lacking_ids.items()}


def count_missing(ends: LinkEnds, queue: Queue, copy: Queue, origins: Sequence[str], *, timeout_s: float) -> int | None:
    """Count the messages that are only in `queue` and in no id store, without delayed ones; None if unknown."""
    (local, peer), (origin, copy_origin) = ends, origins
    messages = (
        reading.list_messages(local.reader(), queue, origin, timeout_s=timeout_s) if queue.depth <= COMPARED else None
    )
    if messages is None:
        return None
    forwarded = sum(message.forwarded for message in messages)
    wanted, oldest, pages_read = [message for message in messages if not message.forwarded], None, 0
    for page in reading.read_pages(peer.reader(), copy, copy_origin, timeout_s=timeout_s):
        if not wanted or pages_read == PAGES:
            break
        pages_read += 1
        if not all(message.is_shown for message in page):
            return None
        present = {origin for message in page for origin in message.origins}
        wanted = [message for message in wanted if not message.origins & present]
        numbers = [message.copied[1] for message in page if message.copied is not None and message.copied[0] == origin]
        oldest = min([*numbers, *([oldest] if oldest is not None else [])], default=None)
    # A delay that AMQP gives in milliseconds starts again at the copy, and no listing shows the copy until it ends.
    if wanted and (pages_read == PAGES or copy.scheduled):
        return None
    if not wanted:
        return forwarded
    processed = [session.processed(queue.name, wanted) for session in ends]
    known = frozenset[Origin]().union(*(origins for origins in processed if origins is not None))
    wanted = [message for message in wanted if message.name not in known]
    if None in processed:
        # A message older than every copy may have been processed there, or may never have arrived.
        numbered = [{number for site, number in message.origins if site == origin} for message in wanted]
        newer = sum(oldest is not None and max(numbers, default=-1) >= oldest for numbers in numbered)
        return forwarded + newer if newer or not wanted else None
    return forwarded + len(wanted)


def missing_at_target(ends: LinkEnds, copies: BrokerView, chosen: UnitFilter) -> IdsByQueue | None:
    """Find by queue the ids that the target's store lacks; None if a store is not in the settings. Raises `NotRead`."""
    local, peer = (session.ids for session in ends)
    if local is None or peer is None:
        return None
    queues = [queue.name for unit in copies.chosen_units(chosen) for queue in copies.queues_of(unit)]
    return missing_ids(local, peer, queues)


def processed_copies(
    ends: LinkEnds, copies: BrokerView, ids: IdsByQueue, spec: Spec, *, timeout_s: float
) -> Iterator[Finding]:
    """Report each queue whose copy holds messages of these ids, unless their number was accepted."""
    local, peer = ends
    for name, missing in ids.items():
        copy, most = copies.business[name], len(missing)
        # A copy that cannot be listed completely may contain all of them.
        if copy.depth <= PAGES * reading.PAGE_SIZE and not copy.scheduled and copy.depth_known:
            origin = copies.origin_of(copy.address) or peer.site
            messages = reading.list_messages(peer.reader(), copy, origin, timeout_s=timeout_s)
            most = sum(message.id(peer.id_header) in missing for message in messages) if messages is not None else most
        if most and most != spec.accept_difference.get(name):
            yield found(
                "DR-BRIDGE-018", most=most, name=name, view=local, peer=peer, difference=quote(f"{name}={most}")
            )


def unannounced_ids(ends: LinkEnds, copies: BrokerView) -> Iterator[Finding]:
    """Report messages at the second broker that were processed at the first, and are not in the second's id store."""
    local, peer = ends
    if (missing := missing_at_target(ends, copies, every_unit)) is None:
        yield found("DR-RETURN-010.no_store", site=local.site, other_site=peer.site)
        return
    for name, ids in missing.items():
        queue = copies.business[name]
        origin = copies.origin_of(queue.address) or peer.site
        ids_at_peer = {
            message.id(peer.id_header)
            for page in reading.read_pages(peer.reader(), queue, origin, timeout_s=COMPARE_WITHIN_S)
            for message in page
        }
        if processed := sorted(ids & ids_at_peer):
            count, ids_ = len(processed), brief(processed)
            yield found("DR-RETURN-010.unannounced", view=local, peer=peer, count=count, queue=name, ids=ids_)


def count_ids_left(barrier: Barrier, view: BrokerView, peer: BrokerView) -> int | None:
    """Count the ids of the barrier that are not applied at the peer, or None if not known. The ids' buffer is
    never empty while other queues are in use, but ids arrive in order."""
    buffer = view.ids.buffer if view.ids is not None else None
    return barrier.remaining(view, [buffer], peer, peer.arrived) if buffer is not None and peer.arrived else None


class BridgesGate(Gate[BrokerView]):
    """The gate compares no counts: a copy keeps processed messages, and so does a served queue until its consumers
    have skipped them. A sent message that is not at the other site is in a buffer, or found no queue there. `barriers`
    show whether the ids from before the gate are applied. They start with the drain, which ignores later ids."""

    observer: Observer

    def __init__(self, observer: Observer, poll_s: float) -> None:
        super().__init__(observer, poll_s)
        self.barriers = defaultdict[tuple[str, str], Barrier](Barrier)

    def blockers(self, now: PairReading[BrokerView], before: PairReading[BrokerView] | None, move: Move) -> list[str]:
        local, peer = now.source, now.target
        reasons = [*_clients_in(local, move), *_clients_in(peer, move), *_not_shipped(local, move)]
        left = count_ids_left(self.barriers[local.site, local.pair], local, peer)
        if left != 0:
            reasons.append(f"{peer.site}: {count_text(left)} id(s) not applied yet")
        if before is not None:
            for earlier, view in ((before.source, local), (before.target, peer)):
                reasons += counters_changed(view, earlier, move.moves)
                units = view.chosen_units(move.moves) if earlier.start == view.start else ()
                unrouted = (unit for unit in units if view.unrouted.get(unit) != earlier.unrouted.get(unit))
                reasons += (f"{view.site}: messages for {unit} find no queue there" for unit in unrouted)
        return reasons

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        """Look up each message that is left in its copy. An empty buffer does not show that all messages arrived: a
        bridge that its peer refuses may count messages in delivery as shipped."""
        view, peer = now.source, now.target
        ends = self.observer.brokers[view.site][view.pair], self.observer.brokers[peer.site][peer.pair]
        depths: dict[str, Json] = {}
        unread: list[str] = []
        compared = 0
        # Queues that only this site has are compared too.
        queues = (queue for unit in view.chosen_units(move.moves) for queue in view.queues_of(unit) if queue.depth)
        for queue in queues:
            depths[queue.name] = queue.depth
            copy = next((other for other in peer.queues_of(queue.address) if other.name == queue.name), None)
            origins = [origin for broker in (view, peer) if (origin := broker.origin_of(queue.address)) is not None]
            missing = queue.depth if copy is None else None
            if copy is not None and len(origins) == len(ends):
                missing = count_missing(ends, queue, copy, origins, timeout_s=self.timeouts.flag_s)
            flow = view.flow(queue.address)
            not_due = flow.not_due if flow is not None else 0
            unread += [queue.name] if missing is None or queue.scheduled > not_due else []
            compared += queue.depth - queue.scheduled if missing is not None else 0
            accepted = move.spec.accept_difference.get(queue.name, 0)
            # A person cannot accept the exact number of delayed messages, because it falls all the time.
            missing = (missing or 0) + (not_due if missing or not_due > accepted else 0)
            if missing and missing != accepted:
                return Failed.of(found("DR-PARITY-004.one_queue", view=view, peer=peer, count=missing, queue=queue))
        findings, duplicates = list[Finding](), list[Finding]()
        try:
            # The ids from before the gate are applied, so an id that the target's store lacks will not arrive.
            ids = missing_at_target(ends, peer, move.moves) or {}
            duplicates += processed_copies(ends, peer, ids, move.spec, timeout_s=self.timeouts.flag_s)
        except NotRead as error:
            findings.append(found("DR-RECONCILE-004.not_compared", why=error))
        if duplicates:
            return Failed.of(*duplicates)
        if unread:
            findings.append(found("DR-BRIDGE-016", unread=brief(unread)))
        figures: dict[str, Json] = {"ids_compared": compared, "depths": depths, "not_compared": [*unread]}
        return Done("the gate holds", figures, tuple(findings))


def _clients_in(view: BrokerView, move: Move) -> Iterator[str]:
    for unit in view.chosen_units(move.moves):
        if view.units[unit]:
            yield f"{view.site} lets clients of {unit} in"
        for queue in view.queues_of(unit):
            if not queue.depth_known:
                yield f"{view.site}: the number of messages in {queue.name} is unknown"
            elif queue.delivering:
                yield f"{view.site} has {queue.delivering} message(s) of {queue.name} in delivery"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def _not_shipped(view: BrokerView, move: Move) -> Iterator[str]:
    for flow in view.flows:
        if not move.moves(flow.unit):
            continue
        if not flow.attached:
            yield f"{view.site}: the bridge of {flow.unit} is not connected"
        if (left := flow.to_ship_now(move.spec.accept_difference)) != 0:
            yield f"{view.site}: {count_text(left)} to ship of {flow.unit}"
    for queue in (queue for unit in view.chosen_units(move.moves) for queue in view.queues_of(unit) if queue.consumers):
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
        return view.open_units(move.moves)

    def open_again(self, site: str, calls: Sequence[Call], context: StepContext, _within_s: float = 0.0) -> str | None:
        """Give the clients' roles their rights last: until then each unit is closed, even if its queues deliver."""
        queues = [call for call in calls if call.goal is Goal.OPEN]
        self.change(queues, context)
        if (why := self.admit(site, [call for call in calls if call.goal in ROLES], context)) is not None:
            return why
        failed = still(queues, self.observer.read_at(site))
        return failed.text if failed is not None else None


def draft_trim(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    calls: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        for unit in view.chosen_units(move.spec.includes):
            if peer is None or view.units[unit] or not peer.units.get(unit):
                continue
            for queue in [queue for queue in view.queues_of(unit) if queue.depth]:
                removal = request(queue.bean, REMOVE, ("…",))  # the ids are not compared yet
                text = f"remove processed copies of {queue.name}, {queue.depth} at the most,"
                calls.append(call(view, Goal.REMOVE, queue.name, removal, text, PROCESSED, CALLS))
    summary = f"copies at {move.source} that both sites have processed are removed, by the ids in both id stores"
    return StepPlan(move.source, summary, tuple(calls))


def removal_calls(view: BrokerView, queue: Queue, consumed: Consumed) -> Iterator[Call]:
    ids = sorted((id_.rpartition(":")[0], int(id_.rpartition(":")[2])) for id_ in consumed.ids)
    for origin, group in groupby(ids, key=itemgetter(0)):
        quoted = "'" + origin.replace("'", "''") + "'"
        for batch in batches([number for _, number in group], BATCH):
            # The list of `IN` in a selector may hold strings only, no numbers.
            selector = " OR ".join(f"{ORIGIN} = {quoted} AND {NUMBER} = {number}" for number in batch)
            text = f"remove {len(batch)} processed copies of {queue.name}"
            yield call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, (selector,)), text)


@dataclass(frozen=True, slots=True)
class Comparison:
    ends: LinkEnds  # the serving broker, then the standby
    queue: str
    copies: frozenset[str]
    serving_ids: frozenset[str]
    standby_ids: frozenset[str]

    @property
    def consumed(self) -> Consumed:
        return Consumed(self.serving_ids & self.standby_ids, done_in_both_stores(self.serving_ids, self.standby_ids))

    @property
    def unproven(self) -> frozenset[str]:
        return self.copies - self.consumed.ids

    def __str__(self) -> str:
        serving, standby = self.serving_ids, self.standby_ids
        only_at = zip(self.ends, (serving - standby, standby - serving), strict=True)
        counts = ", ".join(f"{len(ids)} only in the id store of {session.site}" for session, ids in only_at if ids)
        return f"{len(self.unproven)} of {self.queue}{f' ({counts})' if counts else ''}"


def trim(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(f"{move.source} has no copies to trim")
    brokers, queues = tools.observer.brokers, sorted({(call.unit, call.resource) for call in step.calls})
    try:
        comparisons = [
            comparison
            for pair, names in groupby(queues, key=itemgetter(0))
            for comparison in _compare((brokers[move.target][pair], brokers[move.source][pair]), [q for _, q in names])
        ]
    except BrokerError as error:
        return Failed(f"which copies are processed is unknown: {error}", code=ExitCode.PRECHECK_FAILED)
    removed, remaining = Counter[str](), Counter[str]()
    for comparison in comparisons:
        consumed, standby, name = comparison.consumed, comparison.ends[1], comparison.queue
        left, copies = frozenset[str](), comparison.unproven
        if not context.read_only:
            view = standby.read()
            if consumed.ids:
                tools.change(list(removal_calls(view, view.business[name], consumed)), context)
            queue = standby.read().business[name]
            copies = frozenset(_read_copies(standby, queue, view.origin_of(queue.address) or view.site))
            left = consumed.ids & copies
        removed[name] += len(consumed.ids - left)
        remaining[name] += len(copies - left)
        if left:
            text = f"{len(left)} of {len(consumed.ids)} processed copies of {name} are still at {standby.site}"
            return Failed(text, {"removed": {**removed}})
    count = removed.total()
    text = f"{count} processed copies {'could be ' if context.read_only else ''}removed at {move.source}"
    unproven = [comparison for comparison in comparisons if comparison.unproven]
    findings = _report_remaining(unproven, text, nothing_removed=not count)
    return Done(text, {"removed": {**removed}, "stay": {**remaining}}, tuple(findings))


def _report_remaining(comparisons: Sequence[Comparison], removed: str, *, nothing_removed: bool) -> Iterator[Finding]:
    remedy, severity = "", Severity.INFO
    if nothing_removed and any(comparison.serving_ids or comparison.standby_ids for comparison in comparisons):
        severity = Severity.WARNING
        serving, standby = (session.last_view() for session in comparisons[0].ends)
        at_serving = any(comparison.serving_ids for comparison in comparisons)
        remedy = _advise(standby, serving) if at_serving else _advise(serving, standby)
    if comparisons:
        left = brief([str(comparison) for comparison in comparisons])
        yield found("DR-BRIDGE-017", remedy=remedy, severity=severity, removed=removed, left=left)


def _advise(view: BrokerView, other: BrokerView) -> str:
    if view.link.unapplied:
        waits = f"{view.link.unapplied} id(s) of {other.site} wait to be applied at {view.site}"
        return f"{waits}: check that the processor of the ids runs there, and writes to the file that `ids:` names."
    if other.ids_to_ship:
        return f"{other.ids_to_ship} id(s) wait to be shipped from {other.site}: `dr-ctl link restart {other.site}`."
    return (
        f"No id is on its way to {view.site}: check that its consumers and the processor of the ids write to the file, "
        f"the table and the columns that `ids:` of broker {view.pair} at {view.site} names."
    )


def _compare(ends: LinkEnds, queues: Sequence[str]) -> Iterator[Comparison]:
    """Compare the copies at the standby with both id stores. Raises `BrokerError`."""
    standby = ends[1]
    view, peer = (session.read() for session in ends)
    for name in queues:
        copy = peer.business.get(name)
        origin = peer.origin_of(copy.address) if copy is not None else None
        if copy is None or origin is None:
            raise BadValue(f"{name} is not at {peer.site}, or its bridge does not write its origin")
        if peer.units.get(copy.address) or not view.units.get(copy.address):
            raise BadValue(f"{name} is no longer served at {view.site} only")
        if Fields(copy.bean, standby.reader().read([Read(copy.bean, ("AutoDelete",))])[0].value()).flag("AutoDelete"):
            # A later message would find no queue.
            raise BadValue(f"{name} is deleted by its broker once it is empty; set auto-delete to false there first")
        copies = _read_copies(standby, copy, origin)
        ids = (_known_ids(session, name, [*copies.values()]) for session in ends)
        yield Comparison(ends, name, frozenset(copies), *ids)


def _read_copies(standby: Session, copy: Queue, origin: str) -> Mapping[str, Message]:
    pages = islice(reading.read_pages(standby.reader(), copy, origin, timeout_s=COMPARE_WITHIN_S), TRIMMED_PAGES)
    return {identity(message.copied): message for page in pages for message in page if message.copied is not None}


def _known_ids(session: Session, queue: str, messages: list[Message]) -> frozenset[str]:
    if (processed := session.processed(queue, messages)) is None:
        raise BadValue(
            f"the settings name no id store of {session.site}",
            remedy=f"Name it as `ids: {{sqlite: FILE, header: PROPERTY}}` of {session.pair} at {session.site}.",
        )
    return frozenset(map(identity, processed))


TRIM: Final = VerbHandler(draft_trim, trim)
