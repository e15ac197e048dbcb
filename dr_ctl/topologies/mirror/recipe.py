"""How a mirrored pair does each verb: the exact calls and what undoes them. Pure: no broker, no file, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dr_ctl.core.model import Finding, Json, Role
from dr_ctl.engine.operations import ALONE, DRAIN, FAILBACK, FAILOVER, FENCE, MOVING, REINSTATE, RETURNS
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia import beans
from dr_ctl.rpo.result import matches
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.mirror import alone, checks, lasting, losing, parity, receipts, returning
from dr_ctl.topologies.mirror.baseline import baseline, basis, before, paused_by_runs
from dr_ctl.topologies.mirror.operations import (
    CREATE_QUEUE,
    DESTROY_QUEUE,
    PAUSE,
    RESUME,
    call,
    close_door,
    open_door,
    pause,
    resume,
    start_link,
    stop_link,
)
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen, Queue

NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3
NEW_QUEUES: Final = 100
QUIESCE_S: Final = 5.0
CATCH_UP_S: Final = 60.0


def probe_queue(site: str) -> str:
    """The name of dr-ctl's own queue for the probe: it contains the site that holds it."""
    return f"dr-ctl.probe.{site}"


class MirrorRecipe:
    """Decides for a mirrored installation from what was seen and what the settings say."""

    def __init__(self, queues: Queues, drain: Drain) -> None:
        self._queues = queues
        self._limits = drain
        self._drafts: dict[str, Callable[[RunbookStep, MirrorSeen, Move], Draft]] = {
            "observe": self._look,
            "check": self._look,
            "catch-up": self._catch_up,
            "quiesce": self._quiesce,
            "fence": self._fence,
            "quarantine": losing.quarantine,
            "settle": losing.settle,
            "residue": returning.residue,
            "reinstate": self._reinstate,
            "reconcile": returning.reconcile,
            "drain": self._drain,
            "verify": self._verify,
            "activate": self._activate,
            "probe": self._probe,
            "release": self._release,
        }

    @property
    def poll_s(self) -> float:
        return self._limits.poll

    def verbs(self) -> frozenset[str]:
        return frozenset(self._drafts)

    def baseline(self, seen: MirrorSeen) -> Mapping[str, Json]:
        return baseline(seen)

    def why_not(self, seen: MirrorSeen, move: Move) -> Sequence[Finding]:
        if move.ask.operation == FAILOVER:
            return checks.errors_first(losing.findings(seen, move))
        if move.ask.operation in RETURNS:
            return checks.errors_first(returning.findings(seen, move))
        if move.ask.operation in ALONE:
            return checks.errors_first(alone.findings(seen, move, self._queues))
        return checks.all_findings(
            seen,
            source=move.source,
            target=move.target,
            queues=self._queues,
            accepted=move.ask.accept_difference,
        )

    def draft(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        return self._drafts[step.verb](step, seen, move)

    def basis(self, seen: MirrorSeen) -> Mapping[str, Json]:
        return basis(seen)

    def holds_already(self, seen: MirrorSeen, move: Move) -> str | None:
        if move.ask.operation == REINSTATE:
            return f"{move.target} is taken in already" if returning.nothing_owed(seen, move) else None
        return alone.holds_already(seen, move)

    def not_replicated(self, seen: MirrorSeen, move: Move) -> Sequence[str]:
        if move.ask.operation not in MOVING:
            return ()
        told = [
            "pauses, address settings, security settings, diverts and bridges: each site has its own",
            "temporary queues and what lies in them",
            "open transactions: they are rolled back when the clients' doors close",
        ]
        for view in seen.views(move.source):
            kinds = {
                "non-durable queues": [queue.name for queue in view.business.values() if not queue.durable],
                "queues left out of quiesce and parity by the settings (they move too)": [
                    queue.name for queue in view.business.values() if not self.selects(queue.name)
                ],
            }
            told += [f"{kind}: {checks.some(sorted(names))}" for kind, names in kinds.items() if names]
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

    def to_pause(self, view: BrokerView) -> list[Queue]:
        """Queues that a quiesce pauses: those the settings speak of that deliver now."""
        return [queue for queue in parity.selected(view, self._queues).values() if not queue.paused]

    def lifts(self, view: BrokerView, move: Move) -> list[Call]:
        """Resume what is paused now and was not before the run."""
        was = before(move, view)
        return [
            resume(view, queue)
            for queue in view.business.values()
            if queue.paused and queue.name not in was["paused"] and self.selects(queue.name)
        ]

    def restart_link(self, view: BrokerView) -> tuple[Call, ...]:
        """Stop and start the link: a hung handshake is otherwise waited out, which takes a minute."""
        link = view.link
        if link is None:
            return ()
        return tuple(make(view, link, NOT_ATTACHED, LINK_RESTARTS) for make in (stop_link, start_link))

    # One method a verb; the comments say why where the order matters.

    def _look(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        if step.verb == "observe":
            return Draft("", "look at both sites")
        fences = move.ask.operation not in (FAILOVER, REINSTATE) and seen.roles[move.source] is Role.SERVING
        return Draft("", f"all checks{', and a greeting by the serving site as a client gets it' if fences else ''}")

    def _catch_up(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        views = [*seen.views(move.source), *seen.views(move.target)]
        return Draft(
            move.source,
            "still serving: both links attached, the outflow small",
            calls=_flat(self.restart_link(view) for view in views),
            inverse=_flat(self._start_link(view) for view in views),
            limits={"within": step.limits.get("within", CATCH_UP_S)},
        )

    def _quiesce(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        calls: list[Call] = []
        inverse: list[Call] = []
        for view in seen.views(move.source):
            if view.open:
                queues = self.to_pause(view)
                calls += [pause(view, queue) for queue in queues]
                if queues:
                    text = "pause a queue that was created meanwhile"
                    when = "a queue was created since the look"
                    calls.append(call(view, beans.all_queues(view.broker), PAUSE, (), text, when, NEW_QUEUES))
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

    def _fence(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
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

    def _drain(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        del step
        views = [*seen.views(move.source), *seen.views(move.target)]
        lifts = self._lifts_planned(seen, move)
        # Pauses are lifted beside the drain: the doors are closed, nothing is dispatched, and no time is lost.
        return Draft(
            move.target,
            "everything shipped and applied, in both directions; pauses lifted beside it",
            calls=(*lifts, *_flat(self.restart_link(view) for view in views)),
            inverse=_flat(self._start_link(view) for view in views),
            limits={"within": self._within(move), "stall": self._limits.stall},
        )

    def _lifts_planned(self, seen: MirrorSeen, move: Move) -> tuple[Call, ...]:
        """What quiesce will have paused, and what an interrupted run left paused."""
        calls: list[Call] = []
        for view in seen.views(move.source):
            if view.open:
                queues = self.to_pause(view)
                calls += [resume(view, queue) for queue in queues]
                if queues:
                    text = "resume a queue that was created meanwhile"
                    when = "a queue was created since the look"
                    calls.append(call(view, beans.all_queues(view.broker), RESUME, (), text, when, NEW_QUEUES))
            calls += self.lifts(view, move)
        return tuple(calls)

    def _verify(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        del step
        limits = {"within": self._within(move), "stable": float(self._limits.stable)}
        about, calls = "the whole gate, stable; both sites hold the same", tuple[Call, ...]()
        if move.ask.operation == DRAIN:
            about += "; then the receipt"
            calls = _flat(receipts.write(view, None, receipts.HOLDS) for view in seen.views(move.target))
        return Draft(move.target, about, calls, limits=limits)

    def _release(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        del step
        return alone.release(seen, move)

    def _reinstate(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        return returning.reinstate(step, seen, move, self._within(move))

    def _activate(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
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
        closed_first = returns and returning.came_back_open(seen, move)
        kept_out = "they were kept out when it came back" if closed_first else None
        calls, inverse = list[Call](), list[Call]()
        for view in seen.views(move.target):
            was = before(move, view)
            calls += lasting.let_in(view, kept_out)
            calls += [open_door(view, door) for door in view.doors if closed_first or not door.started]
            shut = [door for door in view.doors if returns or not was["doors"].get(door.name)]
            inverse += [close_door(view, door, "it is open") for door in shut]
            inverse += lasting.shut_out(view, "they are let in") if returns or was["shut_out"] else []
        if seen.roles[move.target] is Role.SERVING and move.ask.operation != FAILOVER:
            # A resumed run that had passed the gate: nothing is left but what quiesce paused.
            calls += [each for view in seen.views(move.source) for each in self.lifts(view, move)]
        calls += [*lifted, *alone.strikes(seen)]
        return Draft(move.target, "the doors open, proven by a client's greeting", tuple(calls), tuple(inverse))

    def _probe(self, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
        del step
        calls: list[Call] = []
        name = probe_queue(move.target)
        # Internal: such a queue and what lies in it never reach the peer, whatever the link's address filter says.
        told = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": False, "internal": True}
        for view in seen.views(move.target):
            server = beans.server(view.broker)
            calls.append(call(view, server, CREATE_QUEUE, (json.dumps(told), True), f"create {name}"))
            # With its consumers: the probe's own may not have been taken off yet when it has hung up.
            calls.append(call(view, server, DESTROY_QUEUE, (name, True), f"remove {name}"))
        return Draft(move.target, "one message goes in and comes out as a client's would", tuple(calls))

    def _within(self, move: Move) -> float:
        return move.ask.timeout_s if move.ask.timeout_s is not None else self._limits.timeout

    def _start_link(self, view: BrokerView) -> tuple[Call, ...]:
        link = view.link
        if link is None or not link.started:
            return ()
        return (start_link(view, link, "it is stopped"),)


def _flat(groups: Iterable[tuple[Call, ...]]) -> tuple[Call, ...]:
    return tuple(each for group in groups for each in group)
