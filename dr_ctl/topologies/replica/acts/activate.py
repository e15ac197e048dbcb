"""The act of `activate`: the target becomes the source, and gets back the messages that a return had set aside there.

The source is asked to hand over, or, where it is lost, the replica to take over. A request that was answered and
changed no part and no event had no effect: the run undoes all steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import moves
from dr_ctl.topologies.common import acts
from dr_ctl.topologies.replica.access import Access
from dr_ctl.topologies.replica.calls import kept_queue
from dr_ctl.topologies.replica.tools import ReplicaTools


def act(tools: ReplicaTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    before = _written(tools, move)
    outcome = acts.activate.act(tools, step, move, hand)
    if isinstance(outcome, Unknown) and _had_no_effect(tools, move, before):
        return Refused(f"{move.target}: its part did not change, although the call was answered")
    if isinstance(outcome, Done | NotNeeded):
        return _put_back(tools, move, hand) or outcome
    return outcome


def _written(tools: ReplicaTools, move: Move) -> Mapping[str, int]:
    """How many events each source has written so far, by pair."""
    if move.ask.operation == FAILOVER:
        return {}
    return {view.pair: sum(each.added for each in view.events) for view in tools.observer.look_at(move.source)}


def _had_no_effect(tools: ReplicaTools, move: Move, before: Mapping[str, int]) -> bool:
    """An order to hand over is an event itself: until it is fetched, it may come true at any time."""
    if not tools.answered:
        return False
    try:
        there = tools.observer.look_at(move.target)
        as_before = all(view.is_replica and not view.open for view in there) and not tools.doors.let_in(
            tools.observer.at(move.target)
        )
        if move.ask.operation == FAILOVER:
            return as_before
        here = tools.observer.look_at(move.source)
        return as_before and all(view.is_source for view in here) and _written(tools, move) == before
    except BrokerError:
        return False


def _put_back(tools: ReplicaTools, move: Move, hand: Hand) -> Refused | None:
    """Deliver at last what only the target had. Raises `BrokerError`."""
    for access in tools.observer.at(move.target):
        for name in access.look().business:
            left = _left_over(tools, access, name, hand)
            if left:
                text = f"{left} message(s) of {name} that only {move.target} had are not put back into it"
                return Refused(f"{move.target} serves, but {text}", code=ExitCode.INCOMPLETE)
    return None


def _left_over(tools: ReplicaTools, access: Access, name: str, hand: Hand) -> int:
    view = access.names()
    queue = view.named.get(kept_queue(view.site, name))
    if queue is None or not queue.depth:
        return 0
    tools.change(list(moves(view, queue, ids.lying(access, queue).keys(), name)), hand)
    return len(ids.lying(access, queue))
