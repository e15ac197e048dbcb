"""The handlers of runbook verbs for a fan-out installation, which rest on the ids that producers give messages."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Self

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity, brief
from dr_ctl.core.system import system
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext
from dr_ctl.topologies.classic import ids as by_ids
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.classic.ids import BATCH, MAX_IDS, removal_calls
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import batches, call, pause, resume
from dr_ctl.topologies.common.consumed import Consumed
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Procedure, Recipe, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Sender, StepFailed, Tools, must_be_none
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import fence, proving, quiesce
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, to_pause, with_pauses_lifted
from dr_ctl.topologies.common.wants import DEBTS_CLEARED, SOURCE, TARGET, AtBroker, SiteOf, Want, Wants, draft_of
from dr_ctl.topologies.fanout import checks, reading
from dr_ctl.topologies.fanout.checks import CHECKS, TAKEN, Undecided, nothing_owed, possible_duplicates
from dr_ctl.topologies.fanout.reading import READS, Comparing, ComparisonMode, LinkEnds, Observer, Session, is_carried
from dr_ctl.topologies.fanout.view import COPY, IDS, BrokerView

ROUNDS: Final = 20
CONSUMED: Final = "they were consumed at the other site"
LACKING: Final = "they lie at the other site only"
LISTED: Final = 1000  # ids of a queue; the calls in the journal name all of them
IDLE: Final = 3  # rounds in which no client was shown what lacks


def _removed(at: AtBroker) -> list[Call]:
    queues = at.view.without_dead_letters.values()
    return [by_ids.plan_removal(at.view, queue, CONSUMED, at.view.own.id_header) for queue in queues]


def _copied(at: AtBroker) -> list[Call]:
    view = at.view
    return [
        call(view, Goal.COPY, name, {COPY: name, IDS: ["…"]}, f"copy them to {name} by their ids", LACKING, MAX_IDS)
        for name in view.without_dead_letters
    ]


def _stands_still(at: AtBroker) -> list[Call]:
    """Stop dispatch while both sites are compared, unless a store of ids tells what was consumed."""
    view = at.view
    if not view.open or view.own.stored or not view.may_pause:
        return []
    when = "clients take messages while both sites are compared"
    return [pause(view, queue, when) for queue in to_pause(at)]


def _goes_on(at: AtBroker) -> list[Call]:
    rested = at.changed_by_step(Goal.PAUSE)
    return [resume(at.view, queue, "it is paused") for name, queue in at.view.business.items() if name in rested]


def resting(site: SiteOf, *between: tuple[Want, SiteOf]) -> Wants:
    """Let the serving site deliver nothing meanwhile."""
    return ((_stands_still, site), *between, (_goes_on, site))


REMOVED: Final = (_removed, TARGET)
COPIED: Final = (_copied, TARGET)
# Consumed messages are removed before the drain, which then has only those that are consumed in between.
draft_catch_up: Final = draft_of(
    TARGET,
    "{serving_prefix}what was consumed at {source} is removed at {target} by its ids",
    REMOVED,
    limits=Rules.catching_up,
)
draft_drain: Final = draft_of(
    TARGET,
    "both compared by id: what was consumed is removed at {target}, what it lacks is copied there; pauses lifted "
    "meanwhile",
    *(*LIFTED, REMOVED, COPIED),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)
draft_trim: Final = draft_of(
    SOURCE, "what was consumed at {target} is removed at {source} by its ids", *resting(TARGET, (_removed, SOURCE))
)
# Messages that the store of ids knows are removed before clients are let in.
draft_settle: Final = draft_of(
    TARGET, "what consumers of {source} had done, as their store of ids says, is removed at {target}", REMOVED
)


class FanoutGate(Gate[BrokerView]):
    """The gate compares no counts, as producers write to one site a moment before the other."""

    observer: Observer

    def __init__(self, observer: Observer, comparing: Comparing, poll_s: float) -> None:
        self._comparing = comparing
        super().__init__(observer, poll_s)

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        brokers = self.observer.brokers
        ends = brokers[view.site][view.pair], brokers[peer.site][peer.pair]
        queues = reading.with_messages(view, peer)
        compared: dict[str, Json] = {name: local.depth if local else 0 for name, (local, _) in queues.items()}
        wrong, accepted = list[str](), move.spec.accept_difference
        ids: dict[str, dict[str, frozenset[str]]] = {}
        differences = self._comparing.apart(ends, queues, lambda: system().sleep(self._poll_s))
        for name, apart in differences.items():
            for messages, what, where in (
                (frozenset(apart.lacks), f"message(s) only at {view.site}", f"only at {view.site}"),
                (apart.consumed.ids, f"consumed at {view.site} lie at {peer.site}", f"consumed, and at {peer.site}"),
            ):
                if messages and accepted.get(name) != len(messages):
                    wrong.append(f"{name}: {len(messages)} {what}")
                    ids.setdefault(name, {})[where] = messages
        duplicates = possible_duplicates(self._comparing.undecided(differences), move, peer.site)
        if any(duplicate.severity is Severity.ERROR for duplicate in duplicates):
            return Failed.of(*duplicates)
        if wrong:
            sizes = {name: len(names) for name, by in ids.items() for names in by.values()}
            return refused("DR-PARITY-004.either", ids, queues=brief(wrong), accepting=accepting(sizes))
        return Done("the gate holds", {"compared_by_id": compared}, tuple(duplicates))


class FanoutTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        self.comparing = Comparing(observer.all()[0].ids, observer.timeouts.differs_s)
        gate = FanoutGate(observer, self.comparing, recipe.rules.drain.poll)
        super().__init__(observer, recipe, sender, gate)


class Reconciler:
    """Makes the second broker of each pair hold the messages of the first, which serves or did last, by their ids. By
    queue, `removed` messages were consumed at the other site, and `copied` ones were put where they lacked. `unmatched`
    ones lie at one site, and nobody is known to have consumed them; `undecided` says why. The target lacks the messages
    `not_carried`, which cannot be copied whole. Raises `BrokerError`, and `StepFailed` where messages stay."""

    def __init__(self, tools: FanoutTools, source: str, target: str, move: Move, context: StepContext) -> None:
        self.removed: dict[str, set[str]] = defaultdict(set)
        self.copied: dict[str, set[str]] = defaultdict(set)
        self.unmatched: dict[str, frozenset[str]] = {}
        self.undecided: dict[str, Undecided] = {}
        self.not_carried: dict[str, set[str]] = {}
        self._tools, self._move, self._context = tools, move, context
        self._link_ends = tools.observer.between(source, target)

    @property
    def removed_in_all(self) -> int:
        return sum(map(len, self.removed.values()))

    @property
    def copied_in_all(self) -> int:
        return sum(map(len, self.copied.values()))

    @property
    def evidence(self) -> dict[str, Json]:
        def listed(ids_by_queue: Mapping[str, Collection[str]]) -> dict[str, Json]:
            return {queue: [*sorted(ids)[:LISTED]] for queue, ids in ids_by_queue.items()}

        return {
            "duplicates": listed(self.removed),
            "removed": self.removed_in_all,
            "copied": {queue: len(ids) for queue, ids in self.copied.items()},
            "alone": listed(self.unmatched),
            "not_carried": listed(self.not_carried),
        }

    def done(self, *findings: Finding) -> Done:
        removed = f"{self.removed_in_all} that were consumed at the other site removed"
        return Done(f"{removed}, {self.copied_in_all} that it lacked copied", self.evidence, findings)

    def run(self, *, copied: bool, pace: ComparisonMode = ComparisonMode.WORKING) -> Self:
        """Remove at the second broker the messages of every queue that were consumed at the first. If `copied`, also
        copy the messages that the second lacks until a comparison shows that it lacks none."""
        for ends in self._link_ends:
            self._run_pair(ends, copied=copied, pace=pace)
        return self

    def run_at_rest(self, step: PlannedStep, serving: Move, *, copied: bool) -> None:
        """Do the same while the serving site delivers nothing and its clients hold nothing, if they let go in time."""
        tools, context, failed = self._tools, self._context, None
        if not any(call.goal is Goal.PAUSE for call in step.calls):
            return
        quiet = quiesce.act(tools, replace(step, limits={"within": tools.timeouts.quiesce_s}), serving, context)
        try:
            if isinstance(quiet, Done):
                self.run(copied=copied, pace=ComparisonMode.RESTING)
        except StepFailed as error:
            failed = error
        lifted = quiesce.undo(tools, step, serving, context)
        failed = StepFailed(lifted) if isinstance(lifted, Failed) else failed
        if failed is not None:
            raise failed

    def _run_pair(self, ends: LinkEnds, *, copied: bool, pace: ComparisonMode) -> None:
        source, target = (session.read() for session in ends)
        queues = reading.with_messages(source, target)
        comparing = self._tools.comparing
        if comparing.store is not None and not copied:
            for name, (view, peer) in queues.items():
                reading.listed(ends[0], view)  # a message without an id ends a move here, and not behind the fence
                self.remove(ends[1], name, reading.consumed(comparing.store, ends[1], peer))
            return
        idle = 0
        for _ in range(ROUNDS):
            pause = partial(self._context.wait, self._tools.timeouts.poll_s)
            apart = comparing.apart(ends, queues, pause, pace)
            self.unmatched |= {name: difference.unmatched for name, difference in apart.items()}
            others = {name: copies for name, copies in self.undecided.items() if name not in apart}
            self.undecided = others | comparing.undecided(apart)
            for name, difference in apart.items():
                self.remove(ends[1], name, difference.consumed)
            lacks, cannot = dict[str, set[str]](), dict[str, set[str]]()
            for name, difference in apart.items():
                for ident, row in difference.lacks.items():
                    (lacks if is_carried(row) else cannot).setdefault(name, set()).add(ident)
            self.not_carried |= cannot
            if not copied or not lacks:
                if not self._context.read_only:
                    reading.keep(ends, apart)
                if copied:
                    self._must_carry_all(ends)
                return
            before = self.copied_in_all
            for name, wanted in lacks.items():
                self._copy(ends, name, wanted)
            idle = idle + 1 if self.copied_in_all == before else 0
            if idle == IDLE:
                named = brief([f"{name} {ident}" for name, wanted in lacks.items() for ident in sorted(wanted)])
                lists = f"{ends[0].site} lists messages that {ends[1].site} lacks, and shows them to no client"
                raise StepFailed(Failed(f"{lists}: {named}", self.evidence))
        finding = found("DR-FAN-004", target=target.site, source=source.site)
        raise StepFailed(Failed.of(finding, evidence=self.evidence, code=ExitCode.DRAIN_TIMEOUT))

    def _must_carry_all(self, ends: LinkEnds) -> None:
        kept, accepted = self.not_carried, self._move.spec.accept_difference
        if not (wrong := {name: lost for name, lost in kept.items() if len(lost) != accepted.get(name)}):
            return
        messages = brief([f"{name}: {len(lost)} ({brief(sorted(lost))})" for name, lost in wrong.items()])
        options = accepting({name: len(lost) for name, lost in wrong.items()})
        finding = found("DR-FAN-008", view=ends[1], peer=ends[0], messages=messages, accepting=options)
        raise StepFailed(Failed.of(finding, evidence=self.evidence))

    def remove(self, session: Session, queue: str, gone: Consumed) -> None:
        if not gone.ids:
            return
        if self._context.read_only:
            self.removed[queue] |= gone.ids
            return
        view = session.last_view()
        calls = [*removal_calls(view, view.by_name[queue], gone, view.own.id_header)]
        outcomes = self._tools.change(calls, self._context)
        stayed = reading.listed_to_the_end(session, view.by_name[queue]).ids & gone.ids
        self.removed[queue] |= gone.ids - stayed
        what = f"of {len(gone.ids)} message(s) could not be removed from {queue} at {view.site}"
        must_be_none(stayed, what, outcomes)

    def _copy(self, ends: LinkEnds, queue: str, lacks: Collection[str]) -> None:
        """Copy the messages that the first broker shows to a client. Others may be on their way to a consumer."""
        source, target = ends
        messages = source.messages(queue, lacks)
        target.carries = {(queue, ident): message for ident, message in messages.items()}
        view = target.last_view()
        calls = [
            call(view, Goal.COPY, queue, {COPY: queue, IDS: [*batch]}, f"copy {len(batch)} message(s) of {queue}")
            for batch in batches(messages, BATCH)
        ]
        outcomes = self._tools.change(calls, self._context)
        target.carries = {}
        arrived = reading.listed_to_the_end(target, target.read().by_name.get(queue)).ids
        self.copied[queue] |= messages.keys() & arrived
        what = f"of {len(messages)} message(s) of {queue} could not be copied to {target.site}"
        must_be_none(messages.keys() - arrived, what, outcomes, "they are not there")


def catch_up(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    return reconciler.run(copied=False, pace=ComparisonMode.ONCE).done()


def drain(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    return with_pauses_lifted(tools, move, context, lambda: reconciler.run(copied=True).done())


def trim(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Compare towards the standby. Where clients take messages all the time, let them rest for a moment."""
    reconciler = Reconciler(tools, move.target, move.source, move, context)
    reconciler.run(copied=False)
    busy = any(copies.why == TAKEN for copies in reconciler.undecided.values())
    if busy and not context.read_only:
        reconciler.run_at_rest(step, replace(move, source=move.target), copied=False)
    done = reconciler.done(*possible_duplicates(reconciler.undecided, move, move.source))
    could = f"{reconciler.removed_in_all} consumed messages could be removed at {move.source}"
    return replace(done, text=could) if context.read_only else done


def settle(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove what the lost site's consumers had done, as their store knows. Nobody waits for any other message."""
    if (store := tools.comparing.store) is None:
        return Done.of(found("DR-FAN-005.not_known", source=move.source))
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    try:
        for session in tools.observer.at(move.target):
            for name, queue in session.read().business.items():
                if queue.depth:
                    reconciler.remove(session, name, reading.consumed(store, session, queue))
    except (BrokerError, StepFailed) as error:
        finding = found("DR-FAN-005.not_removed", source=move.source, why=error)
        return Done.of(finding, evidence=reconciler.evidence)
    return reconciler.done()


# An undo leaves messages copied and removed: copies lie at both sites, and the rest was consumed.
draft_reinstate: Final = draft_of(
    TARGET,
    "compared by id: what was consumed since is removed at {target}, what came since is copied there",
    *(*resting(SOURCE, REMOVED, COPIED), *DEBTS_CLEARED),
    limits=Rules.while_moving,
)
draft_reconcile: Final = draft_of(TARGET, "what was consumed meanwhile removed; both sites compared", REMOVED, COPIED)


def residue(tools: FanoutTools, move: Move, _context: StepContext, _was_open: bool) -> Outcome:
    """Count its messages. Producers may still write to it, and their messages lie at the other site as well."""
    views = tools.views(move.target)
    count = sum(queue.depth for view in views for queue in view.business.values())
    return Done(f"{count} message(s) lie there", {"messages": count})


def reinstate(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even out both sites while clients work, and once more while they rest: from then on counters prove more."""
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is reinstated already")
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    reconciler.run(copied=True).run_at_rest(step, move, copied=True)
    tools.reach(DEBTS_CLEARED, move, context)
    messages = [f"{queue} {ident}" for queue, alone in reconciler.unmatched.items() for ident in sorted(alone)]
    lie_alone = [found("DR-FAN-006", count=len(messages), target=move.target, items=brief(messages))]
    return reconciler.done(*(lie_alone if messages else ()))


def reconcile(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Even out both sites once more. The gate proves what counters tell, once clients are out."""
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    reconciler.run(copied=True)
    snapshot = tools.observer.observe()
    both = snapshot.both(move.source, move.target)
    undecided = [f for views in both for f in possible_duplicates(checks.undecided(*views), move, move.target)]
    if any(finding.severity is Severity.ERROR for finding in undecided):
        return Failed.of(*undecided, evidence=reconciler.evidence)
    return reconciler.done(*undecided)


PROCEDURE: Final[Procedure[Snapshot[BrokerView], FanoutTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up),
    "settle": VerbHandler(draft_settle, settle),
    "drain": VerbHandler(draft_drain, drain),
    "probe": VerbHandler(proving.draft_probe, classic.probe),
    "trim": VerbHandler(draft_trim, trim, Undo(target=(wants.pauses_as_before,))),
    # These rows take a lost site in again.
    "residue": fence.counting(residue),
    "reinstate": VerbHandler(draft_reinstate, reinstate, Undo(source=(wants.pauses_as_before, wants.debts_as_before))),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}
NOT_WRITTEN_TWICE: Final = (
    "what a client sends by the clients' connector, and not as a producer to both sites",
    "topics and durable subscriptions, dead letters: each site has its own",
)
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, FanoutTools, NOT_WRITTEN_TWICE)
