"""The handlers of runbook verbs for a fan-out installation. They identify messages by ids that producers set."""

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
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, queues_to_pause, with_pauses_lifted
from dr_ctl.topologies.common.wants import DEBTS_CLEARED, SOURCE, TARGET, AtBroker, SiteOf, Want, Wants, draft_of
from dr_ctl.topologies.fanout import checks, reading
from dr_ctl.topologies.fanout.checks import CHECKS, CLIENTS_WORKED, Undecided, is_reinstated, possible_duplicates
from dr_ctl.topologies.fanout.reading import READS, Comparer, ComparisonMode, LinkEnds, Observer, Session, can_be_copied
from dr_ctl.topologies.fanout.view import COPY, IDS, BrokerView

MAX_ROUNDS: Final = 20
CONSUMED: Final = "they were consumed at the other site"
MISSING: Final = "they are at the other site only"
MAX_LISTED: Final = 1000  # ids of a queue; the calls in the journal name all of them
MAX_IDLE_ROUNDS: Final = 3  # rounds in which the source shows no client the missing messages


def _consumed_removed(at: AtBroker) -> list[Call]:
    queues = at.view.without_dead_letters.values()
    return [by_ids.plan_removal(at.view, queue, CONSUMED, at.view.fanout.id_header) for queue in queues]


def _missing_copied(at: AtBroker) -> list[Call]:
    view = at.view
    return [
        call(view, Goal.COPY, name, {COPY: name, IDS: ["…"]}, f"copy them to {name} by their ids", MISSING, MAX_IDS)
        for name in view.without_dead_letters
    ]


def _dispatch_stopped(at: AtBroker) -> list[Call]:
    """Want dispatch stopped while both sites are compared, unless an id store shows what was consumed."""
    view = at.view
    if not view.open or view.fanout.stored or not view.may_pause:
        return []
    when = "clients take messages while both sites are compared"
    return [pause(view, queue, when) for queue in queues_to_pause(at)]


def _dispatch_resumed(at: AtBroker) -> list[Call]:
    paused = at.changed_by_step(Goal.PAUSE)
    return [resume(at.view, queue, "it is paused") for name, queue in at.view.business.items() if name in paused]


def with_pause(site: SiteOf, *between: tuple[Want, SiteOf]) -> Wants:
    """Pause the serving site's queues around these wants."""
    return ((_dispatch_stopped, site), *between, (_dispatch_resumed, site))


REMOVED: Final = (_consumed_removed, TARGET)
COPIED: Final = (_missing_copied, TARGET)
# Consumed messages are removed before the drain, which then has only those that are consumed in between.
draft_catch_up: Final = draft_of(
    TARGET,
    "{serving_prefix}messages consumed at {source} are removed at {target} by their ids",
    REMOVED,
    limits=Rules.catching_up,
)
draft_drain: Final = draft_of(
    TARGET,
    "both compared by id: consumed messages are removed at {target}, missing messages are copied there; pauses lifted "
    "meanwhile",
    *(*LIFTED, REMOVED, COPIED),
    limits=lambda rules, _, move: {"within": rules.within(move)},
)
draft_trim: Final = draft_of(
    SOURCE, "consumed messages are removed at {source} by their ids", *with_pause(TARGET, (_consumed_removed, SOURCE))
)
# Messages that are in the id store are removed before clients are let in.
draft_settle: Final = draft_of(
    TARGET, "messages processed at {source}, by its consumers' id store, are removed at {target}", REMOVED
)


class FanoutGate(Gate[BrokerView]):
    """The gate compares no counts, because producers write to one site shortly before the other."""

    observer: Observer

    def __init__(self, observer: Observer, comparing: Comparer, poll_s: float) -> None:
        self._comparing = comparing
        super().__init__(observer, poll_s)

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        brokers = self.observer.brokers
        ends = brokers[view.site][view.pair], brokers[peer.site][peer.pair]
        queues = reading.nonempty_queues(view, peer)
        compared: dict[str, Json] = {name: local.depth if local else 0 for name, (local, _) in queues.items()}
        texts, accepted = list[str](), move.spec.accept_difference
        ids: dict[str, dict[str, frozenset[str]]] = {}
        differences = self._comparing.compare(ends, queues, lambda: system().sleep(self._poll_s))
        for name, difference in differences.items():
            for messages, text, place in (
                (frozenset(difference.lacks), f"message(s) only at {view.site}", f"only at {view.site}"),
                (difference.consumed.ids, f"consumed message(s) at {peer.site}", f"consumed, and at {peer.site}"),
            ):
                if messages and accepted.get(name) != len(messages):
                    texts.append(f"{name}: {len(messages)} {text}")
                    ids.setdefault(name, {})[place] = messages
        duplicates = possible_duplicates(self._comparing.undecided(differences), move, peer.site)
        if any(duplicate.severity is Severity.ERROR for duplicate in duplicates):
            return Failed.of(*duplicates)
        if texts:
            sizes = {name: len(names) for name, places in ids.items() for names in places.values()}
            return refused("DR-PARITY-004.either", ids, queues=brief(texts), accepting=accepting(sizes))
        return Done("the gate holds", {"compared_by_id": compared}, tuple(duplicates))


class FanoutTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        self.comparing = Comparer(observer.all()[0].ids, observer.timeouts.differs_s)
        gate = FanoutGate(observer, self.comparing, recipe.rules.drain.poll)
        super().__init__(observer, recipe, sender, gate)


class Reconciler:
    """Gives the second broker of each pair the messages of the first, which serves or served last, by their ids. By
    queue: `removed` messages were consumed at the first broker, `copied` ones were missing at the second. `unmatched`
    ones are at one site only, without a proof that they were consumed; `undecided` says why. `not_carried` ones are
    missing, and cannot be copied completely. Raises `BrokerError`, and `StepFailed` if calls had no effect."""

    def __init__(self, tools: FanoutTools, source: str, target: str, move: Move, context: StepContext) -> None:
        self.removed: dict[str, set[str]] = defaultdict(set)
        self.copied: dict[str, set[str]] = defaultdict(set)
        self.unmatched: dict[str, frozenset[str]] = {}
        self.undecided: dict[str, Undecided] = {}
        self.not_carried: dict[str, set[str]] = {}
        self._tools, self._move, self._context = tools, move, context
        self._link_ends = tools.observer.between(source, target)

    @property
    def removed_count(self) -> int:
        return sum(map(len, self.removed.values()))

    @property
    def copied_count(self) -> int:
        return sum(map(len, self.copied.values()))

    @property
    def evidence(self) -> dict[str, Json]:
        def listed(ids_by_queue: Mapping[str, Collection[str]]) -> dict[str, Json]:
            return {queue: [*sorted(ids)[:MAX_LISTED]] for queue, ids in ids_by_queue.items()}

        return {
            "duplicates": listed(self.removed),
            "removed": self.removed_count,
            "copied": {queue: len(ids) for queue, ids in self.copied.items()},
            "alone": listed(self.unmatched),
            "not_carried": listed(self.not_carried),
        }

    def done(self, *findings: Finding) -> Done:
        removed = f"{self.removed_count} consumed messages removed"
        return Done(f"{removed}, {self.copied_count} missing ones copied", self.evidence, findings)

    def run(self, *, copied: bool, mode: ComparisonMode = ComparisonMode.WORKING) -> Self:
        """Remove at the second broker the messages of every queue that were consumed at the first. If `copied`, also
        copy the messages that the second lacks until a comparison shows that it lacks none."""
        for ends in self._link_ends:
            self._run_pair(ends, copied=copied, mode=mode)
        return self

    def run_at_rest(self, step: PlannedStep, serving: Move, *, copied: bool) -> None:
        """Do the same while the serving site delivers nothing and its clients hold nothing, if they finish in time."""
        tools, context, failed = self._tools, self._context, None
        if not any(call.goal is Goal.PAUSE for call in step.calls):
            return
        quiesced = quiesce.act(tools, replace(step, limits={"within": tools.timeouts.quiesce_s}), serving, context)
        try:
            if isinstance(quiesced, Done):
                self.run(copied=copied, mode=ComparisonMode.RESTING)
        except StepFailed as error:
            failed = error
        resumed = quiesce.undo(tools, step, serving, context)
        failed = StepFailed(resumed) if isinstance(resumed, Failed) else failed
        if failed is not None:
            raise failed

    def _run_pair(self, ends: LinkEnds, *, copied: bool, mode: ComparisonMode) -> None:
        source, target = (session.read() for session in ends)
        queues = reading.nonempty_queues(source, target)
        comparing = self._tools.comparing
        if comparing.store is not None and not copied:
            for name, (view, peer) in queues.items():
                reading.list_queue(ends[0], view)  # a message without an id ends a move now, and not behind the fence
                self.remove(ends[1], name, reading.find_consumed(comparing.store, ends[1], peer))
            return
        idle = 0
        for _ in range(MAX_ROUNDS):
            pause = partial(self._context.wait, self._tools.timeouts.poll_s)
            compare = comparing.compare(ends, queues, pause, mode)
            self.unmatched |= {name: difference.unmatched for name, difference in compare.items()}
            kept_undecided = {name: copies for name, copies in self.undecided.items() if name not in compare}
            self.undecided = kept_undecided | comparing.undecided(compare)
            for name, difference in compare.items():
                self.remove(ends[1], name, difference.consumed)
            missing, not_copied = dict[str, set[str]](), dict[str, set[str]]()
            for name, difference in compare.items():
                for ident, row in difference.lacks.items():
                    (missing if can_be_copied(row) else not_copied).setdefault(name, set()).add(ident)
            self.not_carried |= not_copied
            if not copied or not missing:
                if not self._context.read_only:
                    reading.write_checkpoints(ends, compare)
                if copied:
                    self._must_carry_all(ends)
                return
            before = self.copied_count
            for name, wanted in missing.items():
                self._copy(ends, name, wanted)
            idle = idle + 1 if self.copied_count == before else 0
            if idle == MAX_IDLE_ROUNDS:
                messages = brief([f"{name} {ident}" for name, wanted in missing.items() for ident in sorted(wanted)])
                lists = f"{ends[0].site} lists messages that {ends[1].site} lacks, and shows them to no client"
                raise StepFailed(Failed(f"{lists}: {messages}", self.evidence))
        finding = found("DR-FAN-004", target=target.site, source=source.site)
        raise StepFailed(Failed.of(finding, evidence=self.evidence, code=ExitCode.DRAIN_TIMEOUT))

    def _must_carry_all(self, ends: LinkEnds) -> None:
        not_copied, accepted = self.not_carried, self._move.spec.accept_difference
        if not (unaccepted := {name: ids for name, ids in not_copied.items() if len(ids) != accepted.get(name)}):
            return
        messages = brief([f"{name}: {len(ids)} ({brief(sorted(ids))})" for name, ids in unaccepted.items()])
        options = accepting({name: len(ids) for name, ids in unaccepted.items()})
        finding = found("DR-FAN-008", view=ends[1], peer=ends[0], messages=messages, accepting=options)
        raise StepFailed(Failed.of(finding, evidence=self.evidence))

    def remove(self, session: Session, queue: str, consumed: Consumed) -> None:
        if not consumed.ids:
            return
        if self._context.read_only:
            self.removed[queue] |= consumed.ids
            return
        view = session.last_view()
        calls = [*removal_calls(view, view.by_name[queue], consumed, view.fanout.id_header)]
        outcomes = self._tools.change(calls, self._context)
        left = reading.list_completely(session, view.by_name[queue]).ids & consumed.ids
        self.removed[queue] |= consumed.ids - left
        text = f"of {len(consumed.ids)} message(s) could not be removed from {queue} at {view.site}"
        must_be_none(left, text, outcomes)

    def _copy(self, ends: LinkEnds, queue: str, missing: Collection[str]) -> None:
        """Copy the messages that the first broker shows to a browse; others may be in delivery."""
        source, target = ends
        messages = source.messages(queue, missing)
        target.carries = {(queue, ident): message for ident, message in messages.items()}
        view = target.last_view()
        calls = [
            call(view, Goal.COPY, queue, {COPY: queue, IDS: [*batch]}, f"copy {len(batch)} message(s) of {queue}")
            for batch in batches(messages, BATCH)
        ]
        outcomes = self._tools.change(calls, self._context)
        target.carries = {}
        arrived = reading.list_completely(target, target.read().by_name.get(queue)).ids
        self.copied[queue] |= messages.keys() & arrived
        text = f"of {len(messages)} message(s) of {queue} could not be copied to {target.site}"
        must_be_none(messages.keys() - arrived, text, outcomes, "they are not there")


def catch_up(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    return reconciler.run(copied=False, mode=ComparisonMode.ONCE).done()


def drain(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    return with_pauses_lifted(tools, move, context, lambda: reconciler.run(copied=True).done())


def trim(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove copies of consumed messages at the standby. If clients take messages all the time, pause their queues."""
    reconciler = Reconciler(tools, move.target, move.source, move, context)
    reconciler.run(copied=False)
    busy = any(copies.why == CLIENTS_WORKED for copies in reconciler.undecided.values())
    if busy and not context.read_only:
        reconciler.run_at_rest(step, replace(move, source=move.target), copied=False)
    done = reconciler.done(*possible_duplicates(reconciler.undecided, move, move.source))
    text = f"{reconciler.removed_count} consumed messages could be removed at {move.source}"
    return replace(done, text=text) if context.read_only else done


def settle(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove the messages that are in the id store of the lost site's consumers, without a wait for others."""
    if (store := tools.comparing.store) is None:
        return Done.of(found("DR-FAN-005.not_known", source=move.source))
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    try:
        for session in tools.observer.at(move.target):
            for name, queue in session.read().business.items():
                if queue.depth:
                    reconciler.remove(session, name, reading.find_consumed(store, session, queue))
    except (BrokerError, StepFailed) as error:
        finding = found("DR-FAN-005.not_removed", source=move.source, why=error)
        return Done.of(finding, evidence=reconciler.evidence)
    return reconciler.done()


# An undo keeps copies and removals: copied messages are at both sites, removed ones were consumed.
draft_reinstate: Final = draft_of(
    TARGET,
    "compared by id: messages consumed since are removed at {target}, new messages are copied there",
    *(*with_pause(SOURCE, REMOVED, COPIED), *DEBTS_CLEARED),
    limits=Rules.while_moving,
)
draft_reconcile: Final = draft_of(TARGET, "messages consumed meanwhile removed; both sites compared", REMOVED, COPIED)


def residue(tools: FanoutTools, move: Move, _context: StepContext, _was_open: bool) -> Outcome:
    """Count its messages. Producers may still write to it, and to the other site too."""
    views = tools.views(move.target)
    count = sum(queue.depth for view in views for queue in view.business.values())
    return Done(f"{count} message(s) are there", {"messages": count})


def reinstate(tools: FanoutTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Copy and remove while clients work, and again while they are paused: from then on counters prove more."""
    if is_reinstated(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is reinstated already")
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    reconciler.run(copied=True).run_at_rest(step, move, copied=True)
    tools.reach(DEBTS_CLEARED, move, context)
    messages = [f"{queue} {ident}" for queue, ids in reconciler.unmatched.items() for ident in sorted(ids)]
    findings = [found("DR-FAN-006", count=len(messages), target=move.target, items=brief(messages))]
    return reconciler.done(*(findings if messages else ()))


def reconcile(tools: FanoutTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Copy and remove again. The gate uses counters once clients are out."""
    reconciler = Reconciler(tools, move.source, move.target, move, context)
    reconciler.run(copied=True)
    snapshot = tools.observer.observe()
    pairs = snapshot.both(move.source, move.target)
    undecided = [f for views in pairs for f in possible_duplicates(checks.undecided(*views), move, move.target)]
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
    # These verbs reinstate a lost site.
    "residue": fence.counting_verb(residue),
    "reinstate": VerbHandler(draft_reinstate, reinstate, Undo(source=(wants.pauses_as_before, wants.debts_as_before))),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}
NOT_REPLICATED: Final = (
    "messages that a client sends by the clients' connector only, and not to both sites",
    "topics and durable subscriptions, dead letters: each site has its own",
)
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, FanoutTools, NOT_REPLICATED)
