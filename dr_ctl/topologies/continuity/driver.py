"""Acts on an installation that the continuity plugin joins: what the plugin asks for, beside what all have in common.

What the plugin answers to an activation is never the proof: its acceptor says that it is started while another process
has its port, and a command that was stuck behind a bridge can take the activation back much later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.artemis.activating import Activating
from dr_ctl.topologies.artemis.checks import warning
from dr_ctl.topologies.artemis.driver import ArtemisDriver
from dr_ctl.topologies.artemis.sending import Sender
from dr_ctl.topologies.artemis.view import Peer
from dr_ctl.topologies.continuity.access import Observer
from dr_ctl.topologies.continuity.draining import Draining
from dr_ctl.topologies.continuity.recipe import AGAIN_AT_MOST, ContinuityRecipe
from dr_ctl.topologies.continuity.reinstating import Reinstating
from dr_ctl.topologies.continuity.verifying import Verifying
from dr_ctl.topologies.continuity.view import SiteView, waits_ms

POLL_S: Final = 0.2
# Longer than bridges confirm late, and than any bridge waits for its next try unless its interval is longer.
WATCH_S: Final = 3.0
# A bridge whose connection was taken and dropped waits for its call to time out.
WATCH_AT_MOST_S: Final = 35.0
INTERVALS: Final = 3


class TakenBack(Activating):
    """An activation that a command which was under way may take back before it is shown to hold."""

    def _taken_back(self, move: Move) -> set[str]:
        return {view.pair for view in self._observer.look_once().views(move.target) if not view.open}


class ContinuityDriver(ArtemisDriver[SiteView]):
    """The acting half of the topology; one instance serves one command."""

    _opened_by: ClassVar[str] = "activateSite of the continuity plugin, which starts its client acceptors"

    def __init__(self, observer: Observer, recipe: ContinuityRecipe, sender: Sender) -> None:
        super().__init__(
            observer,
            recipe,
            sender,
            verifying=Verifying(observer, recipe.poll_s),
            draining=Draining(observer, recipe, sender),
            returning=Reinstating(observer, sender),
            activating=TakenBack,
        )
        self._verbs["activate"] = self._activate
        self._verbs["probe"] = self._probe_and_watch

    def _activate(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        self._let_begin(step, move, hand)
        return self._activating.activate(step, move, hand)

    def _let_begin(self, step: PlannedStep, move: Move, hand: Hand) -> None:
        """Wait for a delivery that is about to begin: an activation that went out before a crash is not sent again, for
        each tells the other site to stop. Where no client is let in it has failed, and nothing is to be waited for."""
        peer = Peer.AWAY if move.ask.operation == FAILOVER else Peer.DRAINED
        within_s = waits_ms(peer) / 1000 if step.part("doors") else 0.0
        until = hand.monotonic() + within_s + POLL_S
        while any(view.half_open for view in self._observer.look_at(move.target)) and hand.monotonic() < until:
            if not self._doors.let_in(self._observer.at(move.target)):
                return
            hand.wait(POLL_S)

    def _probe_and_watch(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        outcome = self._probe(step, move, hand)
        if isinstance(outcome, Refused) and not all(view.delivers for view in self._observer.look_at(move.target)):
            # A command was quicker than the message.
            if not isinstance(watched := self._watch(step, move, hand), Done):
                return watched
            outcome = self._probe(step, move, hand)
            outcome = replace(outcome, text=f"{watched.text}; {outcome.text}")
        if not isinstance(outcome, Done | NotNeeded):
            return outcome
        taken_back = self._watch(step, move, hand)
        if isinstance(taken_back, Refused | Unknown):
            return taken_back
        text = f"{outcome.text}; {taken_back.text}"
        return replace(outcome, text=text, findings=(*outcome.findings, *taken_back.findings))

    def _watch(self, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
        """Until no command is under way any more: activate again what one has deactivated."""
        began = quiet_since = hand.monotonic()
        again = 0
        while True:
            views = self._observer.look_at(move.target)
            others = self._observer.look_once().views(move.source)
            undone = [view for view in views if not view.delivers]
            if undone and any(view.open for view in others):
                return Unknown(f"{move.target} was deactivated by a command, and {move.source} is open")
            # One that is activated again delivers by itself: another call would begin its wait for the peer anew, and
            # tell that once more to stop.
            if shut := {view.pair for view in undone if not view.half_open}:
                if again >= AGAIN_AT_MOST:
                    return self._not_left_alone(move, "it is deactivated again and again")
                again += 1
                hand.notice(f"{move.target}: {min(shut)} was deactivated by a command: activating it again")
                calls = [call for call in step.part("again") if call.pair in shut]
                hand.change(calls, self._sender.send)
            # Of a site that is away nothing comes, and what waits for it is kept.
            told = [_commands(view) for view in (*views, *others)] if others else [None]
            waiting = sum(filter(None, told))
            now = hand.monotonic()
            if undone or waiting:
                quiet_since = now
            hold_s = max(WATCH_S, INTERVALS * max(_interval_s(view) for view in views))
            why = f"{min(view.pair for view in undone)} does not deliver yet" if undone else None
            why = why or (None if others else f"{move.source} does not answer")
            shown = None if None in told else waiting
            hand.waiting("commands of the plugin under way, which could undo the activation", shown, why)
            if now - quiet_since >= hold_s:
                break
            if quiet_since - began > WATCH_AT_MOST_S:
                left = "commands of the plugin are still under way" if waiting else f"{why}"
                return self._not_left_alone(move, left)
            hand.wait(POLL_S)
        if not again:
            return Done("no command undid the activation")
        try:
            why = self._doors.why_not(move.target, serving=True)
        except BrokerError as error:
            why = str(error)
        if why is not None:
            return Unknown(f"{move.target} was deactivated and activated again, and {why}: look at {move.target} first")
        return Done(f"activated again {again} time(s) after a late command")

    def _not_left_alone(self, move: Move, why: str) -> Refused:
        """It serves as long as nothing undoes it: what it looks like now is for a person to see."""
        remedy = (
            f"`dr-ctl status` says whether {move.target} serves; `dr-ctl activate {move.target}` activates it again."
        )
        finding = warning("DR-CONT-016", f"{move.target} may be deactivated again: {why}", remedy)
        return Refused(f"{move.target} was opened, but {why}", findings=(finding,), code=ExitCode.INCOMPLETE)


def _commands(view: SiteView) -> int | None:
    """None where the plugin has not started."""
    return view.commands.out.depth + view.commands.into.depth if view.commands is not None else None


def _interval_s(view: SiteView) -> float:
    return view.service.interval_ms / 1000 if view.service is not None else 0.0
