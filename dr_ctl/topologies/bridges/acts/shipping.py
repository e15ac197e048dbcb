"""Acts of the waits on bridges, `catch-up` and `drain`, and of a restart; a bridge is left started."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding, some
from dr_ctl.core.printable import if_known
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.bridges.barrier import IdBarrier
from dr_ctl.topologies.bridges.duplicates import Lacking, lacking, told
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.bridges.waiting import Direction, Views, wait
from dr_ctl.topologies.common.effects import holds, left_of, still
from dr_ctl.topologies.common.findings import LINK_DID_NOT_ATTACH, LINK_NOT_READ_IN_UNDO

SMALL: Final = 500
AGAIN_S: Final = 2.0


def catch_up(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """While the source serves: the bridges connected, and little enough under way that a drain takes a moment."""
    ways = tools.observer.ways(move)
    before = _ids_lacking(tools, move)
    waiting = wait(tools, [Direction(*way, move.moves, IdBarrier()) for way in ways], hand, SMALL)
    within_s = step.limits["within"]
    failed = waiting.until(tools.patience.link_poll_s, within_s=within_s, stall_s=within_s)
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
            found[way[1].pair] = lacking(way, way[1].look(), move.moves) or {}
    return found


def _ids_lost(tools: BridgesTools, move: Move, before: Mapping[str, Lacking], under_way: int) -> list[Finding]:
    """Refuse before anybody is locked out: ids that were lacking already before the wait, and are more than what is
    under way. The gate compares again, when nothing is under way."""
    found: list[Finding] = []
    for way in tools.observer.ways(move) if any(before.values()) else ():
        with suppress(BrokerError):
            copies = way[1].look()
            now = lacking(way, copies, move.moves) or {}
            still_ = {queue: now.get(queue, frozenset()) & ids for queue, ids in before[way[1].pair].items()}
            if sum(map(len, still_.values())) > under_way:
                found += told(way, copies, still_, move.ask, timeout_s=tools.patience.flag_s)
    return found


def drain(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    gate = tools.gate
    accepted = move.ask.accept_difference
    ways = [
        Direction(*way, move.moves, gate.barrier(move.source, way[0].pair), accepted=accepted)
        for way in tools.observer.ways(move)
    ]
    waiting = wait(tools, ways, hand)
    limits = step.limits
    failed = waiting.until(
        tools.rules.drain.poll,
        within_s=limits["within"],
        stall_s=limits["stall"],
        guard=lambda views: _opened(views, move.moves),
        calms=1,  # the gate looks again, over its window
    )
    return failed or Done("nothing is under way", {"started": waiting.mended})


def _opened(views: Views, chosen: Chosen) -> str | None:
    by_site = [(view.site, view.open_among(chosen)) for view in views.values() if isinstance(view, BrokerView)]
    opened = [f"{site}: {some(units)}" for site, units in by_site if units]
    return f"opened to clients during the drain: {some(opened)}" if opened else None


def restart(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Whether they connected is looked at, not what the call answered."""
    stops = [call for call in step.calls if call.goal is Goal.LINK_DOWN]
    tools.change(stops, hand)
    again_at = 0.0

    def look() -> list[str]:
        """Name the units whose bridge is not connected. A start is refused for as long as a stop goes on, so it is sent
        until it is seen to hold."""
        nonlocal again_at
        views = tools.observer.look_at(move.source)
        stopped = [call for call in step.calls if call.goal is Goal.LINK_UP and not holds(call, views)]
        if stopped and hand.monotonic() >= again_at:
            again_at = hand.monotonic() + AGAIN_S
            tools.change(stopped, hand)
        return [flow.unit for view in views for flow in view.carrying_among(move.ask.includes) if not flow.attached]

    waited = until(
        hand,
        look,
        holds=lambda away: not away,
        within_s=step.limits["within"],
        poll_s=tools.patience.link_poll_s,
        meanwhile=lambda away: hand.waiting(f"the bridges of {move.source} connect", len(away), None),
    )
    if waited.held:
        return Done(f"the bridges of {move.source} are connected")
    text = f"the bridge of {some(waited.look)} did not connect within {duration(step.limits['within'])}"
    remedy = f"Look at what stands between the sites, and at the acceptor for bridges at {move.target}."
    return Refused(text, findings=(LINK_DID_NOT_ATTACH(text, remedy),))


def start(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """A broker that is away is not waited for: clients are."""
    del move
    sites = sorted({call.site for call in step.inverse})
    views = [view for site in sites for view in tools.observer.answering(site)]
    seen = {(view.site, view.pair) for view in views}
    mine = [call for call in step.inverse if (call.site, call.unit) in seen]
    away = sorted({f"{call.site}/{call.unit}" for call in step.inverse if call not in mine})
    findings = tuple(
        LINK_NOT_READ_IN_UNDO(f"{name}: whether its bridges are started could not be seen", "Look at them.")
        for name in away
    )
    if not left_of(mine, views):
        return NotNeeded("no bridge was seen stopped", findings=findings)
    tools.change([call for call in mine if left_of([call], views)], hand)
    try:
        return still(mine, tools.views_of(mine)) or Done("bridges started", findings=findings)
    except BrokerError as error:
        return Refused(f"whether its bridges are started could not be seen: {error}")
