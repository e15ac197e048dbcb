"""The handlers of runbook verbs for an installation of diverts and bridges; the table at the end names them.

A reading proves that queues are closed to their clients, or open again. A bridge that is stopped is started. No bridge
carries acknowledgements: ids of processed messages are shipped instead, and consumers at the other site skip these
messages. A lost site is reinstated while the serving site's queues are paused: the messages and the ids that the lost
site still holds are shipped to the serving site, and compared. A unit is a queue's address, and can be moved by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, brief, total
from dr_ctl.engine.operations import FAILBACK, FENCE
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.bridges import tools as comparing
from dr_ctl.topologies.bridges.checks import CHECKS
from dr_ctl.topologies.bridges.reading import READS, LinkEnds
from dr_ctl.topologies.bridges.tools import TRIM, BridgesTools
from dr_ctl.topologies.bridges.view import Bridge, BrokerView, UnitFilter, every_unit
from dr_ctl.topologies.common import receipts, wants
from dr_ctl.topologies.common.calls import call, holds, pause, resume, still, switch_listener, switch_part
from dr_ctl.topologies.common.idstore import NotRead
from dr_ctl.topologies.common.reasons import paused_at
from dr_ctl.topologies.common.recipe import Procedure, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import STAYS_CLOSED, Snapshot
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs.activate import may_open, sides, why_open
from dr_ctl.topologies.common.verbs.fence import fence_act, fence_draft, paused_as_before, residue_outcome
from dr_ctl.topologies.common.verbs.undoing import open_again, undo_step
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.waiting import SMALL_OUTFLOW, Barrier, Direction, Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, draft_of

CUT: Final = "closeConsumerConnectionsForAddress(java.lang.String)"

# A unit that was made since the plan counts as open. `gated` lists the queues of a unit whose queues were all paused by
# someone other than a run.
NEW_UNIT: Final[Mapping[str, Any]] = {"kept_out": False, "gated": []}


def close_calls(view: BrokerView, units: Sequence[str]) -> list[Call]:
    """Keep the clients' roles out of the addresses first, so that no client that is cut comes back; then pause the
    queues, and end the connections of consumers. The bridges' role keeps its rights, because one bridge that is refused
    a right stops every bridge of the broker. Queues that a quiesce has paused stay paused."""
    pauses = [_close(view, queue) for unit in units for queue in view.queues_of(unit)]
    return [*view.fence.revoking(matches=units), *pauses, *(_cut(view, unit) for unit in units)]


def open_calls(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Resume the queues in the phase `listeners` of the step, and give the clients' roles their rights back in its last
    phase, `admit`."""
    queues = [queue for unit in units for queue in view.queues_of(unit) if when is not None or queue.paused]
    resumes = [_open(view, queue, when) for queue in queues]
    return [*in_phase("listeners", resumes), *in_phase("admit", view.fence.granting(when, units))]


def units_as_before(at: AtBroker) -> Iterator[Call]:
    """Let clients in or keep them out of each unit as before the run. The target of a failback stays closed."""
    view, was = at.view, at.was
    before = {unit: was["units"].get(unit, NEW_UNIT) for unit in view.chosen_units(at.move.spec.includes)}
    queues = [(unit, queue) for unit in before for queue in view.queues_of(unit)]
    paused = {q.name for unit, q in queues if STAYS_CLOSED in was or q.name in (*before[unit]["gated"], *was["paused"])}
    closed = [unit for unit, state in before.items() if STAYS_CLOSED in was or state["kept_out"]]
    revoked, granted = at.changed_by_step(Goal.REVOKE), at.changed_by_step(Goal.GRANT)
    opened = [unit for unit in before if unit not in closed and (unit in revoked or view.kept_out(unit))]
    closed = [unit for unit in closed if unit in granted or not view.kept_out(unit)]
    yield from view.fence.revoking("they are let in", closed)
    yield from at.needed(_close(view, queue) for _, queue in queues if queue.name in paused)
    # A client that connected meanwhile would wait at the closed queue for ever.
    yield from (_cut(view, unit) for unit in closed)
    opens = at.needed(_open(view, queue, "it is paused") for _, queue in queues if queue.name not in paused)
    yield from in_phase("listeners", opens)
    yield from in_phase("admit", view.fence.granting("they are kept out", opened))


def _close(view: BrokerView, queue: Queue) -> Call:
    request, summary = view.requests.pause(queue), f"let {queue.name} deliver nothing"
    return call(view, Goal.CLOSE, queue.name, request, summary, "it is not paused")


def _open(view: BrokerView, queue: Queue, when: str | None) -> Call:
    return call(view, Goal.OPEN, queue.name, view.requests.resume(queue), f"let {queue.name} deliver", when)


def _cut(view: BrokerView, unit: str) -> Call:
    request = view.requests.of_server(CUT, unit)
    return call(view, Goal.CUT, unit, request, f"end the connections that consume {unit}", "it has a consumer")


def _units_to_close(move: Move) -> UnitFilter:
    """Choose the units to close. The command `fence` also closes units that the other site serves; a move does not."""
    return move.spec.includes if move.spec.operation == FENCE else move.moves


draft_fence: Final = fence_draft(
    lambda at: close_calls(at.view, at.view.chosen_units(_units_to_close(at.move))),
    lambda _: "the clients of each queue are kept out, restarts included",
    "its queues are closed already",
    lambda view, move: all(move.spec.includes(unit) or view.kept_out(unit) for unit in view.fence.matches),
)


def draft_residue(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Close the returned site's queues one by one, even behind closed listeners: the reinstatement opens listeners so
    that ids are applied. A queue that the serving site keeps closed, and that the command does not name, stays."""
    calls: list[Call] = []
    for view in snapshot.views(move.target):
        serving = snapshot.view(move.source, view.pair)
        units = [
            unit
            for unit in view.fence.matches
            if serving is None or serving.units.get(unit) or move.spec.includes(unit)
        ]
        calls += close_calls(view, units)
    return StepPlan(move.target, "close its queues, then count the messages that it still holds", tuple(calls))


fence: Final = fence_act(
    lambda tools, move, context: _close_all(tools, move.source, _units_to_close(move), move, context)
)


def _close_all(tools: BridgesTools, site: str, chosen: UnitFilter, move: Move, context: StepContext) -> Outcome:
    send = tools.sending(lambda at: close_calls(at.view, at.view.chosen_units(chosen)), move, context)
    if not (outcomes := send(tools.observer.read_at(site))):
        return NotNeeded(f"{site} is closed to clients already", {"proof": "flag"})
    refused = any(isinstance(outcome, Failed) for outcome in outcomes)

    def close_again(views: Sequence[BrokerView]) -> None:
        send(views)
        cuts = [(view, _cut(view, unit)) for view in views for unit in view.chosen_units(chosen)]
        tools.change([call for view, call in cuts if not view.holds(call)], context)

    waited = context.until(
        lambda: tools.observer.read_at(site),
        holds=lambda views: not _find_open(views, chosen),
        # A wait does not help a refused call, and clients wait meanwhile.
        within_s=0.0 if refused else tools.timeouts.fence_s,
        poll_s=tools.timeouts.poll_s,
        meanwhile=close_again,
    )
    if not waited.satisfied:
        return Failed(f"{site}: {brief(_find_open(waited.reading, chosen))}")
    return Done(
        "no client's role may send or consume, nothing is in delivery", {"proof": "flag", "roles_kept_out": True}
    )


def _find_open(views: Sequence[BrokerView], chosen: UnitFilter) -> list[str]:
    reasons = []
    for view in views:
        units = view.chosen_units(chosen)
        reasons += [f"clients are not kept out of {unit}" for unit in units if not view.kept_out(unit)]
        queues = [queue for unit in units for queue in view.queues_of(unit)]
        reasons += [f"{queue.name} still delivers" for queue in queues if not queue.paused]
        reasons += [f"{queue.name} has {queue.consumers} consumer(s)" for queue in queues if queue.consumers]
        reasons += [f"{queue.delivering} of {queue.name} still in delivery" for queue in queues if queue.delivering]
    return reasons


def residue(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    units = {call.resource for call in step.calls if call.goal is Goal.CUT}
    closed = _close_all(tools, move.target, units.__contains__, move, context)
    if isinstance(closed, Failed):
        return closed
    residues = {view.pair: view.link.residue for view in tools.observer.read_at(move.target)}
    tools.residue = {pair: residue for pair, residue in residues.items() if residue is not None}
    return residue_outcome(
        move, context, [*residues.values()], lambda held: f"{held.messages} message(s) and {held.acks} processed id(s)"
    )


def draft_unfence(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    calls: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        served = peer.units if peer is not None else None
        units = [unit for unit in view.chosen_units(move.spec.includes) if served is not None and not served.get(unit)]
        closed_units = [unit for unit in units if not view.units[unit]]
        calls += open_calls(view, closed_units)
        open_units = [flow.unit for flow in view.flows if not view.is_closed(flow.unit)]
        # Listeners that a restart has closed are opened, unless they would open a queue that the other site serves.
        if closed_units and not any((served or {}).get(unit) for unit in open_units):
            closed = (listener for listener in view.listeners if not listener.started)
            calls += in_phase("listeners", (switch_listener(view, Goal.OPEN, listener) for listener in closed))
    paused = [(view, queue) for view, queue in paused_at(snapshot, move.source) if queue.name in view.paused]
    calls += receipts.removals(snapshot) if calls else []
    summary = "clients let in again, and pauses by runs lifted"
    return StepPlan(move.source, summary, (*calls, *(resume(view, queue) for view, queue in paused)))


def undo(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Undo the fence, and open listeners that a restart has closed. The undo does not wait for a lost site."""
    outcome = undo_step(tools, step, move, context)
    views = tools.observer.answering(move.source) if isinstance(outcome, Done | NotNeeded) else ()
    opens = [call for view in views for call in wants.listeners_open_as_before(tools.at(view, move))]
    return open_again(tools, opens, move, context) if opens else outcome


def unfence(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    opens, admits, resumes = step.phase("listeners"), step.phase("admit"), step.phase("")
    if opens or admits:
        listeners = {call.resource for call in (*opens, *admits)}
        views = tools.observer.read_at(move.target)
        served = [unit for view in views for unit in view.open_units(move.spec.includes) if unit in listeners]
        if served:
            return Failed(f"{move.target} has {brief(served)} open: a second site is never opened")
    tools.change([*opens, *resumes], context)
    if (kept_out := tools.admit(move.source, admits, context)) is not None:
        return Failed(kept_out)
    outcome = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    waited = context.until(
        lambda: still([*opens, *resumes], tools.observer.read_at(move.source)),
        holds=lambda refused: refused is None,
        within_s=tools.timeouts.activate_s,
        poll_s=tools.timeouts.poll_s,
    )
    return waited.reading or outcome


def draft_activate(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Open queues and listeners. An undo leaves listeners open: through them no client uses a closed queue."""
    calls: list[Call] = []
    # A target that came back is closed before anything else.
    returns = move.spec.operation == FAILBACK
    for view in snapshot.views(move.target):
        source = snapshot.view(move.source, view.pair)
        # Open only queues that the fence closes at the source. If a lost site does not answer, its fence is a debt.
        units = [unit for unit in view.chosen_units(move.moves) if source is None or source.flow(unit) is not None]
        calls += open_calls(view, units, "it was closed when it came back" if returns else None)
        when = "it is closed" if returns else None  # the reinstatement has opened the listeners
        calls += in_phase(
            "listeners",
            (switch_listener(view, Goal.OPEN, listener, when) for listener in view.listeners if not listener.started),
        )
    calls += in_phase("strikes", receipts.removals(snapshot))
    return StepPlan(move.target, "the queues deliver, their clients are let in", tuple(calls))


def activate(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = may_open(tools, move)
    target, timeouts, opens, admits = move.target, tools.timeouts, [*step.phase("listeners")], step.phase("admit")
    planned = {call.resource for call in opens}
    closed = [(view, listener) for view in views for listener in view.listeners if not listener.started]
    # Listeners that were closed since the plan are opened too.
    opens += [switch_listener(view, Goal.OPEN, listener) for view, listener in closed if listener.name not in planned]
    wanted = [call for call in (*admits, *opens) if call.resource != ALL]
    resend_at_s = context.monotonic() + timeouts.again_s

    def why_not_admitted() -> str | None:
        """Let the clients' roles in at queues that deliver. Clients work from then on, so the other site is read right
        before. Return the reason why the roles are not let in, or None."""
        targets, sources, _ = sides(tools, move)
        paused = {view.unit_of(call.resource) for view in targets for call in opens if not holds(call, targets)}
        due = [call for call in admits if call.resource not in paused]
        if still([call for call in due if call.resource != ALL], targets) is None:
            return None
        return why_open(tools, sources, move) or tools.admit(target, due, context, again=True)

    def unseen() -> list[str]:
        """Send the calls again whose effect is not seen, and name the calls whose effect is still not seen."""
        nonlocal resend_at_s
        try:
            if context.monotonic() > resend_at_s:
                resend_at_s = context.monotonic() + timeouts.again_s
                targets, sources, _ = sides(tools, move)
                if why_open(tools, sources, move) is None:
                    tools.change([call for call in opens if not holds(call, targets)], context)
                    why_not_admitted()
            now = tools.observer.read_at(target)
            return [call.summary for call in wanted if not holds(call, now)]
        except BrokerError as error:
            return [str(error)]

    missing = [call for call in wanted if not holds(call, views)]
    tools.activation_sent = tools.activation_sent or bool(missing)
    outcomes = tools.change([call for call in missing if call in opens], context)
    if outcomes and all(isinstance(outcome, Failed) for outcome in outcomes):
        return Failed(f"{target} could not be opened: {outcomes[0].text}")
    tools.may_serve = tools.may_serve or bool(missing)
    with suppress(BrokerError):  # a broker that answers too late is read again below
        if (why := why_not_admitted()) is not None:
            return Failed(why)
    waited = context.until(unseen, holds=lambda calls: not calls, within_s=timeouts.activate_s, poll_s=timeouts.poll_s)
    if not waited.satisfied:
        views, not_seen = tools.observer.answering(target), f"effect not seen: {brief(waited.reading)}"
        # While the roles are kept out, no client gets in, even if a queue delivers.
        answered = len(views) == len(tools.observer.at(target))
        if admits and answered and all(view.kept_out(unit) for view in views for unit in view.chosen_units(move.moves)):
            return Failed(f"{target} could not be opened: {not_seen}")
        return Unknown(f"{target}: {not_seen}; look at {target} first")
    tools.change(step.phase("strikes"), context)
    return Done(f"{target} lets clients in") if missing else NotNeeded(f"{target} serves already")


# The limit of `link restart`: a bridge whose link had failed refuses to start for a minute after it was stopped.
RESTART_WITHIN_S: Final = 75.0
BETWEEN_SITES: Final = "messages and processed ids under way between the sites"
START_AGAIN_S: Final = 2.0  # `link restart` sends a start again after this, until the bridge has started


def start_calls(view: BrokerView, chosen: UnitFilter) -> list[Call]:
    """Start stopped bridges of the chosen queues and of the ids. A bridge that is started and not connected retries by
    itself. A restart would not help: after a failed link a stop takes 10 s, and a start is refused for a minute."""
    bridges, when = _bridges(view, chosen), "it is stopped"
    return [switch_part(view, Goal.LINK_UP, bridge, "start bridge", when) for bridge in bridges]


def _bridges(view: BrokerView, chosen: UnitFilter) -> list[Bridge]:
    return [bridge for flow in view.chosen_flows(chosen) for bridge in flow.bridges]


def _switch_calls(at: AtBroker, goal: Goal, summary: str) -> list[Call]:
    return at.needed(switch_part(at.view, goal, bridge, summary) for bridge in _bridges(at.view, at.move.spec.includes))


STARTED: Final[Wants] = ((lambda at: start_calls(at.view, at.move.moves), SOURCE),)
draft_catch_up: Final = draft_of(
    SOURCE, "{serving_prefix}the bridges connected, the buffers small", *STARTED, limits=Rules.catching_up
)
draft_drain: Final = draft_of(
    TARGET, "all messages shipped, all processed ids applied", *STARTED, limits=Rules.draining
)
BRIDGES_UP: Final[Wants] = ((lambda at: _switch_calls(at, Goal.LINK_UP, "start bridge"), SOURCE),)
# Connected bridges are restarted too: a bridge that hangs may say that it is connected.
draft_restart: Final = draft_of(
    SOURCE,
    "stop and start the bridges of {source}, until they are connected; clients stay where they are",
    *((lambda at: _switch_calls(at, Goal.LINK_DOWN, "stop bridge"), SOURCE), *BRIDGES_UP),
    limits=lambda _, __, move: {"within": move.spec.timeout_s or RESTART_WITHIN_S},
)


class UnitsDirection(Direction[BrokerView]):
    """Waits until the buffers, the queues that the bridges ship from, are empty, or, with the barrier `messages`, only
    until the messages that were there at its start have left. It also waits until the ids that the site had recorded at
    the start are applied. `accepted` is the number of delayed messages of each unit that may be shipped later."""

    repairing = "bridges are stopped: starting them"

    def __init__(
        self,
        ends: LinkEnds,
        chosen: UnitFilter,
        ids: Barrier | None = None,
        messages: Barrier | None = None,
        *,
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(*ends)
        self._chosen, self._ids, self._messages, self._accepted = chosen, ids or Barrier(), messages, accepted

    def remaining(self, view: BrokerView, peer: BrokerView) -> int | None:
        flows = [flow for flow in view.flows if self._chosen(flow.unit)]
        to_ship = [flow.to_ship_now(self._accepted) for flow in flows]
        if self._messages is not None:
            buffers = [flow.buffer for flow in flows if flow.buffer is not None]
            to_ship = [self._messages.remaining(view, buffers) if len(buffers) == len(flows) else None]
        return total((*to_ship, comparing.count_ids_left(self._ids, view, peer)))

    def reasons(self, view: BrokerView, peer: BrokerView) -> list[str]:
        flows = view.chosen_flows(self._chosen)
        reasons = [f"the bridge of {flow.unit} at {view.site} is not connected" for flow in flows if not flow.attached]
        if not any(queue.consumers for queue in peer.arrived):
            reasons.append(f"nothing applies the ids that arrive at {peer.site}")
        return reasons

    def repair_calls(self, view: BrokerView, _peer: object) -> list[Call]:
        return [call for call in start_calls(view, self._chosen) if not view.holds(call)]


def catch_up(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    link_ends = tools.observer.link_ends(move)
    before = {ends: _read_missing_ids(ends, move) for ends in link_ends}
    wait = Wait(tools, [UnitsDirection(ends, move.moves) for ends in link_ends], context, BETWEEN_SITES, SMALL_OUTFLOW)
    outcome = wait.caught_up(step.limits, "the buffers grow", "under way")
    findings: list[Finding] = []
    # A move is refused before clients are locked out if the ids that the target lacked before the wait, and still
    # lacks, are more than the messages and ids under way. The gate compares again once nothing is under way.
    for ends in link_ends if isinstance(outcome, Done) and any(before.values()) else ():
        missing_now = _read_missing_ids(ends, move)
        still_missing = {queue: missing_now.get(queue, frozenset()) & ids for queue, ids in before[ends].items()}
        if sum(map(len, still_missing.values())) > (wait.last or 0):
            with suppress(BrokerError):
                findings += comparing.processed_copies(
                    ends, ends[1].read(), still_missing, move.spec, timeout_s=tools.timeouts.flag_s
                )
    return Failed.of(*findings) if findings else outcome


def _read_missing_ids(ends: LinkEnds, move: Move) -> Mapping[str, frozenset[str]]:
    """Find the ids that the target's store lacks; none where a store cannot be read, which the gate reports."""
    with suppress(BrokerError):
        return comparing.missing_at_target(ends, ends[1].read(), move.moves) or {}
    return {}


def drain(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    accepted, barriers = move.spec.accept_difference, tools.gate.barriers
    directions = [
        UnitsDirection(ends, move.moves, barriers[move.source, ends[0].pair], accepted=accepted)
        for ends in tools.observer.link_ends(move)
    ]
    wait = Wait(tools, directions, context, BETWEEN_SITES)
    # The gate reads again, over its window.
    failed = wait.until(tools.rules.drain.poll, step.limits, lambda view: view.open_units(move.moves), stable_for=1)
    return failed or Done("nothing is under way", {"started": wait.repairs})


def restart_link(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    stops = [call for call in step.calls if call.goal is Goal.LINK_DOWN]
    tools.change(stops, context)
    next_start_at = 0.0

    def read() -> dict[str, str]:
        """Send starts until they are accepted: they are refused while the stop goes on. Return what is detached."""
        nonlocal next_start_at
        starts, _ = tools.needed(BRIDGES_UP, move)
        if starts and context.monotonic() >= next_start_at:
            next_start_at = context.monotonic() + START_AGAIN_S
            tools.change(starts, context)
        views = tools.observer.read_at(move.source)
        flows = [flow for view in views for flow in view.chosen_flows(move.spec.includes)]
        return {flow.unit: "" for flow in flows if not flow.attached}

    return attached(tools, step, move, context, "the bridge", read)


UNDO_SHIPPING: Final = Undo(source=(wants.links_as_before,))
HOLDS: Final = "the returned site holds messages or ids for this site"
WAS_PAUSED: Final = "it was paused while the residue came"


def _served(at: AtBroker) -> Iterator[Queue]:
    open_units = (flow.unit for flow in at.view.flows if not at.view.kept_out(flow.unit))
    queues = (queue for unit in open_units for queue in at.view.queues_of(unit))
    return (queue for queue in queues if queue.name not in at.was["paused"])


def _open_listeners(at: AtBroker) -> list[Call]:
    """Open the listeners of the peer's bridges, and of the processor that writes shipped ids into the store. No client
    can work there, because the queues are closed."""
    view = at.view
    listeners = (*view.link.listeners, *view.listeners)
    return at.needed(switch_part(view, Goal.LINK_UP, listener, "open acceptor") for listener in listeners)


# Messages and ids travel by different bridges: a message may arrive before the id that marks it as processed.
QUEUES_PAUSED: Final[Wants] = ((lambda at: at.needed(pause(at.view, queue, HOLDS) for queue in _served(at)), SOURCE),)
LINKS_OPEN: Final[Wants] = (
    (wants.link_admitted, SOURCE),
    (_open_listeners, TARGET),
    *((lambda at: start_calls(at.view, every_unit), site) for site in (SOURCE, TARGET)),
)
QUEUES_RESUMED: Final[Wants] = (
    (
        lambda at: at.needed(resume(at.view, queue, None if queue.paused else WAS_PAUSED) for queue in _served(at)),
        SOURCE,
    ),
    *wants.DEBTS_CLEARED,
)
draft_reinstate: Final = draft_of(
    TARGET,
    "its residue and its ids are let in while nothing is delivered; both directions drain",
    *(*QUEUES_PAUSED, *LINKS_OPEN, *QUEUES_RESUMED),
    limits=Rules.while_moving,
)


def listeners_as_returned(at: AtBroker) -> list[Call]:
    """Close the listeners that were closed when the site came back. Its queues stay closed after an undo."""
    view, was = at.view, at.was["acceptors"]
    to_close = [listener for listener in (*view.link.listeners, *view.listeners) if not was.get(listener.name)]
    return [switch_part(view, Goal.LINK_DOWN, listener, "close acceptor", "it is open") for listener in to_close]


def reinstate(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    # Queues are paused only while messages can still arrive: an earlier run may have received all of them.
    residues = list(tools.residue.values())
    empty = bool(residues) and not any(residue.messages or residue.acks for residue in residues)
    # Closed queues get no new messages.
    nothing_left = empty and total(view.link.unapplied for view in tools.views(move.source)) == 0
    if not nothing_left:
        tools.reach(QUEUES_PAUSED, move, context)
    tools.reach(LINKS_OPEN, move, context)
    pairs = tools.observer.between(move.source, move.target)
    # The wait leaves out queues that the returned site serves: they get messages all the time, and none is residue.
    closed_units = {unit for view in tools.views(move.target) for unit, is_open in view.units.items() if not is_open}
    to_serving = [UnitsDirection((peer, local), closed_units.__contains__) for local, peer in pairs]
    # Clients go on sending to the serving site, so from there the wait covers only the messages that were there before.
    to_returned = [UnitsDirection(ends, every_unit, messages=Barrier()) for ends in pairs]
    wait = Wait(tools, [*to_serving, *to_returned], context, BETWEEN_SITES)
    if (failed := wait.until(tools.rules.drain.poll, step.limits)) is not None:
        return replace(failed, text=f"{move.target} is not reinstated: {failed.text}")
    findings: list[Finding] = []
    # Consumers of the lost site may have processed messages whose ids were not recorded yet. Such messages are
    # found before any message is delivered.
    for serving, returned in pairs if any(planned.goal is Goal.PAUSE for planned in step.calls) else ():
        try:
            findings += comparing.unannounced_ids((returned, serving), serving.read())
        except NotRead as error:
            findings.append(found("DR-RECONCILE-004.not_compared", why=error))
    tools.reach(QUEUES_RESUMED, move, context)
    # The numbers are not known if an earlier process of this run counted the residue.
    figures: dict[str, Json] = {
        "recovered": total(residue.messages for residue in residues) if residues else None,
        "ids_applied": total(residue.acks for residue in residues) if residues else None,
    }
    return Done("its messages have arrived, and its ids are applied", figures, tuple(findings))


def settle_ids(tools: BridgesTools, move: Move, context: StepContext) -> Outcome:
    """Wait until the ids that have arrived are applied; count the messages without ids, which may be duplicates."""
    read, within_s = partial(tools.observer.unapplied_at, move.source, timeout_s=5.0), tools.timeouts.settle_s
    poll_s = tools.timeouts.settle_poll_s
    waited = context.until(read, holds=lambda unsent: unsent == 0, within_s=within_s, poll_s=poll_s)
    # The messages that came without their ids are no more than the ids left at the returned site, and no more than all
    # messages that came. Messages in its buffers did not come.
    views, residues = tools.observer.answering(move.target), tools.residue.values()
    ids = total((waited.reading, *(view.ids_to_ship for view in views))) if views else None
    messages = total(residue.messages for residue in residues) if residues else None
    unsent = total(view.link.to_ship for view in views) or 0
    arrived = max(0, messages - unsent) if messages is not None else None
    bounds = [count for count in (ids, arrived) if count is not None]
    if bounds and min(bounds) == 0:
        return Done("as it was")
    bound = f"at most {min(bounds)}" if bounds else "an unknown number of"
    why = "the ids that mark them as processed did not arrive"
    return Done("as it was", findings=(found("DR-RETURN-007", most=bound, target=move.target, why=why),))


def reconcile(tools: BridgesTools, _step: PlannedStep, move: Move, _context: StepContext) -> Outcome:
    """Report the ids that the returned site has processed and the serving site does not know."""
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
            missing = {queue: len(ids) for queue, ids in comparing.missing_ids(returned.ids, serving.ids).items()}
        except NotRead as error:
            findings.append(found("DR-RECONCILE-004.not_compared", why=error))
            continue
        unknown[serving.pair] = {**missing}
        if missing:
            ids = brief([f"{queue} {count}" for queue, count in missing.items()])
            findings.append(found("DR-RECONCILE-004.unknown_ids", target=move.target, source=move.source, ids=ids))
    return Done("compared as far as possible", {"ids_not_known": unknown or None}, tuple(findings))


UNDO_REINSTATE: Final = Undo(
    wants.RETURN_AS_BEFORE, (listeners_as_returned,), partial(undo_step, after_closing=settle_ids)
)
PROCEDURE: Final[Procedure[Snapshot[BrokerView], BridgesTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up, UNDO_SHIPPING),
    "fence": VerbHandler(draft_fence, fence, Undo(source=(units_as_before,), target=(wants.debts_as_before,), by=undo)),
    "drain": VerbHandler(draft_drain, drain, UNDO_SHIPPING),
    "activate": VerbHandler(draft_activate, activate, Undo(target=(units_as_before,))),
    "unfence": VerbHandler(draft_unfence, unfence, Undo(source=(units_as_before, paused_as_before))),
    "restart-link": VerbHandler(draft_restart, restart_link, UNDO_SHIPPING),
    "trim": TRIM,
    # These verbs reinstate a lost site.
    "residue": VerbHandler(draft_residue, residue),
    "reinstate": VerbHandler(draft_reinstate, reinstate, UNDO_REINSTATE),
    "reconcile": VerbHandler(draft_of(SOURCE, "compare the ids of processed messages at both sites"), reconcile),
}
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, BridgesTools)
