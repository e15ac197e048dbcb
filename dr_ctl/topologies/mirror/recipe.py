"""What a mirrored pair does in its own manner: catching up, draining, taking a lost site in again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dr_ctl.core.model import Finding
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis.recipe import ArtemisRecipe, flat
from dr_ctl.topologies.mirror import checks, returning
from dr_ctl.topologies.mirror.operations import start_link, stop_link
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen

NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3
CATCH_UP_S: Final = 60.0


class MirrorRecipe(ArtemisRecipe[BrokerView]):
    """Decides for a mirrored installation."""

    def _own(self) -> Mapping[str, Callable[[RunbookStep, MirrorSeen, Move], Draft]]:
        return {
            "catch-up": self._catch_up,
            "drain": self._drain,
            "residue": returning.residue,
            "reinstate": self._reinstate,
            "reconcile": returning.reconcile,
        }

    def _of_move(self, seen: MirrorSeen, move: Move) -> Sequence[Finding]:
        return checks.all_findings(
            seen,
            source=move.source,
            target=move.target,
            queues=self._queues,
            accepted=move.ask.accept_difference,
        )

    def _of_broker(self, view: BrokerView) -> Iterable[Finding]:
        return checks.of_broker(view)

    def _of_return(self, seen: MirrorSeen, move: Move) -> Iterable[Finding]:
        return returning.findings(seen, move)

    def _nothing_owed(self, seen: MirrorSeen, move: Move) -> bool:
        return returning.nothing_owed(seen, move)

    def restart_link(self, view: BrokerView) -> tuple[Call, ...]:
        """Stop and start the link: a hung handshake is otherwise waited out, which takes a minute."""
        link = view.link
        if link is None:
            return ()
        return tuple(make(view, link, NOT_ATTACHED, LINK_RESTARTS) for make in (stop_link, start_link))

    def _catch_up(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        views = [*seen.views(move.source), *seen.views(move.target)]
        return Draft(
            move.source,
            "still serving: both links attached, the outflow small",
            calls=flat(self.restart_link(view) for view in views),
            inverse=flat(self._start_link(view) for view in views),
            limits={"within": step.limits.get("within", CATCH_UP_S)},
        )

    def _drain(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        del step
        views = [*seen.views(move.source), *seen.views(move.target)]
        lifts = self._lifts_planned(seen, move)
        # Pauses are lifted beside the drain: the doors are closed, nothing is dispatched, and no time is lost.
        return Draft(
            move.target,
            "everything shipped and applied, in both directions; pauses lifted beside it",
            calls=(*lifts, *flat(self.restart_link(view) for view in views)),
            inverse=flat(self._start_link(view) for view in views),
            limits={"within": self._within(move), "stall": self._limits.stall},
        )

    def _reinstate(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        return returning.reinstate(step, seen, move, self._within(move))

    def _start_link(self, view: BrokerView) -> tuple[Call, ...]:
        link = view.link
        if link is None or not link.started:
            return ()
        return (start_link(view, link, "it is stopped"),)
