"""Takes a lost site in again where the plugin joins the sites: messages, then acknowledgements, then what is left.

The plugin starts deliveries by itself when the other site talks to it, so each hold is looked at with every poll, and
made again. What is staged in the end and is not at the returned site any more was done there, and is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.checks import some, warning
from dr_ctl.topologies.artemis.effects import holds, left_of
from dr_ctl.topologies.artemis.operations import CLOSING, RESUME, START, STOP, call, write_document
from dr_ctl.topologies.artemis.papers import DESTROY_QUEUE
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import quarantine_queue
from dr_ctl.topologies.continuity import conserving, returning
from dr_ctl.topologies.continuity.access import Observer, Way
from dr_ctl.topologies.continuity.view import SiteView

POLL_S: Final = 0.1
CALM: Final = 5
# Longer than the bridges confirm late: what lies at one side alone for so long is under way nowhere.
UNCHANGED_S: Final = 2.5

Both = tuple[SiteView, SiteView]


class Reinstating:
    """The verbs of the return, and their inverse. Remembers from `reinstate` to `reconcile`."""

    def __init__(self, observer: Observer, sender: Sender) -> None:
        self._observer, self._sender = observer, sender
        self._recovered: dict[str, list[str]] | None = None
        self._removed: dict[str, int] = {}
        self.verbs: Mapping[str, Act] = {
            "residue": self._count,
            "reinstate": self._reinstate,
            "reconcile": self._reconcile,
        }
        self.inverses: Mapping[str, Act] = {"reinstate": self._put_back}

    def _change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self._sender.send)

    def _make(self, calls: Sequence[Call], move: Move, hand: Hand) -> None:
        """Make those calls whose effect does not hold: a run that is resumed here, or the plugin, has made some."""
        views = self._all(move)
        self._change([each for each in calls if not holds(each, views)], hand)

    def _pairs(self, ways: Sequence[Way]) -> list[Both]:
        told = self._observer.together(lambda access: access.look(), [access for way in ways for access in way])
        return list(zip(told[::2], told[1::2], strict=True))

    def _ways(self, move: Move) -> list[Way]:
        there = self._observer.brokers[move.target]
        return [(here, there[pair]) for pair, here in self._observer.brokers[move.source].items()]

    def _count(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        findings: list[Finding] = []
        if shut := [each for each in step.calls if each.operation in CLOSING]:
            self._change(shut, hand)
            if left := left_of(shut, self._observer.look_at(move.target)):
                return Refused(f"{move.target} could not be fenced: {some(left)}")
            text = f"{move.target} came back open, and was closed: its clients may have worked beside the others'"
            findings.append(warning("DR-RETURN-002", text, "Compare what both sites' clients did meanwhile."))
        views = self._observer.look_at(move.target)
        messages = sum(flow.out_mirror.depth for view in views for flow in view.flows)
        acks = sum(flow.out_acks.depth for view in views for flow in view.flows)
        hand.notice(f"{move.target} still holds {messages} message(s) and {acks} acknowledgement(s) for the other site")
        evidence: dict[str, Json] = {"messages": messages, "acknowledgements": acks}
        return Done(f"{messages} message(s) and {acks} acknowledgement(s)", evidence, tuple(findings))

    # reinstate

    def _reinstate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        if returning.nothing_owed(self._observer.observe(), move):
            self._recovered = {}
            return NotNeeded(f"{move.target} is taken in already")
        calls = _Calls(step, move)
        # Where all messages are in already, as after a crash, no acknowledgement can overtake one.
        behind = {
            view.pair for view in self._observer.look_at(move.target) if any(f.out_mirror.depth for f in view.flows)
        }
        held = [*calls.hold_delivery, *(each for each in calls.hold_acks if each.pair in behind)]
        self._make(held, move, hand)
        self._change(calls.forget, hand)
        if left := left_of(held, self._all(move)):
            return Refused(f"has not come true: {some(left)}")
        self._make(calls.doors, move, hand)
        if (late := self._until(_messages_in, calls.hold_delivery, step, move, hand)) is not None:
            return late
        self._make(calls.ship_acks, move, hand)
        if (late := self._until(_acks_in, calls.hold_delivery, step, move, hand)) is not None:
            return late
        if (refused := self._remove_done(move, hand)) is not None:
            return refused
        text = f"{self._number} message(s) recovered: a client at {move.target} may have done some of them, unrecorded"
        hand.notice(text)
        self._make([*calls.deliver, *calls.talk, *calls.strikes], move, hand)
        views = self._all(move)
        if left := left_of([*calls.deliver, *calls.talk], views):
            return Refused(f"has not come true: {some(left)}")
        if owed := [each.about for each in calls.strikes if any(each.arguments[0] in view.documents for view in views)]:
            return Refused(f"has not come true: {some(owed)}")
        ids: dict[str, Json] = {name: [*each] for name, each in (self._recovered or {}).items()}
        evidence: dict[str, Json] = {"recovered": self._number, "ids": ids, "removed": dict(self._removed)}
        return Done(text, evidence)

    @property
    def _number(self) -> int | None:
        return sum(len(ids) for ids in self._recovered.values()) if self._recovered is not None else None

    def _all(self, move: Move) -> list[SiteView]:
        return [*self._observer.look_at(move.source), *self._observer.look_at(move.target)]

    def _until(
        self, why: Callable[[Both], list[str]], holds: Sequence[Call], step: PlannedStep, move: Move, hand: Hand
    ) -> Refused | None:
        """Wait until nothing keeps it from going on, several polls in a row; what is to be held is held again."""
        until = hand.monotonic() + step.limits["within"]
        calm = 0
        while True:
            pairs = self._pairs(self._ways(move))
            reasons = [reason for both in pairs for reason in why(both)]
            again = [each for each in holds if left_of([each], [view for both in pairs for view in both])]
            if again:
                self._change(again, hand)
                reasons.append(f"{move.source} had begun to deliver again")
            left = sum((there.to_ship or 0) + here.unapplied for here, there in pairs)
            hand.waiting(f"of {move.target}'s residue under way", left, some(reasons) if reasons else None)
            calm = 0 if reasons else calm + 1
            if calm >= CALM:
                return None
            if hand.monotonic() > until:
                text = f"{move.target} is not taken in after {duration(step.limits['within'])}: {some(reasons)}"
                return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
            hand.wait(POLL_S)

    def _remove_done(self, move: Move, hand: Hand) -> Refused | None:
        """What is staged and is not at the returned site any more was acknowledged there, or here."""
        self._recovered = {}
        for (here, there), (serving, returned) in zip(self._ways(move), self._pairs(self._ways(move)), strict=True):
            flows = [flow for flow in serving.flows if flow.in_mirror.depth]
            staged = conserving.ids(here.reader(), [flow.in_mirror for flow in flows])
            still = conserving.ids(there.reader(), [returned.business[flow.queue] for flow in flows])
            for flow, mine, theirs in zip(flows, staged, still, strict=True):
                if mine is None or theirs is None:
                    text = f"{flow.queue}: who its messages are could not be read at both sites"
                    return Refused(f"{text}: nothing of {move.target} was delivered")
                self._recovered[flow.queue] = sorted(mine & theirs)
                if done := mine - theirs:
                    self._change(list(conserving.remove(serving, flow.in_mirror, done)), hand)
                    self._removed[flow.queue] = len(done)
        return None

    def _put_back(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._all(move)
        calls = [each for each in step.inverse if left_of([each], views)]
        if not calls:
            return NotNeeded("as it was")
        self._change(calls, hand)
        left = left_of(calls, self._all(move))
        return Refused(f"has not come true: {some(left)}") if left else Done("as it was")

    # reconcile

    def _reconcile(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Take out of the way what lies only at the returned site: done by a client whose acknowledgement is gone."""
        del step
        first = self._only_there(move)
        since = hand.monotonic()
        while first and hand.monotonic() - since < UNCHANGED_S:
            hand.wait(POLL_S)
        now = self._only_there(move) if first else {}
        left = {key: now[key] & ids for key, ids in first.items() if key in now and now[key] & ids}
        moved: dict[str, Json] = {}
        for (pair, queue), ids in left.items():
            view = self._observer.brokers[move.target][pair].look()
            name = quarantine_queue(view.site, queue)
            kept = write_document(view, view.keeping.keep(name), f"create {name} at {view.site}")
            made = [] if any(each.name == name for each in view.queues) else [kept]
            self._change([*made, *_moves(view, queue, ids, name)], hand)
            after = conserving.present(self._observer.brokers[move.target][pair].reader(), [view.business[queue]])[0]
            if stayed := ids & after:
                return Refused(f"{len(stayed)} message(s) of {queue} could not be moved to {name}")
            moved[name] = len(ids)
        findings: list[Finding] = []
        if moved:
            number = sum(len(ids) for ids in left.values())
            text = f"{number} message(s) that lay only at {move.target} moved to {some(list(moved))}"
            remedy = "Look at them there: each was done already, or never; move back by hand what was not."
            findings.append(warning("DR-RECONCILE-002", text, remedy))
        told = "how many were recovered is not known" if self._number is None else f"{self._number} recovered"
        return Done(f"{told}; {len(moved)} queue(s) with something left over", {"quarantined": moved}, tuple(findings))

    def _only_there(self, move: Move) -> dict[tuple[str, str], frozenset[str]]:
        """The messages of each queue that only the returned site has."""
        found = {}
        for (here, there), (serving, returned) in zip(self._ways(move), self._pairs(self._ways(move)), strict=True):
            names = [flow.queue for flow in returned.flows if returned.business[flow.queue].depth]
            mine = conserving.present(there.reader(), [returned.business[name] for name in names])
            queues = [serving.business[name] for name in names]
            flows = [flow for name in names if (flow := serving.flow(name)) is not None]
            theirs = conserving.present(here.reader(), queues)
            staged = conserving.present(here.reader(), [flow.in_mirror for flow in flows])
            for name, ours, others, more in zip(names, mine, theirs, staged, strict=True):
                if only := ours - others - more:
                    found[serving.pair, name] = only
        return found


class _Calls:
    """The planned calls of a reinstatement by what they are for."""

    def __init__(self, step: PlannedStep, move: Move) -> None:
        here = [each for each in step.calls if each.site == move.source]
        there = [each for each in step.calls if each.site == move.target]
        self.hold_delivery = [each for each in here if each.operation == STOP]
        self.hold_acks = [each for each in there if each.operation == STOP]
        self.forget = [each for each in step.calls if each.operation == returning.REMOVE_ALL]
        self.doors = [each for each in step.calls if each.operation == START and "component=acceptors" in each.bean]
        self.ship_acks = [each for each in there if each.operation == START and each not in self.doors]
        self.deliver = [each for each in here if each.operation == START and each not in self.doors]
        self.talk = [each for each in here if each.operation == RESUME]
        self.strikes = [each for each in step.calls if each.operation == DESTROY_QUEUE]


def _messages_in(both: Both) -> list[str]:
    """What keeps the messages of the returned site from being in."""
    here, there = both
    found = [f"{flow.out_mirror.depth} in {flow.out_mirror.name}" for flow in there.flows if flow.out_mirror.depth]
    found += [f"{flow.mirror_bridge.name} is not connected" for flow in there.flows if not flow.out_mirror.consumers]
    return found + [f"a bridge of {here.site} is not connected" for _ in range(not here.attached)]


def _acks_in(both: Both) -> list[str]:
    """What keeps what was acknowledged, at either site, from being applied at the other."""
    here, there = both
    found = _messages_in(both)
    found += [f"{flow.out_acks.depth} in {flow.out_acks.name}" for flow in there.flows if flow.out_acks.depth]
    found += [f"{flow.in_acks.depth} in {flow.in_acks.name}" for flow in here.flows if flow.in_acks.depth]
    return found + [f"{f.in_mirror.scheduled} in {f.in_mirror.name} wait" for f in here.flows if f.in_mirror.scheduled]


def _moves(view: SiteView, queue: str, ids: frozenset[str], name: str) -> list[Call]:
    listed, bean = sorted(ids), view.business[queue].bean
    batches = [listed[start : start + conserving.BATCH] for start in range(0, len(listed), conserving.BATCH)]
    return [
        call(view, bean, conserving.MOVE_ALL, (conserving.chosen(each), name), f"move {len(each)} of {queue} to {name}")
        for each in batches
    ]
