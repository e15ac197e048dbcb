"""Takes a lost site in again where the plugin joins the sites: messages, then acknowledgements, then what is left.

The plugin starts deliveries by itself when the other site talks to it, so each hold is looked at with every poll, and
made again. What is staged in the end and is not at the returned site any more was done there, and is removed. Nothing
of it is ever delivered that was not compared, not by an undo either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.artemis.checks import some, warning
from dr_ctl.topologies.artemis.effects import holds, left_of
from dr_ctl.topologies.artemis.operations import call, request, write_document
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import quarantine_queue
from dr_ctl.topologies.continuity import conserving, returning
from dr_ctl.topologies.continuity.access import Access, Observer, Way
from dr_ctl.topologies.continuity.view import Held, SiteView

POLL_S: Final = 0.1
CALM: Final = 5
# Longer than the bridges confirm late: what lies at one side alone for so long is under way nowhere.
UNCHANGED_S: Final = 2.5
# How long ids may contradict the counts beside them: consumers of the serving site go on working.
COMPARED_S: Final = 15.0

Both = tuple[SiteView, SiteView]


class Reinstating:
    """The verbs of the return, and their inverse. Remembers from `reinstate` to `reconcile`."""

    def __init__(self, observer: Observer, sender: Sender) -> None:
        self._observer, self._sender = observer, sender
        self._recovered: dict[str, set[str]] = {}
        self._removed: dict[str, set[str]] = {}
        self._compares = False
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
        if shut := step.calls:
            self._change(shut, hand)
            if left := left_of(shut, self._observer.look_at(move.target)):
                return Refused(f"{move.target} could not be fenced: {some(left)}")
            text = f"{move.target} came back open, and was closed: its clients may have worked beside the others'"
            findings.append(warning("DR-RETURN-002", text, "Compare what both sites' clients did meanwhile."))
        told = sum((self._held(access) for access in self._observer.at(move.target)), Held())
        text = f"{told.messages} message(s) and {told.acks} acknowledgement(s)"
        hand.notice(f"{move.target} still holds {text} for the other site; at most {told.twice} come twice")
        return Done(f"{text}; at most {told.twice} come twice", told.as_json(), tuple(findings))

    def _held(self, access: Access) -> Held:
        """What a closed broker still holds for its peer; by their ids, which of the messages to ship lie in their queue
        without an acknowledgement. Where the ids cannot be had the counts bound it."""
        view = access.look()
        counted = view.held
        flows = [flow for flow in view.flows if flow.out_mirror.depth and flow.queue in view.business]
        queues = [queue for flow in flows for queue in (flow.out_mirror, view.business[flow.queue])]
        if any(queue.depth > conserving.IDS_UP_TO for queue in queues):
            return counted
        ids = conserving.ids(access.reader(), queues)
        twice = 0
        for to_ship, there in zip(ids[::2], ids[1::2], strict=True):
            if to_ship is None or there is None:
                return counted
            twice += len(to_ship & there)
        return Held(counted.messages, counted.acks, twice)

    # reinstate

    def _reinstate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        if returning.nothing_owed(self._observer.observe(), move):
            self._compares = True
            return NotNeeded(f"{move.target} is taken in already")
        # Where all messages are in, as of a run that is resumed, its acknowledgements may come.
        behind = _to_ship(self._observer.look_at(move.target))
        held = [
            *step.part("hold"),
            *(each for each in step.part("hold acks") if (each.pair, each.thing) in behind),
        ]
        forget = step.part("forget")
        self._make(held, move, hand)
        self._change(forget, hand)
        views = self._all(move)
        if left := [*left_of(held, views), *_not_forgotten(forget, views)]:
            return Refused(f"has not come true: {some(left)}")
        if (refused := self._bring_in(step, move, hand)) is not None:
            return refused
        text = f"{self._number} message(s) recovered: a client at {move.target} may have done some of them, unrecorded"
        hand.notice(text)
        last = [*step.part("deliver"), *step.part("talk"), *step.part("strikes")]
        self._make(last, move, hand)
        if left := left_of(last, self._all(move)):
            return Refused(f"has not come true: {some(left)}")
        ids: dict[str, Json] = {name: [*sorted(each)] for name, each in self._recovered.items()}
        removed: dict[str, Json] = {name: len(each) for name, each in self._removed.items()}
        evidence: dict[str, Json] = {"recovered": self._number, "ids": ids, "removed": removed}
        return Done(text, evidence)

    def _bring_in(self, step: PlannedStep, move: Move, hand: Hand) -> Refused | None:
        """Messages, then acknowledgements, then away with what was done; nothing of it is delivered yet."""
        hold, ship_acks = step.part("hold"), step.part("ship acks")
        self._make(step.part("doors"), move, hand)
        applied = {pair: _Applied() for pair in self._observer.brokers[move.source]}
        if (late := self._until(_messages_in, hold, step, move, hand)) is not None:
            return late
        self._make(ship_acks, move, hand)
        if left := left_of(ship_acks, self._all(move)):
            return Refused(f"has not come true: {some(left)}")

        def all_applied(both: Both) -> list[str]:
            return [*_acks_in(both), *applied[both[0].pair].why_not(both)]

        if (late := self._until(all_applied, hold, step, move, hand)) is not None:
            return late
        return self._remove_done(move, hand)

    @property
    def _number(self) -> int | None:
        """How many were recovered; None where no `reinstate` of this command has compared them."""
        return sum(len(ids) for ids in self._recovered.values()) if self._compares else None

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
        """What is staged and is not at the returned site any more was acknowledged there, or here; what lies in the
        queue as well is there twice. None once all that is staged was never done, as far as anybody can know."""
        self._recovered, self._removed = {}, {}
        until = hand.monotonic() + COMPARED_S
        for way in self._ways(move):
            while (why := self._compared(way, hand)) is not None:
                if hand.monotonic() > until:
                    return Refused(f"{why}: nothing of {move.target} was delivered")
                hand.wait(POLL_S)
        self._compares = True
        return None

    def _compared(self, way: Way, hand: Hand) -> str | None:
        """One try at one pair: remove what must not be delivered. Says what is still staged that must not be, or could
        not be read."""
        [(serving, returned)] = self._pairs([way])
        here, there = way
        flows = [flow for flow in serving.flows if flow.in_mirror.depth]
        names = [flow.queue for flow in flows]
        staged = conserving.ids(here.reader(), [flow.in_mirror for flow in flows])
        still = conserving.present(there.reader(), [returned.business[name] for name in names])
        lying = conserving.present(here.reader(), [serving.business[name] for name in names])
        later = there.look()
        found: dict[str, frozenset[str]] = {}
        surplus: dict[str, frozenset[str]] = {}
        for flow, mine, theirs, ours in zip(flows, staged, still, lying, strict=True):
            # It may grow less meanwhile: consumers of the serving site go on, and their acknowledgements come in.
            depths = returned.business[flow.queue].depth, later.business[flow.queue].depth
            if mine is None or not depths[1] <= len(theirs) <= depths[0]:
                return f"{flow.queue}: who its messages are could not be read at both sites"
            found[flow.queue] = (mine & theirs) - ours
            surplus[flow.queue] = mine - found[flow.queue]
        for flow in flows:
            if gone := surplus[flow.queue]:
                self._change(list(conserving.remove(serving, flow.in_mirror, gone)), hand)
                self._removed.setdefault(flow.queue, set()).update(gone)
        if any(surplus.values()):  # and look again whether it is gone
            return f"{some([name for name, ids in surplus.items() if ids])}: what was done there is still staged"
        for name, ids in found.items():
            self._recovered.setdefault(name, set()).update(ids)
        return None

    def _put_back(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Shut the way first, then compare: what came in and was done there must not be delivered now either. One that
        is away again can neither be compared with nor be put back: what came in stays held."""
        there = {(view.site, view.pair) for view in self._answering(move)}
        inverse = [each for each in step.inverse if each.goal is not Goal.REMOVE and (each.site, each.pair) in there]
        if not left_of(inverse, self._answering(move)):
            return NotNeeded("as it was")
        shut = [each for each in inverse if each.goal is Goal.CLOSE]
        self._change(shut, hand)
        views = self._answering(move)
        if left := left_of(shut, views):
            return Refused(f"has not come true: {some(left)}")
        flows = [flow for view in views if view.site == move.source for flow in view.flows]
        try:
            held = self._remove_done(move, hand) if any(flow.in_mirror.depth for flow in flows) else None
        except BrokerError as error:
            held = Refused(f"{error}: what came in of {move.target} stays staged, and is not delivered")
        if held is not None:
            inverse = [each for each in inverse if each.part != "deliver"]
        self._change([each for each in inverse if left_of([each], views)], hand)
        left = left_of(inverse, self._answering(move))
        return held or (Refused(f"has not come true: {some(left)}") if left else Done("as it was"))

    def _answering(self, move: Move) -> list[SiteView]:
        """The serving brokers, which must answer, and those of the returned ones that do."""
        return [*self._observer.look_at(move.source), *self._observer.look_once().views(move.target)]

    # reconcile

    def _reconcile(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Take out of the way what lies only at the returned site: done by a client whose acknowledgement is gone.

        What the serving site's consumers acknowledged lies only there as well, until that is applied."""
        first = self._only_there(move)
        since = hand.monotonic()
        applied = {pair: _Applied() for pair in self._observer.brokers[move.source]}
        while first:
            hand.wait(POLL_S)
            took = hand.monotonic() - since
            under_way = [why for both in self._pairs(self._ways(move)) for why in applied[both[0].pair].why_not(both)]
            if under_way and took > step.limits["within"]:
                return Refused(f"not compared after {duration(took)}: {some(under_way)}", code=ExitCode.DRAIN_TIMEOUT)
            if took >= UNCHANGED_S and not under_way:
                break
        now = self._only_there(move) if first else {}
        left = {key: now[key] & ids for key, ids in first.items() if key in now and now[key] & ids}
        moved: dict[str, Json] = {}
        for (pair, queue), ids in left.items():
            view = self._observer.brokers[move.target][pair].look()
            name = quarantine_queue(view.site, queue)
            kept = write_document(view, name, view.keeping.keep(name), f"create {name} at {view.site}")
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


@dataclass
class _Applied:
    """Whether all that the serving site's consumers had acknowledged at the first look is applied at the returned one.

    By counters: under load neither queue is ever seen empty. First what was to be shipped then, after that what had
    arrived when it was."""

    _shipped: dict[str, int] = field(default_factory=dict)
    _arrived: dict[str, int] = field(default_factory=dict)

    def why_not(self, both: Both) -> list[str]:
        here, there = both
        found = []
        for flow in here.flows:
            other = there.flow(flow.queue)
            to = self._shipped.setdefault(flow.queue, flow.acks_bridge.acked + flow.out_acks.depth)
            if other is None or flow.acks_bridge.acked < to:
                found.append(f"{flow.out_acks.name} of {here.site} is not shipped")
            elif other.in_acks.acked < self._arrived.setdefault(flow.queue, other.in_acks.added):
                found.append(f"{other.in_acks.name} of {there.site} is not applied")
        return found


def _to_ship(views: Sequence[SiteView]) -> set[tuple[str, str]]:
    """The bridges of acknowledgements whose messages are not all shipped, by pair and name."""
    return {(view.pair, flow.acks_bridge.name) for view in views for flow in view.flows if flow.out_mirror.depth}


def _not_forgotten(calls: Sequence[Call], views: Sequence[SiteView]) -> list[str]:
    left = {(view.site, view.pair) for view in views if view.commands is not None and view.commands.out.depth}
    return [each.about for each in calls if (each.site, each.pair) in left]


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
    listed, bean, filter_by = sorted(ids), view.business[queue].bean, conserving.chosen
    batches = [listed[start : start + conserving.BATCH] for start in range(0, len(listed), conserving.BATCH)]
    return [
        call(
            view,
            Goal.MOVE,
            queue,
            request(bean, conserving.MOVE_ALL, (filter_by(each), name)),
            f"move {len(each)} of {queue} to {name}",
        )
        for each in batches
    ]
