"""Keeps a lost site out, and reinstates it: first messages arrive, then acknowledgements, then delivery resumes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity, brief, total
from dr_ctl.core.notation import if_known
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext
from dr_ctl.topologies.artemis.broker import CREATE_FILTERED
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import call, pause, quarantine_queue, request, resume, switch_part
from dr_ctl.topologies.common.consumed import Consumed, Evidence, copy_exists
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.tools import StepFailed
from dr_ctl.topologies.common.verbs.fence import counting_verb, quarantine, residue_outcome
from dr_ctl.topologies.common.verbs.proving import QUIET_READINGS
from dr_ctl.topologies.common.verbs.undoing import DELIVER, restore
from dr_ctl.topologies.common.view import Residue
from dr_ctl.topologies.common.waiting import Direction, Wait
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, draft_of, link_admitted
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.checks import is_reinstated
from dr_ctl.topologies.continuity.reading import LinkEnds, Session
from dr_ctl.topologies.continuity.tools import AcksApplied, ContinuityTools
from dr_ctl.topologies.continuity.view import Bridge, Flow, SiteView

REMOVE_ALL: Final = "removeAllMessages()"


def _commands_paused(at: AtBroker) -> list[Call]:
    """A site that came back would execute the commands that the plugin sent during the outage."""
    return at.needed([pause(at.view, at.view.commands.out, lasting=True)]) if at.view.commands is not None else []


def commands(at: AtBroker) -> Iterator[Call]:
    if at.view.commands is not None and not at.was["commands_paused"]:
        yield resume(at.view, at.view.commands.out, "it is paused")


QUARANTINE: Final = quarantine(_commands_paused, summary=", and the plugin's commands for it", undo=(commands,))


def _staging_held(at: AtBroker) -> list[Call]:
    # Bridges stop first: messages in delivery to a bridge cannot be removed from a paused queue.
    stops = [_hold_call(at, flow.target_bridge) for flow in at.view.flows]
    return at.needed([*stops, *(pause(at.view, flow.staging) for flow in at.view.flows)])


def _acks_may_be_held(at: AtBroker) -> list[Call]:
    """Hold acknowledgements whose messages are not all shipped. Which these are shows at the returned site only."""
    return [_hold_call(at, flow.acks_bridge, "its messages are not all shipped") for flow in at.view.flows]


def _acks_held(at: AtBroker) -> list[Call]:
    return at.needed(_hold_call(at, flow.acks_bridge) for flow in at.view.flows if flow.out_mirror.depth)


def _commands_removed(at: AtBroker) -> list[Call]:
    """Remove the plugin's commands from the outage, which could deactivate both sites."""
    commands = at.view.commands
    if commands is None or not commands.out.depth:
        return []
    text = f"remove the commands of the outage from {commands.out.name}"
    return [call(at.view, Goal.REMOVE, commands.out.name, request(commands.out.bean, REMOVE_ALL), text)]


def _delivery_resumed(at: AtBroker, paused: str | None = None, stopped: str | None = None) -> list[Call]:
    view, summary = at.view, "deliver again by"
    starts = [switch_part(view, Goal.LINK_UP, flow.target_bridge, summary, stopped) for flow in view.flows]
    return [*(resume(view, flow.staging, paused) for flow in view.flows), *starts]


def _commands_shipped(at: AtBroker) -> list[Call]:
    """Ship commands again. Either site may have been lost, so both may hold commands for the other."""
    return at.needed([resume(at.view, at.view.commands.out)]) if at.view.commands is not None else []


def acks_shipped(at: AtBroker) -> Iterator[Call]:
    return (switch_part(at.view, Goal.LINK_UP, flow.acks_bridge, "ship by", "it is stopped") for flow in at.view.flows)


HELD: Final[Wants] = ((_staging_held, SOURCE), (_acks_held, TARGET))
COMMANDS_REMOVED: Final[Wants] = ((_commands_removed, SOURCE), (_commands_removed, TARGET))
SHIPPED: Final[Wants] = ((lambda at: at.needed(acks_shipped(at)), TARGET),)
DELIVERED: Final[Wants] = (
    (lambda at: at.needed(_delivery_resumed(at)), SOURCE),
    (_commands_shipped, SOURCE),
    (_commands_shipped, TARGET),
    *wants.DEBTS_CLEARED,
)
draft: Final = draft_of(
    TARGET,
    "its messages are let in, then its acknowledgements; only messages that were never processed are delivered",
    *((_staging_held, SOURCE), (_commands_removed, SOURCE), (link_admitted, SOURCE), (_acks_may_be_held, TARGET)),
    *((_commands_removed, TARGET), (link_admitted, TARGET), (acks_shipped, TARGET), (copies.staged_removed, SOURCE)),
    *DELIVERED,
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def staged(at: AtBroker) -> Iterator[Call]:
    """Deliver the held messages, without those that a comparison shows to be processed."""
    yield from copies.staged_removed(at)
    yield from in_phase(DELIVER, _delivery_resumed(at, "it is paused", "it is stopped"))


def _hold_call(at: AtBroker, bridge: Bridge, when: str | None = None) -> Call:
    return switch_part(at.view, Goal.LINK_DOWN, bridge, "hold", when)


def _leftovers_aside(at: AtBroker) -> Iterator[Call]:
    view, limit = at.view, len(at.view.flows)
    when = f"messages are only at {view.site}: they were processed there, or at {at.move.source}"
    name, of_server = quarantine_queue(view.site, "…"), view.requests.of_server
    created, moved = of_server(CREATE_FILTERED, name), of_server(copies.MOVE_ALL, "…", name)
    yield call(view, Goal.CREATE, name, created, f"create {name}", when, limit)
    yield call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, limit)


draft_reconcile: Final = draft_of(
    SOURCE,
    "count messages recovered, duplicated, or left at one site",
    (_leftovers_aside, TARGET),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def _count_residues(tools: ContinuityTools, move: Move, context: StepContext, _was_open: bool) -> Outcome:
    def summary(residue: Residue) -> str:
        text = f"{residue.messages} message(s) and {residue.acks} acknowledgement(s)"
        return f"{text}; at most {if_known(residue.duplicates)} come as duplicates"

    residues = [_read_residue(session) for session in tools.observer.at(move.target)]
    return residue_outcome(move, context, residues, summary, ": the continuity plugin has not started")


RESIDUE: Final = counting_verb(_count_residues)


def _read_residue(session: Session) -> Residue | None:
    """Count the messages and acknowledgements that a closed broker has for its peer, or return None if unread. Ids show
    which messages to ship are still in their queue, unacknowledged; without ids the counts are an upper bound."""
    view = session.read()
    counted = view.link.residue
    if counted is None:
        return None
    flows = [flow for flow in view.flows if flow.out_mirror.depth and flow.queue in view.business]
    queues = [queue for flow in flows for queue in (flow.out_mirror, view.business[flow.queue])]
    if any(queue.depth > copies.IDS_UP_TO for queue in queues):
        return counted
    ids = copies.list_ids(session.reader(), queues)
    counts = [
        len(to_ship & in_queue) for to_ship, in_queue in zip(ids[::2], ids[1::2], strict=True) if to_ship and in_queue
    ]
    return counted if None in ids else Residue(counted.messages, counted.acks, sum(counts))


@dataclass(frozen=True, slots=True)
class _Shipped:
    """Evidence: since its start, the returned site has shipped at least as many messages as its queue lacks. So its
    store had them: an empty store ships nothing, and the queue of a closed site only shrinks."""

    lacking: frozenset[str]
    counted: int

    @property
    def text(self) -> str:
        return "the returned site shipped them from its store, and its queue lacks them"

    def proves(self, ids: frozenset[str]) -> bool:
        return ids <= self.lacking and len(self.lacking) <= self.counted


def act(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if is_reinstated(tools.observer.observe(), move):
        tools.recovered = {}
        return NotNeeded(f"{move.target} is reinstated already")
    tools.reach(HELD, move, context)
    tools.reach(COMMANDS_REMOVED, move, context)
    _receive(tools, step, move, context)
    doubt = f"a client at {move.target} may have processed some of them, unrecorded"
    text = f"{if_known(tools.recovered_count)} message(s) recovered: {doubt}"
    context.notice(text)
    findings = []
    if numbers := brief([f"{name}: {len(ids)}" for name, ids in tools.unproven.items() if ids]):
        findings.append(found("DR-CONT-019.delivered", severity=Severity.WARNING, target=move.target, numbers=numbers))
    tools.reach(DELIVERED, move, context)
    ids: dict[str, Json] = {name: [*sorted(recovered)] for name, recovered in (tools.recovered or {}).items()}
    removed: dict[str, Json] = {name: len(messages) for name, messages in tools.removed.items()}
    evidence: dict[str, Json] = {"recovered": tools.recovered_count, "ids": ids, "removed": removed}
    return Done(text, evidence, tuple(findings))


def _receive(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> None:
    """Wait for messages, then for acknowledgements, then remove processed messages; the delivery stays held."""
    tools.send_calls(wants.LINKS_ADMITTED, move, context)
    link_ends = tools.observer.between(move.source, move.target)
    for acks in (False, True):
        if acks:
            tools.reach(SHIPPED, move, context)
        residues: list[Direction[SiteView]] = [_Residue(ends, tools, step, move, acks=acks) for ends in link_ends]
        applied = [AcksApplied(ends, context) for ends in link_ends if acks]
        wait = Wait(tools, [*residues, *applied], context, f"of {move.target}'s residue under way")
        if (failed := wait.until(tools.waits.reinstate_poll_s, step.limits, stable_for=QUIET_READINGS)) is not None:
            raise StepFailed(replace(failed, text=f"{move.target} is not reinstated: {failed.text}"))
    _remove_processed(tools, move, context)


class _Residue(Direction[SiteView]):
    """Waits for the messages of a returned broker, the peer of this direction, and with `acks` also for
    acknowledgements of both sites. Meanwhile the serving broker does not deliver them."""

    repairing = "it delivers received messages: holding them again"

    def __init__(self, ends: LinkEnds, tools: ContinuityTools, step: PlannedStep, move: Move, *, acks: bool) -> None:
        super().__init__(*ends)
        self._tools, self._move, self._acks = tools, move, acks
        stops = [call for call in step.calls if call.goal is Goal.LINK_DOWN and call.site == move.source]
        self._bridges = [call for call in stops if call.unit == self.local.pair]
        self._holds: list[Call] = []

    def remaining(self, serving: SiteView, returned: SiteView) -> int | None:
        if not self._acks:
            return returned.link.messages
        scheduled = sum(flow.staging.scheduled for flow in serving.flows)
        return total((returned.link.to_ship, serving.link.unapplied, scheduled))

    def reasons(self, serving: SiteView, returned: SiteView) -> list[str]:
        if deleted := [call.resource for call in self._bridges if serving.lacks_bridge(call)]:
            text = f"a queue was deleted at {serving.site} meanwhile, with its flow: {brief(deleted)}"
            self.refused = Failed(text)
            return [text]
        reasons = [f"{f.mirror_bridge.name} is not connected" for f in returned.flows if not f.out_mirror.consumers]
        reasons += [f"a bridge of {serving.site} is not connected"] if not serving.link.attached else []
        self._holds = _staging_held(self._tools.at(serving, self._move))
        return [*reasons, *([f"{serving.site} delivers received messages"] if self._holds else [])]

    def repair_calls(self, _serving: SiteView, _returned: SiteView | BrokerError) -> list[Call]:
        return self._holds


def _remove_processed(tools: ContinuityTools, move: Move, context: StepContext) -> None:
    """Remove staged messages that are also in the queue, and staged messages that the returned site has shipped since
    its start and no longer has, because they were acknowledged, until no staged message is known to be processed.
    Raises `StepFailed`."""
    tools.removed, tools.unproven, recovered = {}, {}, dict[str, set[str]]()
    ends_s, poll_s = context.monotonic() + tools.timeouts.compared_s, tools.waits.reinstate_poll_s
    for ends in tools.observer.between(move.source, move.target):
        compare, within_s = partial(_try_removal, tools, ends, recovered, context), ends_s - context.monotonic()
        waited = context.until(compare, holds=lambda why: why is None, within_s=within_s, poll_s=poll_s)
        if not waited.satisfied:
            raise StepFailed(Failed(f"{if_known(waited.reading)}: no message of {move.target} was delivered"))
    tools.recovered = recovered


def _try_removal(
    tools: ContinuityTools, ends: LinkEnds, recovered: dict[str, set[str]], context: StepContext
) -> str | None:
    """Try once to remove the messages of a pair that must not be delivered. Return a reason to try again, or add the
    ids of the others to `recovered`, by queue."""
    [(serving, returned)] = tools.read([ends])
    local, peer = ends
    flows = [flow for flow in serving.flows if flow.staging.depth]
    names = [flow.queue for flow in flows]
    if missing := sorted({*copies.one_sided_queues(returned, serving)} & {*names}):
        return f"{brief(missing)}: only one of the sites has it"
    staged = copies.list_ids(local.reader(), [flow.staging for flow in flows])
    returned_ids = copies.read_ids(peer.reader(), [returned.business[name] for name in names])
    in_queue = copies.read_ids(local.reader(), [serving.business[name] for name in names])
    returned_later = peer.read()
    unprocessed: dict[str, frozenset[str]] = {}
    removals: list[tuple[Flow, Consumed]] = []
    for flow, staged_ids, at_returned, delivered in zip(flows, staged, returned_ids, in_queue, strict=True):
        # The queue may shrink meanwhile: consumers work at the serving site, and their acknowledgements are applied.
        depth, queue = returned.business[flow.queue].depth, returned_later.business.get(flow.queue)
        if staged_ids is None or queue is None or not queue.depth <= len(at_returned) <= depth:
            return f"{flow.queue}: the ids of its messages could not be read at both sites"
        other = returned.flow(flow.queue)
        left = staged_ids - delivered - at_returned
        shipped = _Shipped(left, other.mirror_bridge.acked if other is not None else 0)
        proven = left if shipped.proves(left) else frozenset[str]()
        unprocessed[flow.queue] = staged_ids - delivered - proven
        tools.unproven[flow.queue] = left - proven
        in_both: tuple[frozenset[str], Evidence] = staged_ids & delivered, copy_exists(flow.queue, delivered)
        removals += [(flow, Consumed(ids, evidence)) for ids, evidence in (in_both, (proven, shipped)) if ids]
    for flow, consumed in removals:
        tools.change(list(copies.calls_to_remove(serving, flow.staging, consumed)), context)
        tools.removed.setdefault(flow.queue, set()).update(consumed.ids)
    if removals:  # the next attempt compares again
        return f"{brief(list(dict.fromkeys(flow.queue for flow, _ in removals)))}: processed messages are still staged"
    for name, ids in unprocessed.items():
        recovered.setdefault(name, set()).update(ids)
    return None


def undo(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Undo at the serving brokers, which must answer, and at the returned brokers that answer."""
    views = [*tools.observer.read_at(move.source), *tools.observer.read_once().views(move.target)]
    answering = {(view.site, view.pair): view for view in views}
    pairs = [(call, answering.get((call.site, call.unit))) for call in step.inverse if call.goal is not Goal.REMOVE]
    calls = [view.with_present_bean(call) for call, view in pairs if view is not None and not view.lacks_bridge(call)]
    return restore(tools, calls, move, context, _keep_from_delivery)


def _keep_from_delivery(tools: ContinuityTools, move: Move, context: StepContext) -> Outcome:
    """Remove received messages that were processed at the returned site. If that site does not answer, its messages
    cannot be compared, and stay held."""
    try:
        if any(flow.staging.depth for view in tools.views(move.source) for flow in view.flows):
            _remove_processed(tools, move, context)
    except StepFailed as failed:
        return failed.outcome
    except BrokerError as error:
        return Failed(f"{error}: messages of {move.target} stay staged, and are not delivered")
    return Done("as it was")


# The link is closed first, so that no more messages arrive and are delivered with the held ones.
UNDO: Final = Undo((wants.link_access_as_before, staged, wants.debts_as_before), (acks_shipped,), undo)


def reconcile(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Move aside messages that only the returned site has: a client has processed them, and its acknowledgement is
    lost. Messages consumed at the serving site look the same until acknowledgements are applied, so wait first."""
    first, waits = _find_leftovers(tools, move), tools.waits
    if first:
        context.wait(waits.reinstate_poll_s)  # recent acknowledgements are under way by then
        link_ends = tools.observer.between(move.source, move.target)
        applied = [AcksApplied(ends, context, waits.left_over_s) for ends in link_ends]
        wait = Wait(tools, applied, context, "acknowledgements to be applied")
        within_s = max(step.limits["within"], waits.left_over_s)
        if (failed := wait.until(waits.reinstate_poll_s, {"within": within_s}, stable_for=1)) is not None:
            return replace(failed, text=f"not compared: {failed.text}")
    second = _find_leftovers(tools, move) if first else {}
    remaining = {key: second[key] & ids for key, ids in first.items() if key in second and second[key] & ids}
    moved: dict[str, Json] = {}
    for (pair, queue), ids in remaining.items():
        session = tools.observer.brokers[move.target][pair]
        view = session.read()
        name, calls = quarantine_queue(view.site, queue), list[Call]()
        if name not in view.by_name:
            creation = view.requests.keep(name)
            calls.append(call(view, Goal.CREATE, name, creation, f"create {name}"))
        for chunk in copies.id_batches(ids):
            creation = request(view.business[queue].bean, copies.MOVE_ALL, (copies.selector(chunk), name))
            calls.append(call(view, Goal.MOVE, queue, creation, f"move {len(chunk)} of {queue} to {name}"))
        tools.change(calls, context)
        [present] = copies.read_ids(session.reader(), [view.business[queue]])
        if not_moved := ids & present:
            return Failed(f"{len(not_moved)} message(s) of {queue} could not be moved to {name}")
        moved[name] = len(ids)
    findings: list[Finding] = []
    if moved:
        count, kept_aside = sum(map(len, remaining.values())), "DR-RECONCILE-002.kept_aside"
        findings.append(found(kept_aside, target=move.target, count=count, queues=brief(list(moved))))
    recovered = f"{'an unknown number' if tools.recovered_count is None else tools.recovered_count} recovered"
    return Done(f"{recovered}; {len(moved)} queue(s) with messages left over", {"quarantined": moved}, tuple(findings))


def _find_leftovers(tools: ContinuityTools, move: Move) -> dict[tuple[str, str], frozenset[str]]:
    leftovers: dict[tuple[str, str], frozenset[str]] = {}
    link_ends = tools.observer.between(move.source, move.target)
    for (view, peer), (serving, returned) in zip(link_ends, tools.read(link_ends), strict=True):
        names = [flow.queue for flow in returned.flows]
        names = [name for name in names if name in returned.business and returned.business[name].depth]
        returned_ids = copies.read_ids(peer.reader(), [returned.business[name] for name in names])
        queues = [queue for name in names for queue in serving.places_of(name)]
        in_queue = dict(zip((queue.bean for queue in queues), copies.read_ids(view.reader(), queues), strict=True))
        for name, ids in zip(names, returned_ids, strict=True):
            # A queue that was deleted at the serving site has no messages.
            if only := ids.difference(*(in_queue[queue.bean] for queue in serving.places_of(name))):
                leftovers[serving.pair, name] = only
    return leftovers
