"""Makes the waiting site hold the serving site's messages: `catch-up`, `drain`, `trim`, `settle`, and a return.

Both sites are compared by the producers' ids.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Severity, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.ids import removes
from dr_ctl.topologies.classic.operations import PAUSES
from dr_ctl.topologies.common.calls import pause, resume
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.gate import accepting
from dr_ctl.topologies.common.idstore import Store
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.tools import not_done
from dr_ctl.topologies.common.verbs import quiesce
from dr_ctl.topologies.common.verbs.plain import closed_first
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting, to_pause
from dr_ctl.topologies.common.wants import PAID, SOURCE, TARGET, AtBroker, Site, Want, Wants, debts, pauses, planning
from dr_ctl.topologies.fanout import ids, parity
from dr_ctl.topologies.fanout.checks import nothing_owed, of_untold, possible_duplicates
from dr_ctl.topologies.fanout.copying import Lacking, copies, may_copy, may_remove
from dr_ctl.topologies.fanout.ids import Pace
from dr_ctl.topologies.fanout.reading import Access, Way
from dr_ctl.topologies.fanout.tools import Evened, FanoutTools

ROUNDS: Final = 20
IDLE: Final = 3  # rounds in which no client was shown what lacks


def _removed(at: AtBroker) -> list[Call]:
    return may_remove(at.view)


def _copied(at: AtBroker) -> list[Call]:
    return may_copy(at.view)


def _rests(at: AtBroker) -> list[Call]:
    """Dispatch stops while both are compared. Not where a store of ids tells what was consumed, or the console refuses
    pauses."""
    view = at.view
    if not view.open or view.own.stored or PAUSES in view.denied:
        return []
    when = "clients take messages while both sites are compared"
    return [pause(view, queue, when) for queue in to_pause(at.rules, view, replace(at.move, source=view.site))]


def _goes_on(at: AtBroker) -> list[Call]:
    rested = at.named(Goal.PAUSE)
    return [resume(at.view, queue, "it is paused") for name, queue in at.view.business.items() if name in rested]


def resting(site: Site, *between: tuple[Want, Site]) -> Wants:
    """The serving site delivers nothing meanwhile."""
    return ((_rests, site), *between, (_goes_on, site))


REMOVED: Final = (_removed, TARGET)
COPIED: Final = (_copied, TARGET)
# Consumed messages, so that the drain has only those that are consumed in between.
draft_catch_up: Final = planning(
    TARGET,
    "{serving}what was consumed at {source} is removed at {target} by its ids",
    REMOVED,
    limits=Rules.catching_up,
)
draft_drain: Final = planning(
    TARGET,
    "both compared by id: what was consumed is removed at {target}, what it lacks is copied there; pauses lifted "
    "meanwhile",
    *(*LIFTED, REMOVED, COPIED),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)
draft_trim: Final = planning(
    SOURCE, "what was consumed at {target} is removed at {source} by its ids", *resting(TARGET, (_removed, SOURCE))
)
# Before clients are let in: messages that the store of ids knows are removed and listed by id.
draft_settle: Final = planning(
    TARGET, "what consumers of {source} had done, as their store of ids says, is removed at {target}", REMOVED
)


def catch_up(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.evened = Evened()
    refused = even_all(
        tools, tools.observer.between(move.source, move.target), move, context, copied=False, pace=Pace.ONCE
    )
    return refused or _evened(tools)


def drain(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.evened = Evened()
    with lifting(tools, move, context) as lifted:
        refused = even_all(tools, tools.observer.between(move.source, move.target), move, context, copied=True)
    return lifted.judged(refused or _evened(tools))


def trim(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Compare towards the named site, which waits; say what nobody could tell, as it stays there. Where clients take
    messages all the time, let them rest for a moment."""
    ways = tools.observer.between(move.target, move.source)
    tools.evened = Evened()
    refused = even_all(tools, ways, move, context, copied=False)
    busy = any(each.why == parity.TAKEN for each in tools.evened.untold.values())
    if refused is None and busy and not context.only_looks:
        serving = replace(move, source=move.target)
        refused = at_rest(
            tools,
            step,
            serving,
            context,
            lambda: even_all(tools, ways, move, context, copied=False, pace=Pace.RESTING),
        )
    if refused is not None:
        return refused
    could = f"{tools.evened.removed_in_all} consumed messages could be removed at {move.source}"
    done = replace(_evened(tools), text=could) if context.only_looks else _evened(tools)
    return replace(done, findings=tuple(possible_duplicates(tools.evened.untold, move, move.source)))


def at_rest(
    tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext, work: Callable[[], Refused | None]
) -> Refused | None:
    """Do something while the source delivers nothing and its clients hold nothing, if they let go in time; then let it
    deliver again. Gives None where all came true."""
    if not any(call.goal is Goal.PAUSE for call in step.calls):
        return None
    held = replace(step, limits={"within": tools.timeouts.quiesce_s})
    quiet = quiesce.act(tools, held, move, context)
    refused = work() if isinstance(quiet, Done) else None
    lifted = quiesce.undo(tools, step, move, context)
    return lifted if isinstance(lifted, Refused) else refused


def _evened(tools: FanoutTools) -> Done:
    return Done(tools.evened.text, tools.evened.as_json())


def even_all(
    tools: FanoutTools,
    ways: Collection[Way],
    move: Move,
    context: StepContext,
    *,
    copied: bool,
    pace: Pace = Pace.WORKING,
) -> Refused | None:
    """Even out every pair; gives None where all came true."""
    for way in ways:
        if (refused := even(tools, way, move, context, copied=copied, pace=pace)) is not None:
            return refused
    return None


def even(
    tools: FanoutTools, way: Way, move: Move, context: StepContext, *, copied: bool, pace: Pace = Pace.WORKING
) -> Refused | None:
    """Remove at the second broker the messages that were consumed at the first, in every queue. If `copied`, also copy
    the messages that the second lacks, until a comparison shows that it lacks none. Gives None where all came true.
    Raises `BrokerError`."""
    source, target = (access.read() for access in way)
    queues = {
        each.queue: (source.named.get(each.queue), target.named.get(each.queue))
        for each in parity.counts(source, target, Queues())
        if each.source or each.target
    }
    store = tools.comparing.store
    if store is not None and not copied:
        for name, (here, there) in queues.items():
            ids.listed(way[0], here, name)  # a message without an id ends a move here, and not behind the fence
            if (refused := remove(tools, way[1], name, ids.consumed(store, way[1], there), context)) is not None:
                return refused
        return None
    idle = 0
    for _ in range(ROUNDS):
        pause = partial(context.wait, tools.timeouts.poll_s)
        apart = tools.comparing.apart(way, queues, pause, context.monotonic, pace)
        tools.evened.alone |= {name: {*each.alone} for name, each in apart.items()}
        untold = tools.comparing.untold(apart)
        tools.evened.untold = {name: each for name, each in tools.evened.untold.items() if name not in apart} | untold
        for name, each in apart.items():
            if (refused := remove(tools, way[1], name, each.done, context)) is not None:
                return refused
        split = {name: Lacking.of(each.rows) for name, each in apart.items()}
        tools.evened.not_carried |= {name: {*each.cannot} for name, each in split.items() if each.cannot}
        lacks = {name: each.can for name, each in split.items() if each.can}
        if not copied or not lacks:
            if not context.only_looks:
                _keep(way, apart)
            return _not_carried(tools, way, move) if copied else None
        before = tools.evened.copied_in_all
        for name, wanted in lacks.items():
            if (refused := _copy(tools, way, name, wanted, context)) is not None:
                return refused
        idle = idle + 1 if tools.evened.copied_in_all == before else 0
        if idle == IDLE:
            named = some([f"{name} {ident}" for name, wanted in lacks.items() for ident in sorted(wanted)])
            return Refused(
                f"{way[0].site} lists messages that {way[1].site} lacks, and shows them to no client: {named}",
                tools.evened.as_json(),
            )
    finding = found("DR-FAN-004", target=target.site, source=source.site)
    return Refused.of(finding, evidence=tools.evened.as_json(), code=ExitCode.DRAIN_TIMEOUT)


def _keep(way: Way, apart: Mapping[str, ids.Apart]) -> None:
    """Note what both sites hold now, consumed messages removed: from here on counters tell what is consumed."""
    marks = {}
    for name, each in apart.items():
        if each.marks is not None:
            there = each.marks[way[1].site]
            marks[name] = {**each.marks, way[1].site: replace(there, removed=there.removed + len(each.done.ids))}
    ids.keep(way, marks)


def _not_carried(tools: FanoutTools, way: Way, move: Move) -> Refused | None:
    """Refuse where the second site lacks messages that cannot be copied whole, unless a person accepts as many."""
    kept = tools.evened.not_carried
    wrong = {name: lost for name, lost in kept.items() if len(lost) != move.ask.accept_difference.get(name)}
    if not wrong:
        return None
    return Refused.of(
        found(
            "DR-FAN-008",
            site=way[1].site,
            id_header=way[0].own.id_header,
            messages=some([f"{name}: {len(lost)} ({some(sorted(lost))})" for name, lost in wrong.items()]),
            other_site=way[0].site,
            accepting=accepting({name: len(lost) for name, lost in wrong.items()}),
        ),
        evidence=tools.evened.as_json(),
    )


def remove(tools: FanoutTools, access: Access, queue: str, gone: Consumed, context: StepContext) -> Refused | None:
    """Remove these messages, and look whether they are gone; gives None where they are. Raises `BrokerError`."""
    if not gone.ids:
        return None
    if context.only_looks:
        tools.evened.note(tools.evened.removed, queue, gone.ids)
        return None
    view = access.names()
    outcomes = tools.change(list(removes(view, view.named[queue], gone, view.own.id_header)), context)
    left = ids.lying(access, view.named[queue]) & gone.ids
    tools.evened.note(tools.evened.removed, queue, gone.ids - left)
    return not_done(left, f"of {len(gone.ids)} message(s) could not be removed from {queue} at {view.site}", outcomes)


def _copy(tools: FanoutTools, way: Way, queue: str, lacks: Collection[str], context: StepContext) -> Refused | None:
    """Copy those of these messages that the first broker shows to a client. Whoever lacks afterwards is compared again:
    a message that was not shown may be on its way to a consumer."""
    source, target = way
    messages = source.messages(queue, lacks)
    target.carries = {(queue, ident): message for ident, message in messages.items()}
    outcomes = tools.change(list(copies(target.names(), queue, messages)), context)
    target.carries = {}
    there = ids.lying(target, target.read().named.get(queue))
    tools.evened.note(tools.evened.copied, queue, messages.keys() & there)
    about = f"of {len(messages)} message(s) of {queue} could not be copied to {target.site}"
    return not_done(messages.keys() - there, about, outcomes, "they are not there")


def settle(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove the messages that the lost site's consumers had done. Messages without a record come twice: nobody waits
    for them."""
    tools.evened = Evened()
    if (store := tools.comparing.store) is None:
        return Done.of(found("DR-FAN-005.not_known", source=move.source))
    try:
        why = _without_done(tools, store, move.target, context)
    except BrokerError as error:
        why = str(error)
    if why is None:
        return Done(tools.evened.text, tools.evened.as_json())
    return Done.of(found("DR-FAN-005.not_removed", source=move.source, why=why), evidence=tools.evened.as_json())


def _without_done(tools: FanoutTools, store: Store, site: str, context: StepContext) -> str | None:
    """Remove there what the store knows, queue by queue; says why that was not done. Raises `BrokerError`."""
    for access in tools.observer.brokers[site].values():
        for name, queue in access.read().business.items():
            if not queue.depth:
                continue
            if (refused := remove(tools, access, name, ids.consumed(store, access, queue), context)) is not None:
                return refused.text
    return None


UNDO_TRIM: Final = Undo(target=(pauses,))
# Messages stay copied and removed when it is undone: copies lie at both sites, and the rest was consumed.
draft_reinstate: Final = planning(
    TARGET,
    "compared by id: what was consumed since is removed at {target}, what came since is copied there",
    *(*resting(SOURCE, REMOVED, COPIED), *PAID),
    limits=Rules.while_moving,
)
draft_reconcile: Final = planning(TARGET, "what was consumed meanwhile removed; both sites compared", REMOVED, COPIED)


def residue(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Close the returned site to clients where it is open, and count its messages. Producers may still write to it:
    their messages lie at the other site as well."""
    findings = closed_first(tools, step, move, context)
    if isinstance(findings, Refused):
        return findings
    views = tools.views(move.target)
    count = sum(queue.depth for view in views for queue in view.business.values())
    return Done(f"{count} message(s) lie there", {"messages": count}, tuple(findings))


def reinstate(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even it out while clients work; then once more while they rest, so that counters tell from then on what is
    consumed."""
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is taken in already")
    ways = tools.observer.between(move.source, move.target)
    tools.evened = Evened()
    refused = even_all(tools, ways, move, context, copied=True) or at_rest(
        tools, step, move, context, lambda: even_all(tools, ways, move, context, copied=True, pace=Pace.RESTING)
    )
    if refused is not None:
        return refused
    if (refused := tools.reach(PAID, move, context)) is not None:
        return refused
    return Done(tools.evened.text, tools.evened.as_json(), tuple(_alone(tools, move)))


def reconcile(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even it out once more; what may come as duplicates is judged as by every check: the gate proves what counters
    tell, once clients are out."""
    tools.evened = Evened()
    if (
        refused := even_all(tools, tools.observer.between(move.source, move.target), move, context, copied=True)
    ) is not None:
        return refused
    snapshot = tools.observer.observe()
    pairs = [(view, there) for view in snapshot.views(move.source) if (there := snapshot.view(move.target, view.pair))]
    untold = [found for here, there in pairs for found in of_untold(move, here, there)]
    if any(each.severity is Severity.ERROR for each in untold):
        return Refused(untold[0].text, tools.evened.as_json(), tuple(untold))
    return Done(tools.evened.text, tools.evened.as_json(), tuple(untold))


def _alone(tools: FanoutTools, move: Move) -> Iterator[Finding]:
    if alone := {queue: ids for queue, ids in tools.evened.alone.items() if ids}:
        count = sum(map(len, alone.values()))
        yield found(
            "DR-FAN-006",
            count=count,
            target=move.target,
            items=some([f"{queue} {ident}" for queue, ids in alone.items() for ident in sorted(ids)]),
        )


UNDO_REINSTATE: Final = Undo(source=(pauses, debts))
