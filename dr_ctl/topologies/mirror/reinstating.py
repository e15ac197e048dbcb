"""Acts on a mirrored pair whose lost site is back: counts its residue, and lets it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.effects import holds, left_of
from dr_ctl.topologies.artemis.queues import selected
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.mirror import parity, returning
from dr_ctl.topologies.mirror.access import Observer, Way
from dr_ctl.topologies.mirror.browsing import Origin, Residue, origin_ids, residue
from dr_ctl.topologies.mirror.links import Flows
from dr_ctl.topologies.mirror.recipe import MirrorRecipe
from dr_ctl.topologies.mirror.reconciling import Reconciling, TakenIn
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl.topologies.mirror.waiting import PairWait, until_all

CALM: Final = 5
# The serving site's producers go on: what they send is under way all the time, and is no residue.
SMALL: Final = 500


@dataclass
class _Taken:
    """One pair before its residue is let in. None: a queue too deep to look at each message, a residue not counted."""

    before: Mapping[str, frozenset[Origin] | None]
    removed: int
    residue: Residue | None


class Reinstating:
    """The verbs of the return, and their inverse. Remembers from `residue` to `reconcile`."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self._residue: dict[str, Residue] = {}
        self.result = TakenIn()
        reconciling = Reconciling(observer, recipe, sender, self.result)
        self.verbs: Mapping[str, Act] = {
            "residue": self._count,
            "reinstate": self._reinstate,
            "reconcile": reconciling.reconcile,
        }
        self.inverses: Mapping[str, Act] = {"reinstate": self._put_back}

    # residue

    def _count(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        findings: list[Finding] = []
        views = self._observer.look_at(move.target)
        if shut := [call for call in step.calls if not holds(call, views)]:
            hand.change(shut, self._sender.send)
            views = self._observer.look_at(move.target)
            if left := left_of(shut, views):
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
            self._residue[access.pair] = residue(access.reader(), access.look())
        messages = sum(each.messages for each in self._residue.values())
        others = sum(each.acks for each in self._residue.values())
        hand.notice(
            f"{move.target} still holds {messages} message(s) and {others} acknowledgement(s) for the other site"
        )
        evidence: dict[str, Json] = {"messages": messages, "acknowledgements": others}
        return Done(f"{messages} message(s) and {others} acknowledgement(s)", evidence, tuple(findings))

    # reinstate

    def _reinstate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        if returning.nothing_owed(self._observer.observe(), move):
            # Its process may have died right after it had struck out the debts: delivery is not paused once more.
            if all(not each.messages and not each.acks for each in self._residue.values()):
                self.result.begin()
            return NotNeeded(f"{move.target} is taken in already")
        pauses, opens, resumes, strikes = (step.part(name) for name in ("hold", "let in", "deliver", "strikes"))
        views = self._observer.look_at(move.source)
        hand.change([call for call in pauses if not holds(call, views)], self._sender.send)
        views = self._observer.look_at(move.source)
        if left := [queue.name for view in views for queue in view.business.values() if not queue.paused]:
            return Refused(f"could not pause {checks.some(left)}")
        taken = {view.pair: self._before(view) for view in views}
        hand.change(opens, self._sender.send)
        sites = self._observer.brokers
        waits = [
            _Residue((access, sites[move.target][pair]), self._recipe, self._sender, hand, step, move)
            for pair, access in sites[move.source].items()
        ]
        about = f"of {move.target}'s residue under way"
        if (failed := until_all(self._observer, waits, hand, about, self._recipe.poll_s)) is not None:
            return failed
        self.result.begin()
        for view in self._observer.look_at(move.source):
            self._compare(view, taken[view.pair])
        hand.change([*resumes, *strikes], self._sender.send)
        views = self._observer.look_at(move.source)
        left = left_of(resumes, views)
        if left:
            return Refused(f"has not come true: {checks.some(left)}")
        views += self._observer.look_at(move.target)
        if owed := left_of(strikes, views):
            return Refused(f"has not come true: {checks.some(owed)}")
        return Done(self.result.text, self.result.as_json())

    def _before(self, view: BrokerView) -> _Taken:
        removed = sum(queue.removed for queue in view.business.values())
        return _Taken(self._origins(view), removed, self._residue.get(view.pair))

    def _origins(self, view: BrokerView) -> dict[str, frozenset[Origin] | None]:
        """Who the messages of each queue are; None of one that is too deep to look at each."""
        chosen = selected(view, self._observer.queues)
        shallow = [queue for queue in chosen.values() if queue.depth <= parity.ORIGINS_UP_TO]
        reader = self._observer.brokers[view.site][view.pair].reader()
        ids = origin_ids(reader, view, shallow, limit=parity.ORIGINS_UP_TO)
        return {**dict.fromkeys(chosen), **{queue.name: each for queue, each in zip(shallow, ids, strict=True)}}

    def _compare(self, view: BrokerView, taken: _Taken) -> None:
        """Nothing was delivered meanwhile: what is new and was not born here came out of the residue; what had been
        acknowledged there and was not here any more came twice, unless its acknowledgement had been applied before."""
        for name, ids in self._origins(view).items():
            was = taken.before.get(name, frozenset())  # a queue that came with the residue was not there
            if ids is None or was is None:
                self.result.not_read.append(name)
            else:
                self.result.add_recovered(name, [each for each in ids - was if each[0] != view.node])
        applied = sum(queue.removed for queue in view.business.values()) - taken.removed
        if taken.residue is None:
            self.result.acks = None
        elif taken.residue.acked is None:
            self.result.add_acks(max(0, taken.residue.acks - applied))
            self.result.acks_by_id = None
        else:
            for name, acked in taken.residue.acked.items():
                self.result.add_acked(name, acked - (taken.before.get(name) or frozenset()))

    def _put_back(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.source)
        calls = [call for call in step.inverse if not holds(call, views)]
        if not calls:
            return NotNeeded("as it was")
        hand.change(calls, self._sender.send)
        views = self._observer.look_at(move.source)
        left = left_of(calls, views)
        return Refused(f"has not come true: {checks.some(left)}") if left else Done("as it was")


class _Residue(PairWait):
    """Until nothing of the residue is under way, several polls in a row."""

    def __init__(
        self, way: Way, recipe: MirrorRecipe, sender: Sender, hand: Hand, step: PlannedStep, move: Move
    ) -> None:
        self._move, self._within_s, self._calm = move, step.limits["within"], 0
        super().__init__(way, recipe, sender, hand)

    def left(self, now: Flows) -> int | None:
        """How much of the residue is under way; None where a link is not attached or a broker does not answer."""
        here, there = now[self._move.source], now[self._move.target]
        if isinstance(here, BrokerError) or isinstance(there, BrokerError) or not (here.attached and there.attached):
            return None
        backlog = here.outflow if here.outflow > SMALL else 0
        return there.outflow + there.outflow_delivering + here.pending_acks + backlog

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        self._calm = self._calm + 1 if self.left(now) == 0 else 0
        if self._calm >= CALM:
            return Done("nothing of the residue is under way")
        took = hand.monotonic() - self.began
        if took <= self._within_s:
            return None
        why = self.why(now, hand) or "it moves too slowly"
        text = f"{self._move.target} is not taken in after {duration(took)}: {why}"
        return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
