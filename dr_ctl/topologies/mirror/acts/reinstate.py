"""The act of `reinstate`: the residue let in while no queue delivers, and compared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.effects import holds, still, to_undo
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.access import Way
from dr_ctl.topologies.mirror.half_way import withheld
from dr_ctl.topologies.mirror.links import Flows, PairWait, until_all
from dr_ctl.topologies.mirror.origins import Origin, browsed
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

CALM: Final = 5
# The serving site's producers go on: their messages are under way all the time, and are no residue.
SMALL: Final = 500


@dataclass
class _Taken:
    """A pair before its residue is let in. A None means a queue too deep to look at, or a residue not counted."""

    before: Mapping[str, frozenset[Origin] | None]
    removed: int
    residue: Residue | None


def act(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        # A process may have died right after striking out the debts: delivery is not paused once more.
        if all(not each.messages and not each.acks for each in tools.residue.values()):
            tools.taken_in.begin()
        return NotNeeded(f"{move.target} is taken in already")
    pauses, opens, resumes, strikes = (step.part(name) for name in ("hold", "let in", "deliver", "strikes"))
    views = tools.observer.look_at(move.source)
    tools.change([call for call in pauses if not holds(call, views)], hand)
    views = tools.observer.look_at(move.source)
    if left := [queue.name for view in views for queue in view.business.values() if not queue.paused]:
        return Refused(f"could not pause {some(left)}")
    taken = {view.pair: _before(tools, view) for view in views}
    tools.change(opens, hand)
    sites = tools.observer.brokers
    waits = [
        _Residue((access, sites[move.target][pair]), tools, hand, step, move)
        for pair, access in sites[move.source].items()
    ]
    about = f"of {move.target}'s residue under way"
    if (failed := until_all(tools, waits, hand, about, tools.rules.drain.poll)) is not None:
        return failed
    tools.taken_in.begin()
    for view in tools.observer.look_at(move.source):
        _compare(tools, view, taken[view.pair])
    tools.change([*resumes, *strikes], hand)
    views = tools.observer.look_at(move.source)
    if refused := still(resumes, views):
        return refused
    views += tools.observer.look_at(move.target)
    if refused := still(strikes, views):
        return refused
    return Done(tools.taken_in.text, tools.taken_in.as_json())


def _before(tools: MirrorTools, view: BrokerView) -> _Taken:
    removed = sum(queue.removed for queue in view.business.values())
    return _Taken(_origins(tools, view), removed, tools.residue.get(view.pair))


def _origins(tools: MirrorTools, view: BrokerView) -> dict[str, frozenset[Origin] | None]:
    """Give the origins of each queue's messages, or None if the queue is too deep to look at each, or its broker does
    not show where one comes from."""
    chosen = selected(view, tools.observer.queues)
    shallow = [queue for queue in chosen.values() if queue.depth <= parity.ORIGINS_UP_TO]
    reader = tools.observer.brokers[view.site][view.pair].reader()
    rows = zip(shallow, browsed(reader, view, shallow, limit=parity.ORIGINS_UP_TO), strict=True)
    return {**dict.fromkeys(chosen), **{queue.name: each.ids for queue, each in rows if not each.unnamed}}


def _compare(tools: MirrorTools, view: BrokerView, taken: _Taken) -> None:
    """Compare while no queue delivers: new messages that were not born here came out of the residue. A message
    acknowledged at the returned site and gone here came twice, unless its acknowledgement was applied before."""
    for name, ids in _origins(tools, view).items():
        was = taken.before.get(name, frozenset())  # a queue that came with the residue was not there
        if ids is None or was is None:
            tools.taken_in.not_read.append(name)
        else:
            tools.taken_in.add_recovered(name, [each for each in ids - was if each[0] != view.node])
    applied = sum(queue.removed for queue in view.business.values()) - taken.removed
    if taken.residue is None:
        tools.taken_in.acks = None
    elif taken.residue.acked is None:
        tools.taken_in.add_acks(max(0, taken.residue.acks - applied))
        tools.taken_in.acks_by_id = None
    else:
        for name, acked in taken.residue.acked.items():
            gone = acked - (taken.before.get(name) or frozenset())
            echoes = taken.residue.since.get(name, frozenset())
            tools.taken_in.add_acked(name, gone - echoes)
            tools.taken_in.echoes += len(gone & echoes)


def undo(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Shut the way first, then move aside messages that came in ahead of their acknowledgements."""
    if not to_undo(step.inverse, tools.views(move.source)):
        return NotNeeded("as it was")
    doors = [call for call in step.inverse if call.goal is Goal.CLOSE]
    if (open_still := tools.make(doors, hand, move.source)) is not None:
        return open_still
    left = withheld(tools, move, hand)
    if isinstance(left, Refused):
        return left
    return replace(tools.put_back(step, move.source, hand), evidence=left.as_json(), findings=left.findings(move))


class _Residue(PairWait):
    """Until nothing of the residue is under way, several polls in a row."""

    def __init__(self, way: Way, tools: MirrorTools, hand: Hand, step: PlannedStep, move: Move) -> None:
        self._move, self._limits, self._calm = move, step.limits, 0
        super().__init__(way, tools, hand)
        self._least: int | None = None
        self._lessened_at = self.began

    def left(self, now: Flows) -> int | None:
        """Count the residue under way, if every link is attached and every broker answers."""
        here, there = now[self._move.source], now[self._move.target]
        if isinstance(here, BrokerError) or isinstance(there, BrokerError) or not (here.attached and there.attached):
            return None
        backlog = here.to_ship if here.to_ship > SMALL else 0
        return there.to_ship + there.outflow_delivering + here.unapplied + backlog

    def ended(self, now: Flows, hand: Hand) -> Outcome | None:
        self._calm = self._calm + 1 if self.left(now) == 0 else 0
        if self._calm >= CALM:
            return Done("nothing of the residue is under way")
        took, still_s = hand.monotonic() - self.began, self.stalled_s(hand)
        if still_s <= self._limits["stall"] and took <= self._limits.get("within", took):
            return None
        nothing = f"nothing moved for {duration(still_s)}"
        why = self.why(now, hand) or ("it moves too slowly" if still_s <= self._limits["stall"] else nothing)
        text = f"{self._move.target} is not taken in after {duration(took)}: {why}"
        return Refused(text, code=ExitCode.DRAIN_TIMEOUT)

    def stalled_s(self, hand: Hand) -> float:
        """Seconds since the residue was last seen to shrink: messages of the serving site's producers come and go."""
        if self.last is not None and (self._least is None or self.last < self._least):
            self._least, self._lessened_at = self.last, hand.monotonic()
        return hand.monotonic() - self._lessened_at
