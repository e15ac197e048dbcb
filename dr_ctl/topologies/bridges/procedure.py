"""What an installation of diverts and bridges does for the verbs of its runbooks, row by row in the table.

A bridge that is stopped is started. A lost site is taken in again while no queue delivers: its residue and its ids are
let in, and compared.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, brief, total
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges import duplicates, fence, trim
from dr_ctl.topologies.bridges.checks import CHECKS
from dr_ctl.topologies.bridges.duplicates import Lacking, copies_done, lacking
from dr_ctl.topologies.bridges.reading import READS, LinkEnds
from dr_ctl.topologies.bridges.tools import BridgesTools, ids_left
from dr_ctl.topologies.bridges.view import Bridge, BrokerView, Chosen, every_unit
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import START, STOP, call, pause, request, resume
from dr_ctl.topologies.common.idstore import NotRead
from dr_ctl.topologies.common.recipe import Procedure, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs.undoing import as_before
from dr_ctl.topologies.common.view import Acceptor, Queue
from dr_ctl.topologies.common.waiting import Barrier, Direction, Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, links_as_before, planning

STOPPED: Final = "it is stopped"
STOPS_S: Final = 75.0  # a bridge whose link had failed takes no start for a minute after its stop
UNDER_WAY: Final = "messages and processed ids under way between the sites"
SMALL: Final = 500
AGAIN_S: Final = 2.0


def starts(view: BrokerView, chosen: Chosen) -> list[Call]:
    """Start stopped bridges of the queues that are asked for and of the ids. A bridge that is not connected is left to
    its own retries: after a failed link a stop takes ten seconds, and for a minute no start is taken."""
    return [_start(view, bridge, STOPPED) for bridge in _bridges(view, chosen)]


def _bridges(view: BrokerView, chosen: Chosen) -> list[Bridge]:
    return [bridge for flow in view.carrying_among(chosen) for bridge in flow.bridges]


def _start(view: BrokerView, bridge: Bridge, when: str | None = None) -> Call:
    asked = request(bridge.bean, START)
    return call(view, Goal.LINK_UP, bridge.name, asked, f"start bridge {bridge.name}", when)


def _stopped(at: AtBroker) -> list[Call]:
    return at.missing(
        call(at.view, Goal.LINK_DOWN, bridge.name, request(bridge.bean, STOP), f"stop bridge {bridge.name}")
        for bridge in _bridges(at.view, at.move.spec.includes)
    )


STARTED: Final[Wants] = ((lambda at: starts(at.view, at.move.moves), SOURCE),)
draft_catch_up: Final = planning(
    SOURCE, "{serving}the bridges connected, the buffers small", *STARTED, limits=Rules.catching_up
)
draft_drain: Final = planning(
    TARGET, "all messages shipped, all processed ids applied", *STARTED, limits=Rules.draining
)
AGAIN: Final[Wants] = (
    (lambda at: at.missing(_start(at.view, bridge) for bridge in _bridges(at.view, at.move.spec.includes)), SOURCE),
)
# Connected bridges too: a bridge that hangs may say that it is connected.
draft_restart: Final = planning(
    SOURCE,
    "stop and start the bridges of {source}, until they are connected; clients stay where they are",
    *((_stopped, SOURCE), *AGAIN),
    limits=lambda _, __, move: {"within": move.spec.timeout_s or STOPS_S},
)


class UnitsDirection(Direction[BrokerView]):
    """Messages and ids of some units under way from one site to the other. Messages count until the buffers are empty;
    with a barrier of theirs, only those that lay there at its start count. Ids count until all noted ones are applied.
    `accepted`: how many delayed messages of a unit may come later."""

    repairing = "bridges are stopped: starting them"

    def __init__(
        self,
        ends: LinkEnds,
        chosen: Chosen,
        ids: Barrier | None = None,
        messages: Barrier | None = None,
        *,
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(*ends)
        self._chosen, self._ids, self._messages, self._accepted = chosen, ids or Barrier(), messages, accepted

    def left(self, view: BrokerView, peer: BrokerView) -> int | None:
        flows = [flow for flow in view.flows if self._chosen(flow.unit)]
        to_ship = [flow.to_ship_now(self._accepted) for flow in flows]
        if self._messages is not None:
            buffers = [flow.buffer for flow in flows if flow.buffer is not None]
            to_ship = [self._messages.left(view, buffers) if len(buffers) == len(flows) else None]
        return total((*to_ship, ids_left(self._ids, view, peer)))

    def why(self, view: BrokerView, peer: BrokerView) -> list[str]:
        carrying = view.carrying_among(self._chosen)
        reasons = [
            f"the bridge of {flow.unit} at {view.site} is not connected" for flow in carrying if not flow.attached
        ]
        if not any(queue.consumers for queue in peer.arrived):
            reasons.append(f"nothing applies the ids that arrive at {peer.site}")
        return reasons

    def repairs(self, view: BrokerView, _peer: object) -> list[Call]:
        """Start stopped bridges; a bridge that is not connected is left to its own retries."""
        return [call for call in starts(view, self._chosen) if not view.holds(call)]


def catch_up(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """While the source serves: the bridges connected, and little enough under way that a drain takes a moment."""
    link_ends = tools.observer.link_ends(move)
    before = {ends: _lacking(ends, move) for ends in link_ends}
    wait = Wait(tools, [UnitsDirection(ends, move.moves) for ends in link_ends], context, UNDER_WAY, SMALL)
    outcome = wait.caught_up(step.limits, "the buffers grow", "under way")
    findings: list[Finding] = []
    # Refused before anybody is locked out: ids that were lacking already before the wait, and are more than what is
    # under way. The gate compares again, when nothing is under way.
    for ends in link_ends if isinstance(outcome, Done) and any(before.values()) else ():
        now = _lacking(ends, move)
        lost = {queue: now.get(queue, frozenset()) & ids for queue, ids in before[ends].items()}
        if sum(map(len, lost.values())) > (wait.last or 0):
            with suppress(BrokerError):
                findings += copies_done(ends, ends[1].read(), lost, move.spec, timeout_s=tools.timeouts.flag_s)
    return Failed.of(*findings) if findings else outcome


def _lacking(ends: LinkEnds, move: Move) -> Lacking:
    """Empty where a store cannot be read: the gate reports it."""
    with suppress(BrokerError):
        return lacking(ends, ends[1].read(), move.moves) or {}
    return {}


def drain(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    accepted, barriers = move.spec.accept_difference, tools.gate.barriers
    directions = [
        UnitsDirection(ends, move.moves, barriers[move.source, ends[0].pair], accepted=accepted)
        for ends in tools.observer.link_ends(move)
    ]
    wait = Wait(tools, directions, context, UNDER_WAY)
    # The gate looks again, over its window.
    failed = wait.until(tools.rules.drain.poll, step.limits, lambda view: view.open_among(move.moves), calms=1)
    return failed or Done("nothing is under way", {"started": wait.mended})


def restart(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    stops = [call for call in step.calls if call.goal is Goal.LINK_DOWN]
    tools.change(stops, context)
    again_at = 0.0

    def read() -> dict[str, str]:
        """Name the units whose bridge is not connected. A start is refused for as long as a stop goes on, so it is sent
        until it is seen to hold."""
        nonlocal again_at
        stopped, _ = tools.missing(AGAIN, move)
        if stopped and context.monotonic() >= again_at:
            again_at = context.monotonic() + AGAIN_S
            tools.change(stopped, context)
        views = tools.observer.read_at(move.source)
        carrying = [flow for view in views for flow in view.carrying_among(move.spec.includes)]
        return {flow.unit: "" for flow in carrying if not flow.attached}

    return attached(tools, step, move, context, "the bridge", read)


UNDO_SHIPPING: Final = Undo(source=(links_as_before,))


HOLDS: Final = "the returned site holds something for this one"
HELD: Final = "it was paused for what came"
LOOK_S: Final = 30.0


def _served(at: AtBroker) -> Iterator[Queue]:
    """The queues that delivered before to clients who are let in."""
    served = (
        queue for flow in at.view.flows if not at.view.kept_out(flow.unit) for queue in at.view.queues_of(flow.unit)
    )
    return (queue for queue in served if queue.name not in at.was["paused"])


def _ways_in(at: AtBroker) -> list[Call]:
    """The listeners of a returned site: the peer's bridges use one, the processor of the ids another. The queues are
    closed, so that no client gets in."""
    return at.missing(
        _listener(at.view, Goal.LINK_UP, listener) for listener in (*at.view.link.listeners, *at.view.listeners)
    )


# Messages and ids take two bridges: a late message may arrive before the id that says that it is done.
QUEUES_PAUSED: Final[Wants] = ((lambda at: at.missing(pause(at.view, queue, HOLDS) for queue in _served(at)), SOURCE),)
LET_IN: Final[Wants] = (
    (wants.link_admitted, SOURCE),
    (_ways_in, TARGET),
    *((lambda at: starts(at.view, every_unit), site) for site in (SOURCE, TARGET)),
)
DELIVERED: Final[Wants] = (
    (lambda at: at.missing(resume(at.view, queue, None if queue.paused else HELD) for queue in _served(at)), SOURCE),
    *wants.DEBTS_CLEARED,
)
draft_reinstate: Final = planning(
    TARGET,
    "its residue and its ids are let in while nothing is delivered; both directions drain",
    *(*QUEUES_PAUSED, *LET_IN, *DELIVERED),
    limits=Rules.while_moving,
)


def as_returned(at: AtBroker) -> list[Call]:
    """The listeners as they were when the site returned; the queues stay closed, even if the return fails."""
    view, was = at.view, at.was["acceptors"]
    opened = (listener for listener in (*view.link.listeners, *view.listeners) if not was.get(listener.name))
    return [_listener(view, Goal.LINK_DOWN, listener_, "it is open") for listener_ in opened]


def _listener(view: BrokerView, goal: Goal, listener: Acceptor, when: str | None = None) -> Call:
    opens = goal is Goal.LINK_UP
    asked = request(listener.bean, START if opens else STOP)
    return call(view, goal, listener.name, asked, f"{'open' if opens else 'close'} acceptor {listener.name}", when)


draft_reconcile: Final = planning(SOURCE, "whether the returned site's copies hold what is served")


def reinstate(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    # Clients wait only while something can still arrive, and not a second time where an earlier run had let them in.
    residues = list(tools.residue.values())
    empty = bool(residues) and not any(residue.messages or residue.acks for residue in residues)
    # Closed queues get no new ones.
    nothing_left = empty and total(view.link.unapplied for view in tools.views(move.source)) == 0
    if not nothing_left and (refused := tools.reach(QUEUES_PAUSED, move, context)) is not None:
        return refused
    if (refused := tools.reach(LET_IN, move, context)) is not None:
        return refused
    pairs = tools.observer.between(move.source, move.target)
    # A queue that the returned site alone serves gets messages all the time, and none of them is residue.
    closed = {unit for view in tools.views(move.target) for unit, is_open in view.units.items() if not is_open}
    back = [UnitsDirection((peer, local), closed.__contains__) for local, peer in pairs]
    # Clients go on sending to the serving site: in that direction the wait covers only messages that lay there.
    forth = [UnitsDirection(ends, every_unit, messages=Barrier()) for ends in pairs]
    wait = Wait(tools, [*back, *forth], context, UNDER_WAY)
    if (failed := wait.until(tools.rules.drain.poll, step.limits)) is not None:
        return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    findings: list[Finding] = []
    # Before anybody delivers what came: what consumers of the returned site had done when it was lost, unannounced.
    for serving, returned in pairs if any(made.goal is Goal.PAUSE for made in step.calls) else ():
        try:
            findings += duplicates.done_at((returned, serving), serving.read(), timeout_s=LOOK_S)
        except NotRead as error:
            findings.append(duplicates.not_compared(error))
    if (refused := tools.reach(DELIVERED, move, context)) is not None:
        return refused
    # Not known where an earlier process counted the residue that was let in.
    figures: dict[str, Json] = {
        "recovered": total(residue.messages for residue in residues) if residues else None,
        "ids_applied": total(residue.acks for residue in residues) if residues else None,
    }
    return Done("what it held has arrived, and its ids are applied", figures, tuple(findings))


def applied(tools: BridgesTools, move: Move, context: StepContext) -> Outcome:
    """Let the ids that have arrived be applied: a message that came in without its id may be duplicates."""
    waited = until(
        context,
        lambda: tools.observer.unapplied_at(move.source, timeout_s=5.0),
        holds=lambda left: left == 0,
        within_s=tools.timeouts.settle_s,
        poll_s=tools.timeouts.settle_poll_s,
    )
    # At most as many came without their ids as ids are left there, and as messages came; what lies in the buffers of
    # the returned site did not come.
    views, residues = tools.observer.answering(move.target), tools.residue.values()
    ids = total((waited.reading, *(view.ids_to_ship for view in views))) if views else None
    held = total(residue.messages for residue in residues) if residues else None
    left = total(view.link.to_ship for view in views) or 0
    known = [count for count in (ids, max(0, held - left) if held is not None else None) if count is not None]
    if known and min(known) == 0:
        return Done("as it was")
    most, why = (
        f"at most {min(known)}" if known else "an unknown number of",
        "the ids that say they are done did not come",
    )
    return Done("as it was", findings=(found("DR-RETURN-007", most=most, target=move.target, why=why),))


def reconcile(tools: BridgesTools, _step: PlannedStep, move: Move, _context: StepContext) -> Outcome:
    """Compare the id stores where the settings name them: the serving site must know all ids that the returned site has
    processed. An earlier step waited for the messages; copies that found no queue at the returned site are reported."""
    findings: list[Finding] = []
    for view in tools.observer.read_at(move.target):
        counts = [f"{unit} {count}" for unit, count in view.unrouted.items() if count and view.flow(unit) is not None]
        if counts:
            findings.append(found("DR-RECONCILE-002.unrouted", site=view.site, pair=view.pair, counts=brief(counts)))
    unknown: dict[str, Json] = {}
    for serving, returned in tools.observer.between(move.source, move.target):
        if returned.ids is None or serving.ids is None:
            continue
        unknown[serving.pair] = None
        try:
            lacking = {queue: len(ids) for queue, ids in duplicates.ids_lacking(returned.ids, serving.ids).items()}
        except NotRead as error:
            findings.append(duplicates.not_compared(error))
            continue
        unknown[serving.pair] = {**lacking}
        if lacking:
            ids = brief([f"{queue} {count}" for queue, count in lacking.items()])
            findings.append(found("DR-RECONCILE-004.unknown_ids", target=move.target, source=move.source, ids=ids))
    return Done("compared as far as it can be", {"ids_not_known": unknown or None}, tuple(findings))


UNDO_REINSTATE: Final = Undo(
    (wants.link_access_as_before, wants.pauses_as_before, wants.debts_as_before),
    (as_returned,),
    partial(as_before, settle=applied),
)


PROCEDURE: Final[Procedure[Snapshot[BrokerView], BridgesTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up, UNDO_SHIPPING),
    "fence": VerbHandler(fence.draft, fence.act, fence.UNDO),
    "drain": VerbHandler(draft_drain, drain, UNDO_SHIPPING),
    "activate": VerbHandler(fence.draft_activate, fence.activate, fence.UNDO_ACTIVATE),
    "unfence": VerbHandler(fence.draft_unfence, fence.unfence, fence.UNDO_UNFENCE),
    "restart-link": VerbHandler(draft_restart, restart, UNDO_SHIPPING),
    "trim": VerbHandler(trim.draft, trim.act),
    # How a lost site is taken in again.
    "residue": VerbHandler(fence.draft_of_returned, fence.residue),
    "reinstate": VerbHandler(draft_reinstate, reinstate, UNDO_REINSTATE),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}
TOPOLOGY: Final = TopologyDefinition(
    PROCEDURE,
    CHECKS,
    READS,
    BridgesTools,
    "give the clients' roles their rights at each queue's address back",
    moves_parts=True,
)
