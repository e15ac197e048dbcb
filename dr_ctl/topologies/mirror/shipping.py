"""The waits on links, `catch-up` and `drain`, and a restart that an operator asks for; a link is left started.

A poll asks every broker, and every pair ends for itself. A link that hangs is restarted instead of waited out: a hung
handshake takes a minute otherwise.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.figures import evidence, said, total
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, links, planning
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.mirror.reading import Access, Flow, Way
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"
NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3
UNDER_WAY: Final = "events under way between the sites"
Flows = Mapping[str, Flow | BrokerError]
SMALL: Final = 500
CALM: Final = 2


def _link(view: BrokerView, goal: Goal, when: str | None = None, at_most: int = 1) -> list[Call]:
    if (link := view.broker_connection) is None:
        return []
    operation, does = (START_LINK, "start") if goal is Goal.LINK_UP else (STOP_LINK, "stop")
    asked = request(beans.server(view.broker), operation, (link.name,))
    return [call(view, goal, link.name, asked, f"{does} link {link.name}", when, at_most)]


def restarts(view: BrokerView) -> list[Call]:
    """Stop and start a link: a hung handshake is otherwise waited out, which takes a minute."""
    return [call for goal in (Goal.LINK_DOWN, Goal.LINK_UP) for call in _link(view, goal, NOT_ATTACHED, LINK_RESTARTS)]


def started(at: AtBroker) -> list[Call]:
    return at.missing(_link(at.view, Goal.LINK_UP))


def _stopped(at: AtBroker) -> list[Call]:
    return at.missing(_link(at.view, Goal.LINK_DOWN))


def _hung(at: AtBroker) -> list[Call]:
    return restarts(at.view)


_RESTARTS: Final[Wants] = ((_hung, SOURCE), (_hung, TARGET))
draft_catch_up: Final = planning(
    SOURCE, "{serving}both links attached, the outflow small", *_RESTARTS, limits=Rules.catching_up
)
draft_drain: Final = planning(
    TARGET,
    "everything shipped and applied, in both directions; pauses lifted meanwhile",
    *LIFTED,
    *_RESTARTS,
    limits=Rules.draining,
)
# An attached link too: a link that hangs may say that it is attached.
draft_restart: Final = planning(
    SOURCE,
    "stop and start the link of {source}, until it is attached; clients stay where they are",
    (_stopped, SOURCE),
    (started, SOURCE),
    limits=lambda rules, _, move: {"within": move.ask.timeout_s or rules.timeouts.link_attach_s},
)


def flows(tools: MirrorTools, brokers: Sequence[Access]) -> dict[tuple[str, str], Flow | BrokerError]:
    """The gate's numbers of several brokers, by site and pair, asked at the same time."""

    def ask(access: Access) -> tuple[tuple[str, str], Flow | BrokerError]:
        try:
            return (access.site, access.pair), access.flow(timeout_s=tools.waits.look_s)
        except BrokerError as error:
            return (access.site, access.pair), error

    return dict(tools.observer.together(ask, brokers))


class Movement:
    """Since when each link that is attached has shipped nothing of what it has."""

    def __init__(self) -> None:
        self._shipped: dict[str, tuple[int, float]] = {}

    def note(self, now: Flows, at_s: float) -> None:
        for site, flow in now.items():
            if isinstance(flow, BrokerError):
                continue
            shipped = flow.outflow_added - flow.to_ship
            was, _ = self._shipped.get(site, (None, at_s))
            if shipped != was or not flow.to_ship or not flow.attached:
                self._shipped[site] = shipped, at_s

    def idle_s(self, site: str, at_s: float) -> float:
        """Zero where it ships, has nothing to ship, or was never seen."""
        return at_s - self._shipped.get(site, (0, at_s))[1]

    def begin_anew(self, site: str) -> None:
        self._shipped.pop(site, None)


class Mender:
    """Restarts a link that stays unattached, or ships nothing, although its peer answers and lets links in."""

    def __init__(self, tools: MirrorTools, brokers: Sequence[Access], movement: Movement) -> None:
        self._tools, self._movement = tools, movement
        self._brokers = {access.site: access for access in brokers}
        self._since: dict[str, float] = {}
        self._restarted: dict[str, int] = dict.fromkeys(self._brokers, 0)

    def tend(self, now: Flows, context: StepContext) -> None:
        """Look at one poll, whose movement is noted; restart what hangs, a bounded number of times."""
        for site, access in self._brokers.items():
            mine = now[site]
            peer = next(flow for other, flow in now.items() if other != site)
            idle = self._movement.idle_s(site, context.monotonic()) > self._tools.waits.hung_s
            hangs = isinstance(mine, Flow) and mine.link_started and (idle or not mine.attached)
            if not (hangs and isinstance(peer, Flow) and peer.mirror_open):
                self._since.pop(site, None)
                continue
            since = self._since.setdefault(site, context.monotonic())
            patient = not idle and context.monotonic() - since < self._tools.timeouts.link_lost_s
            if patient or self._restarted[site] >= LINK_RESTARTS:
                continue
            self._since[site] = (
                context.monotonic()
                + self._tools.timeouts.link_between_s * 2 ** self._restarted[site]
                - self._tools.timeouts.link_lost_s
            )
            self._restarted[site] += 1
            self._movement.begin_anew(site)
            what = "ships nothing" if idle else "is not attached"
            context.notice(f"{site}: the link {what} although the peer answers: restarting it")
            # Stop and start travel in one POST, so no call comes between and leaves the link stopped.
            self._tools.change(restarts(access.names()), context)

    @property
    def restarts(self) -> int:
        return sum(self._restarted.values())


def why_not_moving(now: Flows) -> str | None:
    """Say why the outflows do not empty, or None if no reason is seen."""
    for site, flow in now.items():
        if isinstance(flow, BrokerError):
            return f"{site} does not answer: {flow}"
        if not flow.linked:
            continue
        if not flow.link_started:
            return f"the link of {site} is not started"
        if not flow.attached:
            return f"the link of {site} is not attached"
    pending = {site: flow.unapplied for site, flow in now.items() if isinstance(flow, Flow) and flow.unapplied}
    shipping = any(isinstance(flow, Flow) and flow.to_ship for flow in now.values())
    if pending and not shipping:
        return "acknowledgements wait to be applied at " + ", ".join(f"{site} ({n})" for site, n in pending.items())
    return None


def depth(now: Flows) -> int | None:
    """The number under way in both directions, or None if a broker did not answer."""
    return total(None if isinstance(flow, BrokerError) else flow.to_ship + flow.unapplied for flow in now.values())


class PairWait(ABC):
    """The wait of one pair. `outcome` is None until it has ended."""

    def __init__(self, way: Way, tools: MirrorTools, context: StepContext) -> None:
        self.way, self.pair, self._tools = way, way[0].pair, tools
        self.outcome: Outcome | None = None
        self.began = self._moved_at = context.monotonic()
        self.first: int | None = None
        self.last: int | None = None
        self._movement = Movement()
        self.mender = Mender(tools, way, self._movement)

    def look(self, now: Flows, context: StepContext) -> None:
        """Note one poll, and whether the wait has ended with it."""
        self._movement.note(now, context.monotonic())
        left = self.left(now)
        if left is not None:
            if left != self.last:
                self._moved_at = context.monotonic()
            self.first = left if self.first is None else self.first
            self.last = left
        self.outcome = self.ended(now, context)

    def why(self, now: Flows, context: StepContext) -> str | None:
        """Say what keeps it from ending: by the links' state, or because the peer takes nothing."""
        reason = why_not_moving(now)
        idle = {site: self._movement.idle_s(site, context.monotonic()) for site in now}
        hung = (
            f"the peer has taken nothing from {site} for {seconds:.0f} s: its link hangs"
            for site, seconds in idle.items()
            if seconds > self._tools.waits.idle_s
        )
        return reason if reason is not None else next(hung, None)

    def stalled_s(self, context: StepContext) -> float:
        return context.monotonic() - self._moved_at

    def left(self, now: Flows) -> int | None:
        """The number still to come, or None if unknown."""
        return depth(now)

    @abstractmethod
    def ended(self, now: Flows, context: StepContext) -> Outcome | None:
        """Say how the wait ended, or None while it goes on."""


def until_all(
    tools: MirrorTools, waits: Sequence[PairWait], context: StepContext, about: str, poll_s: float
) -> Outcome | None:
    """Poll until every wait has ended; the first that did not end well ends all, and is returned."""

    def look() -> Mapping[str, Flows]:
        going_on = [wait for wait in waits if wait.outcome is None]
        looks = flows(tools, [access for wait in going_on for access in wait.way])
        now = {wait.pair: {access.site: looks[access.site, wait.pair] for access in wait.way} for wait in going_on}
        for wait in going_on:
            wait.look(now[wait.pair], context)
        reasons = [why for wait in going_on if wait.outcome is None and (why := wait.why(now[wait.pair], context))]
        context.waiting(about, total(wait.left(now[wait.pair]) for wait in going_on), next(iter(reasons), None))
        context.sample(evidence((site, flow) for flows in now.values() for site, flow in flows.items()))
        return now

    def failed() -> Outcome | None:
        for wait in waits:
            if wait.outcome is not None and not isinstance(wait.outcome, Done):
                named = f"{wait.pair}: " if len(waits) > 1 else ""
                return replace(wait.outcome, text=f"{named}{wait.outcome.text}")
        return None

    def tend(now: Mapping[str, Flows]) -> None:
        for wait in waits:
            if wait.outcome is None:
                wait.mender.tend(now[wait.pair], context)

    until(
        context,
        look,
        holds=lambda _: all(isinstance(wait.outcome, Done) for wait in waits),
        hopeless=lambda _: failed() is not None,
        within_s=None,  # a pair ends by its own deadline
        poll_s=poll_s,
        meanwhile=tend,
    )
    return failed()


def catch_up(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait, while the source serves, until both links are attached and a drain would take a moment."""
    within_s = step.limits["within"]
    waits = [_Small(way, tools, context, within_s) for way in tools.observer.ways(move)]
    failed = until_all(tools, waits, context, UNDER_WAY, tools.timeouts.link_poll_s) if waits else None
    if failed is not None:
        return failed
    left, restarts = sum(each.last or 0 for each in waits), sum(each.mender.restarts for each in waits)
    return Done(f"{left} event(s) under way", {"under_way": left, "restarts": restarts})


class _Small(PairWait):
    """Until little is under way; at the latest then it must have become less."""

    def __init__(self, way: Way, tools: MirrorTools, context: StepContext, within_s: float) -> None:
        super().__init__(way, tools, context)
        self._within_s = within_s

    def ended(self, now: Flows, context: StepContext) -> Outcome | None:
        attached = all(isinstance(flow, Flow) and flow.attached for flow in now.values())
        total = self.left(now)
        if attached and total is not None and total <= SMALL:
            return Done("little is under way")
        if context.monotonic() - self.began <= self._within_s:
            return None
        if total is None or not attached:
            return Refused(f"not caught up: {if_known(self.why(now, context))}")
        if self.first is not None and total >= self.first:
            return Refused(f"the outflow grows while clients work: {self.first} event(s), then {total}")
        return Done("less and less is under way")


def drain(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
    with lifting(tools, move, context) as lifted:
        waits = [_Empty(way, tools, context, step) for way in tools.observer.ways(move)]
        failed = until_all(tools, waits, context, UNDER_WAY, tools.rules.drain.poll) if waits else None
    done = Done("nothing is under way", {"restarts": sum(each.mender.restarts for each in waits)})
    return lifted.judged(failed or done)


class _Empty(PairWait):
    """Until nothing is under way in either direction, several polls in a row."""

    def __init__(self, way: Way, tools: MirrorTools, context: StepContext, step: PlannedStep) -> None:
        super().__init__(way, tools, context)
        self._limits = step.limits
        self._calm = 0

    def ended(self, now: Flows, context: StepContext) -> Outcome | None:
        if opened := [site for site, flow in now.items() if isinstance(flow, Flow) and flow.listeners_open]:
            return Refused(f"{opened[0]} was opened to clients during the drain")
        empty = all(isinstance(flow, Flow) and flow.attached and flow.empty for flow in now.values())
        self._calm = self._calm + 1 if empty else 0
        if self._calm >= CALM:
            return Done("nothing is under way")
        why, took = self.why(now, context), context.monotonic() - self.began
        left = f"{said(self.last)} event(s) under way"
        if took > self._limits["within"]:
            reason = why or "they move too slowly"
            return Refused(f"not drained after {duration(took)}: {left}; {reason}", code=ExitCode.DRAIN_TIMEOUT)
        if self.stalled_s(context) > self._limits["stall"]:
            text = f"nothing moved for {duration(self._limits['stall'])}: {left}; {why or 'nothing says why'}"
            return Refused(text, code=ExitCode.DRAIN_TIMEOUT)
        return None


def restart(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Whether it attached is looked at, not what the call answered."""
    tools.change(step.calls, context)  # in one request, so no call comes between and leaves the link stopped
    brokers, about = tools.observer.at(move.source), f"the link of {move.source} attaches"
    waited = until(
        context,
        lambda: {f"{site}/{pair}": flow for (site, pair), flow in flows(tools, brokers).items()},
        holds=lambda now: not _away(now),
        within_s=step.limits["within"],
        poll_s=tools.timeouts.link_poll_s,
        meanwhile=lambda now: context.waiting(about, len(_away(now)), why_not_moving(now)),
    )
    if waited.held:
        return Done(f"the link of {move.source} is attached")
    return Refused.of(
        found(
            "DR-LINK-008",
            link=f"the link of {', '.join(_away(waited.look))}",
            within=duration(step.limits["within"]),
            why=f": {if_known(why_not_moving(waited.look))}",
            target=move.target,
        )
    )


def _away(now: Flows) -> list[str]:
    return [name for name, flow in now.items() if not (isinstance(flow, Flow) and flow.attached)]


UNDO: Final = Undo(source=(links,), target=(links,))
