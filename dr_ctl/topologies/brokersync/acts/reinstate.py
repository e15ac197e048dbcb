"""Acts of `residue`, `reinstate` and `reconcile`: the messages of a returned site are told apart by id.

While no message can come in, three facts are known of each message there: whether it lies in its queue, in the queue of
copies that were not shipped, and in the queue of the serving site. Not shipped and not in its queue: consumed there
before the loss. In its queue, shipped, and not at the serving site: consumed at the serving site since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.access import Access
from dr_ctl.topologies.brokersync.acts.residue import remove
from dr_ctl.topologies.brokersync.acts.shipping import SMALL, UNDER_WAY, Copies
from dr_ctl.topologies.brokersync.checks import nothing_owed
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.calls import aside
from dr_ctl.topologies.common.acts.residue import closed_first
from dr_ctl.topologies.common.findings import LEFT_OVER, SET_ASIDE
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.waiting import Wait


def residue(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close the returned site where it is open, and count what it still holds for the other."""
    findings = closed_first(tools, step, move, hand)
    if isinstance(findings, Refused):
        return findings
    views = tools.views(move.target)
    known = [each for view in views if (each := view.link.residue) is not None]
    if len(known) < len(views):
        return Refused(f"what {move.target} still holds was not read")
    total = Residue.together(known)
    text = f"{total.messages} message(s) that it did not ship"
    hand.notice(f"{move.target} still holds {text}")
    return Done(text, {"messages": total.messages}, tuple(findings))


def act(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is taken in already")
    findings: list[Finding] = []
    sites = tools.observer.brokers
    for pair, serving in sites[move.source].items():
        refused = _told_apart(tools, sites[move.target][pair], serving, findings, hand)
        if refused is not None:
            return refused
    doors = [call for call in step.part("let in") if call.when is None]
    if (refused := tools.make(doors, hand, move.source, move.target)) is not None:
        return refused
    ways = [(here, sites[move.target][pair]) for pair, here in sites[move.source].items()]
    back = Wait(tools, [Copies(there, here, hand, tools.patience) for here, there in ways], hand, UNDER_WAY)
    forth = Wait(tools, [Copies(here, there, hand, tools.patience) for here, there in ways], hand, UNDER_WAY, SMALL)
    for wait in (back, forth):
        limits = step.limits
        failed = wait.until(tools.rules.drain.poll, within_s=limits.get("within"), stall_s=limits["stall"])
        if failed is not None:
            return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    if (refused := tools.make(step.part("strikes"), hand, move.source, move.target)) is not None:
        return refused
    return Done(tools.taken_in.text, tools.taken_in.as_json(), tuple(findings))


def _told_apart(
    tools: SyncTools, returned: Access, serving: Access, findings: list[Finding], hand: Hand
) -> Refused | None:
    """Take out at either broker what was consumed at the other. Raises `BrokerError`."""
    there, here = returned.look(), serving.look()
    for name, copies in there.copying.items():
        found = _Found.of(name, returned, there, copies, serving, here)
        tools.taken_in.recovered[name] = len(found.recovered)
        if found.consumed_there:
            tools.taken_in.done_there[name] = len(found.consumed_there)
            if (refused := remove(tools, returned, there, copies, found.consumed_there, hand)) is not None:
                return refused
        for step in (_consumed_here, _copies_of_consumed):
            if (refused := step(tools, returned, there, serving, here, found, findings, hand)) is not None:
                return refused
    return None


@dataclass(frozen=True, slots=True)
class _Found:
    """The messages of one queue of a returned broker, by id: not shipped yet, and to be delivered (`recovered`);
    consumed there, and not shipped; consumed at the serving site since; consumed there, with a copy still at the
    serving site."""

    queue: str
    recovered: frozenset[str]
    consumed_there: frozenset[str]
    consumed_here: frozenset[str]
    copies_left: frozenset[str]

    @classmethod
    def of(
        cls, name: str, returned: Access, there: BrokerView, copies: Queue, serving: Access, here: BrokerView
    ) -> Self:
        """Look in this order: the serving broker goes on, and may ship new messages to the returned one. Messages that
        lie only at the serving site and came over the bridge are older than the loss; clients may have sent the others
        since."""
        lies, to_ship = ids.lying(returned, there.named.get(name)).keys(), ids.lying(returned, copies).keys()
        serves = ids.lying_at_work(serving, here.named.get(name))
        before_the_loss = {each for each, by in serves.items() if by == here.arrives_by(name)} - lies - to_ship
        return cls(
            name,
            frozenset(to_ship & lies),
            frozenset(to_ship - lies),
            frozenset(lies - to_ship - serves.keys()),
            frozenset(before_the_loss),
        )


def _consumed_here(
    tools: SyncTools, returned: Access, there: BrokerView, serving: Access, here: BrokerView, found: _Found,
    findings: list[Finding], hand: Hand,
) -> Refused | None:  # fmt: skip
    """Remove the messages that the serving site has consumed. Where its counters say that it consumed fewer, the
    messages are moved aside for a person to look at."""
    del serving
    gone, served = found.consumed_here, here.named.get(found.queue)
    if not gone:
        return None
    queue = there.named[found.queue]
    if served is not None and served.removed >= len(gone):
        tools.taken_in.done_here[found.queue] = len(gone)
        return remove(tools, returned, there, queue, gone, hand)
    text = (
        f"{len(gone)} message(s) of {found.queue} lay only at {there.site}, more than {here.site} has delivered since "
        "its start: they were moved aside"
    )
    remedy = "Look at them there: each was done already, or never; move back by hand what was not."
    findings.append(SET_ASIDE(text, remedy))
    return _set_aside(tools, returned, there, queue, gone, hand)


def _copies_of_consumed(
    tools: SyncTools, returned: Access, there: BrokerView, serving: Access, here: BrokerView, found: _Found,
    findings: list[Finding], hand: Hand,
) -> Refused | None:  # fmt: skip
    """Move aside copies of messages that the returned site had consumed. Do not remove them: a store that came back
    empty would look the same."""
    del returned
    if not found.copies_left:
        return None
    text = (
        f"{len(found.copies_left)} message(s) of {found.queue} that {there.site} had consumed before it was lost lay "
        f"at {here.site} still: they were moved aside, and do not come twice"
    )
    remedy = f"Look at them there, then purge them; if {there.site} came back without its store, move them back. An "
    remedy += "agent that holds since then goes on with `dr-ctl sync --go-on`."
    findings.append(SET_ASIDE(text, remedy))
    return _set_aside(tools, serving, here, here.named[found.queue], found.copies_left, hand)


def _set_aside(
    tools: SyncTools, access: Access, view: BrokerView, queue: Queue, gone: frozenset[str], hand: Hand
) -> Refused | None:
    outcomes = tools.change(list(aside(view, queue, gone)), hand)
    left = ids.lying(access, queue).keys() & gone
    if not left:
        return None
    why = next((each.text for each in outcomes if not isinstance(each, Done)), "they are still there")
    return Refused(f"{len(left)} message(s) of {queue.name} at {view.site} could not be moved aside: {why}")


def reconcile(tools: SyncTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Remove what was consumed since the return began, and compare both sites by count."""
    del step
    sites = tools.observer.brokers
    for pair, serving in sites[move.source].items():
        returned = sites[move.target][pair]
        view, here = returned.look(), serving.look()
        for name in view.copying:
            queue = view.named.get(name)
            copies = ids.lying(returned, queue).keys()
            if queue is None or not (gone := copies - ids.lying_at_work(serving, here.named.get(name)).keys()):
                continue
            if (refused := remove(tools, returned, view, queue, gone, hand)) is not None:
                return refused
            tools.taken_in.done_here[name] = tools.taken_in.done_here.get(name, 0) + len(gone)
    return Done(tools.taken_in.text, tools.taken_in.as_json(), tuple(_lacking(tools, move)))


def _lacking(tools: SyncTools, move: Move) -> Iterator[Finding]:
    seen = tools.observer.observe()
    for pair in seen.sites[move.source]:
        here, there = seen.view(move.source, pair), seen.view(move.target, pair)
        if here is None or there is None or not here.copying:
            continue
        wrong = parity.lacking(here, there, tools.observer.queues, seen.moved.get(pair, {}))
        if wrong:
            text = f"not at {move.target}: {some([each.told(move.source, move.target) for each in wrong])}"
            yield LEFT_OVER(text, "Compare these queues before moving back.")
