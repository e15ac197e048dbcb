"""How a returned site is taken in again: its messages are compared by id before they come in.

And what a person decides of copies that nothing proves: moved aside within the broker, or put back; none is lost.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.core.notation import matches
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.checks import nothing_owed
from dr_ctl.topologies.brokersync.listing import listed, unproven
from dr_ctl.topologies.brokersync.proven import covered
from dr_ctl.topologies.brokersync.reading import Access
from dr_ctl.topologies.brokersync.shipping import SMALL, UNDER_WAY, Copies, connects, may_move, moved, remove
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.ids import may_remove
from dr_ctl.topologies.common.consumed import Consumed, NotWhole, Word
from dr_ctl.topologies.common.figures import Residue
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.plain import closed_first
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.waiting import Wait
from dr_ctl.topologies.common.wants import PAID, SOURCE, TARGET, AtBroker, Wants, debts, listens, planning, way_in

HERE: Final = "the serving site's counters prove that they were consumed there since"
UNPROVEN = "they do not lie at the other site, and nothing proves that they were consumed"


def _kept_aside(at: AtBroker) -> list[Call]:
    """At the returned site what it did not ship, at the other what that shipped and it had no more."""
    view = at.view
    if view.site == at.move.target:
        return [may_move(view, each) for each in view.copying.values()]
    return [may_move(view, view.named[name]) for name in view.copying if name in view.named]


def _removed(at: AtBroker) -> list[Call]:
    """What was consumed meanwhile is removed, while both directions ship."""
    named = at.view.named
    return [may_remove(at.view, named[name], HERE) for name in at.view.copying if name in named]


BOTH: Final = (SOURCE, TARGET)
LISTENING: Final[Wants] = tuple((listens, site) for site in BOTH)
# An undo shuts the way again: no client has consumed what came in.
draft: Final = planning(
    TARGET,
    "what was consumed before the loss is kept aside by id; the rest is let in, and both directions ship",
    *((_kept_aside, site) for site in (TARGET, SOURCE)),
    *LISTENING,
    *((connects, site) for site in BOTH),
    *PAID,
    limits=Rules.while_moving,
)
draft_reconcile: Final = planning(
    TARGET, "copies of what was consumed meanwhile removed; both sites compared", (_removed, TARGET)
)


def residue(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close the returned site where it is open, and count what it still holds for the other."""
    findings = closed_first(tools, step, move, context)
    if isinstance(findings, Refused):
        return findings
    views = tools.views(move.target)
    known = [each for view in views if (each := view.link.residue) is not None]
    if len(known) < len(views):
        return Refused(f"what {move.target} still holds was not read")
    total = Residue.together(known)
    text = f"{total.messages} message(s) that it did not ship"
    context.notice(f"{move.target} still holds {text}")
    return Done(text, {"messages": total.messages}, tuple(findings))


def act(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is taken in already")
    findings: list[Finding] = []
    sites = tools.observer.brokers
    for pair, serving in sites[move.source].items():
        pairs = _Return(tools, sites[move.target][pair], serving, context)
        if (refused := pairs.tell_apart()) is not None:
            return refused
        findings += pairs.findings
    if (refused := tools.reach(LISTENING, move, context)) is not None:
        return refused
    ways = [(here, sites[move.target][pair]) for pair, here in sites[move.source].items()]
    back = Wait(tools, [Copies(there, here, context, tools.timeouts) for here, there in ways], context, UNDER_WAY)
    forth = Wait(
        tools, [Copies(here, there, context, tools.timeouts) for here, there in ways], context, UNDER_WAY, SMALL
    )
    for wait in (back, forth):
        if (failed := wait.until(tools.rules.drain.poll, step.limits)) is not None:
            return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    if (refused := tools.reach(PAID, move, context)) is not None:
        return refused
    return Done(tools.rejoined.text, document(tools.rejoined), tuple(findings))


class _Return:
    """One pair of a returned site, before its messages are let in. The counters from before the loss are gone, and
    nothing proves what was consumed then: no message is removed."""

    def __init__(self, tools: SyncTools, returned: Access, serving: Access, context: StepContext) -> None:
        """Raises `BrokerError`."""
        self._tools, self._context = tools, context
        self._returned, self._serving = returned, serving
        self._there, self._here = returned.read(), serving.read()
        self.findings: list[Finding] = []

    def tell_apart(self) -> Refused | None:
        """Keep aside what would surely come twice, queue by queue. Raises `BrokerError`."""
        for name in self._there.copying:
            if (refused := self._one(name)) is not None:
                return refused
        return None

    def _one(self, name: str) -> Refused | None:
        there, here = self._there, self._here
        copies = there.copying[name]
        lies = listed(self._returned, there, there.named.get(name)).whole.ids
        to_ship = listed(self._returned, there, copies).whole.ids
        rejoined = self._tools.rejoined
        rejoined.recovered[name] = len(to_ship & lies)
        if left := to_ship - lies:
            rejoined.done_there[name] = len(left)
            if (refused := self._aside(self._returned, copies, left, "DR-RECONCILE-002.not_shipped", name)) is not None:
                return refused
        serves = ids.shown(self._serving, here.named.get(name))
        before = {each for each, by in serves.items() if by == here.arrives_by(name)} - lies - to_ship
        if not before:
            return None
        if not lies and not to_ship:
            rejoined.duplicates[name] = len(before)
            self.findings.append(
                found("DR-SYNC-007.none_there", other_site=there.site, site=here.site, count=len(before), queue=name)
            )
            return None
        return self._aside(self._serving, here.named[name], frozenset(before), "DR-RECONCILE-002.shipped", name)

    def _aside(self, access: Access, queue: Queue, messages: frozenset[str], key: str, name: str) -> Refused | None:
        if (refused := moved(self._tools, access, queue, messages, self._context)) is not None:
            return refused
        lost, serving = self._there.site, self._here.site
        self.findings.append(found(key, count=len(messages), queue=name, lost=lost, serving=serving, site=access.site))
        return None


def reconcile(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove what clients of the serving site have consumed since, where its counters prove that, and count the rest;
    compare both sites by count."""
    sites, findings = tools.observer.brokers, list[Finding]()
    for pair, serving in sites[move.source].items():
        returned = sites[move.target][pair]
        here, view = serving.read(), returned.read()
        for name, queue in view.business.items():
            if name not in view.copying or not queue.depth:
                continue
            gone = _consumed(here, serving, view, returned, queue)
            if isinstance(gone, Consumed):
                if gone.ids and (refused := remove(tools, returned, queue, gone, context, (serving, here))) is not None:
                    return refused
                tools.rejoined.done_here[name] = len(gone.ids)
            elif (more := queue.depth - _depth(here, name)) > 0:
                tools.rejoined.duplicates[name] = tools.rejoined.duplicates.get(name, 0) + more
                findings.append(
                    found(
                        "DR-SYNC-007.unproven", site=view.site, count=more, queue=name, other_site=here.site, why=gone
                    )
                )
    return Done(tools.rejoined.text, document(tools.rejoined), (*findings, *_lacking(tools, move)))


def _depth(view: BrokerView, name: str) -> int:
    return view.named[name].depth if name in view.named else 0


def _consumed(here: BrokerView, serving: Access, view: BrokerView, returned: Access, queue: Queue) -> Consumed | str:
    """The copies at the returned site that were consumed, or why that cannot be told. Raises `BrokerError`."""
    try:
        copies = listed(returned, view, queue, tries=ids.TRIES).whole.ids
        return covered(
            here, queue.name, copies, listed(serving, here, here.named.get(queue.name), tries=ids.TRIES).whole
        )
    except NotWhole as error:
        return str(error)


def _lacking(tools: SyncTools, move: Move) -> Iterator[Finding]:
    snapshot = tools.observer.observe()
    for pair in snapshot.sites[move.source]:
        here, there = snapshot.view(move.source, pair), snapshot.view(move.target, pair)
        if here is None or there is None or not here.copying:
            continue
        wrong = parity.lacking(here, there, tools.observer.queues, snapshot.moved.get(pair, {}))
        if wrong:
            yield found("DR-RECONCILE-001", queues=some([each.told(move.source, move.target) for each in wrong]))


UNDO: Final = Undo(source=(way_in, debts))


def _unproven(at: AtBroker) -> list[Call]:
    queues = [queue for name, queue in at.view.business.items() if named(at.move, name) and queue.depth]
    return [may_move(at.view, queue, UNPROVEN) for queue in queues if queue.dead_letter_address is None]


def _given_back(at: AtBroker) -> list[Call]:
    return [may_move(at.view, queue, None, to) for queue, to in kept(at.view, at.move) if to is not None]


draft_keep_aside: Final = planning(
    SOURCE, "copies at {source} that nothing proves are kept aside, by id", (_unproven, SOURCE)
)
draft_put_back: Final = planning(
    SOURCE, "what was kept aside at {source} goes where clients get it", (_given_back, SOURCE)
)


def named(move: Move, queue: str) -> bool:
    """Say whether a person named that queue; where none was named, all are meant."""
    return move.ask.queues is None or matches((move.ask.queues,), queue)


def kept(view: BrokerView, move: Move) -> Iterator[tuple[Queue, str | None]]:
    """Each queue that messages were kept aside in, and the queue by which clients get them: their own where this site
    serves, and the one that ships copies where it waits. Messages that lie at a waiting site alone look consumed: None.
    """
    copying = {copies.name: name for name, copies in view.copying.items()}
    prefix = quarantine_queue(view.site, "")
    for queue in view.queues:
        name = queue.name.removeprefix(prefix)
        if name == queue.name or not queue.depth or not named(move, copying.get(name, name)):
            continue
        yield queue, copying.get(name, name) if view.open else name if name in copying else None


def keep_aside(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Keep aside what nothing proves, by a person's word on these ids. Raises `BrokerError`."""
    sites = tools.observer.brokers
    kept_aside: dict[str, Json] = {}
    for pair, waiting in sites[move.source].items():
        serving = sites[move.target][pair]
        views = serving.read(), waiting.read()
        for name, queue in views[1].business.items():
            if not (named(move, name) and queue.depth and name in views[0].copying):
                continue
            try:
                found = unproven((serving, waiting), views, name)
            except NotWhole as error:
                return Refused(f"which copies of {name} nothing proves cannot be told: {error}", kept_aside)
            if not found:
                continue
            by_word = Consumed(found, Word(found, move.ask.reason or ""))
            if (refused := moved(tools, waiting, queue, by_word.ids, context)) is not None:
                return refused
            kept_aside[name] = [*sorted(by_word.ids)]
    if not kept_aside:
        return NotNeeded(f"{move.source} has no copies that nothing proves")
    counts = [f"{len(each)} of {name}" for name, each in kept_aside.items() if isinstance(each, list)]
    return Done(f"kept aside at {move.source}: {some(counts)}", {"kept_aside": kept_aside})


def put_back(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Raises `BrokerError`."""
    back: dict[str, Json] = {}
    findings: list[Finding] = []
    for access in tools.observer.at(move.source):
        view = access.read()
        for queue, to in kept(view, move):
            if to is None:
                findings.append(found("DR-SYNC-008", depth=queue.depth, name=queue.name, site=view.site))
                continue
            lie = ids.listed(access, queue).whole.ids
            if (refused := moved(tools, access, queue, lie, context, to)) is not None:
                return refused
            back[to] = len(lie)
            findings.append(found("DR-SYNC-007.put_back", site=view.site, count=len(lie), queue=to))
    if findings and not back:
        return Refused(findings[0].text, code=ExitCode.PRECHECK_FAILED, findings=tuple(findings))
    if not back:
        return NotNeeded(f"nothing is kept aside at {move.source}")
    told = [f"{count} to {name}" for name, count in back.items()]
    return Done(f"put back at {move.source}: {some(told)}", {"put_back": back}, tuple(findings))
