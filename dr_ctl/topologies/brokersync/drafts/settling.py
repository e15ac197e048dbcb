"""Plans what a person decides of copies that nothing proves: kept aside, and put back. Pure."""

from collections.abc import Iterator

from dr_ctl.core.patterns import matches
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.brokersync.calls import may_move
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSeen
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Queue

UNPROVEN = "they do not lie at the other site, and nothing proves that they were consumed"


def keep_aside(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    del rules, step
    calls = [
        may_move(view, queue, UNPROVEN)
        for view in seen.views(move.source)
        for name, queue in view.business.items()
        if named(move, name) and queue.depth and queue.dead_letter_address is None
    ]
    return Draft(move.source, f"copies at {move.source} that nothing proves are kept aside, by id", tuple(calls))


def put_back(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    del rules, step
    calls = [
        may_move(view, queue, None, to)
        for view in seen.views(move.source)
        for queue, to in kept(view, move)
        if to is not None
    ]
    return Draft(move.source, f"what was kept aside at {move.source} goes where clients get it", tuple(calls))


def named(move: Move, queue: str) -> bool:
    """Say whether a person named that queue; where none was named, all are meant."""
    return move.ask.queues is None or matches((move.ask.queues,), queue)


def kept(view: BrokerView, move: Move) -> Iterator[tuple[Queue, str | None]]:
    """Each queue that messages were kept aside in, and the queue by which clients get them: their own where this site
    serves, and the one that ships copies where it waits. Messages that lie at a waiting site alone look consumed: None.
    """
    copying = {copies.name: name for name, copies in view.copying.items()}
    aside = quarantine_queue(view.site, "")
    for queue in view.queues:
        name = queue.name.removeprefix(aside)
        if name == queue.name or not queue.depth or not named(move, copying.get(name, name)):
            continue
        yield queue, copying.get(name, name) if view.open else name if name in copying else None
