"""These verbs read, wait and prove: observe, check, settle, verify, probe."""

from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, Role, Severity, brief
from dr_ctl.engine.operations import ACTIVATE, DRAIN, FAILOVER, REINSTATE, SWAPOVER
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.stomp_io.address import NotPassed, Passed
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.session import FOR_PEOPLE, Session
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.common.wants import TARGET, draft_of

QUIET_READINGS: Final = 5  # while an acknowledgement is retried, it is not counted for a moment


draft_observe: Final = draft_of(lambda _: "", "read both sites")


def draft_check(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    can_try_login = fences(snapshot, move) and any(view.can_try_login for view in snapshot.views(move.source))
    return StepPlan("", "all checks; a test login at the serving site" if can_try_login else "all checks")


def fences(snapshot: Snapshot[Broker], move: Move) -> bool:
    """Say whether clients of a serving site will be fenced out: a test login before and after proves the fence."""
    return move.spec.operation not in (FAILOVER, REINSTATE) and snapshot.roles[move.source] is Role.SERVING


# The wait is short, because a lost site sends nothing more.
draft_settle: Final = draft_of(
    TARGET,
    "what has arrived is applied",
    limits=lambda rules, step, _: {"within": step.limits.get("within", rules.timeouts.settle_s)},
)


def draft_verify(rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    limits = {"within": rules.within(move), "stable": float(rules.drain.stable)}
    summary, calls = "all conditions of the gate; both sites hold the same messages", list[Call]()
    if move.spec.operation == DRAIN:
        summary += "; then the receipt"
        calls = [call for view in snapshot.views(move.target) for call in receipts.write(view, None, receipts.HOLDS)]
    return StepPlan(move.target, summary, tuple(calls), limits=limits)


def probe_queue(site: str) -> str:
    return f"dr-ctl.probe.{site}"


def draft_probe(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    calls: list[Call] = []
    name = probe_queue(move.target)
    views = [view for view in snapshot.views(move.target) if view.can_try_login]
    for view in views:
        if (made := view.requests.probe(name)) is not None:
            calls.append(call(view, Goal.CREATE, name, made, f"create {name}"))
        # The call removes consumers too: the broker may still list the probe's own.
        if view.may_remove_queues:
            calls.append(call(view, Goal.DELETE, name, view.requests.remove_queue(name), f"remove {name}"))
    summary = "one message is sent and received as a client does"
    none_sent = f"no message is sent: the settings name no `stomp:` of {move.target}"
    return StepPlan(move.target, summary if views else none_sent, tuple(calls))


def shown_open(snapshot: Snapshot[Broker], move: Move) -> str:
    can_try_login = any(view.can_try_login for view in snapshot.views(move.target))
    return "proven by a test login" if can_try_login else "shown by their flag only: the settings name no `stomp:`"


def observe(tools: Tools[Broker], _step: PlannedStep, _move: Move, _context: StepContext) -> Outcome:
    snapshot = tools.observer.observe()
    roles: dict[str, Json] = {site: role.value for site, role in snapshot.roles.items()}
    return Done(", ".join(f"{site} is {role}" for site, role in roles.items()), {"roles": roles})


def check(tools: Tools[Broker], _step: PlannedStep, move: Move, _context: StepContext) -> Outcome:
    snapshot = tools.observer.observe()
    errors = tuple(finding for finding in tools.recipe.why_not(snapshot, move) if finding.severity is Severity.ERROR)
    if errors:
        return Failed.of(*errors, code=ExitCode.PRECHECK_FAILED)
    if move.spec.operation in (SWAPOVER, DRAIN, ACTIVATE):
        opened = [
            unit.name
            for unit in snapshot.units
            if move.target in {*unit.open_at} - {*unit.lasting_fence_at} and move.moves(unit.name)
        ]
        if opened:
            finding = found("DR-ROLE-001.meanwhile", target=move.target, source=move.source, units=brief(opened))
            return Failed.of(finding, code=ExitCode.PRECHECK_FAILED)
    findings = tools.listeners.try_login(move.source) if fences(snapshot, move) else []
    logged_in: list[Json] = [session.site for session in tools.listeners.logged_in]
    return Done("all checks passed", {"greeted": logged_in}, tuple(findings))


def settle(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait for the acknowledgements that arrived from a lost site. The site sends no more, so acknowledgements left at
    the end will never be applied: the step reports them."""

    def read() -> int | None:
        pending = tools.observer.unapplied_at(move.target, timeout_s=tools.timeouts.flag_s)
        context.sample({move.target: {"pending": pending}})
        context.report_waiting("acknowledgements that are not applied yet", pending, None)
        return pending

    within_s, poll_s = step.limits["within"], tools.timeouts.settle_poll_s
    try:
        waited = context.until(
            read, holds=lambda left: left == 0, within_s=within_s, poll_s=poll_s, stable_for=QUIET_READINGS
        )
    except BrokerError as error:
        return Failed(f"{move.target} does not answer: {error}")
    if waited.satisfied:
        return Done("all that arrived is applied")
    finding = found("DR-SETTLE-001.left", source=move.source, pending=waited.reading)
    if waited.reading is None:
        finding = found("DR-SETTLE-001.not_read", source=move.source, target=move.target)
    return Done.of(finding, evidence={"pending": waited.reading})


def verify(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    outcome = tools.gate.verify(step, move, context)
    if not (isinstance(outcome, Done) and step.calls):
        return outcome
    # The gate did not read all counters that a receipt records.
    sources, targets = (
        {view.pair: view for view in tools.observer.read_at(site)} for site in (move.source, move.target)
    )
    readings = [
        both
        for pair, sample in tools.gate.samples.items()
        for both in ((sample.source, sources[pair]), (sample.target, targets[pair]))
    ]
    if changes := [why for was, now in readings for why in receipts.changes(was, now, move.spec.includes)]:
        # Clients may have been let in by a restart of the broker, but not by a takeover.
        return Failed(brief(changes), proof_outdated=all(was.start == now.start or was.nodes for was, now in readings))
    written = {
        pair: receipts.of(sources[pair], targets[pair], tools.sender.epoch, move.spec) for pair in tools.gate.samples
    }
    tools.change(
        [call for pair, receipt in written.items() for call in receipts.write(targets[pair], receipt)], context
    )
    stored = {view.pair: receipts.held_at(view) for view in tools.observer.read_at(move.target)}
    if missing := [pair for pair, receipt in written.items() if stored[pair] != receipt]:
        return Failed(f"the receipt could not be written: {brief(missing)}")
    return Done(f"{outcome.text}; receipt written", outcome.evidence, outcome.findings)


def probe(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    from dr_ctl.stomp_io.client import round_trip  # noqa: PLC0415 - stomp.py is loaded by who needs it

    name = probe_queue(move.target)
    pairs = {session.pair: session for session in tools.observer.at(move.target) if session.stomp is not None}
    if not pairs:
        return NotNeeded.of(found("DR-PROBE-001", target=move.target))
    create = [call for call in step.calls if call.unit in pairs and call.goal is Goal.CREATE]
    remove = [call for call in step.calls if call.unit in pairs and call.goal is Goal.DELETE]
    tools.change(create, context)
    round_trips = [
        session.as_client(round_trip, name, body="dr-ctl probe", timeout_s=tools.timeouts.probe_s)
        for session in pairs.values()
    ]
    removed = tools.change(remove, context)
    findings = tuple(
        found("DR-PROBE-002", target=move.target, name=name, said=outcome.text)
        for outcome in removed
        if not isinstance(outcome, Done)
    )
    for session, trip in zip(pairs.values(), round_trips, strict=True):
        if isinstance(trip, NotPassed):
            site, pair, advice = session.site, session.pair, _why_no_probe(session)
            failed = found("DR-PROBE-003", site=site, pair=pair, why=trip.because, advice=advice)
            return Failed.of(failed, *findings)
    took: list[Json] = [round(trip.took_s, 4) for trip in round_trips if isinstance(trip, Passed)]
    return Done("a message was sent and received", {"round_trips_s": took}, findings)


def _why_no_probe(session: Session[Broker]) -> str:
    try:
        obstacles = session.read(FOR_PEOPLE).obstacles
    except BrokerError as error:
        return error.remedy
    first = f"{obstacles[0].text}. {obstacles[0].remedy}" if obstacles else f"See the log of {session.site}."
    return f"{first} `dr-ctl status` says whether that lasts."
