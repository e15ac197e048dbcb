"""How an installation that the continuity plugin joins does what is its own: catching up, draining, watching. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from dr_ctl.core.model import Finding
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import losing
from dr_ctl.topologies.artemis.baseline import before
from dr_ctl.topologies.artemis.operations import pause_lasting, resume
from dr_ctl.topologies.artemis.recipe import ArtemisRecipe, flat
from dr_ctl.topologies.artemis.view import Peer
from dr_ctl.topologies.continuity import checks, conserving, returning
from dr_ctl.topologies.continuity.view import ContinuitySeen, SiteView

CATCH_UP_S: Final = 60.0
UNDONE: Final = "a command that was under way has deactivated the site"
AGAIN_AT_MOST: Final = 10


class ContinuityRecipe(ArtemisRecipe[SiteView]):
    """Decides for an installation that the plugin joins."""

    _lost_on_the_way: ClassVar[tuple[str, ...]] = (
        "what was rolled back, or held by a session that closed: the plugin deletes its copies (the drain names them)",
        "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
        "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
        "messages that were put into a queue through management: they pass the plugin by",
    )

    def _own(self) -> Mapping[str, Callable[[RunbookStep, ContinuitySeen, Move], Draft]]:
        return {
            "catch-up": self._catch_up,
            "drain": self._drain,
            "probe": self._probe_and_watch,
            "quarantine": self._quarantine,
            "residue": returning.residue,
            "reinstate": self._reinstate,
            "reconcile": self._reconcile,
        }

    def _of_move(self, seen: ContinuitySeen, move: Move) -> Sequence[Finding]:
        return checks.all_findings(seen, source=move.source, target=move.target)

    def _of_broker(self, view: SiteView) -> Iterable[Finding]:
        return checks.of_broker(view)

    def _of_return(self, seen: ContinuitySeen, move: Move) -> Iterable[Finding]:
        return returning.findings(seen, move)

    def _nothing_owed(self, seen: ContinuitySeen, move: Move) -> bool:
        return returning.nothing_owed(seen, move)

    def _reinstate(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        return returning.reinstate(step, seen, move, self._within(move))

    def _reconcile(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        return returning.reconcile(step, seen, move, self._within(move))

    def _catch_up(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        del seen
        return Draft(
            move.source,
            "still serving: all bridges connected, the outflow small, nothing left to deliver from staging",
            limits={"within": step.limits.get("within", CATCH_UP_S)},
        )

    def _drain(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        del step
        removals = flat(conserving.planned(view, move.source) for view in seen.views(move.target))
        return Draft(
            move.target,
            "everything shipped and applied, in both directions; copies that must not be delivered removed by id; "
            "pauses lifted beside it",
            calls=(*self._lifts_planned(seen, move), *removals),
            limits={"within": self._within(move), "stall": self._limits.stall},
        )

    def _probe_and_watch(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        draft = self._probe(step, seen, move)
        again = flat(view.opening(view.doors, Peer.NOT_DRAINED, UNDONE) for view in seen.views(move.target))
        about = f"{draft.about}; then watched until no late command can undo the activation"
        again = tuple(replace(each, at_most=AGAIN_AT_MOST, part="again") for each in again)
        return replace(draft, about=about, calls=(*draft.calls, *again))

    def _quarantine(self, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
        """The plugin's commands are kept as well: a site that came back would obey those of the outage, one by one."""
        draft = losing.quarantine(step, seen, move)
        kept: list[Call] = []
        again: list[Call] = []
        for view in seen.views(move.target):
            commands = view.commands
            if commands is not None:
                if not commands.out.paused:
                    kept.append(pause_lasting(view, commands.out))
                if not before(move, view)["commands_paused"]:
                    again.append(resume(view, commands.out, "it is paused"))
        about = f"{draft.about}, and what the plugin would tell it"
        return replace(draft, about=about, calls=(*draft.calls, *kept), inverse=(*again, *draft.inverse))
