"""Closes queues to their clients and opens them again, proven by a look: `fence`, `unfence` and `residue`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Role, some
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.plan import Call, PlannedStep, in_part
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import call, holds, left_of, open_listener, pause, resume, still
from dr_ctl.topologies.common.debts import document, owe_again, pay
from dr_ctl.topologies.common.figures import Residue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.single import paused_at
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import ROLES
from dr_ctl.topologies.common.verbs.quarantine import debt
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request

CUT: Final = "closeConsumerConnectionsForAddress(java.lang.String)"
NOT_PAUSED: Final = "it is not paused"
PAUSED: Final = "it is paused"


def closes(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Keep the clients' roles out of the addresses first, so that no client that is cut comes back; stop dispatch for
    good; end the connections of consumers. The bridges' role keeps working: a refused bridge stops all of them. Queues
    that a quiesce has paused stay paused."""
    pauses = [
        _dispatch(view, Goal.CLOSE, queue, when or NOT_PAUSED) for unit in units for queue in view.queues_of(unit)
    ]
    return [*view.fence.keeping_out(units, when), *pauses, *(_cut(view, unit) for unit in units)]


def opens(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Let the queues deliver, as part `listeners`; let the clients' roles in, as part `admit`, which comes last: then
    each unit is closed until it is open whole."""
    queues = [queue for unit in units for queue in view.queues_of(unit)]
    resumes = [_dispatch(view, Goal.OPEN, queue, when) for queue in queues if when is not None or queue.paused]
    return [*in_part("listeners", resumes), *in_part("admit", view.fence.letting_in(units, when))]


def closes_again(view: BrokerView, units: Sequence[str], was: Mapping[str, Any]) -> Iterator[Call]:
    """What undoes an opening: each unit as it was before the run."""
    yield from view.fence.keeping_out([unit for unit in units if _of(was, unit)["kept_out"]], "they are let in")
    for unit in units:
        for queue in view.queues_of(unit):
            if queue.name in (*_of(was, unit)["gated"], *was["paused"]):
                yield _dispatch(view, Goal.CLOSE, queue, NOT_PAUSED)
        if _of(was, unit)["kept_out"]:
            yield _cut(view, unit)  # a client that came meanwhile would wait there for ever


def opens_again(view: BrokerView, units: Sequence[str], was: Mapping[str, Any]) -> Iterator[Call]:
    for unit in units:
        for queue in view.queues_of(unit):
            if queue.name not in (*_of(was, unit)["gated"], *was["paused"]):
                yield from in_part("listeners", [_dispatch(view, Goal.OPEN, queue, PAUSED)])
    let_in = [unit for unit in units if not _of(was, unit)["kept_out"]]
    yield from in_part("admit", view.fence.letting_in(let_in, "they are kept out"))


def _of(was: Mapping[str, Any], unit: str) -> Mapping[str, Any]:
    """A unit that was not there before the run was closed to nobody."""
    state: Mapping[str, Any] = was["units"].get(unit, {"kept_out": False, "gated": []})
    return state


def _dispatch(view: BrokerView, goal: Goal, queue: Queue, when: str | None) -> Call:
    made, about = (
        (view.requests.resume(queue), f"let {queue.name} deliver")
        if goal is Goal.OPEN
        else (view.requests.pause_lasting(queue), f"let {queue.name} deliver nothing")
    )
    return call(view, goal, queue.name, made, about, when)


def _cut(view: BrokerView, unit: str) -> Call:
    asked = request(beans.server(view.broker), CUT, (unit,))
    return call(view, Goal.CUT, unit, asked, f"end the connections that consume {unit}", "somebody consumes it")


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    del rules, step
    return _closing(snapshot, move, move.moves)


def _closing(snapshot: Snapshot[BrokerView], move: Move, chosen: Chosen) -> StepPlan:
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in snapshot.views(move.source):
        units = view.among(chosen)
        calls += closes(view, units)
        inverse += opens_again(view, units, before(move, view))
    return StepPlan(
        move.source, "the clients of each queue are kept out, restarts included", tuple(calls), tuple(inverse)
    )


def draft_by_itself(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Close queues too that the other site serves, where nothing kept clients out. Strike the debt once the fence is
    proven for every queue of it."""
    del rules
    made, cut_off = _closing(snapshot, move, move.ask.includes), bool(step.words.get(CUT_OFF))
    paid = cut_off or all(
        move.ask.includes(unit) or view.kept_out(unit)
        for view in snapshot.views(move.source)
        for unit in view.fence.matches
    )
    owed = [view for view in snapshot.views(move.target) if paid and _owes(view, move.source)]
    struck = in_part("strikes", (call for view in owed for call in pay(view, DebtKind.FENCE, move.source)))
    again = [owe_again(view, DebtKind.FENCE, move.source) for view in owed]
    return StepPlan(move.source, made.about, (*made.calls, *struck), (*made.inverse, *again), cut_off=cut_off)


def _owes(view: BrokerView, site: str) -> bool:
    return document(DebtKind.FENCE, site, view.site) in view.documents


def draft_of_lost(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """A site that is away cannot be fenced: the fence is owed, unless a hook has cut the site off before."""
    role = part_of(snapshot, move.ask).roles[move.source]
    if role is Role.SERVING:
        return draft(rules, step, snapshot, move)
    if role is Role.STANDBY:
        return StepPlan(move.source, "its queues are closed already")
    if step.words.get(CUT_OFF):
        return StepPlan(move.source, "clients kept out by the hook before it")
    calls, inverse = debt(snapshot, move, DebtKind.FENCE)
    return StepPlan(move.source, "clients cannot be shown to be kept out: the fence is owed", calls, inverse)


def draft_of_returned(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Close the returned site's queues one by one, even behind closed listeners: the listeners open before the return
    ends, so that the ids are applied. A queue that nobody asked for and the serving site keeps closed stays as it
    is."""
    del rules, step
    calls: list[Call] = []
    for view in snapshot.views(move.target):
        serving = snapshot.view(move.source, view.pair)
        units = [
            unit for unit in view.fence.matches if serving is None or serving.units.get(unit) or move.ask.includes(unit)
        ]
        calls += closes(view, units)
    return StepPlan(move.target, "what it still holds is counted; its queues are closed first", tuple(calls))


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    return _closed(tools, move.source, step.part(""), move.moves, context)


def _closed(tools: BridgesTools, site: str, calls: Sequence[Call], chosen: Chosen, context: StepContext) -> Outcome:
    views = tools.observer.look_at(site)
    if not (missing := [call for call in calls if not holds(call, views)]):
        return NotNeeded(f"{site} is closed to clients already", {"proof": "flag"})
    refused = any(isinstance(outcome, Refused) for outcome in tools.change(missing, context))

    def cut(views: Sequence[BrokerView]) -> None:
        """Cut the clients that came between the look and the roles."""
        tools.change([call for call in calls if call.goal is Goal.CUT and not holds(call, views)], context)

    waited = until(
        context,
        lambda: tools.observer.look_at(site),
        holds=lambda views: not _still_in(views, chosen),
        # A call that was refused will not come true by waiting, and clients wait too.
        within_s=0.0 if refused else tools.timeouts.fence_s,
        poll_s=tools.timeouts.poll_s,
        meanwhile=cut,
    )
    if not waited.held:
        return Refused(f"{site}: {some(_still_in(waited.look, chosen))}")
    return Done(
        "no client's role may send or consume, nothing is in delivery", {"proof": "flag", "roles_kept_out": True}
    )


def _still_in(views: Sequence[BrokerView], chosen: Chosen) -> list[str]:
    found = []
    for view in views:
        units = view.among(chosen)
        found += [f"clients are not kept out of {unit}" for unit in units if not view.kept_out(unit)]
        queues = [queue for unit in units for queue in view.queues_of(unit)]
        found += [f"{queue.name} delivers still" for queue in queues if not queue.paused]
        found += [f"{queue.name} has {queue.consumers} consumer(s)" for queue in queues if queue.consumers]
        found += [f"{queue.delivering} of {queue.name} in delivery" for queue in queues if queue.delivering]
    return found


def by_itself(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
    strikes = step.part("strikes")
    proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
    if not step.cut_off:
        proof = _closed(tools, move.source, step.part(""), move.ask.includes, context)
    if isinstance(proof, Refused | Unknown) or not strikes:
        return proof
    tools.change(strikes, context)
    return still(strikes, tools.views(move.target)) or proof


def owe(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if any(call.site == move.source for call in step.calls):
        return act(tools, step, move, context)
    return tools.make(step.calls, context, move.target) or Done(
        f"{move.source} cannot be fenced now: the fence is owed"
    )


def undo_by_itself(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    owed = [call for call in step.inverse if call.site == move.target]
    tools.change([call for call in owed if left_of([call], tools.observer.look_at(move.target))], context)
    return undo(tools, step, move, context)


def undo(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Let the clients of each queue in again, where the other site is seen to have it closed."""
    inverse = [call for call in step.inverse if call.site == move.source]
    if not inverse:
        return tools.put_back(step, move.target, context)
    views = tools.observer.look_at(move.source)
    if not (left := [call for call in inverse if not _as_before(call, views)]):
        return NotNeeded(f"{move.source} is open")
    beside = _beside(tools, move)
    if isinstance(beside, BrokerError) and (tools.opened or move.sent):
        return Unknown(f"{move.target} is silent, and may have been opened: {move.source} stays closed")
    opened = (
        [] if isinstance(beside, BrokerError) else [unit for view in beside for unit in view.open_among(move.moves)]
    )
    if opened:
        text = f"{move.target} has {some(opened)} open: what was closed at {move.source} stays closed"
        return Refused(text, code=ExitCode.STRANDED)
    listeners = [call for call in left if call.goal is Goal.OPEN]
    tools.change(listeners, context)
    if (why := tools.admit(move.source, [call for call in left if call.goal in ROLES], context)) is not None:
        return Refused(why)
    return still(listeners, tools.observer.look_at(move.source)) or Done(f"{move.source} lets clients in again")


def _as_before(call: Call, views: Sequence[BrokerView]) -> bool:
    """Read the whole file again only where the other calls show the roles still kept out."""
    return holds(call, views) if call.thing else True


def _beside(tools: BridgesTools, move: Move) -> list[BrokerView] | BrokerError:
    try:
        return tools.observer.look_at(move.target)
    except BrokerError as error:
        return error


def residue(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close those of the returned site's queues that were decided, and count what it still holds for the other."""
    units = {call.thing for call in step.calls if call.goal is Goal.CUT}
    closed = _closed(tools, move.target, step.calls, units.__contains__, context)
    if isinstance(closed, Refused):
        return closed
    for view in tools.observer.look_at(move.target):
        if (held := view.link.residue) is None:
            return Refused(f"what {view.site}/{view.pair} still holds was not read")
        tools.residue[view.pair] = held
    total = Residue.together(tools.residue.values())
    text = f"{total.messages} message(s) and {total.acks} processed id(s)"
    context.notice(f"{move.target} still holds {text} for the other site")
    return Done(text, total.figures())


def draft_unfence(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Queues that the other site serves stay closed; pauses of runs are lifted."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in snapshot.views(move.source):
        peer = snapshot.view(move.target, view.pair)
        served = peer.units if peer is not None else None
        units = [unit for unit in view.among(move.ask.includes) if served is not None and not served.get(unit)]
        shut = [unit for unit in units if not view.units[unit]]
        calls += opens(view, shut)
        calls += in_part("listeners", _listeners(view, served or {}) if shut else ())
        inverse += closes_again(view, shut, before(move, view))
    paused = [(view, queue) for view, queue in paused_at(snapshot, move.source) if queue.name in view.paused]
    calls += receipts.strikes(snapshot) if calls else []
    return StepPlan(
        move.source,
        "clients let in again, and what runs have paused lifted",
        (*calls, *(resume(view, queue) for view, queue in paused)),
        (*inverse, *(pause(view, queue, "it is not paused") for view, queue in paused)),
    )


def _listeners(view: BrokerView, served: Mapping[str, bool]) -> Iterator[Call]:
    """The listeners that a restart has closed, unless one of them would open a queue that the other site serves."""
    loose = [flow.unit for flow in view.flows if not (view.kept_out(flow.unit) or view.gated(flow.unit))]
    if not any(served.get(unit) for unit in loose):
        yield from (open_listener(view, listener) for listener in view.listeners if not listener.started)


def unfence(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    opens, admits, rest = step.part("listeners"), step.part("admit"), step.part("")
    if opens or admits:
        here = {call.thing for call in (*opens, *admits)}
        views = tools.observer.look_at(move.target)
        served = [unit for view in views for unit in view.open_among(move.ask.includes) if unit in here]
        if served:
            return Refused(f"{move.target} has {some(served)} open: a second site is never opened")
    tools.change([*opens, *rest], context)
    if (kept_out := tools.admit(move.source, admits, context)) is not None:
        return Refused(kept_out)
    done = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    waited = until(
        context,
        lambda: still([*opens, *rest], tools.observer.look_at(move.source)),
        holds=lambda refused: refused is None,
        within_s=tools.timeouts.activate_s,
        poll_s=tools.timeouts.poll_s,
    )
    return waited.look or done
