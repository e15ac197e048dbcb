"""Acts on a mirrored pair: observes, applies each verb, proves it, undoes it.

Every step ends with a look or an attempt that shows its effect; what a call answered is never the proof. Flags lie: an
acceptor whose port is taken by another process says that it is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Finding, Json, Role, Severity
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.planner import FAILOVER
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.stomp_io.client import Closed, Connected, Failed, Greeting, Passed, Silent
from dr_ctl.stomp_io.client import Refused as LoginDenied
from dr_ctl.topologies.mirror import checks, look, parity
from dr_ctl.topologies.mirror.access import Access, Observer
from dr_ctl.topologies.mirror.draining import Draining
from dr_ctl.topologies.mirror.operations import CREATE_QUEUE, DESTROY_QUEUE, pause
from dr_ctl.topologies.mirror.recipe import MirrorRecipe, probe_queue
from dr_ctl.topologies.mirror.reinstating import Reinstating
from dr_ctl.topologies.mirror.sending import Sender
from dr_ctl.topologies.mirror.surviving import Surviving
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen

FENCE_S: Final = 30.0
ACTIVATE_S: Final = 30.0
UNDO_S: Final = 30.0
PROBE_S: Final = 10.0
FLAG_S: Final = 5.0
POLL_S: Final = 0.02
SLOW_POLL_S: Final = 0.25
CALM: Final = 2  # looks in a row without deliveries: one can fall between two dispatches


class MirrorDriver:
    """The acting half of the topology; one instance serves one command."""

    def __init__(self, observer: Observer, recipe: MirrorRecipe, sender: Sender) -> None:
        self._observer, self._recipe, self._sender = observer, recipe, sender
        self._greeted: set[tuple[str, str]] = set()
        self._activated = False
        draining = Draining(observer, recipe, sender)
        self._verbs: Mapping[str, Callable[[PlannedStep, Move, Hand], Outcome]] = {
            "observe": self._observe,
            "check": self._check,
            "catch-up": draining.catch_up,
            "quiesce": self._quiesce,
            "fence": self._fence,
            "drain": draining.drain,
            "verify": draining.verify,
            "activate": self._activate,
            "probe": self._probe,
        }
        self._inverses: Mapping[str, Callable[[PlannedStep, Move, Hand], Outcome]] = {
            "catch-up": self._start_links,
            "quiesce": self._lift,
            "fence": self._open_again,
            "drain": self._start_links,
            "activate": self._close_again,
        }
        self._surviving = Surviving(observer, sender)
        self._reinstating = Reinstating(observer, recipe, sender)

    def observe(self) -> MirrorSeen:
        return self._observer.observe()

    def apply(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        own = self._surviving.verbs if move.ask.operation == FAILOVER else self._reinstating.verbs
        return self._guarded(own.get(step.verb) or self._verbs[step.verb], step, move, hand)

    def undo(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Try until it is verified or half a minute has passed: a broker may be away for a moment."""
        until = hand.monotonic() + UNDO_S
        own = self._surviving.inverses if move.ask.operation == FAILOVER else self._reinstating.inverses
        act = own.get(step.verb) or self._inverses[step.verb]
        while True:
            outcome = self._sender.barred() or self._guarded(act, step, move, hand)
            if isinstance(outcome, Done | NotNeeded) or hand.monotonic() > until:
                return outcome
            if isinstance(outcome, Refused) and outcome.code is ExitCode.STRANDED:
                return outcome
            hand.wait(SLOW_POLL_S)

    def _guarded(
        self, act: Callable[[PlannedStep, Move, Hand], Outcome], step: PlannedStep, move: Move, hand: Hand
    ) -> Outcome:
        """A broker that stops answering in the middle is an outcome: what it did then is not known."""
        try:
            return act(step, move, hand)
        except BrokerError as error:
            return Unknown(str(error))

    def _change(self, calls: Sequence[Call], hand: Hand) -> list[Outcome]:
        return hand.change(calls, self._sender.send)

    def _greetings(self, site: str) -> dict[tuple[str, str], Greeting | None]:
        accesses = self._observer.at(site)
        told = self._observer.together(lambda access: access.greet(), accesses)
        return {(access.site, access.pair): greeting for access, greeting in zip(accesses, told, strict=True)}

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
        findings: list[Finding] = []
        if seen.roles[move.source] is Role.SERVING:
            for key, greeting in self._greetings(move.source).items():
                if isinstance(greeting, Connected):
                    self._greeted.add(key)
                else:
                    why = greeting.because if greeting is not None else "the settings name no `stomp:` address"
                    text = f"{key[0]}/{key[1]}: no client is greeted ({why}): the fence will be shown by flag only"
                    findings.append(checks.warning("DR-FENCE-001", text, checks.NAME_STOMP))
        return Done("nothing speaks against it", {"greeted": [site for site, _ in self._greeted]}, tuple(findings))

    # quiesce

    def _quiesce(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        views = self._observer.look_at(move.source)
        if not any(view.open for view in views):
            return NotNeeded(f"{move.source} is closed to clients already")
        planned = {call.bean: call for call in step.calls if call.when is None}
        calls = []
        for view in views:
            for queue in self._recipe.to_pause(view):
                new = pause(view, queue, "a queue was created since the look")
                calls.append(planned.get(queue.bean, new))
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

    def _dispatch(self, views: Iterable[BrokerView], move: Move) -> tuple[dict[str, int], list[str]]:
        """What clients hold, by queue, and which queues dispatch still: of those that quiesce is for."""
        held: dict[str, int] = {}
        unpaused: list[str] = []
        for view in views:
            reader = self._observer.brokers[move.source][view.pair].reader()
            mine = parity.selected(view, self._observer.queues)
            for name, (count, paused) in look.dispatch(reader, view).items():
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
            who = [each.told for each in consumers if each.queue == queue and each.holds]
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
        shut = {door.bean for view in before for door in view.doors if not door.started}
        told = self._change([call for call in step.calls if call.bean not in shut], hand)
        # What was refused will not come true by waiting, and clients wait too.
        return self._closed(move.source, hand, 0.0 if any(isinstance(each, Refused) for each in told) else FENCE_S)

    def _closed(self, site: str, hand: Hand, within_s: float) -> Outcome:
        """Show that no client gets in: every door's flag, and no greeting where there was one before."""
        until = hand.monotonic() + within_s
        while True:
            open_doors = [door.name for view in self._observer.look_at(site) for door in view.doors if door.started]
            greeted = [key for key in self._greeted if key[0] == site]
            let_in = (
                [key for key, told in self._greetings(site).items() if isinstance(told, Connected)] if greeted else []
            )
            if not open_doors and not let_in:
                break
            if hand.monotonic() > until:
                what = f"acceptor {', '.join(open_doors)} says it is open" if open_doors else "a client is still let in"
                return Refused(f"{site}: {what}")
            hand.wait(POLL_S)
        if greeted:
            return Done("no client gets in: doors closed, and no greeting where there was one", {"proof": "attempt"})
        finding = checks.warning("DR-FENCE-002", f"{site}: the fence is shown by flag only", checks.NAME_STOMP)
        return Done("doors closed, by flag only", {"proof": "flag"}, (finding,))

    def _doors(self, site: str, *, started: bool) -> list[str]:
        """The client doors of a site whose flag says that they are open, or closed."""
        return [
            door
            for access, flow in self._observer.flows_at(site, timeout_s=FLAG_S).items()
            for door in access.config.clients
            if (door in flow.doors_open) is started
        ]

    # activate

    def _activate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        there = self._observer.flows_at(move.target, timeout_s=FLAG_S)
        if self._is_open(move):
            return Refused(f"{move.source} is open: a second site is never opened")
        if stopped := [access.site for access, flow in there.items() if not flow.link_started]:
            return Refused(f"{stopped[0]}: its link is not started, so the way back would capture nothing")
        shut = {
            door.bean
            for access, flow in there.items()
            for door in access.names().doors
            if door.name not in flow.doors_open
        }
        starts = [call for call in step.calls if call.site == move.target and call.bean in shut]
        rest = [call for call in step.calls if call.site != move.target]
        self._change(rest, hand)
        self._activated = self._activated or bool(starts)
        outcomes = self._change(starts, hand)
        if outcomes and all(isinstance(each, Refused) for each in outcomes):
            return self._not_opened(outcomes[0].text, move.target)
        until = hand.monotonic() + ACTIVATE_S
        while (why := self._why_not_serving(move.target)) is not None:
            if hand.monotonic() > until:
                return Unknown(f"{move.target}: {why}; look at {move.target} first")
            hand.wait(POLL_S)
        if refused := [each for each in outcomes if isinstance(each, Refused)]:
            return Refused(
                f"{move.target} serves, but not through every door: {refused[0].text}", code=ExitCode.INCOMPLETE
            )
        if not starts and not rest:
            return NotNeeded(f"{move.target} serves already")
        by_flag = all(access.settings.stomp is None for access in self._observer.at(move.target))
        findings = (
            (checks.warning("DR-ACTIVATE-001", f"{move.target}: shown to serve by flag only", checks.NAME_STOMP),)
            if by_flag
            else ()
        )
        return Done(f"{move.target} lets clients in", {"proof": "flag" if by_flag else "attempt"}, findings)

    def _is_open(self, move: Move) -> bool:
        """Say whether the source lets clients in. Of a lost site that does not answer nothing is known: it is not seen
        open; of any other, silence is an error."""
        if move.ask.operation == FAILOVER:
            return any(view.open for view in self._observer.look_once().views(move.source))
        return any(flow.doors_open for flow in self._observer.flows_at(move.source, timeout_s=FLAG_S).values())

    def _why_not_serving(self, site: str) -> str | None:
        asked = self._observer.pool.submit(self._doors, site, started=False)
        greetings = self._greetings(site)
        if shut := asked.result():
            return f"acceptor {', '.join(shut)} is closed"
        for greeting in greetings.values():
            # A refused login is an answer of the broker all the same: the door is open, only not to this user.
            if isinstance(greeting, Closed | Silent):
                return f"no client is let in: {greeting.because}"
        return None

    def _not_opened(self, why: str, site: str) -> Outcome:
        """Every opening call was answered with an error: no effect, unless a client is let in all the same."""
        if any(isinstance(told, Connected) for told in self._greetings(site).values()):
            return Unknown(f"{site}: {why}; yet a client is let in: look at {site} first")
        return Refused(f"{site} could not be opened: {why}")

    # probe

    def _probe(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        name = probe_queue(move.target)
        pairs = {access.pair: access for access in self._observer.at(move.target) if access.settings.stomp is not None}
        if not pairs:
            text = f"{move.target}: the settings name no `stomp:` address, so no message was sent through it"
            return NotNeeded(text, findings=(checks.warning("DR-PROBE-001", text, "Set `stomp:`."),))
        create = [call for call in step.calls if call.pair in pairs and call.operation == CREATE_QUEUE]
        remove = [call for call in step.calls if call.pair in pairs and call.operation == DESTROY_QUEUE]
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

    def _start_links(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del move
        stopped, away = self._stopped_links()
        # A broker that is away is not waited for: clients are. A link's stop and start travel together, so it is only
        # left stopped where that one request was cut in its middle.
        findings = tuple(
            checks.warning(
                "DR-LINK-007", f"{access.site}: whether its link is started could not be seen", "Look at it."
            )
            for access in away
        )
        calls = [call for call in step.inverse if (call.site, call.pair) in stopped]
        if not calls:
            return NotNeeded("no link was seen stopped", findings=findings)
        self._change(calls, hand)
        if left := self._stopped_links()[0] & {(call.site, call.pair) for call in calls}:
            return Refused(f"the link of {', '.join(site for site, _ in sorted(left))} is not started")
        return Done("links started", findings=findings)

    def _stopped_links(self) -> tuple[set[tuple[str, str]], list[Access]]:
        """The brokers whose link is not started, and those that did not answer."""

        def look(access: Access) -> BrokerView | None:
            try:
                return access.look()
            except BrokerError:
                return None

        every = self._observer.all()
        views = dict(zip(every, self._observer.together(look, every), strict=True))
        stopped = {(view.site, view.pair) for view in views.values() if view and view.link and not view.link.started}
        return stopped, [access for access, view in views.items() if view is None]

    def _lift(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        del step
        calls = [call for view in self._observer.look_at(move.source) for call in self._recipe.lifts(view, move)]
        if not calls:
            return NotNeeded("nothing is paused that was not before")
        self._change(calls, hand)
        left = [call for view in self._observer.look_at(move.source) for call in self._recipe.lifts(view, move)]
        return Refused(f"still paused: {checks.some([call.about for call in left])}") if left else Done("pauses lifted")

    def _open_again(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        shut = {door.bean for view in self._observer.look_at(move.source) for door in view.doors if not door.started}
        calls = [call for call in step.inverse if call.bean in shut]
        if not calls:
            return NotNeeded(f"{move.source} is open")
        # Every call that lets clients in looks at the other site first.
        try:
            if any(view.open for view in self._observer.look_at(move.target)):
                return Refused(f"{move.target} is open: {move.source} stays closed", code=ExitCode.STRANDED)
        except BrokerError as error:
            if self._activated:
                return Unknown(f"{move.target} does not answer, and it may have been opened: {error}")
        self._change(calls, hand)
        why = self._why_not_open_again(move.source, {call.bean for call in calls})
        return Refused(f"{move.source}: {why}") if why is not None else Done(f"{move.source} lets clients in again")

    def _why_not_open_again(self, site: str, doors: set[str]) -> str | None:
        shut = [
            door.name
            for view in self._observer.look_at(site)
            for door in view.doors
            if door.bean in doors and not door.started
        ]
        if shut:
            return f"acceptor {', '.join(shut)} is closed"
        for key, greeting in self._greetings(site).items():
            # Nobody at the port contradicts the flag, whoever asks; any other no counts only where a yes was heard.
            if isinstance(greeting, Closed) or (key in self._greeted and isinstance(greeting, Silent | LoginDenied)):
                return f"no client is let in: {greeting.because}"
        return None

    def _close_again(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        open_doors = {door.bean for view in self._observer.look_at(move.target) for door in view.doors if door.started}
        calls = [call for call in step.inverse if call.bean in open_doors]
        if not calls:
            return NotNeeded(f"{move.target} is closed")
        self._change(calls, hand)
        left = [door.name for view in self._observer.look_at(move.target) for door in view.doors if door.started]
        return Refused(f"{move.target}: acceptor {', '.join(left)} is open") if left else Done(f"{move.target} closed")
