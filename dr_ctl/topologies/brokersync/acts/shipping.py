"""Acts of the waits on copies, `catch-up` and `drain`, and of a restart; a connector is left started."""

from collections.abc import Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Finding, Json, some
from dr_ctl.core.patience import Patience
from dr_ctl.core.printable import if_known
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.brokersync.acts.residue import cleared
from dr_ctl.topologies.brokersync.calls import RESTARTS, restarts
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.common.acts.quiesce import lifting
from dr_ctl.topologies.common.effects import left_of, still
from dr_ctl.topologies.common.findings import LINK_DID_NOT_ATTACH, LINK_NOT_READ_IN_UNDO
from dr_ctl.topologies.common.waiting import Views, Wait

SMALL: Final = 500
UNDER_WAY: Final = "copies under way between the sites"


class Copies:
    """The copies that one broker ships to its peer. A connector with copies to ship that is not connected is restarted,
    a few times."""

    def __init__(self, here: Access, there: Access, hand: Hand, patience: Patience) -> None:
        self.here, self.there = here, there
        self._hand, self._patience = hand, patience
        self._restarted = 0
        self._again_at = hand.monotonic() + patience.link_lost_s

    def left(self, here: BrokerView, there: BrokerView) -> int | None:
        del there
        return here.link.to_ship

    def why(self, here: BrokerView, there: BrokerView) -> list[str]:
        del there
        return (
            [] if here.link.attached or not here.copying else [f"the network connector of {here.site} is not connected"]
        )

    def mends(self, here: BrokerView) -> list[Call]:
        if here.link.attached or not here.copying:
            self._again_at = self._hand.monotonic() + self._patience.link_lost_s
            return []
        if self._restarted >= RESTARTS or self._hand.monotonic() < self._again_at:
            return []
        self._restarted += 1
        self._again_at = self._hand.monotonic() + self._patience.link_between_s * 2**self._restarted
        return restarts([here])


def catch_up(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """While the source serves: connected, and little enough to ship that a drain takes a moment."""
    wait = Wait(
        tools, [Copies(*way, hand, tools.patience) for way in tools.observer.ways(move)], hand, UNDER_WAY, SMALL
    )
    within_s = step.limits["within"]
    failed = wait.until(tools.patience.link_poll_s, within_s=within_s, stall_s=within_s)
    if failed is not None:
        if wait.first is not None and wait.last is not None and wait.last >= wait.first > SMALL:
            return Refused(f"the copy queues grow while clients work: {wait.first} to ship, then {wait.last}")
        return Refused(failed.text)
    return Done(f"{if_known(wait.last)} to ship", {"under_way": wait.last, "started": wait.mended})


def drain(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    with lifting(tools, move, hand) as lifted:
        wait = Wait(tools, [Copies(*way, hand, tools.patience) for way in tools.observer.ways(move)], hand, UNDER_WAY)
        limits = step.limits
        failed = wait.until(
            tools.rules.drain.poll, within_s=limits["within"], stall_s=limits["stall"], guard=_opened, calms=2
        )
        outcome = failed or _cleared(tools, move, hand)
    return lifted.judged(outcome)


def _opened(views: Views[BrokerView]) -> str | None:
    opened = [site for (site, _), view in views.items() if isinstance(view, BrokerView) and view.open]
    return f"opened to clients during the drain: {some(opened)}" if opened else None


def _cleared(tools: SyncTools, move: Move, hand: Hand) -> Outcome:
    removed: dict[str, Json] = {}
    findings: list[Finding] = []
    for way in tools.observer.ways(move):
        outcome = cleared(tools, way, move, hand)
        if not isinstance(outcome, Done):
            return outcome
        removed[way[0].pair] = outcome.evidence["removed"]
        findings += outcome.findings
    count = sum(_count(each) for each in removed.values())
    suffix = f"; {count} copies of what was consumed removed" if count else ""
    return Done(f"nothing to ship{suffix}", {"removed": removed}, tuple(findings))


def _count(counts: Json) -> int:
    return sum(each for each in counts.values() if isinstance(each, int)) if isinstance(counts, Mapping) else 0


def restart(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Whether it connected is looked at, not what the call answered."""
    tools.change([call for call in step.calls if call.goal is Goal.LINK_DOWN], hand)
    tools.change([call for call in step.calls if call.goal is Goal.LINK_UP], hand)
    waited = until(
        hand,
        lambda: [f"{view.site}/{view.pair}" for view in tools.observer.look_at(move.source) if not view.link.attached],
        holds=lambda away: not away,
        within_s=step.limits["within"],
        poll_s=tools.patience.link_poll_s,
        meanwhile=lambda away: hand.waiting(f"the network connector of {move.source} connects", len(away), None),
    )
    if waited.held:
        return Done(f"the network connector of {move.source} is connected")
    within = duration(step.limits["within"])
    text = f"the network connector of {some(waited.look)} did not connect within {within}"
    remedy = f"Look at what stands between the sites, and at the connector for bridges at {move.target}."
    return Refused(text, findings=(LINK_DID_NOT_ATTACH(text, remedy),))


def start(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """A connector whose peer is away stays unconnected, and connects by itself once it is back."""
    del move
    sites = sorted({call.site for call in step.inverse})
    views = [view for site in sites for view in tools.observer.answering(site)]
    seen = {(view.site, view.pair) for view in views}
    mine = [call for call in step.inverse if (call.site, call.unit) in seen]
    if not left_of(mine, views):
        return NotNeeded("no network connector was seen stopped")
    tools.change([call for call in mine if left_of([call], views)], hand)
    try:
        left = until(
            hand,
            lambda: still(mine, tools.views_of(mine)),
            holds=lambda left: left is None,
            within_s=tools.patience.link_attach_s,
            poll_s=tools.patience.link_poll_s,
        ).look
    except BrokerError as error:
        return Refused(f"whether its network connector is connected could not be seen: {error}")
    text = left.text if left is not None else ""
    found = (LINK_NOT_READ_IN_UNDO(text, "It goes on trying; look at the other site."),) if left else ()
    return Done("network connectors started", findings=found)
