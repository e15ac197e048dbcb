"""`fence` and `unfence`: clients kept out of a site and proven to be, or let in again; for a lost site, a debt."""

from collections.abc import Iterable, Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Role, some
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep, in_part
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.baseline import before, started_since
from dr_ctl.topologies.common.calls import holds, left_of, pause, resume, still
from dr_ctl.topologies.common.debts import document, owe_again, pay
from dr_ctl.topologies.common.failover import came_back_open
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.single import paused_at
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import ROLES, Tools
from dr_ctl.topologies.common.verbs.quarantine import debt
from dr_ctl.topologies.common.view import Broker, Peer


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    del rules, step
    views = snapshot.views(move.source)
    return StepPlan(move.source, _clients_out(views), tuple(shut(views)), tuple(_opening(views, move)))


def _clients_out(views: Sequence[Broker]) -> str:
    """How the fence is shown; a greeting that is refused proves it, where one can be tried."""
    if any(view.greets for view in views):
        return "clients out, proven"
    return "clients out, shown by the listeners' flags only: the settings name no `stomp:`"


def draft_by_itself(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """Close the listeners; strike out that the fence is owed, once it is proven."""
    del rules
    owed = [
        view
        for view in snapshot.views(move.target)
        if document(DebtKind.FENCE, move.source, view.site) in view.documents
    ]
    views = snapshot.views(move.source)
    struck = in_part("strikes", (call for view in owed for call in pay(view, DebtKind.FENCE, move.source)))
    again = [owe_again(view, DebtKind.FENCE, move.source) for view in owed]
    return StepPlan(
        move.source,
        _clients_out(views),
        (*shut(views), *struck),
        (*_opening(views, move), *again),
        cut_off=bool(step.words.get(CUT_OFF)),
    )


def draft_of_lost(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """A site that is away cannot be fenced at its listeners: the brokers that go on note the fence as owed, unless a
    hook has cut the site off before. A lost site that serves again is closed."""
    if snapshot.roles[move.source] is Role.SERVING:
        return draft(rules, step, snapshot, move)
    if snapshot.roles[move.source] is Role.STANDBY:
        return StepPlan(move.source, "its listeners are closed already")
    if step.words.get(CUT_OFF):
        return StepPlan(move.source, "clients kept out by the hook before it")
    calls, inverse = debt(snapshot, move, DebtKind.FENCE)
    return StepPlan(move.source, "clients cannot be shown to be kept out: the fence is owed", calls, inverse)


def draft_of_returned(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """Count what the returned site still holds for the other; an open one is closed first."""
    del rules, step
    views = snapshot.views(move.target) if came_back_open(snapshot, move) else []
    about = "what it still holds is counted; if it is open, it is closed first"
    return StepPlan(move.target, about, tuple(shut(views)))


def shut(views: Iterable[Broker]) -> list[Call]:
    """Close every listener that is open and keep the clients' roles out."""
    calls: list[Call] = []
    for view in views:
        calls += view.fence.closing(listener for listener in view.listeners if listener.started)
        calls += view.fence.shutting_out()
    return calls


def _opening(views: Iterable[Broker], move: Move) -> list[Call]:
    """Put back what a fence changes, as it was before the run."""
    calls: list[Call] = []
    for view in views:
        was = before(move, view)
        calls += [] if was["shut_out"] else view.fence.admitting("they are kept out")
        opened = (listener for listener in view.listeners if was["listeners"].get(listener.name))
        calls += view.fence.opening(opened, Peer.NOT_DRAINED, "it is closed")
    return calls


def draft_unfence(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """Open the listeners again, unless the other site serves, then lift the pauses of runs. The undo closes and pauses
    as it was before."""
    del rules, step
    views = snapshot.views(move.source)
    opens = snapshot.roles[move.target] is not Role.SERVING
    # A pair whose other broker is silent is left as it is.
    views = [view for view in views if view.open or snapshot.view(move.target, view.pair) is not None]
    shut = [(view, [listener for listener in view.listeners if opens and not listener.started]) for view in views]
    paused = paused_at(snapshot, move.source)
    kept_out = [view for view in views if opens and view.fence.shut_out]
    calls = [
        *in_part("admit", (call for view in kept_out for call in view.fence.admitting())),
        *in_part(
            "listeners", (call for view, listeners in shut for call in view.fence.opening(listeners, Peer.CLOSED))
        ),
        *(receipts.strikes(snapshot) if opens else ()),
    ]
    inverse = [call for view, listeners in shut for call in view.fence.closing(listeners, "it is open")]
    inverse += [call for view in kept_out for call in view.fence.shutting_out("they are let in")]
    return StepPlan(
        move.source,
        "clients let in again, and what runs have paused lifted",
        (*calls, *(resume(view, queue) for view, queue in paused)),
        (*inverse, *(pause(view, queue, "it is not paused") for view, queue in paused)),
    )


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    # The end of the quiesce was a look; every moment from here on keeps clients waiting.
    before = [access.names() for access in tools.observer.at(move.source)]
    if not any(view.open for view in before):
        return NotNeeded(f"{move.source} is closed to clients already", {"proof": "flag"})
    outcomes = tools.change([call for call in step.calls if not holds(call, before)], context)
    # A refused call will not come true by waiting, and clients wait too.
    within_s = 0.0 if any(isinstance(each, Refused) for each in outcomes) else tools.timeouts.fence_s
    return tools.listeners.closed(move.source, context, within_s)


def by_itself(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
    closes, strikes = step.part(""), step.part("strikes")
    proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
    if not step.cut_off:
        outcomes = tools.change(closes, context)
        within_s = 0.0 if any(isinstance(each, Refused) for each in outcomes) else tools.timeouts.fence_s
        proof = tools.listeners.closed(move.source, context, within_s)
    elif _answers(tools, move.source):
        return Refused(f"{move.source} answers again: a hook was to keep clients out of a site that does not")
    if not isinstance(proof, Done) or not strikes:
        return proof
    tools.change(strikes, context)
    return still(strikes, tools.views(move.target)) or proof


def _answers(tools: Tools[Broker], site: str) -> bool:
    try:
        tools.observer.look_at(site)
    except BrokerError:
        return False
    return True


def owe(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.cut_off = step.cut_off
    if not step.calls:
        return NotNeeded(step.about)
    if any(call.site == move.source for call in step.calls):
        return act(tools, step, move, context)
    done = Done(f"{move.source} cannot be fenced now: the fence is owed")
    return tools.make(step.calls, context, move.target) or done


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    return _open_again(tools, step, move, context, sent=tools.opened or move.sent)


def undo_by_itself(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    owed = [call for call in step.inverse if call.site == move.target]
    tools.change([call for call in owed if left_of([call], tools.observer.look_at(move.target))], context)
    return _open_again(tools, step, move, context, sent=False)


def _open_again(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext, *, sent: bool) -> Outcome:
    """Let clients in again at the source, pair by pair: a silent pair is named, and keeps no other one shut. `sent`:
    the run has tried to open the other site."""
    snapshot = tools.observer.look_once()
    views = snapshot.views(move.source)
    here = {view.pair for view in views}
    inverse = [call for call in step.inverse if call.site == move.source and call.goal in (*ROLES, Goal.OPEN)]
    left = [call for call in inverse if call.unit in here and not holds(call, views)]
    # Every call that lets clients in looks at the other site first.
    beside = {call.unit: snapshot.view(move.target, call.unit) for call in left}
    opened = sorted(pair for pair, view in beside.items() if view is not None and view.open)
    unseen = sorted(pair for pair, view in beside.items() if view is None and sent)
    here_now = {view.pair: view for view in views}
    served = sorted(
        pair
        for pair, view in beside.items()
        if view is not None and pair not in opened and sent and _may_have_served(here_now[pair], view, move)
    )
    why = _opened(tools, [call for call in left if call.unit not in (*opened, *unseen, *served)], move, context)
    if why is not None:
        return Refused(f"{move.source}: {why}")
    if opened:
        text = f"{_named(tools, move.target, opened)} open: what was closed at {move.source} stays closed"
        return Refused(text, code=ExitCode.STRANDED)
    if served:
        text = (
            f"{_named(tools, move.target, served)} closed, and may have served before a new start: what clients did "
            f"there is not known at {move.source}, which stays closed"
        )
        return Refused(text, code=ExitCode.STRANDED)
    if unseen:
        text = f"{_named(tools, move.target, unseen)} silent, and may have been opened: {move.source} stays closed"
        return Unknown(text)
    if away := sorted({call.unit for call in inverse} - here):
        return Refused(f"{_named(tools, move.source, away)} silent: whether clients are let in there is not known")
    return Done(f"{move.source} lets clients in again") if left else NotNeeded(f"{move.source} is open")


def _may_have_served(source: Broker, target: Broker, move: Move) -> bool:
    """Say whether clients may have worked at a target that the run tried to open, and that was started anew since, so
    that its closed listeners prove nothing: unless all that they did there has come over."""
    if not started_since(move, target):
        return False
    back = target.link.tells_consumed and source.link.unapplied == 0 and not [*target.link.left_to_ship()]
    return not back


def _opened(tools: Tools[Broker], calls: Sequence[Call], move: Move, context: StepContext) -> str | None:
    """Say why these calls do not let clients in, or None."""
    if (why := tools.admit(move.source, [call for call in calls if call.goal in ROLES], context)) is not None:
        return why
    listeners = [call for call in calls if call.goal is Goal.OPEN]
    tools.change(listeners, context)
    return tools.listeners.why_not_open_again(move.source, listeners) if listeners else None


def _named(tools: Tools[Broker], site: str, pairs: Sequence[str]) -> str:
    """The site where it has one broker, else those that are meant."""
    whole = len(tools.observer.brokers[site]) == 1
    return f"{site} is" if whole else f"{site}: {some(pairs)} {'is' if len(pairs) == 1 else 'are'}"


def unfence(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    opens, admits, rest = step.part("listeners"), step.part("admit"), step.part("")
    beside = tools.observer.look_at(move.target, {call.unit for call in (*opens, *admits)})
    if any(view.open for view in beside):
        return Refused(f"{move.target} is open: a second site is never opened")
    if (kept_out := tools.admit(move.source, admits, context)) is not None:
        return Refused(kept_out)
    tools.change(opens, context)
    if opens and (why := _why_not_open(tools, move.source, opens, context)) is not None:
        return Refused(f"{move.source}: {why}")
    tools.change(rest, context)
    done = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    return still(rest, tools.views_of(rest)) or done


def _why_not_open(tools: Tools[Broker], site: str, opens: Sequence[Call], context: StepContext) -> str | None:
    timeouts = tools.observer.timeouts

    if tools.opening_s:
        context.notice(f"{site} may keep clients waiting for {tools.opening_s:g} s, until all of its peer has come")
    return until(
        context,
        lambda: tools.listeners.why_not_open_again(site, opens),
        holds=lambda why: why is None,
        within_s=timeouts.opened_s + tools.opening_s,
        poll_s=timeouts.poll_s,
    ).look
