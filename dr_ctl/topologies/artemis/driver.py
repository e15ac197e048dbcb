"""Acts on a pair of Artemis brokers: observes, applies each verb, proves it, undoes it. What the way between the sites
asks for, a topology adds.

Every step ends with a look or an attempt that shows its effect; what a call answered is never the proof. Flags lie: an
acceptor whose port is taken by another process says that it is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.operations import ACTIVATE, DRAIN, FAILBACK, FAILOVER, FENCE, REINSTATE, RELEASE, SWAPOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Act, Hand, Move
from dr_ctl.stomp_io.client import Failed, Passed
from dr_ctl.topologies.artemis import checks, receipts
from dr_ctl.topologies.artemis.access import Observer
from dr_ctl.topologies.artemis.activating import Activating
from dr_ctl.topologies.artemis.doors import Doors
from dr_ctl.topologies.artemis.effects import holds
from dr_ctl.topologies.artemis.look import dispatch
from dr_ctl.topologies.artemis.operations import pause
from dr_ctl.topologies.artemis.queues import selected
from dr_ctl.topologies.artemis.recipe import ArtemisRecipe, probe_queue
from dr_ctl.topologies.artemis.releasing import Releasing
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.surviving import Surviving
from dr_ctl.topologies.artemis.verifying import Verifying
from dr_ctl.topologies.artemis.view import Broker, Seen

V = TypeVar("V", bound=Broker)

FENCE_S: Final = 30.0
UNDO_S: Final = 30.0
PROBE_S: Final = 10.0
POLL_S: Final = 0.02
SLOW_POLL_S: Final = 0.25
CALM: Final = 2  # looks in a row without deliveries: one can fall between two dispatches


class Verbs(Protocol):
    """A part of a driver: some verbs, and how they are undone."""

    verbs: Mapping[str, Act]
    inverses: Mapping[str, Act]


class ArtemisDriver(Generic[V]):
    """The acting half of a topology; one instance serves one command."""

    # How a person opens a site in its console.
    _opened_by: ClassVar[str] = "start its client acceptors"

    def __init__(
        self,
        observer: Observer[V],
        recipe: ArtemisRecipe[V],
        sender: Sender,
        *,
        verifying: Verifying,
        draining: Verbs,
        returning: Verbs,
        activating: type[Activating] = Activating,
    ) -> None:
        """`draining` are the waits of a move, `returning` the verbs by which a lost site is taken in again."""
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self._doors = Doors(observer)
        self._verifying = verifying
        self._activating = activating(observer, sender, self._doors, self._verifying)
        self._releasing = Releasing(observer, sender, self._doors)
        self._verbs: dict[str, Act] = {
            "observe": self._observe,
            "check": self._check,
            "quiesce": self._quiesce,
            "fence": self._fence,
            "verify": self._verify,
            "activate": self._activating.activate,
            "probe": self._probe,
            **draining.verbs,
        }
        self._inverses: dict[str, Act] = {
            "quiesce": self._lift,
            "fence": self._open_again,
            "activate": self._activating.close_again,
            **draining.inverses,
        }
        self._own: dict[str, Verbs] = {
            FAILOVER: Surviving(observer, sender),
            **dict.fromkeys((REINSTATE, FAILBACK), returning),
            **dict.fromkeys((FENCE, RELEASE), self._releasing),
        }

    def observe(self) -> Seen[V]:
        return self._observer.observe()

    def apply(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        own = self._own.get(move.ask.operation)
        verbs = {**self._verbs, **own.verbs} if own is not None else self._verbs
        return self._guarded(verbs[step.verb], step, move, hand)

    def undo(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Try until it is verified or half a minute has passed: a broker may be away for a moment. Where another run
        has the lock no call goes out, and only a look can show that it is as before."""
        until = hand.monotonic() + UNDO_S
        own = self._own.get(move.ask.operation)
        inverses = {**self._inverses, **own.inverses} if own is not None else self._inverses
        while True:
            barred = self._sender.barred()
            outcome = self._guarded(inverses[step.verb], step, move, hand)
            if isinstance(outcome, Done | NotNeeded):
                return outcome
            hopeless = barred or (isinstance(outcome, Refused) and outcome.code is ExitCode.STRANDED)
            if hopeless or hand.monotonic() > until:
                return barred or outcome
            hand.wait(SLOW_POLL_S)

    def by_hand(self, site: str) -> str:
        return f"in the console of {site}: {self._opened_by}, and resume its paused queues"

    def _guarded(self, act: Act, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """A broker that stops answering in the middle is an outcome: what it did then is not known."""
        try:
            return act(step, move, hand)
        except BrokerError as error:
            return Unknown(str(error))

    def _change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self._sender.send)

    # observe, check

    def _observe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step, move, hand
        seen = self.observe()
        told: dict[str, Json] = {site: role.value for site, role in seen.roles.items()}
        return Done(", ".join(f"{site} is {role}" for site, role in told.items()), {"roles": told})

    def _check(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step, hand
        seen = self.observe()
        errors = tuple(each for each in self._recipe.why_not(seen, move) if each.severity is Severity.ERROR)
        if errors:
            return Refused(errors[0].text, findings=errors, code=ExitCode.PRECHECK_FAILED)
        if move.ask.operation in (SWAPOVER, DRAIN, ACTIVATE):
            opened = [view for view in seen.views(move.target) if view.open and view.pair not in move.moved]
            if opened:
                text = f"{move.target} was opened to clients meanwhile: {checks.some([each.pair for each in opened])}"
                finding = checks.error("DR-ROLE-001", text, "`dr-ctl status` says who serves.")
                return Refused(text, findings=(finding,), code=ExitCode.PRECHECK_FAILED)
        fences = move.ask.operation not in (FAILOVER, REINSTATE) and seen.roles[move.source] is Role.SERVING
        findings = self._doors.greet(move.source) if fences else []
        greeted: list[Json] = [site for site, _ in self._doors.greeted]
        return Done("nothing speaks against it", {"greeted": greeted}, tuple(findings))

    # quiesce

    def _quiesce(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.source)
        if not any(view.open for view in views):
            return NotNeeded(f"{move.source} is closed to clients already")
        planned = {(call.pair, call.thing): call for call in step.calls if call.when is None}
        calls = []
        for view in views:
            for queue in self._recipe.to_pause(view):
                new = pause(view, queue, "a queue was created since the look")
                meant = planned.get((view.pair, queue.name), new)
                calls.append(meant if meant.request == new.request else new)
        self._change(calls, hand)
        until = hand.monotonic() + step.limits["within"]
        calm = 0
        while True:
            busy, unpaused = self._dispatch(views, move)
            held = sum(busy.values())
            hand.sample({"delivering": held})
            hand.waiting("messages that clients hold", held, "clients have not finished them" if held else None)
            calm = calm + 1 if held == 0 else 0
            if calm >= CALM:
                break
            if hand.monotonic() > until:
                return self._not_quiet(busy, move, step)
            hand.wait(POLL_S)
        if unpaused:
            return Refused(f"could not pause {checks.some(unpaused)}")
        return Done("clients hold nothing", {"paused": len(calls)})

    def _dispatch(self, views: Iterable[V], move: Move) -> tuple[dict[str, int], list[str]]:
        """What clients hold, by queue, and which queues dispatch still: of those that quiesce is for."""
        held: dict[str, int] = {}
        unpaused: list[str] = []
        for view in views:
            reader = self._observer.brokers[move.source][view.pair].reader()
            mine = selected(view, self._observer.queues)
            for name, (count, paused) in dispatch(reader, view).items():
                if name in mine:
                    held |= {name: held.get(name, 0) + count} if count else {}
                    unpaused += [] if paused else [name]
        return held, unpaused

    def _not_quiet(self, busy: Mapping[str, int], move: Move, step: PlannedStep) -> Outcome:
        consumers = [
            each for view in self._observer.look_at(move.source) for each in view.consumers if each.queue in busy
        ]
        told = []
        for queue, count in busy.items():
            who = [each.told for each in consumers if each.queue == queue and each.holds != 0]
            told.append(f"{queue}: {count} held by {', '.join(who) or 'a client that is gone'}")
        total = sum(busy.values())
        if move.ask.cut_in_flight:
            text = f"{total} message(s) in delivery are cut and will come again: {checks.some(told)}"
            finding = Finding(
                "DR-QUIESCE-002", Severity.WARNING, text, "The clients must recognise what they have done."
            )
            return Done(text, {"come_again": total, "queues": dict(busy)}, (finding,))
        text = f"clients did not finish what they hold within {step.limits['within']:g} s: {checks.some(told)}"
        finding = Finding(
            "DR-QUIESCE-001",
            Severity.ERROR,
            text,
            "Stop that client or let it finish, then run again; with --cut-in-flight they are cut and come again.",
        )
        return Refused(text, {"queues": dict(busy)}, (finding,))

    # fence

    def _fence(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        # The end of the quiesce was a look; every moment from here on keeps clients waiting.
        before = [access.names() for access in self._observer.at(move.source)]
        if not any(view.open for view in before):
            return NotNeeded(f"{move.source} is closed to clients already", {"proof": "flag"})
        told = self._change([call for call in step.calls if not holds(call, before)], hand)
        # What was refused will not come true by waiting, and clients wait too.
        within_s = 0.0 if any(isinstance(each, Refused) for each in told) else FENCE_S
        return self._doors.closed(move.source, hand, within_s)

    # verify

    def _verify(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """The whole gate; of a drain by itself, then the receipt."""
        outcome = self._verifying.verify(step, move, hand)
        if not (isinstance(outcome, Done) and step.calls):
            return outcome
        views = {view.pair: view for view in self._observer.look_at(move.target)}
        written = {
            pair: receipts.of(sample.source, sample.target, self._sender.epoch)
            for pair, sample in self._verifying.seen.items()
        }
        self._change([call for pair, receipt in written.items() for call in receipts.write(views[pair], receipt)], hand)
        stands = {view.pair: receipts.held_at(view) for view in self._observer.look_at(move.target)}
        if missing := [pair for pair, receipt in written.items() if stands[pair] != receipt]:
            return Refused(f"the receipt could not be written: {checks.some(missing)}")
        return Done(f"{outcome.text}; receipt written", outcome.evidence, outcome.findings)

    # probe

    def _probe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        name = probe_queue(move.target)
        pairs = {access.pair: access for access in self._observer.at(move.target) if access.settings.stomp is not None}
        if not pairs:
            text = f"{move.target}: the settings name no `stomp:` address, so no message was sent through it"
            return NotNeeded(text, findings=(checks.warning("DR-PROBE-001", text, "Set `stomp:`."),))
        create = [call for call in step.calls if call.pair in pairs and call.goal is Goal.WRITE]
        remove = [call for call in step.calls if call.pair in pairs and call.goal is Goal.STRIKE]
        self._change(create, hand)
        told = [access.round_trip(name, timeout_s=PROBE_S) for access in pairs.values()]
        removed = self._change(remove, hand)
        findings = tuple(
            checks.warning("DR-PROBE-002", f"{move.target}: {name} is left there: {each.text}", "Remove that queue.")
            for each in removed
            if not isinstance(each, Done)
        )
        for access, each in zip(pairs.values(), told, strict=True):
            if isinstance(each, Failed):
                text = f"{access.site}/{access.pair}: the probe message did not come back: {each.because}"
                return Refused(text, findings=findings)
        took: list[Json] = [round(each.took_s, 4) for each in told if isinstance(each, Passed)]
        return Done("a message went in and came out", {"round_trips_s": took}, findings)

    # the inverses

    def _lift(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step
        calls = [call for view in self._observer.look_at(move.source) for call in self._recipe.lifts(view, move)]
        if not calls:
            return NotNeeded("nothing is paused that was not before")
        self._change(calls, hand)
        left = [call for view in self._observer.look_at(move.source) for call in self._recipe.lifts(view, move)]
        return Refused(f"still paused: {checks.some([call.about for call in left])}") if left else Done("pauses lifted")

    def _open_again(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        return self._releasing.open_again(step, move, hand, sent=self._activating.sent or move.sent)
