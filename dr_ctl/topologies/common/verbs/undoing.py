"""The undo of a step restores the brokers' state from before the run, by the calls that its plan names: first calls
that keep clients out of the target, then others at the source, then those that start links, and last those that let
clients in at the source, after a reading of the other site. A failure does not stop the other parts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, brief
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, Unknown
from dr_ctl.topologies.common.calls import holds, missing_effects, still
from dr_ctl.topologies.common.snapshot import started_since
from dr_ctl.topologies.common.tools import OPENING, ROLES, StepFailed, Tools
from dr_ctl.topologies.common.view import Broker

# A reinstatement handles the messages that arrived, once its link is closed again and before anything else is restored.
# If that fails, the calls of phase `DELIVER` are left out, so that these messages are not delivered.
DELIVER: Final = "deliver"
AfterClosing = Callable[[Any, Move, StepContext], Outcome]


def undo_step(
    tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext, after_closing: AfterClosing | None = None
) -> Outcome:
    opens, ships, others = list[Call](), list[Call](), list[Call]()
    for call in step.inverse:
        lets_in = call.site == move.source and call.goal in (*ROLES, *OPENING)
        (opens if lets_in else ships if call.goal in (Goal.LINK_UP, Goal.LINK_DOWN) else others).append(call)
    at_target, at_source = ([call for call in others if call.site == site] for site in (move.target, move.source))
    restoring = partial(restore, after_closing=after_closing)
    # Wait for a broker that opens late, because another call may restart its opening.
    opened = partial(open_again, within_s=tools.opening_s)
    parts = ((restoring, at_target), (restoring, at_source), (_shipping, ships), (opened, opens))
    outcomes = [act_guarded(partial(part, tools, calls, move, context)) for part, calls in parts if calls]
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Done | NotNeeded)]
    done = [outcome for outcome in outcomes if isinstance(outcome, Done)]
    return next(iter((*failed, *reversed((*outcomes, *done)))), NotNeeded("as it was"))


def act_guarded(act: Callable[[], Outcome]) -> Outcome:
    """Act, and turn `StepFailed` into its outcome, and `BrokerError` into `Unknown`."""
    try:
        return act()
    except StepFailed as failed:
        return failed.outcome
    except BrokerError as error:
        return Unknown(str(error))


def restore(
    tools: Tools[Any], calls: Sequence[Call], move: Move, context: StepContext, after_closing: AfterClosing | None
) -> Outcome:
    views = tools.views_of(calls)
    if not _left(calls, views):
        return NotNeeded("as it was")
    outcome_after_closing: Outcome = Done("as it was")
    if after_closing is not None:
        shut = [call for call in calls if call.goal is Goal.CLOSE]
        tools.change([call for call in shut if not holds(call, views)], context)
        if (open_still := still(shut, tools.views_of(shut))) is not None:
            return open_still
        outcome_after_closing = after_closing(tools, move, context)
        if isinstance(outcome_after_closing, Failed):
            calls = [call for call in calls if call.phase != DELIVER]
        views = tools.views_of(calls)
    tools.change(_left(calls, views), context)
    outcome = still(calls, tools.views_of(calls)) or Done("as it was")
    if isinstance(outcome_after_closing, Failed):
        return outcome_after_closing
    return replace(outcome, evidence=outcome_after_closing.evidence, findings=outcome_after_closing.findings)


def _left(calls: Sequence[Call], views: Sequence[Broker]) -> list[Call]:
    # A call that keeps roles out is repeated: an earlier call that lets them in may take effect late.
    links = {call.resource for view in views for call in view.link.rights_calls(Goal.REVOKE)}
    again = [call for call in calls if call.goal is Goal.REVOKE and call.resource not in links]
    return [call for call in calls if call in again or not holds(call, views)]


def _shipping(tools: Tools[Any], calls: Sequence[Call], _move: Move, context: StepContext) -> Outcome:
    """Start the links of brokers that answer, because clients wait. A slow link connects by itself."""
    views = [view for site in sorted({call.site for call in calls}) for view in tools.observer.answering(site)]
    answering = {(view.site, view.pair) for view in views}
    stopped = [call for call in calls if call.goal is Goal.LINK_UP]
    away = sorted({f"{call.site}/{call.unit}" for call in stopped if (call.site, call.unit) not in answering})
    reachable = [call for call in calls if (call.site, call.unit) in answering]
    findings = [
        found("DR-LINK-007", broker=name, link="its link is started", site=name.partition("/")[0]) for name in away
    ]
    if not missing_effects(reachable, views):
        return NotNeeded("no link was seen stopped", findings=tuple(findings))
    tools.change([call for call in reachable if missing_effects([call], views)], context)
    left = context.until(
        lambda: still(reachable, tools.views_of(reachable)),
        holds=lambda left: left is None,
        within_s=tools.link_connects_s,
        poll_s=tools.timeouts.link_poll_s,
    ).reading
    if left is not None and not tools.link_connects_s:
        return left
    if left is not None:
        findings.append(found("DR-LINK-007.trying", why=left.text))
    return Done("links started", findings=tuple(findings))


def open_again(
    tools: Tools[Any], calls: Sequence[Call], move: Move, context: StepContext, within_s: float = 0.0
) -> Outcome:
    """Let clients in again at the source; a silent pair is reported, and does not keep other pairs closed."""
    sent = tools.activation_sent or move.activation_sent  # the run has tried to open the other site
    snapshot = tools.observer.read_once()
    views = snapshot.views(move.source)
    pairs = {view.pair for view in views}
    missing = [call for call in calls if call.unit in pairs and not holds(call, views)]
    at_target = {call.unit: snapshot.view(move.target, call.unit) for call in missing}
    open_at_target = {pair: tools.open_at(view, move) for pair, view in at_target.items() if view is not None}
    opened = sorted(pair for pair, names in open_at_target.items() if names)
    unseen = sorted(pair for pair, view in at_target.items() if view is None and sent)
    both = [(view, at_target.get(view.pair)) for view in views if sent and view.pair not in opened]
    served = sorted(view.pair for view, peer in both if peer is not None and _may_have_served(view, peer, move))
    safe = [call for call in missing if call.unit not in (*opened, *unseen, *served)]
    if (why := tools.open_again(move.source, safe, context, within_s)) is not None:
        return Failed(f"{move.source}: {why}")
    if opened:
        names = sorted({name for pair in opened for name in open_at_target[pair]})
        text = f"{name_units(tools, move.target, names)} open: what was closed at {move.source} stays closed"
        return Failed(text, code=ExitCode.STRANDED)
    if served:
        text = (
            f"{name_units(tools, move.target, served)} closed, and may have served before its restart: what clients did"
        )
        return Failed(f"{text} there is not known at {move.source}, which stays closed", code=ExitCode.STRANDED)
    if unseen:
        silent = f"{name_units(tools, move.target, unseen)} silent"
        return Unknown(f"{silent}, and may have been opened: {move.source} stays closed")
    if away := sorted({call.unit for call in calls} - pairs):
        return Failed(f"{name_units(tools, move.source, away)} silent: whether clients are let in there is not known")
    return Done(f"{move.source} lets clients in again") if missing else NotNeeded(f"{move.source} is open")


def _may_have_served(source: Broker, target: Broker, move: Move) -> bool:
    """Say whether clients may have worked at a target that the run tried to open and that was restarted since, unless
    all their changes have been shipped to the source."""
    all_shipped = target.link.tells_consumed and source.link.unapplied == 0 and not [*target.link.left_to_ship()]
    return started_since(move, target) and not all_shipped


def name_units(tools: Tools[Any], site: str, names: Sequence[str]) -> str:
    whole = len(tools.observer.brokers[site]) == 1 and {*names} == {*tools.observer.brokers[site]}
    return f"{site} is" if whole else f"{site}: {brief(names)} {'is' if len(names) == 1 else 'are'}"
