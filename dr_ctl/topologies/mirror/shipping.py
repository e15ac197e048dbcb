"""The waits on links, `catch-up` and `drain`, and a restart that an operator asks for; a link is left started.

A poll asks every broker, and every pair ends for itself. A link that hangs is restarted instead of waited out: a hung
handshake takes a minute otherwise.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import call, request
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting
from dr_ctl.topologies.common.waiting import Readings, Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, links, planning
from dr_ctl.topologies.mirror.reading import Access, Flow
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"
NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3
UNDER_WAY: Final = "events under way between the sites"
Flows = Readings[Flow]
SMALL: Final = 500


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


class Events:
    """The events under way from one broker to its peer, and those of the peer that wait there to be applied. A link
    that stays unattached, or ships nothing, although its peer answers and lets links in, is restarted instead of waited
    out."""

    mending = ""

    def __init__(self, here: Access, there: Access, tools: MirrorTools, context: StepContext, small: int = 0) -> None:
        self.here, self.there = here, there
        self._tools, self._context, self._small = tools, context, small
        self._shipped: int | None = None
        self._left: int | None = None
        self._moved_at = context.monotonic()
        self._hangs_at: float | None = None
        self._restarted = 0

    def left(self, here: Flow, _there: Flow) -> int | None:
        shipped = here.outflow_added - here.to_ship
        if shipped != self._shipped or not here.to_ship or not here.attached:
            self._shipped, self._moved_at = shipped, self._context.monotonic()
        self._left = max(here.to_ship, here.outflow_delivering) + here.unapplied
        return self._left

    def why(self, here: Flow, there: Flow) -> list[str]:
        site, idle_s = self.here.site, self._context.monotonic() - self._moved_at
        if (why := why_not_attached(site, here)) is not None:
            return [why]
        if self._left is not None and self._left <= self._small:
            return []
        if here.unapplied and not here.to_ship and not there.to_ship:
            return [f"acknowledgements wait to be applied at {site} ({here.unapplied})"]
        if idle_s > self._tools.waits.idle_s:
            return [f"the peer has taken nothing from {site} for {idle_s:.0f} s: its link hangs"]
        return []

    def mends(self, here: Flow, there: Flow | BrokerError) -> list[Call]:
        now, between_s = self._context.monotonic(), self._tools.timeouts.link_between_s * 2**self._restarted
        lost_s = self._tools.timeouts.link_lost_s
        idle = now - self._moved_at > self._tools.waits.hung_s
        if not (here.link_started and (idle or not here.attached) and isinstance(there, Flow) and there.mirror_open):
            self._hangs_at = None
            return []
        self._hangs_at = now if self._hangs_at is None else self._hangs_at
        if (not idle and now - self._hangs_at < lost_s) or self._restarted >= LINK_RESTARTS:
            return []
        self._hangs_at, self._moved_at = now + between_s - lost_s, now
        self._restarted += 1
        what = "ships nothing" if idle else "is not attached"
        self.mending = f"the link {what} although the peer answers: restarting it"
        # Stop and start travel in one POST, so no call comes between and leaves the link stopped.
        return restarts(self.here.names())


def why_not_attached(name: str, flow: Flow) -> str | None:
    if flow.attached:
        return None
    return f"the link of {name} is not {'attached' if flow.link_started else 'started'}"


def wait(
    tools: MirrorTools, directions: Sequence[Events], context: StepContext, about: str = UNDER_WAY, small: int = 0
) -> Wait[Flow]:
    return Wait(
        tools,
        directions,
        context,
        about,
        small,
        counts=" event(s)",
        read=partial(flows, tools),
        figures=lambda flow: flow,
        lessens=about != UNDER_WAY,
    )


def _both(tools: MirrorTools, move: Move, context: StepContext, small: int = 0) -> Wait[Flow]:
    ways = [way for here, there in tools.observer.ways(move) for way in ((here, there), (there, here))]
    return wait(tools, [Events(*way, tools, context, small) for way in ways], context, small=small)


def catch_up(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait, while the source serves, until both links are attached and a drain would take a moment."""
    waited = _both(tools, move, context, SMALL)
    failed = waited.until(tools.timeouts.link_poll_s, step.limits, calms=1)
    if failed is not None and (waited.why or waited.first is None or waited.last is None):
        return Refused(f"not caught up: {some(waited.why) or failed.text}")
    left, first = waited.last or 0, waited.first or 0
    if failed is not None and left >= first:
        return Refused(f"the outflow grows while clients work: {first} event(s), then {left}")
    return Done(f"{left} event(s) under way", {"under_way": left, "restarts": waited.mended})


def drain(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses and wait, side by side, until nothing is under way in either direction."""
    with lifting(tools, move, context) as lifted:
        waited = _both(tools, move, context)
        failed = waited.until(tools.rules.drain.poll, step.limits, lambda flow: flow.listeners_open)
    return lifted.judged(failed or Done("nothing is under way", {"restarts": waited.mended}))


def restart(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.change(step.calls, context)  # in one request, so no call comes between and leaves the link stopped

    def away() -> dict[str, str]:
        readings = flows(tools, tools.observer.at(move.source))
        now = {f"{site}/{pair}": flow for (site, pair), flow in readings.items()}
        why = (
            (name, why_not_attached(name, flow) if isinstance(flow, Flow) else f"{name} does not answer: {flow}")
            for name, flow in now.items()
        )
        return {name: reason for name, reason in why if reason is not None}

    return attached(tools, step, move, context, "the link", away)


UNDO: Final = Undo(source=(links,), target=(links,))
