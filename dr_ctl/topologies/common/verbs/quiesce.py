"""`quiesce` pauses queues and waits for clients. A drain lifts the pauses again beside its wait."""

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

LEAST: Final = 50
"""For fewer queues, calls of each take a broker less time than the search through all of its names."""
NEW_QUEUES = 100
LEFT_OUT: Final = "the call for all that begin alike left it out"
QUIET_READINGS: Final = 2  # in a row without deliveries, as a reading can fall between two dispatches


def beginnings(
    wanted: Iterable[str], others: Iterable[str], may_begin: Callable[[str], bool]
) -> dict[str, Sequence[str]]:
    """Return wanted names by beginnings that no other name has. A wanted name is left out where too few begin alike, or
    too much like other names. `may_begin` says of a beginning whether a name that comes into being may have it."""
    other_names = sorted(others)
    by_beginning: dict[str, Sequence[str]] = {}
    groups: list[Sequence[str]] = [sorted(wanted)]
    while groups:
        names = groups.pop()
        if len(names) < LEAST:
            continue
        beginning = commonprefix((names[0], names[-1]))  # noqa: RUF071 - the names are sorted, and no paths
        at = bisect_left(other_names, beginning)
        if may_begin(beginning) and not (at < len(other_names) and other_names[at].startswith(beginning)):
            by_beginning[beginning] = names
            continue
        by_letter = by_key((name[: len(beginning) + 1], name) for name in names)
        by_letter.pop(beginning, None)  # the name that is nothing but the beginning
        groups += by_letter.values()
    return by_beginning


_pausing: Final = draft_of(
    SOURCE,
    "dispatch stops; clients finish what they hold",
    (lambda at: _planned(at, Goal.PAUSE), SOURCE),
    limits=lambda rules, step, _: {"within": step.limits.get("within", rules.timeouts.quiesce_s)},
)


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Any], move: Move) -> StepPlan:
    """Plan no pause where a console's policy refuses it: dispatch goes on until the listeners close."""
    plan = _pausing(rules, step, snapshot, move)
    if all(view.may_pause for view in snapshot.views(move.source)):
        return plan
    return replace(plan, summary="clients are not let finish: its console refuses to pause queues", calls=())


def delivered(at: AtBroker) -> list[Call]:
    """Want the dispatch of the queues as before the quiesce, where the broker can by the beginnings of names."""
    was = {*at.was["paused"]}
    queues = [queue for queue in meant(at) if (at.calls or queue.paused) and queue.name not in was]
    return _calls(at, Goal.RESUME, queues, "it is paused")


def meant(at: AtBroker) -> list[Queue]:
    """Return the queues of the quiesce: the settings name them, and they are part of the units that are asked for."""
    queues = selected(at.view, at.rules.queues).values()
    return [queue for queue in queues if at.move.spec.includes(at.view.unit_of(queue.name))]


def to_pause(at: AtBroker) -> list[Queue]:
    return [queue for queue in meant(at) if not queue.paused]


def pauses(at: AtBroker) -> list[Call]:
    return _calls(at, Goal.PAUSE, to_pause(at))


def to_lift(at: AtBroker) -> list[Queue]:
    was = {*at.was["paused"]}
    return [queue for queue in meant(at) if queue.paused and queue.name not in was]


def lifts(at: AtBroker) -> list[Call]:
    return _calls(at, Goal.RESUME, to_lift(at))


# The pauses that quiesce will have made, and those of an interrupted run, are lifted.
LIFTED: Final[Wants] = ((lambda at: [*_planned(at, Goal.RESUME), *lifts(at)], SOURCE),)


def _planned(at: AtBroker, goal: Goal) -> list[Call]:
    """Return a quiesce's calls, those for queues created meanwhile, and one by one where a call for many failed."""
    queues = to_pause(at) if at.view.open else []
    if not queues:
        return []
    calls = _calls(at, goal, queues)
    alike = sum(len(queues_of(call, at.view)) for call in calls if call.phase == BY_PREFIX)
    asked = at.view.requests.of_queues(goal, "")
    if alike:
        calls.append(call(at.view, goal, ALL, asked, f"{goal.value} a queue by itself", LEFT_OUT, alike))
    text = f"{goal.value} a queue created meanwhile"
    return [*calls, call(at.view, goal, ALL, asked, text, "a queue is new", NEW_QUEUES)]


def _calls(at: AtBroker, goal: Goal, queues: Sequence[Queue], when: str | None = None) -> list[Call]:
    """Call queues together only where none was paused before the run: a pause by somebody else stays."""
    view, alike = at.view, dict[str, Sequence[str]]()
    if view.pauses_by_prefix:
        own = {queue.name for queue in meant(at)} - {*at.was["paused"]}
        others = (queue.name for queue in view.queues if queue.name not in own)
        alike = beginnings((queue.name for queue in queues), others, partial(selects_all, at.rules.queues))
    covered = {name for names in alike.values() for name in names}
    make = pause if goal is Goal.PAUSE else resume
    return [
        *(by_prefix(view, goal, beginning, len(names), when) for beginning, names in sorted(alike.items())),
        *(make(view, queue, when) for queue in queues if queue.name not in covered),
    ]


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = tools.observer.read_at(move.source, scope=FOR_PAUSES)
    if not all(view.may_pause for view in views):
        # A cut brings the messages that clients hold again.
        held = sum(queue.delivering for view in views for queue in view.business.values())
        finding = found("DR-QUIESCE-002", count=held, but="", why=f"the console of {move.source} refuses to pause")
        return Done.of(finding, evidence={"come_again": held})
    if not any(view.open for view in views):
        return NotNeeded(f"{move.source} is closed to clients already")
    views, paused = _pause(tools, views, move, context)
    send = tools.sending(pauses, move, context, views)

    def read() -> _Dispatch:
        now = _dispatch(tools, views, move)
        # A call for many also paused queues created since the reading. A later run, after a crash, has to know them.
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
        # A pause ends with the node that was told to pause.
        meanwhile=lambda now: now.unpaused and send(tools.observer.read_at(move.source, scope=FOR_PAUSES)),
    )
    if waited.reading.unwritten is not None:
        return Failed(waited.reading.unwritten)
    if not waited.satisfied:
        return _not_quiet(tools, waited.reading, move, step)
    if waited.reading.unpaused:
        return Failed(f"could not pause {brief(waited.reading.unpaused)}")
    return Done("clients hold nothing", {"paused": paused})


def _pause(tools: Tools[Broker], views: list[Broker], move: Move, context: StepContext) -> tuple[list[Broker], int]:
    """Pause queues, one by one where a call for many failed; return the brokers as last seen, and how many queues."""
    at_brokers = [tools.at(view, move) for view in views]
    calls, count = [call for at in at_brokers for call in pauses(at)], sum(len(to_pause(at)) for at in at_brokers)
    if _left_out(calls, tools.change(calls, context)):
        views = tools.observer.read_at(move.source, scope=FOR_PAUSES)
        left = [(view, queue) for view in views for queue in to_pause(tools.at(view, move))]
        tools.change([pause(view, queue, LEFT_OUT) for view, queue in left], context)
    return views, count


@dataclass
class _Dispatch:
    """A poll: the messages that clients hold by queue, queues that dispatch still, and queues that cannot be counted.
    `new` holds by pair the queues paused since the reading, `unwritten` why these could not be noted."""

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
    """Poll the queues that quiesce is for. A queue missing from the poll is ignored only if a reading shows it gone."""
    now = _Dispatch()
    sessions = [tools.observer.brokers[move.source][view.pair] for view in views]
    polled = tools.observer.ask_all(lambda session: session.dispatch(), sessions)
    for session, view, queues in zip(sessions, views, polled, strict=True):
        names = [queue.name for queue in meant(tools.at(view, move))]
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
            anew = session.read()
            gone = set(missing) - set(anew.business) if anew.queues else set()
            now.unknown += [f"{name} was not read" for name in missing if name not in gone]
    return now


def _not_quiet(tools: Tools[Broker], now: _Dispatch, move: Move, step: PlannedStep) -> Outcome:
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
        holders.append(f"{queue}: {count} held by {', '.join(who) or 'a client that is gone'}")
    total = sum(busy.values())
    if move.spec.cut_in_flight:
        finding = found("DR-QUIESCE-002", count=total, but=tools.not_redelivered, why=brief(holders))
        return Done.of(finding, evidence={"come_again": total, "queues": dict(busy)})
    within = f"{step.limits['within']:g}"
    finding = found("DR-QUIESCE-001", holders=brief(holders), but=tools.not_redelivered, within=within)
    return Failed.of(finding, evidence={"queues": dict(busy)})


def undo(tools: Tools[Broker], _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = tools.observer.answering(move.source)
    pairs = {view.pair for view in views if to_lift(tools.at(view, move))}
    if paused := _lift_all(tools, [view for view in views if view.pair in pairs], move, context):
        return Failed(f"still paused: {brief(paused)}")
    if away := sorted(set(tools.observer.brokers[move.source]) - {view.pair for view in views}):
        return Failed(f"{move.source}: {brief(away)} silent: whether anything is paused there is not known")
    return Done("pauses lifted") if pairs else NotNeeded("nothing is paused that was not before")


UNDO: Final = Undo(source=(delivered,), by=undo)


def with_pauses_lifted(tools: Tools[Broker], move: Move, context: StepContext, drain: Callable[[], Outcome]) -> Outcome:
    """Drain, and lift the pauses beside it. The lifting is always waited for: its calls are in the journal."""

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
    """Return the brokers by a small poll each; one whose poll tells of an unknown paused queue is read."""

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
    """Resume the queues at these brokers that were not paused before, one by one where a call for many left some out;
    return the queues that are still paused, in words. Raises `BrokerError`."""

    def left() -> list[Call]:
        now = _paused_now(tools, views)
        return [resume(view, queue, LEFT_OUT) for view in now for queue in to_lift(tools.at(view, move))]

    calls = [call for view in views for call in lifts(tools.at(view, move))]
    outcomes = tools.change(calls, context)
    still = left() if views else []
    if still and _left_out(calls, outcomes):
        tools.change(still, context)
        still = left()
    return [call.summary for call in still]


def _left_out(calls: Sequence[Call], outcomes: Sequence[Outcome]) -> bool:
    """True if a call for many queues was not answered well: the call may have reached all, some, or no queues."""
    both = zip(calls, outcomes, strict=True)
    return any(call.phase == BY_PREFIX and not isinstance(outcome, Done) for call, outcome in both)
