"""How a pair of Artemis brokers does each verb: the exact calls and what undoes them. Pure.

What the way between the sites asks for is a topology's own: it adds verbs, and replaces some.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.operations import ALONE, DRAIN, FAILBACK, FAILOVER, FENCE, MOVING, REINSTATE, RETURNS
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.rpo.estimate.result import matches
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import alone, lasting, losing, receipts
from dr_ctl.topologies.artemis.baseline import baseline, basis, before, paused_by_runs
from dr_ctl.topologies.artemis.checks import errors_first, some
from dr_ctl.topologies.artemis.operations import of_new_queues, pause, remove_document, resume, write_document
from dr_ctl.topologies.artemis.queues import selected
from dr_ctl.topologies.artemis.view import Broker, Peer, Queue, Seen

NEW_QUEUES: Final = 100
QUIESCE_S: Final = 5.0
V = TypeVar("V", bound=Broker)


def probe_queue(site: str) -> str:
    """The name of dr-ctl's own queue for the probe: it contains the site that holds it."""
    return f"dr-ctl.probe.{site}"


class ArtemisRecipe(ABC, Generic[V]):
    """Decides for an installation from what was seen and what the settings say."""

    # Sentences on what this way between the sites does not bring over.
    _lost_on_the_way: ClassVar[tuple[str, ...]] = ()

    def __init__(self, queues: Queues, drain: Drain) -> None:
        self._queues = queues
        self._limits = drain
        self._drafts: dict[str, Callable[[RunbookStep, Seen[V], Move], Draft]] = {
            "observe": self._look,
            "check": self._look,
            "quiesce": self._quiesce,
            "fence": self._fence,
            "quarantine": losing.quarantine,
            "settle": losing.settle,
            "verify": self._verify,
            "activate": self._activate,
            "probe": self._probe,
            "release": self._release,
            **self._own(),
        }

    @abstractmethod
    def _own(self) -> Mapping[str, Callable[[RunbookStep, Seen[V], Move], Draft]]:
        """The verbs that the way between the sites does in its own manner."""

    @abstractmethod
    def _of_move(self, seen: Seen[V], move: Move) -> Sequence[Finding]:
        """All findings on a planned move."""

    @abstractmethod
    def _of_broker(self, view: V) -> Iterable[Finding]:
        """What one broker says of itself."""

    @abstractmethod
    def _of_return(self, seen: Seen[V], move: Move) -> Iterable[Finding]:
        """What speaks against taking the target in beside the serving source."""

    @abstractmethod
    def _nothing_owed(self, seen: Seen[V], move: Move) -> bool:
        """Say whether the target is taken in already."""

    @property
    def poll_s(self) -> float:
        return self._limits.poll

    def verbs(self) -> frozenset[str]:
        return frozenset(self._drafts)

    def baseline(self, seen: Seen[V]) -> Mapping[str, Json]:
        return baseline(seen)

    def why_not(self, seen: Seen[V], move: Move) -> Sequence[Finding]:
        if move.ask.operation == FAILOVER:
            return errors_first(losing.findings(seen, move, self._of_broker))
        if move.ask.operation in RETURNS:
            return errors_first(self._of_return(seen, move))
        if move.ask.operation in ALONE:
            return errors_first(
                alone.findings(
                    seen,
                    move,
                    lambda: self._of_move(seen, move),
                    lambda: [each for view in seen.views(move.source) for each in self._of_broker(view)],
                )
            )
        return self._of_move(seen, move)

    def draft(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        return self._drafts[step.verb](step, seen, move)

    def basis(self, seen: Seen[V]) -> Mapping[str, Json]:
        return basis(seen)

    def holds_already(self, seen: Seen[V], move: Move) -> str | None:
        if move.ask.operation == REINSTATE:
            return f"{move.target} is taken in already" if self._nothing_owed(seen, move) else None
        return alone.holds_already(seen, move)

    def not_replicated(self, seen: Seen[V], move: Move) -> Sequence[str]:
        if move.ask.operation not in MOVING:
            return ()
        told = [
            "pauses, address settings, security settings, diverts and bridges: each site has its own",
            "temporary queues and what lies in them",
            "open transactions: they are rolled back when the clients' doors close",
            *self._lost_on_the_way,
        ]
        for view in seen.views(move.source):
            kinds = {
                "non-durable queues": [queue.name for queue in view.business.values() if not queue.durable],
                "queues left out of quiesce and parity by the settings (they move too)": [
                    queue.name for queue in view.business.values() if not self.selects(queue.name)
                ],
            }
            told += [f"{kind}: {some(sorted(names))}" for kind, names in kinds.items() if names]
        return told

    def cannot_know(self, move: Move) -> Sequence[str]:
        if move.ask.operation not in MOVING:
            return ()
        return (
            "whether clients reconnect to the target: they need its address",
            "how long the clients need to finish what they hold",
            "what a client sent whose receipt it never saw",
        )

    def selects(self, name: str) -> bool:
        return matches(self._queues.include, name) and not matches(self._queues.exclude, name)

    def to_pause(self, view: V) -> list[Queue]:
        """Queues that a quiesce pauses: those the settings speak of that deliver now."""
        return [queue for queue in selected(view, self._queues).values() if not queue.paused]

    def lifts(self, view: V, move: Move) -> list[Call]:
        """Resume what is paused now and was not before the run."""
        was = before(move, view)
        return [
            resume(view, queue)
            for queue in view.business.values()
            if queue.paused and queue.name not in was["paused"] and self.selects(queue.name)
        ]

    # One method a verb; the comments say why where the order matters.

    def _look(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        if step.verb == "observe":
            return Draft("", "look at both sites")
        fences = move.ask.operation not in (FAILOVER, REINSTATE) and seen.roles[move.source] is Role.SERVING
        return Draft("", f"all checks{', and a greeting by the serving site as a client gets it' if fences else ''}")

    def _quiesce(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        calls: list[Call] = []
        inverse: list[Call] = []
        for view in seen.views(move.source):
            calls += self._of_each(view, pause, Goal.PAUSE)
            was = before(move, view)
            inverse += [
                resume(view, queue, "it is paused")
                for queue in view.business.values()
                if queue.name not in was["paused"] and self.selects(queue.name)
            ]
        return Draft(
            move.source,
            "dispatch stops; clients finish what they hold",
            tuple(calls),
            tuple(inverse),
            {"within": step.limits.get("within", QUIESCE_S)},
        )

    def _fence(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        if step.site == "lost":
            return losing.fence(step, seen, move)
        if move.ask.operation == FENCE:
            return alone.fence(step, seen, move)
        views = seen.views(move.source)
        return Draft(
            move.source,
            "clients out, proven",
            tuple(lasting.fence(views)),
            tuple(lasting.unfence(views, move)),
        )

    def _lifts_planned(self, seen: Seen[V], move: Move) -> tuple[Call, ...]:
        """What quiesce will have paused, and what an interrupted run left paused."""
        calls: list[Call] = []
        for view in seen.views(move.source):
            calls += [*self._of_each(view, resume, Goal.RESUME), *self.lifts(view, move)]
        return tuple(calls)

    def _of_each(self, view: V, make: Callable[[V, Queue], Call], goal: Goal) -> list[Call]:
        """The call for each queue that a quiesce is for, and for those that are created meanwhile."""
        queues = self.to_pause(view) if view.open else []
        calls = [make(view, queue) for queue in queues]
        if queues:
            calls.append(of_new_queues(view, goal, NEW_QUEUES))
        return calls

    def _verify(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        del step
        limits = {"within": self._within(move), "stable": float(self._limits.stable)}
        about, calls = "the whole gate, stable; both sites hold the same", tuple[Call, ...]()
        if move.ask.operation == DRAIN:
            about += "; then the receipt"
            calls = flat(receipts.write(view, None, receipts.HOLDS) for view in seen.views(move.target))
        return Draft(move.target, about, calls, limits=limits)

    def _release(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        del step
        return alone.release(seen, move)

    def _activate(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        del step
        # What runs have left paused there would reach nobody.
        lifted = [
            resume(view, queue)
            for view in seen.views(move.target)
            for queue in view.business.values()
            if queue.paused and queue.name in paused_by_runs(view)
        ]
        # One that came back open is closed before anything else, and stays closed where the move back is undone.
        returns = move.ask.operation == FAILBACK
        closed_first = returns and losing.came_back_open(seen, move)
        kept_out = "they were kept out when it came back" if closed_first else None
        lost = move.ask.operation == FAILOVER
        calls, inverse = list[Call](), list[Call]()
        for view in seen.views(move.target):
            was = before(move, view)
            calls += in_part("admit", lasting.let_in(view, kept_out))
            shut_now = (door for door in view.doors if closed_first or not door.started)
            calls += in_part("doors", view.opening(shut_now, Peer.AWAY if lost else Peer.DRAINED))
            shut = [door for door in view.doors if returns or not was["doors"].get(door.name)]
            inverse += view.closing(shut, "it is open")
            inverse += lasting.shut_out(view, "they are let in") if returns or was["shut_out"] else []
        if seen.roles[move.target] is Role.SERVING and move.ask.operation != FAILOVER:
            # A resumed run that had passed the gate: nothing is left but what quiesce paused.
            calls += [each for view in seen.views(move.source) for each in self.lifts(view, move)]
        calls += [*lifted, *in_part("strikes", alone.strikes(seen))]
        return Draft(move.target, "the doors open, proven by a client's greeting", tuple(calls), tuple(inverse))

    def _probe(self, step: RunbookStep, seen: Seen[V], move: Move) -> Draft:
        del step
        calls: list[Call] = []
        name = probe_queue(move.target)
        for view in seen.views(move.target):
            calls.append(write_document(view, name, view.papers.probe(name), f"create {name} at {view.site}"))
            # With its consumers: the probe's own may not have been taken off yet when it has hung up.
            calls.append(remove_document(view, name, f"remove {name} at {view.site}"))
        return Draft(move.target, "one message goes in and comes out as a client's would", tuple(calls))

    def _within(self, move: Move) -> float:
        return move.ask.timeout_s if move.ask.timeout_s is not None else self._limits.timeout


def flat(groups: Iterable[tuple[Call, ...]]) -> tuple[Call, ...]:
    return tuple(each for group in groups for each in group)
