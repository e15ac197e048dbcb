"""How a lost site is kept out and taken in again: messages in, then acknowledgements, then the rest is delivered."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity, brief, total
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import CREATE_FILTERED
from dr_ctl.topologies.common.calls import (
    START,
    STOP,
    call,
    document,
    left_of,
    pause,
    pause_lasting,
    quarantine_queue,
    request,
    resume,
)
from dr_ctl.topologies.common.consumed import Consumed, CopyExists, Evidence
from dr_ctl.topologies.common.link import Residue
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.verbs.fence import closed_first, held_for_the_other, quarantine
from dr_ctl.topologies.common.wants import (
    DEBTS_CLEARED,
    SOURCE,
    TARGET,
    AtBroker,
    Wants,
    debts_as_before,
    link_access_as_before,
    link_admitted,
    planning,
)
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.checks import nothing_owed
from dr_ctl.topologies.continuity.reading import LinkEnds, Session
from dr_ctl.topologies.continuity.tools import Applied, Both, ContinuityTools
from dr_ctl.topologies.continuity.view import Bridge, SiteView

REMOVE_ALL: Final = "removeAllMessages()"
NOT_IN: Final = "its messages are not all shipped"
QUIET_READINGS: Final = 5


def _untold(at: AtBroker) -> list[Call]:
    """A site that came back would obey the commands of the outage, one by one."""
    return at.missing([pause_lasting(at.view, at.view.commands.out)]) if at.view.commands is not None else []


def commands(at: AtBroker) -> Iterator[Call]:
    """What the plugin tells its peer."""
    if at.view.commands is not None and not at.was["commands_paused"]:
        yield resume(at.view, at.view.commands.out, "it is paused")


QUARANTINE: Final = quarantine(_untold, summary=", and what the plugin would tell it", undo=(commands,))


def _held(at: AtBroker) -> list[Call]:
    """What is staged is not delivered."""
    # Bridges stop first: messages that a bridge has taken could not be removed from a queue that is only paused.
    stops = [stop(at.view, flow.target_bridge) for flow in at.view.flows]
    return at.missing([*stops, *(pause(at.view, flow.staging) for flow in at.view.flows)])


def _acks_held(at: AtBroker) -> Iterator[Call]:
    """Acknowledgements stay where their messages are not all shipped."""
    return (stop(at.view, flow.acks_bridge, NOT_IN) for flow in at.view.flows)


def _behind(at: AtBroker) -> list[Call]:
    """Where all messages are in, as of a run that is resumed, its acknowledgements may come."""
    return at.missing(stop(at.view, flow.acks_bridge) for flow in at.view.flows if flow.out_mirror.depth)


def _forgotten(at: AtBroker) -> list[Call]:
    """Nobody obeys the plugin's commands of the outage: obeyed now, they could leave both sites inactive."""
    commands = at.view.commands
    if commands is None or not commands.out.depth:
        return []
    text = f"remove the commands of the outage from {commands.out.name}"
    return [call(at.view, Goal.REMOVE, commands.out.name, request(commands.out.bean, REMOVE_ALL), text)]


def _delivers(at: AtBroker) -> list[Call]:
    flows = at.view.flows
    resumed = [resume(at.view, flow.staging) for flow in flows]
    return at.missing([*resumed, *(start(at.view, flow.target_bridge, "deliver again by") for flow in flows)])


def _talks(at: AtBroker) -> list[Call]:
    """Each site may have been lost: either may keep commands for the other."""
    return at.missing([resume(at.view, at.view.commands.out)]) if at.view.commands is not None else []


def acks_shipped(at: AtBroker) -> Iterator[Call]:
    return (start(at.view, flow.acks_bridge, "ship by", "it is stopped") for flow in at.view.flows)


HELD: Final[Wants] = ((_held, SOURCE), (_behind, TARGET))
LISTENING: Final[Wants] = ((link_admitted, SOURCE), (link_admitted, TARGET))
SHIPPED: Final[Wants] = ((lambda at: at.missing(acks_shipped(at)), TARGET),)
DELIVERED: Final[Wants] = ((_delivers, SOURCE), (_talks, SOURCE), (_talks, TARGET), *DEBTS_CLEARED)
draft: Final = planning(
    TARGET,
    "its messages are let in, then its acknowledgements; only what was never done is delivered",
    *((_held, SOURCE), (_forgotten, SOURCE), (link_admitted, SOURCE), (_acks_held, TARGET), (_forgotten, TARGET)),
    *((link_admitted, TARGET), (acks_shipped, TARGET)),
    (lambda at: _removing(at.view, at.move), SOURCE),
    *DELIVERED,
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def staged(at: AtBroker) -> Iterator[Call]:
    """What has come in and is held, without what turns out to be done."""
    yield from _removing(at.view, at.move)
    yield from in_phase("deliver", (resume(at.view, flow.staging, "it is paused") for flow in at.view.flows))
    bridges = (flow.target_bridge for flow in at.view.flows)
    yield from in_phase("deliver", (start(at.view, bridge, "deliver again by", "it is stopped") for bridge in bridges))


def start(view: SiteView, bridge: Bridge, summary: str, when: str | None = None) -> Call:
    return call(view, Goal.LINK_UP, bridge.name, request(bridge.bean, START), f"{summary} {bridge.name}", when)


def stop(view: SiteView, bridge: Bridge, when: str | None = None) -> Call:
    return call(view, Goal.LINK_DOWN, bridge.name, request(bridge.bean, STOP), f"hold {bridge.name}", when)


def _removing(view: SiteView, move: Move) -> list[Call]:
    """Plan the removals from staging, before anything was compared."""
    when = f"it was acknowledged at {move.target}, or is duplicated at {view.site}"
    return [copies.may_remove(view, flow.staging, when) for flow in view.flows]


def _set_aside(at: AtBroker) -> Iterator[Call]:
    """What lies at the returned site alone once all of it has arrived is taken out."""
    view, most = at.view, len(at.view.flows)
    when = f"messages lie only at {view.site}: it did them, or they were done at {at.move.source}"
    name, server = quarantine_queue(view.site, "…"), beans.server(view.broker)
    created, moved = request(server, CREATE_FILTERED, (name,)), request(server, copies.MOVE_ALL, ("…", name))
    yield call(view, Goal.WRITE, name, created, f"create {name}", when, most)
    yield call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, most)


draft_reconcile: Final = planning(
    SOURCE,
    "what was recovered, duplicated, or left over at one side",
    (_set_aside, TARGET),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)


def count_residue(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    findings = closed_first(tools, step, move, context)
    if isinstance(findings, Failed):
        return findings

    def summary(residue: Residue) -> str:
        text = f"{residue.messages} message(s) and {residue.acks} acknowledgement(s)"
        return f"{text}; at most {if_known(residue.duplicates)} come as duplicates"

    residues = [_residue(session) for session in tools.observer.at(move.target)]
    return held_for_the_other(move, context, residues, summary, findings, ": the continuity plugin has not started")


def _residue(session: Session) -> Residue | None:
    """Count the messages and acknowledgements that a closed broker holds for its peer, or give None if unread. Ids show
    which messages to ship lie in their queue unacknowledged; the counts are an upper bound where ids cannot be had."""
    view = session.read()
    counted = view.link.residue
    if counted is None:
        return None
    flows = [flow for flow in view.flows if flow.out_mirror.depth and flow.queue in view.business]
    queues = [queue for flow in flows for queue in (flow.out_mirror, view.business[flow.queue])]
    if any(queue.depth > copies.IDS_UP_TO for queue in queues):
        return counted
    ids = copies.ids(session.reader(), queues)
    duplicates = 0
    for to_ship, peer in zip(ids[::2], ids[1::2], strict=True):
        if to_ship is None or peer is None:
            return counted
        duplicates += len(to_ship & peer)
    return Residue(counted.messages, counted.acks, duplicates)


@dataclass(frozen=True, slots=True)
class _Shipped:
    """The returned site shipped at least as many messages since its start as its queue lacks: its store had them, for a
    store that came back empty ships nothing, and its queue only shrinks."""

    lacking: frozenset[str]
    counted: int

    @property
    def text(self) -> str:
        return "the returned site shipped them from its store, and its queue lacks them"

    def proves(self, ids: frozenset[str]) -> bool:
        return ids <= self.lacking and len(self.lacking) <= self.counted


def act(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        tools.compares = True
        return NotNeeded(f"{move.target} is taken in already")
    if (refused := tools.reach(HELD, move, context)) is not None:
        return refused

    def kept() -> list[Call]:
        views = tools.views(move.source, move.target)
        return [call for view in views for call in _forgotten(tools.at(view, move))]

    tools.change(kept(), context)
    if left := kept():
        return Failed(f"effect not seen: {brief([call.summary for call in left])}")
    if (refused := _bring_in(tools, step, move, context)) is not None:
        return refused
    done = f"a client at {move.target} may have done some of them, unrecorded"
    text = f"{if_known(tools.number)} message(s) recovered: {done}"
    context.notice(text)
    findings = []
    if unproven := {name: ids for name, ids in tools.unproven.items() if ids}:
        numbers = brief([f"{name}: {len(ids)}" for name, ids in unproven.items()])
        text = f"copies that {move.target} neither holds nor shipped since its start are delivered: {numbers}"
        findings.append(found("DR-CONT-019.delivered", severity=Severity.WARNING, target=move.target, numbers=numbers))
    if (refused := tools.reach(DELIVERED, move, context)) is not None:
        return refused
    ids: dict[str, Json] = {name: [*sorted(recovered)] for name, recovered in tools.recovered.items()}
    removed: dict[str, Json] = {name: len(gone) for name, gone in tools.removed.items()}
    evidence: dict[str, Json] = {"recovered": tools.number, "ids": ids, "removed": removed}
    return Done(text, evidence, tuple(findings))


def _bring_in(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Failed | None:
    """Bring in messages, then acknowledgements, then remove messages that were done; the delivery stays held."""
    tools.reach(LISTENING, move, context)
    applied = {pair: Applied() for pair in tools.observer.brokers[move.source]}
    if (late := _until_calm(tools, _messages_in, step, move, context)) is not None:
        return late
    if (refused := tools.reach(SHIPPED, move, context)) is not None:
        return refused

    def all_applied(both: Both) -> list[str]:
        return [*_acks_in(both), *applied[both[0].pair].why_not(both)]

    if (late := _until_calm(tools, all_applied, step, move, context)) is not None:
        return late
    return _remove_done(tools, move, context)


def _until_calm(
    tools: ContinuityTools, why: Callable[[Both], list[str]], step: PlannedStep, move: Move, context: StepContext
) -> Failed | None:
    """Wait until no reason is left to wait, several polls in a row; make the holds again with each poll."""
    bridges = [call for call in step.calls if call.goal is Goal.LINK_DOWN and call.site == move.source]

    def read() -> tuple[list[str], list[str]]:
        """Say what keeps it from going on, and which queues were deleted."""
        pairs = tools.read(tools.observer.between(move.source, move.target))
        serving = {view.pair: view for view, _ in pairs}
        if gone := [call.thing for call in bridges if serving[call.unit].gone_with_its_queue(call)]:
            return gone, gone
        reasons = [reason for both in pairs for reason in why(both)]
        if again := [call for view, _ in pairs for call in _held(tools.at(view, move))]:
            tools.change(again, context)
            reasons.append(f"{move.source} had begun to deliver again")
        left = total(count for view, peer in pairs for count in (peer.link.to_ship, view.link.unapplied))
        context.report_waiting(f"of {move.target}'s residue under way", left, brief(reasons) if reasons else None)
        return reasons, []

    waited = until(
        context,
        read,
        holds=lambda now: not now[0],
        hopeless=lambda now: bool(now[1]),
        within_s=step.limits["within"],
        poll_s=tools.waits.taken_in_poll_s,
        stable_for=QUIET_READINGS,
    )
    reasons, gone = waited.reading
    if gone:
        return Failed(f"a queue was deleted at {move.source} meanwhile, with all that carries it: {brief(gone)}")
    if waited.satisfied:
        return None
    text = f"{move.target} is not taken in after {duration(step.limits['within'])}: {brief(reasons)}"
    return Failed(text, code=ExitCode.DRAIN_TIMEOUT)


def _remove_done(tools: ContinuityTools, move: Move, context: StepContext) -> Failed | None:
    """Remove staged messages that the returned site shipped since its start and does not have any more, for they were
    acknowledged, and staged messages that also lie in the queue. Gives None once every staged message was never done,
    as far as anybody can know."""
    tools.recovered, tools.removed, tools.unproven = {}, {}, {}
    ends_s, poll_s = context.monotonic() + tools.timeouts.compared_s, tools.waits.taken_in_poll_s
    for ends in tools.observer.between(move.source, move.target):
        compare, within_s = partial(_compared, tools, ends, context), ends_s - context.monotonic()
        waited = until(context, compare, holds=lambda why: why is None, within_s=within_s, poll_s=poll_s)
        if not waited.satisfied:
            return Failed(f"{if_known(waited.reading)}: nothing of {move.target} was delivered")
    tools.compares = True
    return None


def _compared(tools: ContinuityTools, ends: LinkEnds, context: StepContext) -> str | None:
    """Try once for a pair: remove messages that must not be delivered. Gives a reason to try again, as messages still
    staged or not read."""
    [(serving, returned)] = tools.read([ends])
    local, peer = ends
    flows = [flow for flow in serving.flows if flow.staging.depth]
    names = [flow.queue for flow in flows]
    if lacking := sorted({*copies.one_sided(returned, serving)} & {*names}):
        return f"{brief(lacking)}: only one of the sites has it"
    staged = copies.ids(local.reader(), [flow.staging for flow in flows])
    still = copies.present(peer.reader(), [returned.business[name] for name in names])
    lying = copies.present(local.reader(), [serving.business[name] for name in names])
    later = peer.read()
    found: dict[str, frozenset[str]] = {}
    surplus: dict[str, list[Consumed]] = {}
    for flow, staged_ids, left_there, delivered in zip(flows, staged, still, lying, strict=True):
        # The queue may grow less meanwhile: consumers of the serving site go on, and their acknowledgements come in.
        depth, now = returned.business[flow.queue].depth, later.business.get(flow.queue)
        if staged_ids is None or now is None or not now.depth <= len(left_there) <= depth:
            return f"{flow.queue}: who its messages are could not be read at both sites"
        other = returned.flow(flow.queue)
        left = staged_ids - delivered - left_there
        shipped = _Shipped(left, other.mirror_bridge.acked if other is not None else 0)
        proven = left if shipped.proves(left) else frozenset[str]()
        found[flow.queue] = staged_ids - delivered - proven
        tools.unproven[flow.queue] = left - proven
        grounds: list[tuple[frozenset[str], Evidence]] = [
            (staged_ids & delivered, CopyExists(flow.queue, delivered)),
            (proven, shipped),
        ]
        surplus[flow.queue] = [Consumed(ids, by) for ids, by in grounds if ids]
    for flow in flows:
        for gone in surplus[flow.queue]:
            tools.change(list(copies.remove(serving, flow.staging, gone)), context)
            tools.removed.setdefault(flow.queue, set()).update(gone.ids)
    if any(surplus.values()):  # and look again whether it is gone
        return f"{brief([name for name, consumed in surplus.items() if consumed])}: what was done there is still staged"
    for name, ids in found.items():
        tools.recovered.setdefault(name, set()).update(ids)
    return None


def undo(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Shut the way first, then compare: messages that came in and were done at the returned site must not be delivered.
    If that site is away again, no compare is possible: messages that came in stay held."""
    answering = {(view.site, view.pair): view for view in _answering(tools, move)}
    inverse = [call for call in step.inverse if call.goal is not Goal.REMOVE and (call.site, call.unit) in answering]
    inverse = [call for call in inverse if not answering[call.site, call.unit].gone_with_its_queue(call)]
    inverse = [answering[call.site, call.unit].as_it_lies(call) for call in inverse]
    if not left_of(inverse, _answering(tools, move)):
        return NotNeeded("as it was")
    shut = [call for call in inverse if call.goal is Goal.CLOSE]
    tools.change(shut, context)
    views = _answering(tools, move)
    if left := left_of(shut, views):
        return Failed(f"effect not seen: {brief(left)}")
    flows = [flow for view in views if view.site == move.source for flow in view.flows]
    try:
        held = _remove_done(tools, move, context) if any(flow.staging.depth for flow in flows) else None
    except BrokerError as error:
        held = Failed(f"{error}: what came in of {move.target} stays staged, and is not delivered")
    if held is not None:
        inverse = [call for call in inverse if call.phase != "deliver"]
    tools.change([call for call in inverse if left_of([call], views)], context)
    left = left_of(inverse, _answering(tools, move))
    return held or (Failed(f"effect not seen: {brief(left)}") if left else Done("as it was"))


def _answering(tools: ContinuityTools, move: Move) -> list[SiteView]:
    """The serving brokers, which must answer, and those of the returned ones that do."""
    return [*tools.observer.read_at(move.source), *tools.observer.read_once().views(move.target)]


def _messages_in(both: Both) -> list[str]:
    """Give the reasons why messages of the returned site are not all in."""
    view, peer = both
    reasons = [f"{flow.out_mirror.depth} in {flow.out_mirror.name}" for flow in peer.flows if flow.out_mirror.depth]
    reasons += [f"{flow.mirror_bridge.name} is not connected" for flow in peer.flows if not flow.out_mirror.consumers]
    return reasons + [f"a bridge of {view.site} is not connected" for _ in range(not view.link.attached)]


def _acks_in(both: Both) -> list[str]:
    """Give the reasons why acknowledgements of either site are not all applied at the other."""
    view, peer = both
    reasons = _messages_in(both)
    reasons += [f"{flow.out_acks.depth} in {flow.out_acks.name}" for flow in peer.flows if flow.out_acks.depth]
    reasons += [f"{flow.in_acks.depth} in {flow.in_acks.name}" for flow in view.flows if flow.in_acks.depth]
    return reasons + [f"{f.staging.scheduled} in {f.staging.name} wait" for f in view.flows if f.staging.scheduled]


# Closed first: nothing more comes in that would be delivered with what is held.
UNDO: Final = Undo((link_access_as_before, staged, debts_as_before), (acks_shipped,), undo)


def reconcile(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Move aside messages that lie only at the returned site: a client has done them, and its acknowledgement is gone.
    Wait first: until acknowledgements are applied, messages consumed at the serving site lie only there as well."""
    first = _only_there(tools, move)
    if first and (late := _until_applied(tools, step, move, context)) is not None:
        return late
    now = _only_there(tools, move) if first else {}
    left = {key: now[key] & ids for key, ids in first.items() if key in now and now[key] & ids}
    moved: dict[str, Json] = {}
    for (pair, queue), ids in left.items():
        view = tools.observer.brokers[move.target][pair].read()
        name = quarantine_queue(view.site, queue)
        kept = document(
            view, name, view.requests.of_server(view.document_queue.keep(name)), f"create {name} at {view.site}"
        )
        made = [] if any(queue.name == name for queue in view.queues) else [kept]
        tools.change([*made, *_moves(view, queue, ids, name)], context)
        after = copies.present(tools.observer.brokers[move.target][pair].reader(), [view.business[queue]])[0]
        if stayed := ids & after:
            return Failed(f"{len(stayed)} message(s) of {queue} could not be moved to {name}")
        moved[name] = len(ids)
    findings: list[Finding] = []
    if moved:
        number = sum(len(ids) for ids in left.values())
        findings.append(
            found("DR-RECONCILE-002.kept_aside", target=move.target, count=number, queues=brief(list(moved)))
        )
    recovered = "how many were recovered is not known" if tools.number is None else f"{tools.number} recovered"
    return Done(f"{recovered}; {len(moved)} queue(s) with something left over", {"quarantined": moved}, tuple(findings))


def _until_applied(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Failed | None:
    """Wait until what consumers had acknowledged is applied, and for as long as bridges take at least."""
    began_s, min_s = context.monotonic(), tools.waits.left_over_s
    applied = {pair: Applied() for pair in tools.observer.brokers[move.source]}
    context.wait(tools.waits.taken_in_poll_s)  # an acknowledgement of a moment ago is on its way by then

    def read() -> tuple[list[str], float]:
        took_s = context.monotonic() - began_s
        pairs = tools.read(tools.observer.between(move.source, move.target))
        return [why for both in pairs for why in applied[both[0].pair].why_not(both)], took_s

    waited = until(
        context,
        read,
        holds=lambda now: not now[0] and now[1] >= min_s,
        within_s=max(step.limits["within"], min_s),
        poll_s=tools.waits.taken_in_poll_s,
    )
    under_way, took_s = waited.reading
    if waited.satisfied:
        return None
    return Failed(f"not compared after {duration(took_s)}: {brief(under_way)}", code=ExitCode.DRAIN_TIMEOUT)


def _only_there(tools: ContinuityTools, move: Move) -> dict[tuple[str, str], frozenset[str]]:
    """The messages of each queue that only the returned site has."""
    alone: dict[tuple[str, str], frozenset[str]] = {}
    link_ends = tools.observer.between(move.source, move.target)
    for (view, peer), (serving, returned) in zip(link_ends, tools.read(link_ends), strict=True):
        lying = [flow.queue for flow in returned.flows if flow.queue in returned.business]
        names = [name for name in lying if returned.business[name].depth]
        returned_ids = copies.present(peer.reader(), [returned.business[name] for name in names])
        # A queue that is gone there has nothing.
        places = [(name, queue) for name in names for queue in serving.lying(name)]
        serving_ids = dict.fromkeys(names, frozenset[str]())
        for (name, _), ids in zip(places, copies.present(view.reader(), [queue for _, queue in places]), strict=True):
            serving_ids[name] |= ids
        alone |= {
            (serving.pair, name): only
            for name, ids_ in zip(names, returned_ids, strict=True)
            if (only := ids_ - serving_ids[name])
        }
    return alone


def _moves(view: SiteView, queue: str, ids: frozenset[str], name: str) -> list[Call]:
    bean, filter_by = view.business[queue].bean, copies.chosen
    return [
        call(
            view,
            Goal.MOVE,
            queue,
            request(bean, copies.MOVE_ALL, (filter_by(chunk), name)),
            f"move {len(chunk)} of {queue} to {name}",
        )
        for chunk in copies.in_calls(ids)
    ]
