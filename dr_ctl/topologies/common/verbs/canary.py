"""A rehearsal sends a few messages through a queue of dr-ctl's own on the real brokers, and cleans up. Each message has
to arrive at the other site, and to leave it once it was acknowledged."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.core.notation import if_known
from dr_ctl.engine.plan import Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.stomp_io.address import Connected, NotPassed, Passed, RoundTrip
from dr_ctl.topologies.common.calls import REHEARSAL, call
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.session import Session
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker, ReplicationScope

MESSAGES: Final = 10
CREATE: Final = "create"
SEND: Final = "send"
TAKE: Final = "take"
LEFT: Final = "it is there then"


def queue_of(site: str) -> str:
    return f"{REHEARSAL}{site}"


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    name, stays = queue_of(move.source), ""
    calls = list[Call]()
    for view in snapshot.views(move.source):
        made = view.requests.canary(name)
        create = [call(view, Goal.CREATE, name, made, f"create {name}")] if made is not None else []
        stays = "; the queue stays for the next rehearsal" if view.link.keeps_queues else ""
        sent = call(view, Goal.CREATE, name, {}, f"send {MESSAGES} messages to {name} as a client")
        taken = call(view, Goal.REMOVE, name, {}, f"take them from {name} as a client")
        calls += [*in_phase(CREATE, create), *in_phase(SEND, [sent]), *in_phase(TAKE, [taken])]
    removals = [
        call for site in (move.source, move.target) for view in snapshot.views(site) for call in removals_of(view, name)
    ]
    carries = next((view.link.carries(name) for view in snapshot.views(move.source)), ReplicationScope.NOTHING)
    seen = f"; each seen at {move.target}" if carries is not ReplicationScope.NOTHING else ""
    seen += "; its acknowledgement seen there" if carries is ReplicationScope.ALL else ""
    summary = f"{MESSAGES} messages through {name} at {move.source}{seen}; no client gets into {move.target}{stays}"
    limits = {"within": step.limits.get("within", rules.timeouts.canary_s)}
    emptied = [
        replace(call, when="messages are left there") for call in in_phase(TAKE, calls) if call.goal is Goal.REMOVE
    ]
    return StepPlan(move.source, summary, (*calls, *removals), inverse=(*emptied, *removals), limits=limits)


def draft_clean(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    calls = [
        removal
        for site in (move.source, move.target)
        for view in snapshot.views(site)
        for name in left_at(view)
        for removal in removals_of(view, name, when=None)
    ]
    return StepPlan(move.source, "queues that rehearsals have left are removed at both sites", tuple(calls))


def left_at(view: Broker) -> Sequence[str]:
    return [] if view.link.keeps_queues else sorted({name for name in view.by_name if name.startswith(REHEARSAL)})


def removals_of(view: Broker, name: str, when: str | None = LEFT) -> list[Call]:
    if view.link.keeps_queues:
        return []
    return [call(view, Goal.DELETE, name, view.requests.remove_queue(name), f"remove {name}", when)]


NAME_STOMP = "Set `stomp:` of each broker: a rehearsal sends and receives as clients do."


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Rehearse pair by pair; the first failure ends the step, and the undo cleans up."""
    link_ends = tools.observer.link_ends(move)
    if lacking := [local for local, _ in link_ends if local.stomp is None]:
        return Failed.of(found("DR-REHEARSE-001.no_address", site=lacking[0].site, pair=lacking[0].pair))
    tools.change(step.phase(CREATE), context)
    pairs: dict[str, Json] = {}
    findings: list[Finding] = []
    for local, peer in link_ends:
        outcome = _Pair(tools, step, context, local, peer).rehearsed()
        if not isinstance(outcome, Done):
            return outcome
        pairs[local.pair] = dict(outcome.evidence)
        findings += outcome.findings
    findings += _removed(tools, step, context, move)
    return Done(f"{MESSAGES} message(s) went the whole path of each pair", {"pairs": pairs}, tuple(findings))


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Take the messages from a queue that has to stay, and remove every other queue."""
    from dr_ctl.stomp_io.client import take  # noqa: PLC0415 - stomp.py is loaded by who needs it

    name = queue_of(move.source)
    for session in tools.observer.at(move.source):
        view = session.read()
        depth = view.by_name[name].depth if name in view.by_name else 0
        if not (view.link.keeps_queues and depth):
            continue

        def empty(calls: Sequence[Call], at: Session[Any] = session, count: int = depth) -> list[Outcome]:
            trip = at.as_client(take, name, token=None, count=count, timeout_s=step.limits["within"])
            return [Done("taken") if isinstance(trip, Passed) else Unknown(if_known(trip)) for _ in calls]

        context.change([call for call in step.inverse if call.phase == TAKE and call.unit == session.pair], empty)
        if (after := session.read().by_name.get(name)) is not None and after.depth:
            return Failed.of(
                found("DR-REHEARSE-002.taken", site=session.site, pair=session.pair, count=after.depth, queue=name)
            )
    left = _removed(tools, step, context, move)
    return Failed(left[0].text, findings=tuple(left)) if left else Done("nothing of the rehearsal is left")


UNDO: Final = Undo(by=undo)


def clean(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views = tools.views(move.source, move.target)
    if not any(left_at(view) for view in views):
        return NotNeeded("no queue of a rehearsal is left at either site")
    tools.change(_existing(step.calls, views), context)
    if left := [f"{view.site}: {name}" for view in tools.views(move.source, move.target) for name in left_at(view)]:
        return Failed.of(found("DR-REHEARSE-002.cleaned", queues=", ".join(left)))
    return Done("no queue of a rehearsal is left at either site")


class _Pair:
    def __init__(
        self, tools: Tools[Broker], step: PlannedStep, context: StepContext, view: Session[Any], peer: Session[Any]
    ) -> None:
        self._tools, self._step, self._context = tools, step, context
        self._local, self._peer = view, peer
        self._name, self._token = queue_of(view.site), uuid.uuid4().hex
        self._within_s = step.limits["within"]
        self._local_name, self._peer_name = f"{view.site}/{view.pair}", f"{peer.site}/{peer.pair}"
        self._took: dict[str, Json] = {}

    def rehearsed(self) -> Outcome:
        from dr_ctl.stomp_io.client import put, take  # noqa: PLC0415 - stomp.py is loaded by who needs it

        timeouts = self._tools.timeouts
        # A fence by rights lets clients log in.
        login_result = self._peer.try_login(timeout_s=timeouts.login_s) if self._peer.fenced_by_listener else None
        if isinstance(login_result, Connected):
            return Failed(f"{self._peer_name} lets a client in, but its flags say that it is closed")
        carries = self._local.last_view().link.carries(self._name)
        failed = (
            self._as_client(SEND, put, "sent_s")
            or (self._wait_for(MESSAGES, "seen_s") if carries is not ReplicationScope.NOTHING else None)
            or self._as_client(TAKE, take, "taken_s")
            or (self._wait_for(0, "settled_s") if carries is ReplicationScope.ALL else None)
        )
        if failed is not None:
            return failed
        listener = "refused" if login_result is not None else "not tried"
        evidence: dict[str, Json] = {"messages": MESSAGES, "listener": listener, **self._took}
        return Done("the messages went the whole path", evidence, self._untested(carries))

    def _as_client(self, part: str, by: Callable[..., RoundTrip], key: str) -> Failed | None:
        """Send or take messages as a client, after the intent is in the journal; return None if all is confirmed."""
        why = NAME_STOMP

        def send(calls: Sequence[Call]) -> list[Outcome]:
            nonlocal why
            how = {"token": self._token, "count": MESSAGES, "timeout_s": self._within_s}
            trip = self._local.as_client(by, self._name, **how)
            if isinstance(trip, Passed):
                self._took[key] = round(trip.took_s, 4)
                return [Done("confirmed") for _ in calls]
            why = trip.because if isinstance(trip, NotPassed) else NAME_STOMP
            return [Unknown(why) for _ in calls]

        self._context.change([call for call in self._step.phase(part) if call.unit == self._local.pair], send)
        return None if key in self._took else Failed(f"{self._local_name}: {why}")

    def _wait_for(self, count: int, key: str) -> Failed | None:
        """Wait until a reading of the queue shows so many messages at the other site."""
        began = self._context.monotonic()

        def read() -> int | None:
            held: int | None = self._peer.read().link.depth_of(self._name)
            return held

        def arrived(held: int | None) -> bool:
            # A queue that the link has removed with its last message holds nothing any more.
            return held == count or (count == 0 and held is None)

        waited = self._context.until(
            read, holds=arrived, within_s=self._within_s, poll_s=self._tools.timeouts.link_poll_s
        )
        if waited.satisfied:
            self._took[key] = round(self._context.monotonic() - began, 4)
            return None
        has, within = "not read" if waited.reading is None else f"{waited.reading} there", f"{self._within_s:g}"
        what = f"{count} message(s) sent to {self._name}" if count else f"the acknowledgements of {self._name}"
        text = f"{self._peer_name}: {what} not seen within {within} s ({has})"
        site, pair, needs = self._peer.site, self._peer.pair, self._setup
        finding = found(
            "DR-REHEARSE-001.not_seen", site=site, pair=pair, what=what, has=has, needs=needs, within=within
        )
        return Failed(text, code=ExitCode.DRAIN_TIMEOUT, findings=(finding,) if count and needs else ())

    @property
    def _setup(self) -> str:
        return str(self._local.last_view().link.rehearsal_setup.format(self._name))

    def _untested(self, carries: ReplicationScope) -> tuple[Finding, ...]:
        if carries is ReplicationScope.ALL:
            return ()
        remedy, left = "", "acknowledgements: consumers record them in id stores"
        if carries is ReplicationScope.NOTHING:
            remedy, left = self._setup, "the path between the sites: no link copies messages"
        remedy = remedy or "A swapover and back, announced to the clients, tests it."
        return (found("DR-REHEARSE-001.left_out", remedy=remedy, broker=self._local_name, part=left),)


def _removed(tools: Tools[Broker], step: PlannedStep, context: StepContext, move: Move) -> list[Finding]:
    """Remove the rehearsal's queues; return findings on those that a late message has created again."""
    removals = [call for call in step.calls if call.goal is Goal.DELETE]

    waited = context.until(
        lambda: _existing(removals, tools.views(move.source, move.target)),
        holds=lambda calls: not calls,
        within_s=tools.timeouts.settle_s,
        poll_s=tools.timeouts.undo_poll_s,
        meanwhile=lambda calls: tools.change(calls, context),
    )
    return [found("DR-REHEARSE-002.removed", site=call.site, queue=call.resource) for call in waited.reading]


def _existing(calls: Sequence[Call], views: Sequence[Broker]) -> list[Call]:
    named = {(view.site, view.pair): view.by_name for view in views}
    return [call for call in calls if call.resource in named.get((call.site, call.unit), {})]
