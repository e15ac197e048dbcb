"""What a person decides of copies that nothing proves: moved aside within the broker, or put back; none is lost."""

from collections.abc import Iterator

from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, some
from dr_ctl.core.notation import matches
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.brokersync.listing import unproven
from dr_ctl.topologies.brokersync.shipping import may_move, moved
from dr_ctl.topologies.brokersync.tools import SyncTools
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSnapshot
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.common.consumed import Consumed, NotWhole, Word
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Queue

UNPROVEN = "they do not lie at the other site, and nothing proves that they were consumed"


def draft_keep_aside(rules: Rules, step: RunbookStep, snapshot: SyncSnapshot, move: Move) -> StepPlan:
    del rules, step
    calls = [
        may_move(view, queue, UNPROVEN)
        for view in snapshot.views(move.source)
        for name, queue in view.business.items()
        if named(move, name) and queue.depth and queue.dead_letter_address is None
    ]
    return StepPlan(move.source, f"copies at {move.source} that nothing proves are kept aside, by id", tuple(calls))


def draft_put_back(rules: Rules, step: RunbookStep, snapshot: SyncSnapshot, move: Move) -> StepPlan:
    del rules, step
    calls = [
        may_move(view, queue, None, to)
        for view in snapshot.views(move.source)
        for queue, to in kept(view, move)
        if to is not None
    ]
    return StepPlan(move.source, f"what was kept aside at {move.source} goes where clients get it", tuple(calls))


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


def keep_aside(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Keep aside what nothing proves, by a person's word on these ids. Raises `BrokerError`."""
    del step
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


def put_back(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Raises `BrokerError`."""
    del step
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
