"""Acts on a mirrored pair whose lost site is back: counts its residue, lets it in, compares."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.mirror import checks, parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.links import Flows, Mender, flows, why_not_moving
from dr_ctl.topologies.mirror.look import Origin, count_residue, origin_ids
from dr_ctl.topologies.mirror.operations import CREATE_QUEUE, DESTROY_QUEUE, PAUSE_LASTING, RESUME
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.sending import Sender
from dr_ctl.topologies.mirror.view import BrokerView

CALM: Final = 5
# The serving site's producers go on: what they send is under way all the time, and is no residue.
SMALL: Final = 500
UNCHANGED_S: Final = 2.0

Act = Callable[[PlannedStep, Move, Hand], Outcome]


@dataclass
class _Taken:
    """One pair before its residue is let in. None: a queue too deep to look at each message, a residue not counted."""

    before: Mapping[str, frozenset[Origin] | None]
    removed: int
    acks: int | None


class Reinstating:
    """The verbs of the return, and their inverse. Remembers from `residue` to `reconcile`."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self._residue: dict[str, tuple[int, int]] = {}
        self._recovered: dict[str, list[str]] | None = None
        self._not_read: list[str] = []
        self._unapplied: int | None = None
        self.verbs: Mapping[str, Act] = {
            "residue": self._count,
            "reinstate": self._reinstate,
            "reconcile": self._reconcile,
        }
        self.inverses: Mapping[str, Act] = {"reinstate": self._put_back}

    # residue

    def _count(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        findings: list[Finding] = []
        views = self._observer.look_at(move.target)
        if shut := [call for call in step.calls if _open(call, views)]:
            hand.change(shut, self._sender.send)
            views = self._observer.look_at(move.target)
            if left := [call.about for call in shut if _open(call, views)]:
                return Refused(f"{move.target} could not be fenced: {checks.some(left)}")
            done = [
                f"{queue.name}: {queue.added} added, {queue.acked} acknowledged"
                for view in views
                for queue in view.business.values()
                if queue.added or queue.acked
            ]
            told = checks.some(done) or "nothing came or went"
            text = f"{move.target} came back open; since its start, by its clients and by the mirror: {told}"
            remedy = "Its clients may have worked beside those of the other site: compare what they did."
            findings.append(checks.warning("DR-RETURN-002", text, remedy))
        for access in self._observer.at(move.target):
            self._residue[access.pair] = count_residue(access.reader(), access.look())
        messages = sum(count for count, _ in self._residue.values())
        others = sum(count for _, count in self._residue.values())
        hand.notice(
            f"{move.target} still holds {messages} message(s) and {others} acknowledgement(s) for the other site"
        )
        evidence: dict[str, Json] = {"messages": messages, "acknowledgements": others}
        return Done(f"{messages} message(s) and {others} acknowledgement(s)", evidence, tuple(findings))

    # reinstate

    def _reinstate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        pauses = [call for call in step.calls if call.operation == PAUSE_LASTING]
        resumes = [call for call in step.calls if call.operation == RESUME]
        strikes = [call for call in step.calls if call.operation == DESTROY_QUEUE]
        opens = [call for call in step.calls if call not in (*pauses, *resumes, *strikes)]
        views = self._observer.look_at(move.source)
        paused = {queue.bean for view in views for queue in view.queues if queue.paused}
        hand.change([call for call in pauses if call.bean not in paused], self._sender.send)
        views = self._observer.look_at(move.source)
        if left := [queue.name for view in views for queue in view.business.values() if not queue.paused]:
            return Refused(f"could not pause {checks.some(left)}")
        taken = {view.pair: self._before(view) for view in views}
        hand.change(opens, self._sender.send)
        for pair in taken:
            brokers = [self._observer.brokers[site][pair] for site in (move.source, move.target)]
            if (outcome := self._drain(brokers, step, move, hand)) is not None:
                return outcome
        self._recovered, self._unapplied = {}, 0
        for view in self._observer.look_at(move.source):
            self._compare(view, taken[view.pair], self._recovered)
        hand.change([*resumes, *strikes], self._sender.send)
        views = self._observer.look_at(move.source)
        left = [queue.name for view in views for queue in view.queues for call in resumes
                if call.bean == queue.bean and queue.paused]  # fmt: skip
        if left:
            return Refused(f"still paused: {checks.some(left)}")
        views += self._observer.look_at(move.target)
        if owed := [call.about for call in strikes if any(call.arguments[0] in view.documents for view in views)]:
            return Refused(f"has not come true: {checks.some(owed)}")
        return Done(self._told(), {"recovered": self._count_of_recovered(), "ids": self._ids()})

    def _before(self, view: BrokerView) -> _Taken:
        counted = self._residue.get(view.pair)
        removed = sum(queue.removed for queue in view.business.values())
        return _Taken(self._origins(view), removed, counted[1] if counted is not None else None)

    def _origins(self, view: BrokerView) -> dict[str, frozenset[Origin] | None]:
        """Who the messages of each queue are; None of one that is too deep to look at each."""
        chosen = parity.selected(view, self._observer.queues)
        shallow = [queue for queue in chosen.values() if queue.depth <= parity.ORIGINS_UP_TO]
        reader = self._observer.brokers[view.site][view.pair].reader()
        ids = origin_ids(reader, view, shallow, limit=parity.ORIGINS_UP_TO)
        return {**dict.fromkeys(chosen), **{queue.name: each for queue, each in zip(shallow, ids, strict=True)}}

    def _compare(self, view: BrokerView, taken: _Taken, recovered: dict[str, list[str]]) -> None:
        """Nothing was delivered meanwhile: what is new and was not born here came out of the residue."""
        for name, ids in self._origins(view).items():
            was = taken.before.get(name, frozenset())  # a queue that came with the residue was not there
            if ids is None or was is None:
                self._not_read.append(name)
            elif new := sorted(f"{born}:{number}" for born, number in ids - was if born != view.node):
                recovered[name] = recovered.get(name, []) + new
        applied = sum(queue.removed for queue in view.business.values()) - taken.removed
        if taken.acks is None or self._unapplied is None:
            self._unapplied = None
        else:
            self._unapplied += max(0, taken.acks - applied)

    def _ids(self) -> dict[str, Json]:
        return {name: list(ids) for name, ids in (self._recovered or {}).items()}

    def _count_of_recovered(self) -> int | None:
        """None where it is not known: of a queue too deep to look at each, or taken in by a process that is gone."""
        if self._recovered is None or self._not_read:
            return None
        return sum(len(ids) for ids in self._recovered.values())

    def _told(self) -> str:
        if self._recovered is None:
            return "how many messages were recovered is not known: they were let in by an earlier process"
        seen = sum(len(ids) for ids in self._recovered.values())
        if self._not_read:
            return f"at least {seen} message(s) recovered; too deep to look at each: {checks.some(self._not_read)}"
        return f"{seen} message(s) recovered"

    def _drain(self, brokers: Sequence[Access], step: PlannedStep, move: Move, hand: Hand) -> Outcome | None:
        """Wait until nothing of the residue is under way; None when it is so."""
        mender = Mender(self._recipe, self._sender, brokers)
        began, calm = hand.monotonic(), 0
        while True:
            now = flows(self._observer, brokers)
            left = _left(now, move)
            hand.waiting(f"of {move.target}'s residue under way", left or 0, why_not_moving(now))
            calm = calm + 1 if left == 0 else 0
            if calm >= CALM:
                return None
            took = hand.monotonic() - began
            if took > step.limits["within"]:
                why = why_not_moving(now) or "it moves too slowly"
                return Refused(
                    f"{move.target} is not taken in after {duration(took)}: {why}", code=ExitCode.DRAIN_TIMEOUT
                )
            mender.tend(now, hand)
            hand.wait(self._recipe.poll_s)

    def _put_back(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.source)
        calls = [call for call in step.inverse if not _as_before(call, views)]
        if not calls:
            return NotNeeded("as it was")
        hand.change(calls, self._sender.send)
        views = self._observer.look_at(move.source)
        left = [call.about for call in calls if not _as_before(call, views)]
        return Refused(f"has not come true: {checks.some(left)}") if left else Done("as it was")

    # reconcile

    def _reconcile(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Both sites hold the same, up to what is under way; what differs for longer is named."""
        del step
        since = hand.monotonic()
        while True:
            seen = self._observer.observe()
            wrong = [
                each
                for pair in seen.sites[move.source]
                if (here := seen.view(move.source, pair)) and (there := seen.view(move.target, pair))
                for each in parity.unexplained(here, there, self._observer.queues, seen.moved.get(pair, {}))
            ]
            if not wrong or hand.monotonic() - since > UNCHANGED_S:
                break
            hand.wait(self._recipe.poll_s)
        told = [each.told(move.source, move.target) for each in wrong]
        findings: list[Finding] = []
        if told:
            text = f"left over at one side: {checks.some(told)}"
            findings.append(checks.warning("DR-RECONCILE-001", text, "Compare these queues before moving back."))
        text = self._told()
        if self._unapplied:
            text += f"; {self._unapplied} acknowledgement(s) found no message: it was gone before, or it has come twice"
        left_over: list[Json] = [*told]
        evidence: dict[str, Json] = {
            "recovered": self._count_of_recovered(),
            "acknowledgements_without_message": self._unapplied,
            "left_over": left_over,
            "ids": self._ids(),
        }
        return Done(text, evidence, tuple(findings))


def _left(now: Flows, move: Move) -> int | None:
    """How much of the residue is under way; None where a link is not attached or a broker does not answer."""
    here, there = now[move.source], now[move.target]
    if isinstance(here, BrokerError) or isinstance(there, BrokerError) or not (here.attached and there.attached):
        return None
    backlog = here.outflow if here.outflow > SMALL else 0
    return there.outflow + there.outflow_delivering + here.pending_acks + backlog


def _open(call: Call, views: Iterable[BrokerView]) -> bool:
    return any(door.bean == call.bean and door.started for view in views for door in view.acceptors)


def _as_before(call: Call, views: Iterable[BrokerView]) -> bool:
    if call.operation == RESUME:
        return not any(queue.bean == call.bean and queue.paused for view in views for queue in view.queues)
    if call.operation == CREATE_QUEUE:
        return any(json.loads(str(call.arguments[0]))["name"] in view.documents for view in views)
    return not _open(call, views)
