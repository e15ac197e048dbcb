"""`activate` and `probe`: the delivery waited for, then a watch until no late command can undo it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, some
from dr_ctl.core.notation import if_known
from dr_ctl.engine.plan import PlannedStep, in_part
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs import activate, proving
from dr_ctl.topologies.common.verbs.activate import peer_of
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.continuity.plugin import WAITS_MS
from dr_ctl.topologies.continuity.tools import ContinuityTools
from dr_ctl.topologies.continuity.view import ContinuitySnapshot, Flow, SiteView

UNDONE: Final = "a command that was under way has deactivated the site"
AGAIN_AT_MOST: Final = 10


def draft_probe(rules: Rules, step: RunbookStep, snapshot: ContinuitySnapshot, move: Move) -> StepPlan:
    common = proving.draft_probe(rules, step, snapshot, move)
    again = [
        replace(call, at_most=AGAIN_AT_MOST)
        for view in snapshot.views(move.target)
        for call in view.fence.opening(view.listeners, Peer.NOT_DRAINED, UNDONE)
    ]
    about = f"{common.about}; then watched until no late command can undo the activation"
    return replace(common, about=about, calls=(*common.calls, *in_part("again", again)))


def act(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    _let_begin(tools, step, move, context)
    return activate.act(tools, step, move, context)


def _let_begin(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> None:
    """Wait for a delivery that is about to begin. An activation sent before a crash is not sent again, for each
    activation tells the other site to stop. Where no client is let in, the activation has failed, and waiting is
    useless. A gate that was seen to hold saw the target closed: no delivery is about to begin there."""
    if tools.gate.samples:
        return
    within_s = WAITS_MS[peer_of(move.ask.operation)] / 1000 if step.part("listeners") else 0.0
    until(
        context,
        lambda: tools.observer.look_at(move.target),
        holds=lambda views: not any(view.half_open for view in views),
        hopeless=lambda _: not tools.listeners.let_in(tools.observer.at(move.target)),
        within_s=within_s + tools.waits.watch_poll_s,
        poll_s=tools.waits.watch_poll_s,
    )


def probe(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    outcome = proving.probe(tools, step, move, context)
    if isinstance(outcome, Refused) and not all(view.delivers for view in tools.observer.look_at(move.target)):
        # A command was quicker than the message.
        if not isinstance(watched := _watch(tools, step, move, context), Done):
            return watched
        outcome = proving.probe(tools, step, move, context)
        outcome = replace(outcome, text=f"{watched.text}; {outcome.text}")
    if not isinstance(outcome, Done | NotNeeded):
        return outcome
    taken_back = _watch(tools, step, move, context)
    if isinstance(taken_back, Refused | Unknown):
        return taken_back
    text = f"{outcome.text}; {taken_back.text}"
    return replace(outcome, text=text, findings=(*outcome.findings, *taken_back.findings))


@dataclass(frozen=True, slots=True)
class _Look:
    """The brokers of the target after an activation, and those of the source that answer."""

    views: Sequence[SiteView]
    others: Sequence[SiteView]

    @property
    def undone(self) -> list[SiteView]:
        return [view for view in self.views if not view.delivers]

    @property
    def shut(self) -> set[str]:
        """The pairs that have to be activated again. A pair that is activated again delivers by itself: another call
        would begin its wait for the peer anew, and tell that once more to stop."""
        return {view.pair for view in self.undone if not view.half_open}

    @property
    def open_beside(self) -> bool:
        return bool(self.undone) and any(view.open for view in self.others)

    @property
    def commands(self) -> list[int | None]:
        """The commands that are under way. Of a site that is away nothing comes, and what waits for it is kept."""
        return [_commands(view) for view in (*self.views, *self.others)] if self.others else [None]

    def undelivered(self) -> str | None:
        return f"{min(view.pair for view in self.undone)} does not deliver yet" if self.undone else None

    def why_not_calm(self) -> str | None:
        return "commands of the plugin are still under way" if any(self.commands) else self.undelivered()


def _watch(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Until no command is under way any more: activate again what one has deactivated."""
    began_s = calm_s = context.monotonic()
    again = 0

    def look() -> _Look:
        nonlocal again, calm_s
        now = _Look(tools.observer.look_at(move.target), tools.observer.look_once().views(move.source))
        if now.shut and not now.open_beside:
            again += 1
            if again <= AGAIN_AT_MOST:
                context.notice(f"{move.target}: {min(now.shut)} was deactivated by a command: activating it again")
                tools.change([call for call in step.part("again") if call.unit in now.shut], context)
        calm_s = context.monotonic() if now.why_not_calm() is not None else calm_s
        why = now.undelivered() or (None if now.others else f"{move.source} does not answer")
        context.waiting("commands of the plugin under way, which could undo the activation", total(now.commands), why)
        return now

    def held_s(views: Sequence[SiteView]) -> float:
        """How long it has to be calm."""
        intervals = [view.service.interval_ms / 1000 for view in views if view.service is not None]
        return max(tools.waits.watch_s, tools.waits.watch_intervals * max(intervals, default=0.0))

    waited = until(
        context,
        look,
        holds=lambda now: now.why_not_calm() is None and context.monotonic() - calm_s >= held_s(now.views),
        hopeless=lambda now: now.open_beside or again > AGAIN_AT_MOST or calm_s - began_s > tools.waits.watch_at_most_s,
        within_s=None,  # a calm that began in time is watched to its end
        poll_s=tools.waits.watch_poll_s,
    )
    if waited.look.open_beside:
        return Unknown(f"{move.target} was deactivated by a command, and {move.source} is open")
    if not waited.held:
        # A late command may still undo it: a person has to look.
        often = again > AGAIN_AT_MOST
        why = "it is deactivated again and again" if often else if_known(waited.look.why_not_calm())
        finding = found("DR-CONT-016", target=move.target, why=why)
        return Refused(f"{move.target} was opened, but {why}", findings=(finding,), code=ExitCode.INCOMPLETE)
    findings = _not_taken(tools, move, context)
    if not again:
        return Done("no command undid the activation", findings=findings)
    try:
        closed = tools.listeners.why_not(move.target, serving=True)
    except BrokerError as error:
        closed = str(error)
    if closed is not None:
        return Unknown(f"{move.target} was deactivated and activated again, and {closed}: look at {move.target} first")
    return Done(f"activated again {again} time(s) after a late command", findings=findings)


def _not_taken(tools: ContinuityTools, move: Move, context: StepContext) -> tuple[Finding, ...]:
    """Report messages that were handed to their queue and are not taken, for longer than bridges confirm late."""
    first = _handed(tools.observer.look_at(move.target))
    if not first:
        return ()
    context.wait(tools.waits.window_s)
    now = _handed(tools.observer.look_at(move.target))
    left = [flow for key, flow in now.items() if key in first and _stands(first[key]) == _stands(flow)]
    if not left:
        return ()
    numbers = some([f"{flow.queue}: {flow.in_mirror.depth}" for flow in left])
    return (
        found(
            "DR-CONT-018", target=move.target, numbers=numbers, left=some([flow.target_bridge.name for flow in left])
        ),
    )


def _handed(views: Sequence[SiteView]) -> dict[tuple[str, str], Flow]:
    """The flows all of whose staged messages have been handed over, by pair and queue."""
    return {(view.pair, flow.queue): flow for view in views for flow in view.flows if flow.stuck}


def _stands(flow: Flow) -> tuple[int, int]:
    """How many wait, and how many were confirmed."""
    return flow.in_mirror.depth, flow.target_bridge.acked


def _commands(view: SiteView) -> int | None:
    """Count the commands under way, if the plugin has started."""
    return view.commands.out.depth + view.commands.into.depth if view.commands is not None else None
