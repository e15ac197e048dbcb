"""Acts of `catch-up`, `drain`, `trim` and `settle`: compare both sites by the producers' ids, and give the waiting site
the messages of the serving one. Only consumed messages are removed there."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.acts.quiesce import lifting
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.fanout import ids, parity
from dr_ctl.topologies.fanout.access import Access, Way
from dr_ctl.topologies.fanout.calls import copies, removes
from dr_ctl.topologies.fanout.findings import CONSUMED_NOT_KNOWN
from dr_ctl.topologies.fanout.tools import Evened, FanoutTools

SERVED_ON = "Its consumers must recognise what they have done."


def catch_up(tools: FanoutTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step
    return _all(tools, tools.between(move.source, move.target), hand, copied=False)


def drain(tools: FanoutTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del step
    with lifting(tools, move, hand) as lifted:
        outcome = _all(tools, tools.between(move.source, move.target), hand, copied=True)
    return lifted.judged(outcome)


def trim(tools: FanoutTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Compare towards the named site, which waits."""
    del step
    return _all(tools, tools.between(move.target, move.source), hand, copied=False)


def _all(tools: FanoutTools, ways: Collection[Way], hand: Hand, *, copied: bool) -> Outcome:
    tools.evened = Evened()
    for way in ways:
        if (refused := even(tools, way, hand, copied=copied)) is not None:
            return refused
    return Done(tools.evened.text, tools.evened.as_json())


def even(tools: FanoutTools, way: Way, hand: Hand, *, copied: bool) -> Refused | None:
    """Remove at the second broker the messages that were consumed at the first, in every queue. If `copied`, also copy
    the messages that the second lacks. Gives None where all calls came true. Raises `BrokerError`."""
    source, target = (access.look() for access in way)
    for each in parity.counts(source, target, Queues()):
        if not each.source and not each.target:
            continue
        queues = source.named.get(each.queue), target.named.get(each.queue)
        done, lacks = None if copied else tools.comparing.done(way[1], queues[1]), frozenset[str]()
        if done is None:
            pause = partial(hand.wait, tools.patience.poll_s)
            apart = tools.comparing.apart(way, queues, pause, hand.monotonic, busy=source.open)
            tools.evened.alone[each.queue] = {*apart.alone}
            done, lacks = apart.done, apart.lacks if copied else lacks
        if done and (refused := remove(tools, way[1], each.queue, done, hand)) is not None:
            return refused
        if lacks and (refused := _copy(tools, way, each.queue, lacks, hand)) is not None:
            return refused
    return None


def remove(tools: FanoutTools, access: Access, queue: str, gone: Collection[str], hand: Hand) -> Refused | None:
    """Remove these messages, and look whether they are gone; gives None where they are. Raises `BrokerError`."""
    view = access.names()
    outcomes = tools.change(list(removes(view, view.named[queue], gone)), hand)
    left = ids.lying(access, view.named[queue]) & frozenset(gone)
    tools.evened.note(tools.evened.removed, queue, frozenset(gone) - left)
    if not left:
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are still there")
    return Refused(f"{len(left)} of {len(gone)} message(s) could not be removed from {queue} at {view.site}: {why}")


def _copy(tools: FanoutTools, way: Way, queue: str, lacks: frozenset[str], hand: Hand) -> Refused | None:
    """Copy these messages from the first broker; a message that is gone from there was consumed meanwhile."""
    source, target = way
    messages = source.messages(queue, lacks)
    target.carries = {(queue, ident): message for ident, message in messages.items()}
    outcomes = tools.change(list(copies(target.names(), queue, messages)), hand)
    target.carries = {}
    there = ids.lying(target, target.look().named.get(queue))
    tools.evened.note(tools.evened.copied, queue, messages.keys() & there)
    if not (left := messages.keys() - there):
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are not there")
    return Refused(f"{len(left)} of {len(messages)} message(s) of {queue} could not be copied to {target.site}: {why}")


def settle(tools: FanoutTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Remove the messages that the lost site's consumers had done. Messages without a record come twice: nobody waits
    for them."""
    del step
    tools.evened = Evened()
    if (store := tools.observer.store) is None:
        text = f"which messages the consumers of {move.source} had done is not known: these come twice"
        return Done(text, findings=(CONSUMED_NOT_KNOWN(text, SERVED_ON),))
    try:
        why = _without_done(tools, store, move.target, hand)
    except BrokerError as error:
        why = str(error)
    if why is None:
        return Done(tools.evened.text, tools.evened.as_json())
    text = f"not all that the consumers of {move.source} had done is removed, and comes twice: {why}"
    return Done(text, tools.evened.as_json(), (CONSUMED_NOT_KNOWN(text, SERVED_ON),))


def _without_done(tools: FanoutTools, store: Store, site: str, hand: Hand) -> str | None:
    """Remove there what the store knows, queue by queue; says why that was not done. Raises `BrokerError`."""
    for access in tools.observer.brokers[site].values():
        for name, queue in access.look().business.items():
            done = store.known(name, ids.lying(access, queue)) if queue.depth else frozenset[str]()
            if done and (refused := remove(tools, access, name, done, hand)) is not None:
                return refused.text
    return None
