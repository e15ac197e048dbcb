"""Keeps a lost site out, and takes it in again: messages come in, then acknowledgements, then the rest is delivered."""

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
from dr_ctl.topologies.common.calls import call, pause, quarantine_queue, request, resume, switched
from dr_ctl.topologies.common.consumed import Consumed, Evidence, copy_exists
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.tools import StepFailed
from dr_ctl.topologies.common.verbs.fence import counting, quarantine, residue_outcome
from dr_ctl.topologies.common.verbs.proving import QUIET_READINGS
from dr_ctl.topologies.common.verbs.undoing import DELIVER, put_back
from dr_ctl.topologies.common.view import Residue
from dr_ctl.topologies.common.waiting import Direction, Wait
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, draft_of, link_admitted
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.checks import nothing_owed
from dr_ctl.topologies.continuity.reading import LinkEnds, Session
from dr_ctl.topologies.continuity.tools import AcksApplied, ContinuityTools
from dr_ctl.topologies.continuity.view import Bridge, Flow, SiteView

REMOVE_ALL: Final = "removeAllMessages()"


def _untold(at: AtBroker) -> list[Call]:
    """A site that came back would obey the commands of the outage, one by one."""
    return at.needed([pause(at.view, at.view.commands.out, lasting=True)]) if at.view.commands is not None else []


def commands(at: AtBroker) -> Iterator[Call]:
    if at.view.commands is not None and not at.was["commands_paused"]:
        yield resume(at.view, at.view.commands.out, "it is paused")


QUARANTINE: Final = quarantine(_untold, summary=", and what the plugin would tell it", undo=(commands,))


def _held(at: AtBroker) -> list[Call]:
    # Bridges stop first: messages that a bridge has taken could not be removed from a queue that is only paused.
    stops = [_hold(at, flow.target_bridge) for flow in at.view.flows]
    return at.needed([*stops, *(pause(at.view, flow.staging) for flow in at.view.flows)])


def _acks_may_be_held(at: AtBroker) -> list[Call]:
    """Hold acknowledgements whose messages are not all shipped: only the returned site shows which these are."""
    return [_hold(at, flow.acks_bridge, "its messages are not all shipped") for flow in at.view.flows]


def _acks_held(at: AtBroker) -> list[Call]:
    return at.needed(_hold(at, flow.acks_bridge) for flow in at.view.flows if flow.out_mirror.depth)


def _forgotten(at: AtBroker) -> list[Call]:
    """Remove the plugin's commands of the outage: obeyed now, they could leave both sites inactive."""
    commands = at.view.commands
    if commands is None or not commands.out.depth:
        return []
    text = f"remove the commands of the outage from {commands.out.name}"
    return [call(at.view, Goal.REMOVE, commands.out.name, request(commands.out.bean, REMOVE_ALL), text)]


def _delivers(at: AtBroker, paused: str | None = None, stopped: str | None = None) -> list[Call]:
    view, again = at.view, "deliver again by"
    starts = [switched(view, Goal.LINK_UP, flow.target_bridge, again, stopped) for flow in view.flows]
    return [*(resume(view, flow.staging, paused) for flow in view.flows), *starts]


def _talks(at: AtBroker) -> list[Call]:
    """Ship commands again: either site may have been lost, and may keep commands for the other."""
    return at.needed([resume(at.view, at.view.commands.out)]) if at.view.commands is not None else []


def acks_shipped(at: AtBroker) -> Iterator[Call]:
    return (switched(at.view, Goal.LINK_UP, flow.acks_bridge, "ship by", "it is stopped") for flow in at.view.flows)


HELD: Final[Wants] = ((_held, SOURCE), (_acks_held, TARGET))
FORGOTTEN: Final[Wants] = ((_forgotten, SOURCE), (_forgotten, TARGET))
SHIPPED: Final[Wants] = ((lambda at: at.needed(acks_shipped(at)), TARGET),)
DELIVERED: Final[Wants] = (
    (lambda at: at.needed(_delivers(at)), SOURCE),
    (_talks, SOURCE),
    (_talks, TARGET),
    *wants.DEBTS_CLEARED,
)
draft: Final = draft_of(
    TARGET,
    "its messages are let in, then its acknowledgements; only what was never done is delivered",
    *((_held, SOURCE), (_forgotten, SOURCE), (link_admitted, SOURCE), (_acks_may_be_held, TARGET)),
    *((_forgotten, TARGET), (link_admitted, TARGET), (acks_shipped, TARGET), (copies.staged_removed, SOURCE)),
    *DELIVERED,
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def staged(at: AtBroker) -> Iterator[Call]:
    """Deliver what has come in and is held, without the messages that turn out to be done."""
    yield from copies.staged_removed(at)
    yield from in_phase(DELIVER, _delivers(at, "it is paused", "it is stopped"))


def _hold(at: AtBroker, bridge: Bridge, when: str | None = None) -> Call:
    return switched(at.view, Goal.LINK_DOWN, bridge, "hold", when)


def _set_aside(at: AtBroker) -> Iterator[Call]:
    """Plan to take out the messages that lie at the returned site alone once everything has arrived."""
    view, most = at.view, len(at.view.flows)
    when = f"messages lie only at {view.site}: it did them, or they were done at {at.move.source}"
    name, of_server = quarantine_queue(view.site, "…"), view.requests.of_server
    created, moved = of_server(CREATE_FILTERED, name), of_server(copies.MOVE_ALL, "…", name)
    yield call(view, Goal.CREATE, name, created, f"create {name}", when, most)
    yield call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, most)


draft_reconcile: Final = draft_of(
    SOURCE,
    "what was recovered, duplicated, or left over at one side",
    (_set_aside, TARGET),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def _residues(tools: ContinuityTools, move: Move, context: StepContext, _was_open: bool) -> Outcome:
    def summary(residue: Residue) -> str:
        text = f"{residue.messages} message(s) and {residue.acks} acknowledgement(s)"
        return f"{text}; at most {if_known(residue.duplicates)} come as duplicates"

    residues = [_residue(session) for session in tools.observer.at(move.target)]
    return residue_outcome(move, context, residues, summary, ": the continuity plugin has not started")


RESIDUE: Final = counting(_residues)


def _residue(session: Session) -> Residue | None:
    """Count the messages and acknowledgements that a closed broker holds for its peer, or give None if unread. Ids show
    which messages to ship lie in their queue unacknowledged; without ids the counts are an upper bound."""
    view = session.read()
    counted = view.link.residue
    if counted is None:
        return None
    flows = [flow for flow in view.flows if flow.out_mirror.depth and flow.queue in view.business]
    queues = [queue for flow in flows for queue in (flow.out_mirror, view.business[flow.queue])]
    if any(queue.depth > copies.IDS_UP_TO for queue in queues):
        return counted
    ids = copies.ids(session.reader(), queues)
    both = [
        len(to_ship & in_queue) for to_ship, in_queue in zip(ids[::2], ids[1::2], strict=True) if to_ship and in_queue
    ]
    return counted if None in ids else Residue(counted.messages, counted.acks, sum(both))


@dataclass(frozen=True, slots=True)
class _Shipped:
    """The returned site shipped at least as many messages since its start as its queue lacks. So its store had them: a
    store that came back empty ships nothing, and the queue of a closed site only shrinks."""

    lacking: frozenset[str]
    counted: int

    @property
    def text(self) -> str:
        return "the returned site shipped them from its store, and its queue lacks them"

    def proves(self, ids: frozenset[str]) -> bool:
        return ids <= self.lacking and len(self.lacking) <= self.counted


def act(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        tools.recovered = {}
        return NotNeeded(f"{move.target} is reinstated already")
    tools.reach(HELD, move, context)
    tools.reach(FORGOTTEN, move, context)
    _bring_in(tools, step, move, context)
    done = f"a client at {move.target} may have done some of them, unrecorded"
    text = f"{if_known(tools.number)} message(s) recovered: {done}"
    context.notice(text)
    findings = []
    if numbers := brief([f"{name}: {len(ids)}" for name, ids in tools.unproven.items() if ids]):
        findings.append(found("DR-CONT-019.delivered", severity=Severity.WARNING, target=move.target, numbers=numbers))
    tools.reach(DELIVERED, move, context)
    ids: dict[str, Json] = {name: [*sorted(recovered)] for name, recovered in (tools.recovered or {}).items()}
    removed: dict[str, Json] = {name: len(gone) for name, gone in tools.removed.items()}
    evidence: dict[str, Json] = {"recovered": tools.number, "ids": ids, "removed": removed}
    return Done(text, evidence, tuple(findings))


def _bring_in(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> None:
    """Bring in messages, then acknowledgements, then remove messages that were done; the delivery stays held."""
    tools.send_calls(wants.LINKS_ADMITTED, move, context)
    link_ends = tools.observer.between(move.source, move.target)
    for acks in (False, True):
        if acks:
            tools.reach(SHIPPED, move, context)
        residues: list[Direction[SiteView]] = [_Residue(ends, tools, step, move, acks=acks) for ends in link_ends]
        applied = [AcksApplied(ends, context) for ends in link_ends if acks]
        wait = Wait(tools, [*residues, *applied], context, f"of {move.target}'s residue under way")
        if (failed := wait.until(tools.waits.taken_in_poll_s, step.limits, stable_for=QUIET_READINGS)) is not None:
            raise StepFailed(replace(failed, text=f"{move.target} is not reinstated: {failed.text}"))
    _remove_done(tools, move, context)


class _Residue(Direction[SiteView]):
    """Waits for the messages of a returned broker, which is the peer here, and with `acks` for acknowledgements of both
    sites too. The serving broker delivers nothing of them meanwhile."""

    repairing = "it had begun to deliver what came in: holding that again"

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
        if gone := [call.thing for call in self._bridges if serving.gone_with_its_queue(call)]:
            text = f"a queue was deleted at {serving.site} meanwhile, with all that carries it: {brief(gone)}"
            self.refused = Failed(text)
            return [text]
        reasons = [f"{f.mirror_bridge.name} is not connected" for f in returned.flows if not f.out_mirror.consumers]
        reasons += [f"a bridge of {serving.site} is not connected"] if not serving.link.attached else []
        self._holds = _held(self._tools.at(serving, self._move))
        return [*reasons, *([f"{serving.site} had begun to deliver again"] if self._holds else [])]

    def repair_calls(self, _serving: SiteView, _returned: SiteView | BrokerError) -> list[Call]:
        return self._holds


def _remove_done(tools: ContinuityTools, move: Move, context: StepContext) -> None:
    """Remove staged messages that also lie in the queue, and staged messages that the returned site shipped since its
    start and has no more, because they were acknowledged, until every staged message was never done, as far as anybody
    can know. Raises `StepFailed`."""
    tools.removed, tools.unproven, recovered = {}, {}, dict[str, set[str]]()
    ends_s, poll_s = context.monotonic() + tools.timeouts.compared_s, tools.waits.taken_in_poll_s
    for ends in tools.observer.between(move.source, move.target):
        compare, within_s = partial(_compared, tools, ends, recovered, context), ends_s - context.monotonic()
        waited = context.until(compare, holds=lambda why: why is None, within_s=within_s, poll_s=poll_s)
        if not waited.satisfied:
            raise StepFailed(Failed(f"{if_known(waited.reading)}: nothing of {move.target} was delivered"))
    tools.recovered = recovered


def _compared(
    tools: ContinuityTools, ends: LinkEnds, recovered: dict[str, set[str]], context: StepContext
) -> str | None:
    """Try once for a pair to remove messages that must not be delivered. Gives a reason to try again, or notes by queue
    the ids that are `recovered`."""
    [(serving, returned)] = tools.read([ends])
    local, peer = ends
    flows = [flow for flow in serving.flows if flow.staging.depth]
    names = [flow.queue for flow in flows]
    if lacking := sorted({*copies.one_sided(returned, serving)} & {*names}):
        return f"{brief(lacking)}: only one of the sites has it"
    staged = copies.ids(local.reader(), [flow.staging for flow in flows])
    still = copies.present(peer.reader(), [returned.business[name] for name in names])
    in_queue = copies.present(local.reader(), [serving.business[name] for name in names])
    later = peer.read()
    never_done: dict[str, frozenset[str]] = {}
    gone: list[tuple[Flow, Consumed]] = []
    for flow, staged_ids, left_there, delivered in zip(flows, staged, still, in_queue, strict=True):
        # The queue may grow less meanwhile: consumers of the serving site go on, and their acknowledgements come in.
        depth, now = returned.business[flow.queue].depth, later.business.get(flow.queue)
        if staged_ids is None or now is None or not now.depth <= len(left_there) <= depth:
            return f"{flow.queue}: who its messages are could not be read at both sites"
        other = returned.flow(flow.queue)
        left = staged_ids - delivered - left_there
        shipped = _Shipped(left, other.mirror_bridge.acked if other is not None else 0)
        proven = left if shipped.proves(left) else frozenset[str]()
        never_done[flow.queue] = staged_ids - delivered - proven
        tools.unproven[flow.queue] = left - proven
        twice: tuple[frozenset[str], Evidence] = staged_ids & delivered, copy_exists(flow.queue, delivered)
        gone += [(flow, Consumed(ids, by)) for ids, by in (twice, (proven, shipped)) if ids]
    for flow, consumed in gone:
        tools.change(list(copies.remove(serving, flow.staging, consumed)), context)
        tools.removed.setdefault(flow.queue, set()).update(consumed.ids)
    if gone:  # the next try compares again
        return f"{brief(list(dict.fromkeys(flow.queue for flow, _ in gone)))}: what was done there is still staged"
    for name, ids in never_done.items():
        recovered.setdefault(name, set()).update(ids)
    return None


def undo(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Undo at the serving brokers, which must answer, and at the returned ones that do."""
    views = [*tools.observer.read_at(move.source), *tools.observer.read_once().views(move.target)]
    answering = {(view.site, view.pair): view for view in views}
    made = [(call, answering.get((call.site, call.unit))) for call in step.inverse if call.goal is not Goal.REMOVE]
    calls = [view.as_it_lies(call) for call, view in made if view is not None and not view.gone_with_its_queue(call)]
    return put_back(tools, calls, move, context, _keep_from_delivery)


def _keep_from_delivery(tools: ContinuityTools, move: Move, context: StepContext) -> Outcome:
    """Compare, because messages that came in and were done at the returned site must not be delivered. If that site is
    away again, no compare is possible: messages that came in stay held."""
    try:
        if any(flow.staging.depth for view in tools.views(move.source) for flow in view.flows):
            _remove_done(tools, move, context)
    except StepFailed as failed:
        return failed.outcome
    except BrokerError as error:
        return Failed(f"{error}: what came in of {move.target} stays staged, and is not delivered")
    return Done("as it was")


# The way is closed first, so that nothing more comes in and is delivered with what is held.
UNDO: Final = Undo((wants.link_access_as_before, staged, wants.debts_as_before), (acks_shipped,), undo)


def reconcile(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Move aside messages that lie only at the returned site: a client has done them, and its acknowledgement is gone.
    Messages consumed at the serving site lie only there as well until acknowledgements are applied, so wait first."""
    first, waits = _only_there(tools, move), tools.waits
    if first:
        context.wait(waits.taken_in_poll_s)  # any acknowledgement of a moment ago is on its way by then
        link_ends = tools.observer.between(move.source, move.target)
        applied = [AcksApplied(ends, context, waits.left_over_s) for ends in link_ends]
        wait = Wait(tools, applied, context, "acknowledgements to be applied")
        within_s = max(step.limits["within"], waits.left_over_s)
        if (failed := wait.until(waits.taken_in_poll_s, {"within": within_s}, stable_for=1)) is not None:
            return replace(failed, text=f"not compared: {failed.text}")
    now = _only_there(tools, move) if first else {}
    left = {key: now[key] & ids for key, ids in first.items() if key in now and now[key] & ids}
    moved: dict[str, Json] = {}
    for (pair, queue), ids in left.items():
        session = tools.observer.brokers[move.target][pair]
        view = session.read()
        name, calls = quarantine_queue(view.site, queue), list[Call]()
        if name not in view.by_name:
            asked = view.requests.keep(name)
            calls.append(call(view, Goal.CREATE, name, asked, f"create {name}"))
        for chunk in copies.in_calls(ids):
            asked = request(view.business[queue].bean, copies.MOVE_ALL, (copies.chosen(chunk), name))
            calls.append(call(view, Goal.MOVE, queue, asked, f"move {len(chunk)} of {queue} to {name}"))
        tools.change(calls, context)
        [after] = copies.present(session.reader(), [view.business[queue]])
        if stayed := ids & after:
            return Failed(f"{len(stayed)} message(s) of {queue} could not be moved to {name}")
        moved[name] = len(ids)
    findings: list[Finding] = []
    if moved:
        count, kept_aside = sum(map(len, left.values())), "DR-RECONCILE-002.kept_aside"
        findings.append(found(kept_aside, target=move.target, count=count, queues=brief(list(moved))))
    recovered = "how many were recovered is not known" if tools.number is None else f"{tools.number} recovered"
    return Done(f"{recovered}; {len(moved)} queue(s) with something left over", {"quarantined": moved}, tuple(findings))


def _only_there(tools: ContinuityTools, move: Move) -> dict[tuple[str, str], frozenset[str]]:
    """Find by pair and queue the messages that only the returned site has."""
    alone: dict[tuple[str, str], frozenset[str]] = {}
    link_ends = tools.observer.between(move.source, move.target)
    for (view, peer), (serving, returned) in zip(link_ends, tools.read(link_ends), strict=True):
        names = [flow.queue for flow in returned.flows]
        names = [name for name in names if name in returned.business and returned.business[name].depth]
        returned_ids = copies.present(peer.reader(), [returned.business[name] for name in names])
        queues = [queue for name in names for queue in serving.places_of(name)]
        in_queue = dict(zip((queue.bean for queue in queues), copies.present(view.reader(), queues), strict=True))
        for name, ids in zip(names, returned_ids, strict=True):
            # A queue that is gone at the serving site has nothing.
            if only := ids.difference(*(in_queue[queue.bean] for queue in serving.places_of(name))):
                alone[serving.pair, name] = only
    return alone
