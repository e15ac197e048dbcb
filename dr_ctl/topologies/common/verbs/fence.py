"""`fence` keeps clients out of a site, and `unfence` lets them in again. `quarantine` keeps messages of a lost site
from every consumer. A returned site is closed first, and its residue is counted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Role, brief
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.operations import FAILOVER, FENCE
from dr_ctl.engine.plan import Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.roles import part_of
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.topologies.common import receipts, wants
from dr_ctl.topologies.common.calls import pause, resume, still, switch_listener
from dr_ctl.topologies.common.reasons import came_back_open, paused_at
from dr_ctl.topologies.common.recipe import Undo, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot, reopened
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker, PeerState, Residue
from dr_ctl.topologies.common.wants import RETURNED_SHUT, AtBroker, Want, Wants

FENCE_OWED: Final[Wants] = ((wants.debt_recorded(DebtKind.FENCE), wants.TARGET),)
# The target's lock coordinator is stopped first: it would take the lock that the source releases, and open.
LOCKS_RELEASED: Final[Wants] = (
    (lambda at: wants.shut_behind_fence(at) or at.view.fence.releasing_locks(), wants.TARGET),
)
DEBT_CLEARED: Final[Wants] = ((wants.debts_cleared(DebtKind.FENCE), wants.TARGET),)


def fence_draft(
    kept_out: Want,
    proof_text: Callable[[Sequence[Any]], str],
    closed_text: str,
    covers_site: Callable[[Any, Move], bool] = lambda *_: True,
) -> Callable[[Rules, RunbookStep, Snapshot[Any], Move], StepPlan]:
    """Draft a fence: `kept_out` is the wanted state, `proof_text` describes its proof. A single fence clears the debt
    of a fence, if it closes the whole site (`covers_site`). A lost site that does not answer cannot be fenced: the
    other site's brokers record the debt, unless a hook has cut the site off."""

    def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
        role, cut_off = part_of(snapshot, move.spec).roles[move.source], bool(step.words.get(CUT_OFF))
        if move.spec.operation == FAILOVER and role is Role.STANDBY:
            return StepPlan(move.source, closed_text)
        if move.spec.operation == FAILOVER and role is not Role.SERVING:
            if cut_off:
                return StepPlan(move.source, "clients kept out by the hook before it", cut_off=True)
            calls = wants.planned(rules, snapshot, move, FENCE_OWED)
            return StepPlan(move.source, "clients cannot be shown to be kept out: the fence is owed", calls)
        is_single, views = move.spec.operation == FENCE, snapshot.views(move.source)
        clears = DEBT_CLEARED if is_single and (cut_off or all(covers_site(view, move) for view in views)) else ()
        calls = wants.planned(rules, snapshot, move, (*LOCKS_RELEASED, (kept_out, wants.SOURCE), *clears))
        return StepPlan(move.source, proof_text(views), calls, cut_off=cut_off)

    return draft


def _clients_out(views: Sequence[Broker]) -> str:
    if any(view.can_try_login for view in views):
        return "clients out, proven"
    return "clients out, shown by the listeners' flags only: the settings name no `stomp:`"


draft: Final = fence_draft(wants.clients_kept_out, _clients_out, "its listeners are closed already")


def draft_unfence(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    calls, listeners = list[Call](), list[Call]()
    if snapshot.roles[move.target] is not Role.SERVING:
        for view in snapshot.views(move.source):
            # A pair with a silent broker at the other site is not opened.
            if view.open or snapshot.view(move.target, view.pair) is not None:
                shut = [listener for listener in view.listeners if not listener.started]
                calls += in_phase("admit", view.fence.granting() if view.fence.roles_revoked else ())
                listeners += in_phase("listeners", view.fence.opening(shut, PeerState.CLOSED))
        calls += [*listeners, *receipts.removals(snapshot)]
    calls += (resume(view, queue) for view, queue in paused_at(snapshot, move.source))
    return StepPlan(move.source, "clients let in again, and what runs have paused lifted", tuple(calls))


def paused_as_before(at: AtBroker) -> Iterator[Call]:
    lifted = at.changed_by_step(Goal.RESUME)
    return (pause(at.view, queue, "it is not paused") for queue in at.view.business.values() if queue.name in lifted)


UNDO: Final = Undo(source=(wants.clients_as_before,), target=(wants.debts_as_before,))
UNDO_UNFENCE: Final = Undo(source=(wants.clients_as_before, paused_as_before))


def fence_act(
    close: Callable[[Any, Move, StepContext], Outcome],
) -> Callable[[Any, PlannedStep, Move, StepContext], Outcome]:
    """Execute a fence: `close` keeps clients out and proves it."""

    def act(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        tools.cut_off = step.cut_off
        if move.spec.operation == FAILOVER and not any(call.site == move.source for call in step.calls):
            if not step.calls:
                return NotNeeded(step.summary)
            tools.reach(FENCE_OWED, move, context)
            return Done(f"{move.source} cannot be fenced now: the fence is owed")
        if not step.cut_off:
            proof = close(tools, move, context)
        elif _answers(tools, move.source):
            return Failed(f"{move.source} answers again: the hook was meant for a silent site")
        else:
            proof = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
        struck = any(call.goal is Goal.DELETE for call in step.calls)
        if struck and not isinstance(proof, Failed | Unknown):
            tools.reach(DEBT_CLEARED, move, context)
        return proof

    return act


def _close(tools: Tools[Broker], move: Move, context: StepContext) -> Outcome:
    # Clients wait from here on, so the reading at the end of quiesce is used. A single fence closes the brokers that
    # answer, even if others are silent.
    views, others = (
        [session.newest_view for session in tools.observer.at(site) if session.newest_view is not None]
        for site in (move.source, move.target)
    )
    is_closed = move.spec.operation != FENCE and not any(view.open or view.fence.contending for view in views)
    if any(reopened(move, view) or (view.fence.contending and not is_closed) for view in others):
        tools.reach(LOCKS_RELEASED, move, context, f"{move.target} would let clients in")
    if is_closed:
        return NotNeeded(f"{move.source} is closed to clients already", {"proof": "flag"})
    send = tools.sending(wants.clients_kept_out, move, context)
    # After a refused call a wait is useless, and clients wait too.
    within_s = 0.0 if any(isinstance(outcome, Failed) for outcome in send(views)) else tools.timeouts.fence_s
    return tools.listeners.await_closed(move.source, context, within_s, send)


act: Final = fence_act(_close)


def _answers(tools: Tools[Broker], site: str) -> bool:
    return not any(isinstance(view, BrokerError) for view in tools.observer.answers(tools.observer.at(site)))


def unfence(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    site, opens, admits, rest = move.source, step.phase("listeners"), step.phase("admit"), step.phase("")
    if any(view.open for view in tools.observer.read_at(move.target, {call.unit for call in (*opens, *admits)})):
        return Failed(f"{move.target} is open: a second site is never opened")
    if (kept_out := tools.admit(site, admits, context)) is not None:
        return Failed(kept_out)
    if tools.opening_s and opens:
        context.notice(
            f"{site} may keep clients waiting for {tools.opening_s:g} s, until everything from its peer has arrived"
        )
    if (why := tools.open_again(site, opens, context, tools.timeouts.opened_s + tools.opening_s)) is not None:
        return Failed(f"{site}: {why}")
    tools.change(rest, context)
    done = Done(f"{site} lets clients in, and delivers" if opens or admits else "pauses lifted")
    return still(rest, tools.views_of(rest)) or done


def nothing(_tools: Tools[Broker], step: PlannedStep, _move: Move, _context: StepContext) -> Outcome:
    return NotNeeded(step.summary)


def counting_verb(
    count: Callable[[Any, Move, StepContext, bool], Outcome], since: Callable[[Sequence[Any]], str] = lambda _: ""
) -> VerbHandler[Any, Any]:
    """Count what a returned site still holds for the other. An open site is closed first, and a finding reports that,
    with what clients did there `since`; the last argument of `count` says whether the site was open."""

    def draft(rules: Rules, _step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
        closed = RETURNED_SHUT if came_back_open(snapshot, move) else ()
        summary = "what it still holds is counted; if it is open, it is closed first"
        return StepPlan(move.target, summary, wants.planned(rules, snapshot, move, closed))

    def act(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if not step.calls:
            return count(tools, move, context, False)
        tools.reach(RETURNED_SHUT, move, context, f"{move.target} could not be fenced")
        done_since = since(tools.views(move.target))
        outcome = count(tools, move, context, True)
        opened = found("DR-RETURN-002", target=move.target, source=move.source, since=done_since)
        return replace(outcome, findings=(opened, *outcome.findings)) if isinstance(outcome, Done) else outcome

    return VerbHandler(draft, act)


def residue_outcome(
    move: Move,
    context: StepContext,
    residues: Sequence[Residue | None],
    summary: Callable[[Residue], str],
    unread: str = "",
) -> Outcome:
    """Report what the brokers of a returned site still hold; `unread` says why that may not be readable."""
    known = [residue for residue in residues if residue is not None]
    if len(known) < len(residues):
        return Failed(f"what {move.target} still holds was not read{unread}")
    text = summary(total := Residue.sum_of(known))
    context.notice(f"{move.target} still holds for the other site: {text}")
    return Done(text, total.figures())


def link_shut_out(at: AtBroker) -> list[Call]:
    """Want the listener of the lost site's link closed, and the link kept out by rights where that is possible, because
    a restart and a takeover open the listener again."""
    closed = (switch_listener(at.view, Goal.CLOSE, listener) for listener in at.view.link.listeners)
    return at.needed([*closed, *at.view.link.rights_calls(Goal.REVOKE)])


def quarantine(*further: Want, summary: str = "", undo: tuple[Want, ...] = ()) -> VerbHandler[Any, Any]:
    """Keep messages of a lost site out. A topology adds further wants, and their undo."""
    wanted = tuple((want, wants.TARGET) for want in (wants.debt_recorded(DebtKind.QUARANTINE), link_shut_out, *further))
    summary = f"what {{source}} still holds is kept out until it is asked for{summary}"

    def act(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if not step.calls:
            return NotNeeded(step.summary)
        left, views = tools.send_calls(wanted, move, context), tools.views(move.target)
        # Without rights a restart ends the quarantine: the debt says so, and this is no failure now.
        if any(call.goal is not Goal.REVOKE for call in left):
            return Failed(f"effect not seen: {brief([call.summary for call in left])}")
        if open_to := [view.site for view in views if not view.link.can_be_shut]:
            return Done.of(found("DR-RETURN-009", source=move.source, site=open_to[0]))
        return Done(f"what {move.source} still holds cannot reach {move.target}")

    undoes = Undo(target=(*undo, wants.link_access_as_before, wants.debts_as_before))
    return VerbHandler(wants.draft_of(wants.SOURCE, summary, *wanted), act, undoes)
