"""`quiesce` pauses queues and waits for clients. A drain lifts the pauses again while it waits."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os.path import commonprefix
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Severity, brief, by_key
from dr_ctl.core.system import in_background
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.calls import BY_PREFIX, by_prefix, call, pause, queues_of, resume
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules, selected, selects_all
from dr_ctl.topologies.common.session import FOR_PAUSES
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker, Queue
from dr_ctl.topologies.common.wants import SOURCE, AtBroker, Wants, draft_of

MIN_GROUP: Final = 50  # for fewer queues, a call for each is faster than the broker's search through all names
NEW_QUEUES = 100
LEFT_OUT: Final = "the call by prefix left it out"
QUIET_READINGS: Final = 2  # without deliveries: one reading may be between two dispatches


def group_by_prefix(
    wanted: Iterable[str], others: Iterable[str], allows: Callable[[str], bool]
) -> dict[str, Sequence[str]]:
    """Group the wanted names by prefixes that no other name has; names without such a group are left out. `allows` says
    whether every future name with a prefix is wanted too."""
    other_names = sorted(others)
    groups_by_prefix: dict[str, Sequence[str]] = {}
    groups: list[Sequence[str]] = [sorted(wanted)]
    while groups:
        names = groups.pop()
        if len(names) < MIN_GROUP:
            continue
        prefix = commonprefix((names[0], names[-1]))  # noqa: RUF071 - the names are sorted, and no paths
        at = bisect_left(other_names, prefix)
        if allows(prefix) and not (at < len(other_names) and other_names[at].startswith(prefix)):
            groups_by_prefix[prefix] = names
            continue
        by_letter = by_key((name[: len(prefix) + 1], name) for name in names)
        by_letter.pop(prefix, None)  # the name that equals the prefix
        groups += by_letter.values()
    return groups_by_prefix


_pausing: Final = draft_of(
    SOURCE,
    "dispatch stops; clients finish what they hold",
    (lambda at: _planned(at, Goal.PAUSE), SOURCE),
    limits=lambda rules, step, _: {"within": step.limits.get("within", rules.timeouts.quiesce_s)},
)


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
    """Plan no pause if a console's policy refuses it: dispatch goes on until the listeners close."""
    plan = _pausing(rules, step, snapshot, move)
    if all(view.may_pause for view in snapshot.views(move.source)):
        return plan
    return replace(plan, summary="clients are not given time to finish: its console refuses to pause queues", calls=())


def pauses_as_before(at: AtBroker) -> list[Call]:
    """Want the queues' pauses as before the quiesce, by prefixes if the broker can."""
    was = {*at.was["paused"]}
    queues = [queue for queue in quiesced_queues(at) if (at.calls or queue.paused) and queue.name not in was]
    return _calls(at, Goal.RESUME, queues, "it is paused")


def quiesced_queues(at: AtBroker) -> list[Queue]:
    """Return the queues of the quiesce: those of the run's units that the settings select."""
    queues = selected(at.view, at.rules.queues).values()
    return [queue for queue in queues if at.move.spec.includes(at.view.unit_of(queue.name))]


def queues_to_pause(at: AtBroker) -> list[Queue]:
    return [queue for queue in quiesced_queues(at) if not queue.paused]


def pause_calls(at: AtBroker) -> list[Call]:
    return _calls(at, Goal.PAUSE, queues_to_pause(at))


def queues_to_resume(at: AtBroker) -> list[Queue]:
    was = {*at.was["paused"]}
    return [queue for queue in quiesced_queues(at) if queue.paused and queue.name not in was]


def resume_calls(at: AtBroker) -> list[Call]:
    return _calls(at, Goal.RESUME, queues_to_resume(at))


# The pauses that quiesce will have made, and those of an interrupted run, are lifted.
LIFTED: Final[Wants] = ((lambda at: [*_planned(at, Goal.RESUME), *resume_calls(at)], SOURCE),)


def _planned(at: AtBroker, goal: Goal) -> list[Call]:
    """Return a quiesce's calls, and the conditional calls for new queues and for those that a call by prefix left
    out."""
    queues = queues_to_pause(at) if at.view.open else []
    if not queues:
        return []
    calls = _calls(at, goal, queues)
    by_prefixes = sum(len(queues_of(call, at.view)) for call in calls if call.phase == BY_PREFIX)
    asked = at.view.requests.by_prefix(goal, "")
    if by_prefixes:
        calls.append(call(at.view, goal, ALL, asked, f"{goal.value} a queue by itself", LEFT_OUT, by_prefixes))
    text = f"{goal.value} a queue created meanwhile"
    return [*calls, call(at.view, goal, ALL, asked, text, "a queue is new", NEW_QUEUES)]


def _calls(at: AtBroker, goal: Goal, queues: Sequence[Queue], when: str | None = None) -> list[Call]:
    """Call queues by prefix only if none of them was paused before the run: a pause by somebody else stays."""
    view, by_prefixes = at.view, dict[str, Sequence[str]]()
    if view.pauses_by_prefix:
        own = {queue.name for queue in quiesced_queues(at)} - {*at.was["paused"]}
        others = (queue.name for queue in view.queues if queue.name not in own)
        by_prefixes = group_by_prefix((queue.name for queue in queues), others, partial(selects_all, at.rules.queues))
    covered = {name for names in by_prefixes.values() for name in names}
    make = pause if goal is Goal.PAUSE else resume
    return [
        *(by_prefix(view, goal, prefix, len(names), when) for prefix, names in sorted(by_prefixes.items())),
        *(make(view, queue, when) for queue in queues if queue.name not in covered),
    ]


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = tools.observer.read_at(move.source, scope=FOR_PAUSES)
    if not all(view.may_pause for view in views):
        held = sum(queue.delivering for view in views for queue in view.business.values())
        finding = found("DR-QUIESCE-002", count=held, but="", why=f"the console of {move.source} refuses to pause")
        return Done.of(finding, evidence={"come_again": held})
    if not any(view.open for view in views):
        return NotNeeded(f"{move.source} is closed to clients already")
    views, paused = _pause(tools, views, move, context)
    send = tools.sending(pause_calls, move, context, views)

    def read() -> _Dispatch:
        now = _dispatch(tools, views, move)
        # A call by prefix also paused queues created since the reading. After a crash a later run has to know them.
        why = [tools.sender.note_paused(move.source, pair, names) for pair, names in now.new.items()]
        now.unwritten = next((reason for reason in why if reason is not None), None)
        context.sample({"delivering": now.total})
        context.report_waiting("messages that clients hold", now.total, now.why)
        return now

    waited = context.until(
        read,
        holds=lambda now: now.total == 0 and now.unwritten is None,
        hopeless=lambda now: now.unwritten is not None,
        within_s=step.limits["within"],
        poll_s=tools.timeouts.poll_s,
        stable_for=QUIET_READINGS,
        # A takeover ends a pause.
        meanwhile=lambda now: now.unpaused and send(tools.observer.read_at(move.source, scope=FOR_PAUSES)),
    )
    if waited.reading.unwritten is not None:
        return Failed(waited.reading.unwritten)
    if not waited.satisfied:
        return _not_finished(tools, waited.reading, move, step)
    if waited.reading.unpaused:
        return Failed(f"could not pause {brief(waited.reading.unpaused)}")
    return Done("clients hold nothing", {"paused": paused})


def _pause(tools: Tools[Broker], views: list[Broker], move: Move, context: StepContext) -> tuple[list[Broker], int]:
    """Pause queues, one by one where a call by prefix failed; return the newest views and the number of queues."""
    at_brokers = [tools.at(view, move) for view in views]
    calls, count = (
        [call for at in at_brokers for call in pause_calls(at)],
        sum(len(queues_to_pause(at)) for at in at_brokers),
    )
    if _prefix_call_failed(calls, tools.change(calls, context)):
        views = tools.observer.read_at(move.source, scope=FOR_PAUSES)
        left = [(view, queue) for view in views for queue in queues_to_pause(tools.at(view, move))]
        tools.change([pause(view, queue, LEFT_OUT) for view, queue in left], context)
    return views, count


@dataclass
class _Dispatch:
    """A poll: the messages that clients hold by queue, queues that still dispatch, and queues without a valid count.
    `new` has the queues paused since the reading by pair, `unwritten` the reason why they could not be recorded."""

    busy: dict[str, int] = field(default_factory=dict)
    unpaused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    new: dict[str, list[str]] = field(default_factory=dict)
    unwritten: str | None = None

    @property
    def total(self) -> int | None:
        return sum(self.busy.values()) if not self.unknown else None

    @property
    def why(self) -> str | None:
        if self.unknown:
            return f"cannot be determined: {brief(self.unknown)}"
        return "clients have not finished them" if self.busy else None


def _dispatch(tools: Tools[Broker], views: Sequence[Broker], move: Move) -> _Dispatch:
    """Poll the queues of the quiesce. A queue missing from the poll is ignored only if a reading shows its removal."""
    now = _Dispatch()
    sessions = [tools.observer.brokers[move.source][view.pair] for view in views]
    polled = tools.observer.ask_all(lambda session: session.dispatch(), sessions)
    for session, view, queues in zip(sessions, views, polled, strict=True):
        names = [queue.name for queue in quiesced_queues(tools.at(view, move))]
        for name in [name for name in names if name in queues]:
            count, paused = queues[name]
            if count < 0:
                now.unknown.append(f"{name} has {count} in delivery")
            elif count:
                now.busy[name] = now.busy.get(name, 0) + count
            now.unpaused += [] if paused else [name]
        if new := [name for name, (_, paused) in queues.items() if paused and name not in view.by_name]:
            now.new[view.pair] = new
        if missing := [name for name in names if name not in queues]:
            view_now = session.read()
            removed = set(missing) - set(view_now.business) if view_now.queues else set()
            now.unknown += [f"{name} was not read" for name in missing if name not in removed]
    return now


def _not_finished(tools: Tools[Broker], now: _Dispatch, move: Move, step: PlannedStep) -> Outcome:
    busy = now.busy
    if now.unknown:
        finding = found("DR-QUEUE-003.in_delivery", queues=brief(now.unknown))
        if not move.spec.cut_in_flight:
            return Failed.of(finding, evidence={"queues": dict(busy)})
        return Done.of(replace(finding, severity=Severity.WARNING), evidence={"come_again": None})
    consumers = [consumer for view in tools.observer.read_at(move.source) for consumer in view.consumers]
    holders = []
    for queue, count in busy.items():
        who = [consumer.who for consumer in consumers if consumer.queue == queue and consumer.holds != 0]
        holders.append(f"{queue}: {count} held by {', '.join(who) or 'a client that has left'}")
    total = sum(busy.values())
    if move.spec.cut_in_flight:
        finding = found("DR-QUIESCE-002", count=total, but=tools.not_redelivered, why=brief(holders))
        return Done.of(finding, evidence={"come_again": total, "queues": dict(busy)})
    within = f"{step.limits['within']:g}"
    finding = found("DR-QUIESCE-001", holders=brief(holders), but=tools.not_redelivered, within=within)
    return Failed.of(finding, evidence={"queues": dict(busy)})


def undo(tools: Tools[Broker], _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = tools.observer.answering(move.source)
    pairs = {view.pair for view in views if queues_to_resume(tools.at(view, move))}
    if paused := _lift_all(tools, [view for view in views if view.pair in pairs], move, context):
        return Failed(f"still paused: {brief(paused)}")
    if away := sorted(set(tools.observer.brokers[move.source]) - {view.pair for view in views}):
        return Failed(f"{move.source}: {brief(away)} silent: whether anything is paused there is not known")
    return Done("pauses lifted") if pairs else NotNeeded("nothing is paused that was not before")


UNDO: Final = Undo(source=(pauses_as_before,), by=undo)


def with_pauses_lifted(tools: Tools[Broker], move: Move, context: StepContext, drain: Callable[[], Outcome]) -> Outcome:
    """Drain, and lift the pauses at the same time. Its end is always awaited, because its calls are in the journal."""

    def lift() -> list[str]:
        known = [session.last_view() for session in tools.observer.at(move.source)]
        return _lift_all(tools, _paused_now(tools, known), move, context)

    lifting = in_background(lift, "lift pauses")
    try:
        outcome = drain()
    finally:
        lifting.wait()
    try:
        why_not = brief(lifting.result())
    except BrokerError as error:
        why_not = str(error)
    return Failed(f"pauses: {why_not}") if isinstance(outcome, Done) and why_not else outcome


def _paused_now(tools: Tools[Broker], known: Sequence[Broker]) -> list[Broker]:
    """Poll each broker for its pauses; read a broker whose poll shows an unknown paused queue."""

    def now(view: Broker) -> Broker:
        session = tools.observer.brokers[view.site][view.pair]
        paused = {name: paused for name, (_, paused) in session.dispatch().items()}
        if any(is_paused and name not in view.by_name for name, is_paused in paused.items()):
            return session.read(FOR_PAUSES)
        queues = (queue for queue in view.queues if queue.name in paused or not queue.business)
        now = tuple(replace(queue, paused=paused.get(queue.name, queue.paused)) for queue in queues)
        return replace(view, queues=now)

    return tools.observer.ask_all(now, known)


def _lift_all(tools: Tools[Broker], views: Sequence[Broker], move: Move, context: StepContext) -> list[str]:
    """Resume the queues at these brokers that were not paused before, one by one where a call by prefix left some out;
    return texts on the queues that are still paused. Raises `BrokerError`."""

    def left() -> list[Call]:
        now = _paused_now(tools, views)
        return [resume(view, queue, LEFT_OUT) for view in now for queue in queues_to_resume(tools.at(view, move))]

    calls = [call for view in views for call in resume_calls(tools.at(view, move))]
    outcomes = tools.change(calls, context)
    still = left() if views else []
    if still and _prefix_call_failed(calls, outcomes):
        tools.change(still, context)
        still = left()
    return [call.summary for call in still]


def _prefix_call_failed(calls: Sequence[Call], outcomes: Sequence[Outcome]) -> bool:
    """Say whether a call by prefix failed, so that it may have reached all, some, or no queues."""
    both = zip(calls, outcomes, strict=True)
    return any(call.phase == BY_PREFIX and not isinstance(outcome, Done) for call, outcome in both)
