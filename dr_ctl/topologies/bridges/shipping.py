"""Waits on bridges, `catch-up` and `drain`, and a restart by an operator; a bridge that is stopped is started."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding
from dr_ctl.core.notation import if_known
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, Refused, StepContext
from dr_ctl.topologies.artemis.operations import START, STOP
from dr_ctl.topologies.bridges.duplicates import Lacking, lacking, told
from dr_ctl.topologies.bridges.reading import Access
from dr_ctl.topologies.bridges.tools import BridgesTools, IdBarrier, MessageBarrier
from dr_ctl.topologies.bridges.view import Bridge, BrokerView, Chosen
from dr_ctl.topologies.common import waiting
from dr_ctl.topologies.common.calls import call, request
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.waiting import attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, links, planning

STOPPED: Final = "it is stopped"
STOPS_S: Final = 75.0  # a bridge whose link had failed takes no start for a minute after its stop
UNDER_WAY: Final = "messages and processed ids under way between the sites"
SMALL: Final = 500
AGAIN_S: Final = 2.0


def starts(view: BrokerView, chosen: Chosen) -> list[Call]:
    """Start stopped bridges of the queues that are asked for and of the ids. A bridge that is not connected is left to
    its own retries: after a failed link a stop takes ten seconds, and for a minute no start is taken."""
    return [_start(view, bridge, STOPPED) for bridge in _bridges(view, chosen)]


def _bridges(view: BrokerView, chosen: Chosen) -> list[Bridge]:
    return [bridge for flow in view.carrying_among(chosen) for bridge in flow.bridges]


def _start(view: BrokerView, bridge: Bridge, when: str | None = None) -> Call:
    asked = request(bridge.bean, START)
    return call(view, Goal.LINK_UP, bridge.name, asked, f"start bridge {bridge.name}", when)


def _started(at: AtBroker) -> list[Call]:
    return starts(at.view, at.move.moves)


def _stopped(at: AtBroker) -> list[Call]:
    return at.missing(
        call(at.view, Goal.LINK_DOWN, bridge.name, request(bridge.bean, STOP), f"stop bridge {bridge.name}")
        for bridge in _bridges(at.view, at.move.ask.includes)
    )


def _started_again(at: AtBroker) -> list[Call]:
    return at.missing(_start(at.view, bridge) for bridge in _bridges(at.view, at.move.ask.includes))


draft_catch_up: Final = planning(
    SOURCE, "{serving}the bridges connected, the buffers small", (_started, SOURCE), limits=Rules.catching_up
)
draft_drain: Final = planning(
    TARGET, "all messages shipped, all processed ids applied", (_started, SOURCE), limits=Rules.draining
)
AGAIN: Final[Wants] = ((_started_again, SOURCE),)
# Connected bridges too: a bridge that hangs may say that it is connected.
draft_restart: Final = planning(
    SOURCE,
    "stop and start the bridges of {source}, until they are connected; clients stay where they are",
    *((_stopped, SOURCE), *AGAIN),
    limits=lambda _, __, move: {"within": move.ask.timeout_s or STOPS_S},
)


class Direction:
    """Messages and ids of some units under way from one site to the other. Messages count until the buffers are empty;
    with a barrier, only messages that lay there at its start count. Ids count until all noted ones are applied.
    `accepted`: how many delayed messages of a unit may come later."""

    mending = "bridges are stopped: starting them"

    def __init__(
        self,
        here: Access,
        there: Access,
        chosen: Chosen,
        ids: IdBarrier,
        messages: MessageBarrier | None = None,
        *,
        accepted: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.here, self.there, self.chosen = here, there, chosen
        self._ids, self._messages, self._accepted = ids, messages, accepted

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        if self._messages is not None:
            return total((self._messages.left(here, self.chosen), self._ids.left(here, there)))
        flows = [flow.to_ship_now(self._accepted) for flow in here.flows if self.chosen(flow.unit)]
        return total((*flows, self._ids.left(here, there)))

    def why(self, here: BrokerView, there: BrokerView) -> list[str]:
        carrying = here.carrying_among(self.chosen)
        found = [f"the bridge of {flow.unit} at {here.site} is not connected" for flow in carrying if not flow.attached]
        if not any(queue.consumers for queue in there.arrived):
            found.append(f"nothing applies the ids that arrive at {there.site}")
        return found

    def mends(self, here: BrokerView, _there: object) -> list[Call]:
        """Start stopped bridges; a bridge that is not connected is left to its own retries."""
        return [call for call in starts(here, self.chosen) if not here.holds(call)]


def wait(
    tools: BridgesTools, directions: Sequence[Direction], context: StepContext, small: int = 0
) -> waiting.Wait[BrokerView]:
    """A wait for several directions at once. `small` is how much may be left."""
    return waiting.Wait(tools, directions, context, UNDER_WAY, small)


def catch_up(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """While the source serves: the bridges connected, and little enough under way that a drain takes a moment."""
    ways = tools.observer.ways(move)
    before = _ids_lacking(tools, move)
    waiting = wait(tools, [Direction(*way, move.moves, IdBarrier()) for way in ways], context, SMALL)
    failed = waiting.until(tools.timeouts.link_poll_s, step.limits)
    if failed is not None:
        if waiting.first is not None and waiting.last is not None and waiting.last >= waiting.first > SMALL:
            return Refused(f"the buffers grow while clients work: {waiting.first} under way, then {waiting.last}")
        return Refused(failed.text)
    if lost := _ids_lost(tools, move, before, waiting.last or 0):
        return Refused(lost[0].text, findings=tuple(lost))
    return Done(f"{if_known(waiting.last)} under way", {"under_way": waiting.last, "started": waiting.mended})


def _ids_lacking(tools: BridgesTools, move: Move) -> dict[str, Lacking]:
    """By pair; without the stores that cannot be read, which the gate tells."""
    found = {}
    for way in tools.observer.ways(move):
        with suppress(BrokerError):
            found[way[1].pair] = lacking(way, way[1].read(), move.moves) or {}
    return found


def _ids_lost(tools: BridgesTools, move: Move, before: Mapping[str, Lacking], under_way: int) -> list[Finding]:
    """Refuse before anybody is locked out: ids that were lacking already before the wait, and are more than what is
    under way. The gate compares again, when nothing is under way."""
    found: list[Finding] = []
    for way in tools.observer.ways(move) if any(before.values()) else ():
        with suppress(BrokerError):
            copies = way[1].read()
            now = lacking(way, copies, move.moves) or {}
            still_ = {queue: now.get(queue, frozenset()) & ids for queue, ids in before[way[1].pair].items()}
            if sum(map(len, still_.values())) > under_way:
                found += told(way, copies, still_, move.ask, timeout_s=tools.timeouts.flag_s)
    return found


def drain(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    gate = tools.gate
    accepted = move.ask.accept_difference
    ways = [
        Direction(*way, move.moves, gate.barrier(move.source, way[0].pair), accepted=accepted)
        for way in tools.observer.ways(move)
    ]
    waiting = wait(tools, ways, context)
    # The gate looks again, over its window.
    failed = waiting.until(tools.rules.drain.poll, step.limits, lambda view: view.open_among(move.moves), calms=1)
    return failed or Done("nothing is under way", {"started": waiting.mended})


def restart(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    stops = [call for call in step.calls if call.goal is Goal.LINK_DOWN]
    tools.change(stops, context)
    again_at = 0.0

    def look() -> dict[str, str]:
        """Name the units whose bridge is not connected. A start is refused for as long as a stop goes on, so it is sent
        until it is seen to hold."""
        nonlocal again_at
        stopped, _ = tools.missing(AGAIN, move)
        if stopped and context.monotonic() >= again_at:
            again_at = context.monotonic() + AGAIN_S
            tools.change(stopped, context)
        views = tools.observer.look_at(move.source)
        carrying = [flow for view in views for flow in view.carrying_among(move.ask.includes)]
        return {flow.unit: "" for flow in carrying if not flow.attached}

    return attached(tools, step, move, context, "the bridge", look)


UNDO: Final = Undo(source=(links,))
