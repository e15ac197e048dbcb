"""How folders do each verb: the calls, and what undoes them. Pure.

Everything that can be set is a file that is there or not, so that every call is one of two requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dr_ctl.core.model import Finding, Json, Role, Severity
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.operations import ALONE, FAILOVER, REINSTATE
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Check, Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from tests.folders.seen import FoldersSeen

DRAIN_S = 5.0
LINK = "closed"  # the file that keeps out what the peer ships


class FoldersRecipe:
    """Implements `Recipe`."""

    moves_parts = True

    def __init__(self) -> None:
        self._drafts: dict[str, Callable[[FoldersSeen, Move], Draft]] = {
            "observe": lambda seen, move: Draft("", "look at both sites"),
            "check": lambda seen, move: Draft("", "all checks"),
            "catch-up": lambda seen, move: Draft(
                move.source, "what lies in the outflow is shipped", limits=_within(move)
            ),
            "quiesce": self._quiesce,
            "fence": self._fence,
            "drain": lambda seen, move: Draft(move.target, "everything is shipped", limits=_within(move)),
            "verify": lambda seen, move: Draft(move.target, "both sites hold the same"),
            "activate": self._activate,
            "probe": lambda seen, move: Draft(move.target, "the door is open"),
            "quarantine": self._quarantine,
            "settle": lambda seen, move: Draft(move.target, "nothing is under way from a site that is gone"),
            "residue": self._residue,
            "reinstate": self._reinstate,
            "reconcile": lambda seen, move: Draft(move.target, "both sites hold the same"),
            "unfence": self._unfence,
        }

    def verbs(self) -> frozenset[str]:
        return frozenset(self._drafts)

    def baseline(self, seen: FoldersSeen) -> Mapping[str, Json]:
        found: dict[str, Json] = {}
        for site in seen.sites:
            if (view := seen.view(site)) is not None:
                flags: dict[str, Json] = {
                    "open": [name for name, is_open in view.doors.items() if is_open],
                    "paused": [name for name, is_paused in view.paused.items() if is_paused],
                }
                found[site] = {seen.pair: flags}
        return found

    def why_not(self, seen: FoldersSeen, move: Move) -> Sequence[Finding]:
        return list(self._against(seen, move))

    def checks(self, seen: FoldersSeen, move: Move) -> Sequence[Check]:
        return [Check("a site's folder is there", site, "there") for site in seen.roles]

    def draft(self, step: RunbookStep, seen: FoldersSeen, move: Move) -> Draft:
        return self._drafts[step.verb](seen, move)

    def basis(self, seen: FoldersSeen) -> Mapping[str, Json]:
        return dict(self.baseline(seen))

    def holds_already(self, seen: FoldersSeen, move: Move) -> str | None:
        if move.ask.operation == REINSTATE:
            return None if seen.debts else f"{move.target} is taken in already"
        if move.ask.operation == FAILOVER:
            return f"{move.target} serves already"
        closed = seen.roles[move.source] is Role.STANDBY
        return f"{move.source} is closed already" if closed and move.ask.operation != "unfence" else None

    def not_replicated(self, seen: FoldersSeen, move: Move) -> Sequence[str]:
        return ("which queues are paused",)

    def cannot_know(self, move: Move) -> Sequence[str]:
        return ("who writes into the files beside clients",)

    def _against(self, seen: FoldersSeen, move: Move) -> Iterator[Finding]:
        here, there = seen.view(move.source), seen.view(move.target)
        if there is None:
            yield Finding("DR-SITE-001", Severity.ERROR, f"{move.target} does not live", "Make its file `alive`.")
        elif here is not None and here.queues.keys() != there.queues.keys():
            yield Finding(
                "DR-PARITY-001", Severity.ERROR, "the sites have other queues", "Make the files that are missing."
            )
        elif here is None and move.ask.operation not in (FAILOVER, *ALONE):
            yield Finding("DR-SITE-001", Severity.ERROR, f"{move.source} does not live", "Make its file `alive`.")

    def _quiesce(self, seen: FoldersSeen, move: Move) -> Draft:
        flags = _at(seen, move.source).paused
        running = [name for name, is_paused in flags.items() if not is_paused and not move.leaves(name)]
        return Draft(
            move.source,
            "dispatch stops",
            tuple(self._pause(move.source, name) for name in running),
            tuple(self._resume(move.source, name) for name in _running_before(seen, move)),
        )

    def _fence(self, seen: FoldersSeen, move: Move) -> Draft:
        if seen.view(move.source) is None:
            return Draft(
                move.source, "it does not live, and its fence is owed", *self._debt(seen, move, DebtKind.FENCE)
            )
        before = [name for name in _before(seen, move, move.source)["open"] if not move.leaves(name)]
        opens = tuple(self._open(move.source, name) for name in before)
        return Draft(move.source, "clients out", self._closes(seen, move.source, move), opens)

    def _quarantine(self, seen: FoldersSeen, move: Move) -> Draft:
        """What the lost site still holds must not come in by itself when it returns."""
        written, struck = self._debt(seen, move, DebtKind.QUARANTINE)
        shut = self._put(move.target, "", Goal.LINK_DOWN, LINK, LINK, present=True)
        let_in = self._put(move.target, "", Goal.LINK_UP, LINK, LINK, present=False)
        return Draft(move.target, f"what {move.source} holds is kept out", (*written, shut), (let_in, *struck))

    def _activate(self, seen: FoldersSeen, move: Move) -> Draft:
        lifts = tuple(self._resume(move.source, name) for name in _running_before(seen, move))
        closes = self._closes(seen, move.target, move)
        opens = tuple(self._open(move.target, call.unit) for call in closes)
        return Draft(move.target, "clients in", opens + (lifts if seen.view(move.source) is not None else ()), closes)

    def _residue(self, seen: FoldersSeen, move: Move) -> Draft:
        closes = tuple(self._close(move.target, name) for name in _at(seen, move.target).doors)
        return Draft(move.target, "closed first, if it came back open", closes)

    def _reinstate(self, seen: FoldersSeen, move: Move) -> Draft:
        let_in = self._put(move.source, "", Goal.LINK_UP, LINK, LINK, present=False)
        shut = self._put(move.source, "", Goal.LINK_DOWN, LINK, LINK, present=True)
        struck = tuple(
            self._document(move.source, debt.kind, debt.about, present=False)
            for debt in seen.debts
            if debt.about == move.target
        )
        return Draft(move.target, "its residue is let in", (let_in, *struck), (shut,), _within(move))

    def _unfence(self, seen: FoldersSeen, move: Move) -> Draft:
        paused = [name for name, is_paused in _at(seen, move.source).paused.items() if is_paused]
        calls = [self._resume(move.source, name) for name in paused]
        closes = self._closes(seen, move.source, move)
        if seen.roles[move.target] is not Role.SERVING:
            calls += [self._open(move.source, call.unit) for call in closes]
        return Draft(move.source, "clients in again", tuple(calls), closes)

    # The calls.

    def _closes(self, seen: FoldersSeen, site: str, move: Move) -> tuple[Call, ...]:
        """The doors of what is to move; the others are left alone."""
        return tuple(self._close(site, name) for name in _at(seen, site).doors if not move.leaves(name))

    def _open(self, site: str, queue: str) -> Call:
        return self._put(site, queue, Goal.OPEN, queue, f"doors/{queue}", present=True)

    def _close(self, site: str, queue: str) -> Call:
        return self._put(site, queue, Goal.CLOSE, queue, f"doors/{queue}", present=False)

    def _pause(self, site: str, queue: str) -> Call:
        return self._put(site, queue, Goal.PAUSE, queue, f"paused/{queue}", present=True)

    def _resume(self, site: str, queue: str) -> Call:
        return self._put(site, queue, Goal.RESUME, queue, f"paused/{queue}", present=False)

    @staticmethod
    def _put(site: str, unit: str, goal: Goal, thing: str, path: str, *, present: bool) -> Call:
        return Call(site, unit, goal, thing, {"file": path, "present": present}, f"{goal.value} {thing} at {site}")

    def _debt(self, seen: FoldersSeen, move: Move, kind: DebtKind) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
        written, struck = (self._document(move.target, kind, move.source, present=each) for each in (True, False))
        return (written,), (struck,)

    @staticmethod
    def _document(kept_at: str, kind: DebtKind, about: str, *, present: bool) -> Call:
        goal = Goal.WRITE if present else Goal.STRIKE
        thing = f"{kind.value}.{about}"
        return Call(
            kept_at, "", goal, thing, {"kind": kind.value, "about": about}, f"{goal.value} {thing} at {kept_at}"
        )


def _at(seen: FoldersSeen, site: str) -> Any:
    view = seen.view(site)
    assert view is not None, f"{site} was seen to live"
    return view


def _before(seen: FoldersSeen, move: Move, site: str) -> Mapping[str, Any]:
    """What was set at a site before the run; nothing where it did not live."""
    told: Any = move.baseline.get(site, {})
    flags: Mapping[str, Any] = told.get(seen.pair, {"open": [], "paused": []})
    return flags


def _running_before(seen: FoldersSeen, move: Move) -> list[str]:
    view = seen.view(move.source)
    paused = _before(seen, move, move.source)["paused"]
    queues = view.queues if view is not None else ()
    return [name for name in queues if name not in paused and move.ask.includes(name)]


def _within(move: Move) -> dict[str, float]:
    return {"within": move.ask.timeout_s or DRAIN_S}
