"""Closes queues to their clients and opens them again, proven by a reading: `fence`, `activate`, `unfence`,
`residue`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import brief
from dr_ctl.engine.operations import FAILBACK, FENCE
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import call, holds, left_of, open_listener, request, resume, still
from dr_ctl.topologies.common.reasons import paused_at
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import RETURNED, Snapshot
from dr_ctl.topologies.common.verbs.activate import may_open, other_site_open, sides
from dr_ctl.topologies.common.verbs.fence import acting, drafting, held, held_for_the_other
from dr_ctl.topologies.common.verbs.undoing import as_before, open_again
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.wants import AtBroker, debts_as_before, listeners_open_as_before

CUT: Final = "closeConsumerConnectionsForAddress(java.lang.String)"
NOT_PAUSED: Final = "it is not paused"
PAUSED: Final = "it is paused"
NEW: Final[Mapping[str, Any]] = {"kept_out": False, "gated": []}


def closes(view: BrokerView, units: Sequence[str]) -> list[Call]:
    """Keep the clients' roles out of the addresses first, so that no client that is cut comes back; stop dispatch for
    good; end the connections of consumers. The bridges' role keeps working: a refused bridge stops all of them. Queues
    that a quiesce has paused stay paused."""
    pauses = [_dispatch(view, Goal.CLOSE, queue, NOT_PAUSED) for unit in units for queue in view.queues_of(unit)]
    return [*view.fence.keeping_out(units), *pauses, *(_cut(view, unit) for unit in units)]


def opens(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Let the queues deliver, as part `listeners`; let the clients' roles in, as part `admit`, which comes last: then
    each unit is closed until it is open whole."""
    queues = [queue for unit in units for queue in view.queues_of(unit)]
    resumes = [_dispatch(view, Goal.OPEN, queue, when) for queue in queues if when is not None or queue.paused]
    return [*in_phase("listeners", resumes), *in_phase("admit", view.fence.letting_in(units, when))]


def clients(at: AtBroker) -> Iterator[Call]:
    """Each unit's ways in: what its queues deliver, and the rights of the clients' roles at its address."""
    view, was = at.view, at.was
    # A unit that was not there before the run was closed to nobody.
    before = {unit: was["units"].get(unit, NEW) for unit in view.among(at.move.spec.includes)}
    queues = [(unit, queue) for unit in before for queue in view.queues_of(unit)]
    held = {q.name for unit, q in queues if RETURNED in was or q.name in (*before[unit]["gated"], *was["paused"])}
    out = [unit for unit, state in before.items() if RETURNED in was or state["kept_out"]]
    let_in = [unit for unit in before if unit not in out and (unit in at.named(Goal.REVOKE) or view.kept_out(unit))]
    out = [unit for unit in out if unit in at.named(Goal.GRANT) or not view.kept_out(unit)]
    yield from view.fence.keeping_out(out, "they are let in")
    yield from at.missing(_dispatch(view, Goal.CLOSE, queue, NOT_PAUSED) for _, queue in queues if queue.name in held)
    yield from (_cut(view, unit) for unit in out)  # a client that came meanwhile would wait there for ever
    opens = at.missing(_dispatch(view, Goal.OPEN, queue, PAUSED) for _, queue in queues if queue.name not in held)
    yield from in_phase("listeners", opens)
    yield from in_phase("admit", view.fence.letting_in(let_in, "they are kept out"))


def _dispatch(view: BrokerView, goal: Goal, queue: Queue, when: str | None) -> Call:
    made, summary = (
        (view.requests.resume(queue), f"let {queue.name} deliver")
        if goal is Goal.OPEN
        else (view.requests.pause_lasting(queue), f"let {queue.name} deliver nothing")
    )
    return call(view, goal, queue.name, made, summary, when)


def _cut(view: BrokerView, unit: str) -> Call:
    asked = request(beans.server(view.broker), CUT, (unit,))
    return call(view, Goal.CUT, unit, asked, f"end the connections that consume {unit}", "somebody consumes it")


def _chosen(move: Move) -> Chosen:
    """By itself a fence closes queues too that the other site serves, where nothing kept clients out."""
    return move.spec.includes if move.spec.operation == FENCE else move.moves


draft: Final = drafting(
    lambda at: closes(at.view, at.view.among(_chosen(at.move))),
    lambda _: "the clients of each queue are kept out, restarts included",
    "its queues are closed already",
    lambda view, move: all(move.spec.includes(unit) or view.kept_out(unit) for unit in view.fence.matches),
)


def draft_of_returned(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Close the returned site's queues one by one, even behind closed listeners: the listeners open before the return
    ends, so that the ids are applied. A queue that nobody asked for and the serving site keeps closed stays as it
    is."""
    calls: list[Call] = []
    for view in snapshot.views(move.target):
        serving = snapshot.view(move.source, view.pair)
        units = [
            unit
            for unit in view.fence.matches
            if serving is None or serving.units.get(unit) or move.spec.includes(unit)
        ]
        calls += closes(view, units)
    return StepPlan(move.target, "what it still holds is counted; its queues are closed first", tuple(calls))


act: Final = acting(lambda tools, move, context: _closed(tools, move.source, _chosen(move), move, context))


def _closed(tools: BridgesTools, site: str, chosen: Chosen, move: Move, context: StepContext) -> Outcome:
    send = tools.sending(lambda at: closes(at.view, at.view.among(chosen)), move, context)
    if not (outcomes := send(tools.observer.read_at(site))):
        return NotNeeded(f"{site} is closed to clients already", {"proof": "flag"})
    refused = any(isinstance(outcome, Failed) for outcome in outcomes)

    def again(views: Sequence[BrokerView]) -> None:
        """Cut too the clients that came between the reading and the roles."""
        send(views)
        cuts = [(view, _cut(view, unit)) for view in views for unit in view.among(chosen)]
        tools.change([call for view, call in cuts if not view.holds(call)], context)

    waited = until(
        context,
        lambda: tools.observer.read_at(site),
        holds=lambda views: not _still_in(views, chosen),
        # A call that was refused will not come true by waiting, and clients wait too.
        within_s=0.0 if refused else tools.timeouts.fence_s,
        poll_s=tools.timeouts.poll_s,
        meanwhile=again,
    )
    if not waited.satisfied:
        return Failed(f"{site}: {brief(_still_in(waited.reading, chosen))}")
    return Done(
        "no client's role may send or consume, nothing is in delivery", {"proof": "flag", "roles_kept_out": True}
    )


def _still_in(views: Sequence[BrokerView], chosen: Chosen) -> list[str]:
    reasons = []
    for view in views:
        units = view.among(chosen)
        reasons += [f"clients are not kept out of {unit}" for unit in units if not view.kept_out(unit)]
        queues = [queue for unit in units for queue in view.queues_of(unit)]
        reasons += [f"{queue.name} delivers still" for queue in queues if not queue.paused]
        reasons += [f"{queue.name} has {queue.consumers} consumer(s)" for queue in queues if queue.consumers]
        reasons += [f"{queue.delivering} of {queue.name} in delivery" for queue in queues if queue.delivering]
    return reasons


def residue(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close those of the returned site's queues that were decided, and count what it still holds for the other."""
    units = {call.thing for call in step.calls if call.goal is Goal.CUT}
    closed = _closed(tools, move.target, units.__contains__, move, context)
    if isinstance(closed, Failed):
        return closed
    residues = {view.pair: view.link.residue for view in tools.observer.read_at(move.target)}
    tools.residue = {pair: residue for pair, residue in residues.items() if residue is not None}
    return held_for_the_other(
        move,
        context,
        [*residues.values()],
        lambda total: f"{total.messages} message(s) and {total.acks} processed id(s)",
    )


def draft_unfence(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Queues that the other site serves stay closed; pauses of runs are lifted."""
    calls: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        served = peer.units if peer is not None else None
        units = [unit for unit in view.among(move.spec.includes) if served is not None and not served.get(unit)]
        shut = [unit for unit in units if not view.units[unit]]
        calls += opens(view, shut)
        loose = [flow.unit for flow in view.flows if not view.is_shut(flow.unit)]
        # The listeners that a restart has closed, unless one of them would open a queue that the other site serves.
        if shut and not any((served or {}).get(unit) for unit in loose):
            closed = (listener for listener in view.listeners if not listener.started)
            calls += in_phase("listeners", (open_listener(view, listener) for listener in closed))
    paused = [(view, queue) for view, queue in paused_at(snapshot, move.source) if queue.name in view.paused]
    calls += receipts.strikes(snapshot) if calls else []
    summary = "clients let in again, and what runs have paused lifted"
    return StepPlan(move.source, summary, (*calls, *(resume(view, queue) for view, queue in paused)))


def undo(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """As before, with the listeners: the fence closes none, and a restart may have. A lost site is not waited for."""
    outcome = as_before(tools, step, move, context)
    views = tools.observer.answering(move.source) if isinstance(outcome, Done | NotNeeded) else ()
    shut = [call for view in views for call in listeners_open_as_before(tools.at(view, move))]
    return open_again(tools, shut, move, context) if shut else outcome


UNDO: Final = Undo(source=(clients,), target=(debts_as_before,), by=undo)
UNDO_UNFENCE: Final = Undo(source=(clients, held))


def unfence(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    opens, admits, rest = step.phase("listeners"), step.phase("admit"), step.phase("")
    if opens or admits:
        listeners = {call.thing for call in (*opens, *admits)}
        views = tools.observer.read_at(move.target)
        served = [unit for view in views for unit in view.open_among(move.spec.includes) if unit in listeners]
        if served:
            return Failed(f"{move.target} has {brief(served)} open: a second site is never opened")
    tools.change([*opens, *rest], context)
    if (kept_out := tools.admit(move.source, admits, context)) is not None:
        return Failed(kept_out)
    done = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    waited = until(
        context,
        lambda: still([*opens, *rest], tools.observer.read_at(move.source)),
        holds=lambda refused: refused is None,
        within_s=tools.timeouts.activate_s,
        poll_s=tools.timeouts.poll_s,
    )
    return waited.reading or done


def draft_activate(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Open queues and listeners. Listeners stay open afterwards: an open listener lets no client use a closed queue."""
    calls: list[Call] = []
    # A target that came back is closed before anything else.
    returns = move.spec.operation == FAILBACK
    for view in snapshot.views(move.target):
        source = snapshot.view(move.source, view.pair)
        # Open only queues that the fence closes there; a lost site that does not answer is owed its whole fence.
        units = [unit for unit in view.among(move.moves) if source is None or source.flow(unit) is not None]
        calls += opens(view, units, "it was closed when it came back" if returns else None)
        again = "it is closed" if returns else None  # the return has opened them
        calls += in_phase(
            "listeners", (open_listener(view, listener, again) for listener in view.listeners if not listener.started)
        )
    calls += in_phase("strikes", receipts.strikes(snapshot))
    return StepPlan(move.target, "the queues deliver, their clients are let in", tuple(calls))


UNDO_ACTIVATE: Final = Undo(target=(clients,))


def activate(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views, why = may_open(tools, move)
    if why is not None:
        return Failed(why)
    planned = {call.thing for call in step.phase("listeners")}
    shut = [(view, listener) for view in views for listener in view.listeners if not listener.started]
    # Listeners that were closed since the plan, too.
    again = [open_listener(view, listener) for view, listener in shut if listener.name not in planned]
    opening = _Opening(tools, [*step.phase("listeners"), *again], step.phase("admit"), move, context)
    missing = [call for call in opening.wanted if not holds(call, views)]
    tools.opened = tools.opened or bool(missing)
    outcomes = tools.change([call for call in missing if call in opening.opens], context)
    if outcomes and all(isinstance(outcome, Failed) for outcome in outcomes):
        return Failed(f"{move.target} could not be opened: {outcomes[0].text}")
    tools.may_serve = tools.may_serve or bool(missing)
    if (why := opening.why_not_admitted()) is not None:
        return Failed(why)
    if (failed := opening.until_held()) is not None:
        return failed
    tools.change(step.phase("strikes"), context)
    return Done(f"{move.target} lets clients in") if missing else NotNeeded(f"{move.target} serves already")


class _Opening:
    """The target while it is opened: the calls by which queues deliver and listeners open, and those that let the
    clients' roles in."""

    def __init__(
        self, tools: BridgesTools, opens: Sequence[Call], admits: Sequence[Call], move: Move, context: StepContext
    ) -> None:
        self._tools, self.opens, self._admits, self._move, self._context = tools, opens, admits, move, context
        self.wanted = [call for call in (*admits, *opens) if call.thing != ALL]
        self._again_at = context.monotonic() + tools.timeouts.again_s

    def why_not_admitted(self) -> str | None:
        """Let the clients' roles in where the queues deliver; gives the reason why they are not let in. By them clients
        are in, so the other site is looked at right before."""
        tools, move = self._tools, self._move
        targets, sources, _ = sides(tools, move)
        paused = {view.unit_of(call.thing) for view in targets for call in self.opens if not holds(call, targets)}
        admits = [call for call in self._admits if call.thing not in paused]
        if not left_of([call for call in admits if call.thing != ALL], targets):
            return None
        return other_site_open(tools, sources, move) or tools.admit(move.target, admits, self._context, again=True)

    def until_held(self) -> Outcome | None:
        """Wait until all calls are seen to hold; gives None once they do."""
        tools, target = self._tools, self._move.target
        within_s, poll_s = tools.timeouts.activate_s, tools.timeouts.poll_s
        waited = until(self._context, self._left, holds=lambda left: not left, within_s=within_s, poll_s=poll_s)
        if waited.satisfied:
            return None
        views, not_seen = tools.observer.answering(target), f"effect not seen: {brief(waited.reading)}"
        # While the roles are seen to be kept out a queue that comes to deliver after all lets nobody in.
        answered = len(views) == len(tools.observer.at(target))
        if self._admits and answered and all(view.kept_out(u) for view in views for u in view.among(self._move.moves)):
            return Failed(f"{target} could not be opened: {not_seen}")
        return Unknown(f"{target}: {not_seen}; look at {target} first")

    def _left(self) -> list[str]:
        """What is not seen to hold is asked for again: what is opened twice is opened once."""
        tools, move, context = self._tools, self._move, self._context
        try:
            if context.monotonic() > self._again_at:
                self._again_at = context.monotonic() + tools.timeouts.again_s
                targets, sources, _ = sides(tools, move)
                if other_site_open(tools, sources, move) is None:
                    tools.change([call for call in self.opens if not holds(call, targets)], context)
                    self.why_not_admitted()
            return left_of(self.wanted, tools.observer.read_at(move.target))
        except BrokerError as error:
            return [str(error)]
