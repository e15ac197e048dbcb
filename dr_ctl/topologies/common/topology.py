"""This module opens a topology of brokers in pairs for one command, and its driver acts step by step by the table of
its procedure. A step ends with a reading or an attempt that shows its effect; the answer to a call is never the proof.
Flags lie: an acceptor whose port is taken by another process says that it is started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, Json, Role
from dr_ctl.core.system import system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import Store
from dr_ctl.engine.operations import ACTIVATE, FAILOVER, REINSTATING
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Driver, Failed, Move, NotNeeded, Outcome, Recipe, StepContext
from dr_ctl.settings.model import Drain, Installation, Queues
from dr_ctl.topologies.common import recipe
from dr_ctl.topologies.common.checks import Checks
from dr_ctl.topologies.common.observer import Observer, Reads
from dr_ctl.topologies.common.recipe import Procedure, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.session import Session
from dr_ctl.topologies.common.snapshot import Snapshot, V_co, started_since
from dr_ctl.topologies.common.tools import Listeners, Sender, Tools
from dr_ctl.topologies.common.verbs import activate, canary, fence, proving, quiesce
from dr_ctl.topologies.common.verbs.undoing import as_before, guarded, open_again
from dr_ctl.topologies.common.view import V
from dr_ctl.topologies.common.wants import listeners_open_as_before
from dr_ctl.topologies.topology import Cleaner, NoCleaner, TimedReading, Unproven

S = TypeVar("S", bound=Snapshot[Any])
MAX_TURNS: Final = 3
"""A step is done at most so often where nodes take over from each other."""
LAST: Final = "probe"
READ_ONLY_VERBS: Final = ("observe", "check")
FENCED: Final = ("fence", "drain", "verify", "activate", LAST)
QUARANTINE: Final = "quarantine"
UNDONE: Final = "undone"


# All topologies of pairs share these verbs.
COMMON: Final[Procedure[Any, Any]] = {
    "observe": VerbHandler(proving.draft_observe, proving.observe),
    "check": VerbHandler(proving.draft_check, proving.check),
    "quiesce": VerbHandler(quiesce.draft, quiesce.act, quiesce.UNDO),
    "fence": VerbHandler(fence.draft, fence.act, fence.UNDO),
    QUARANTINE: fence.quarantine(),
    "settle": VerbHandler(proving.draft_settle, proving.settle),
    "verify": VerbHandler(proving.draft_verify, proving.verify),
    "activate": VerbHandler(activate.draft, activate.act, activate.UNDO),
    "probe": VerbHandler(proving.draft_probe, proving.probe),
    "canary": VerbHandler(canary.draft, canary.act, canary.UNDO),
    "clean-canary": VerbHandler(canary.draft_clean, canary.clean),
    "unfence": VerbHandler(fence.draft_unfence, fence.unfence, fence.UNDO_UNFENCE),
}


class PairDriver(Generic[V_co]):
    """An instance serves one command."""

    def __init__(self, procedure: Procedure[Any, Any], tools: Tools[V_co]) -> None:
        self._procedure, self._tools, self.by_hand = procedure, tools, tools.by_hand
        self._move: Move | None = None
        self._steps: dict[str, PlannedStep] = {}
        self._last: tuple[str, StepContext] | None = None
        self._activations: list[str] | None = None

    def observe(self) -> Snapshot[V_co]:
        """Read both sites at the end of a run. A site that is not taken for lost is given the time to have an active
        node again, and that node is brought to what the run had reached."""
        observer, min_timeout_s = self._tools.observer, self._tools.timeouts.last_reading_s
        until_s = system().monotonic() + observer.takeover_s
        while True:
            snapshot = observer.observe(min_timeout_s=min_timeout_s)
            vacant = [site for site, life_signs in snapshot.signs_of_life.items() if life_signs.takeovers]
            if {*vacant} <= {self._lost} or system().monotonic() >= until_s:
                return observer.observe(min_timeout_s=min_timeout_s) if self._kept_at_the_end() else snapshot
            system().sleep(self._tools.timeouts.undo_poll_s)

    def _kept_at_the_end(self) -> bool:
        observer = self._tools.observer
        if self._move is None or self._last is None or not observer.takeover_s:
            return False
        is_same = self._activations == observer.activations() and self._last[0] != UNDONE
        try:
            return not is_same and self._kept(*self._last, self._move)
        except BrokerError:
            return False

    @property
    def _lost(self) -> str:
        return self._move.source if self._move is not None and self._move.spec.operation == FAILOVER else ""

    def apply(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Do the step once more where another node of a broker has become active meanwhile: calls to the node before
        have no effect any more, and an act makes what is missing."""
        row, tools, self._move = self._procedure[step.verb], self._tools, move
        self._steps[step.verb] = step
        if self._activations is None or step.verb in READ_ONLY_VERBS:
            self._noted(context)
        for number in range(1, MAX_TURNS + 1):
            outcome = guarded(lambda: row.act(tools, step, move, context))
            if not tools.observer.takeover_s or step.verb in READ_ONLY_VERBS or number == MAX_TURNS:
                break
            if not self._taken_over(outcome, step, move, context):
                break
        sent = tools.may_serve or move.activation_sent
        is_kept = step.verb not in READ_ONLY_VERBS and (sent or isinstance(outcome, Done | NotNeeded))
        self._last = (step.verb, context) if is_kept else None
        is_first = step.verb == ACTIVATE and not sent
        if not (is_first and isinstance(outcome, Failed)):
            return outcome
        newest = [session.newest_view for session in tools.observer.all() if session.newest_view]
        is_open = tools.activation_sent or any(tools.open_at(view, move) for view in newest)
        is_outdated = tools.gate.is_outdated(move, clients_let_in=is_open)
        return replace(outcome, proof_outdated=True) if is_outdated else outcome

    def _noted(self, context: StepContext) -> None:
        self._activations, self._tools.no_takeover_at_s = self._tools.observer.activations(), context.monotonic()

    def _taken_over(self, outcome: Outcome, step: PlannedStep, move: Move, context: StepContext) -> bool:
        """Wait until each broker has an active node, bring it to what the run had reached, and say if it is new."""
        tools, observer = self._tools, self._tools.observer
        context.until(
            lambda: any(session.is_vacant(ask_again=step.verb == LAST) for session in observer.all()),
            holds=lambda vacant: not vacant,
            within_s=observer.takeover_s,
            poll_s=tools.timeouts.undo_poll_s,
        )
        is_other = self._activations != observer.activations()
        if not is_other and isinstance(outcome, Done | NotNeeded):
            self._noted(context)
            return False
        try:
            kept = self._kept(step.verb, context, move)
        except BrokerError:
            return is_other
        self._activations = observer.activations()
        return kept or is_other

    def _kept(self, verb: str, context: StepContext, move: Move) -> bool:
        """Bring about anew, after this verb, what calls had done at the node before: keep clients out of a fenced
        source and of a target that is not opened yet, keep out what a lost site holds, and let clients in where they
        were. Say whether anything was missing. Raises `BrokerError`."""
        tools, sent = self._tools, verb != UNDONE and (self._tools.may_serve or move.activation_sent)
        context.until(
            lambda: [view for site in (move.source, move.target) for view in tools.observer.answering(site)],
            # A node may close its listeners by itself after its start, as the continuity plugin does.
            holds=lambda views: all(view.role is not Role.UNKNOWN for view in views),
            within_s=tools.observer.takeover_s,
            poll_s=tools.timeouts.undo_poll_s,
        )
        kept = tools.shut_again(move, context, *(move.source,) * (verb in FENCED), *(move.target,) * (not sent))
        target = [view for view in tools.observer.answering(move.target) if view.nodes and started_since(move, view)]
        if any(view.link.listeners and not view.link.is_shut for view in target) and verb != UNDONE:
            kept |= self._again(QUARANTINE, "DR-NODE-007.link_open" if verb != QUARANTINE else "", context, move)
        if sent and any(not listener.started for view in target for listener in view.listeners):
            kept |= self._again(ACTIVATE, "DR-NODE-007.closed", context, move)
        if not (sent or self._lost or verb in FENCED):
            kept |= self._open_as_before(move.source, context, move)
        if not (sent or move.spec.operation in REINSTATING):
            kept |= self._open_as_before(move.target, context, move)
        return kept

    def _again(self, verb: str, finding: str, context: StepContext, move: Move) -> bool:
        if (step := self._steps.get(verb)) is None:
            return False
        context.notice(f"{move.target}: another node is active: {verb} once more")
        outcome = guarded(lambda: self._procedure[verb].act(self._tools, step, move, context))
        if (is_done := isinstance(outcome, Done | NotNeeded)) and finding:
            self._tools.report_takeover(finding, move.target, context)
        return is_done

    def _open_as_before(self, site: str, context: StepContext, move: Move) -> bool:
        tools = self._tools
        views = [view for view in tools.observer.answering(site) if view.nodes and started_since(move, view)]
        calls = [call for view in views for call in listeners_open_as_before(tools.at(view, move))]
        if not calls:
            return False
        context.notice(f"{site}: another node is active, and lets nobody in: it is opened again")
        within_s = tools.timeouts.opened_s + tools.opening_s

        def opened() -> Outcome:
            if site == move.source:
                return open_again(tools, calls, move, context, within_s)
            activate.may_open(tools, move)
            why = tools.open_again(site, calls, context, within_s)
            return Done("it is open") if why is None else Failed(why)

        if is_open := isinstance(guarded(opened), Done):
            tools.report_takeover("DR-NODE-007.closed", site, context)
        return is_open

    def undo(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Try the undo until it is verified or the time is over: a broker may be away for a moment. Where another run
        has the lock no call goes out, and only a reading can show that the state is as before."""
        undo = self._procedure[step.verb].undo
        if undo is None:
            return NotNeeded("it changes nothing that is put back")
        tools, timeouts, self._move = self._tools, self._tools.timeouts, move
        if self._activations is None:
            self._noted(context)

        def undone() -> Outcome:
            if tools.observer.takeover_s and not (tools.activation_sent or move.activation_sent):
                tools.shut_again(move, context, move.target)
            return (undo.by or as_before)(tools, step, move, context)

        waited = context.until(
            lambda: (tools.sender.reacquire(), guarded(undone)),
            holds=lambda tried: isinstance(tried[1], Done | NotNeeded),
            hopeless=lambda tried: tried[0] is not None or getattr(tried[1], "code", None) is ExitCode.STRANDED,
            within_s=timeouts.undo_s + tools.observer.takeover_s,
            poll_s=timeouts.undo_poll_s,
            max_s=timeouts.undo_max_poll_s,
        )
        self._last = (UNDONE, context) if waited.satisfied else None
        unlocked, outcome = waited.reading
        return outcome if waited.satisfied else unlocked or outcome


class Companion:
    """A companion reads something beside the brokers; this one reads nothing."""

    def read_with(self, read: Callable[[], S]) -> S:
        """Return the reading with the companion's own, which was made meanwhile."""
        return read()

    def spend_at_most(self, seconds: float, site: str) -> None: ...

    def close(self) -> None: ...


@dataclass
class PairTopology(Generic[V]):
    """An installation opened for one command; `driver` adds the acts that change brokers, under any lease."""

    observer: Observer[V, Session[V]]
    recipe: Recipe[Any]
    driver: Callable[..., Driver[Any]]
    companion: Companion = field(default_factory=Companion)

    def read(self, *, over_s: float = 0.0) -> Snapshot[V]:
        """Read once, the brokers alone, because the monitor reads several times a second and keeps nothing else; or
        read twice, so far apart, which shows what moves."""
        if not over_s:
            return self.observer.read_once()
        return self.companion.read_with(lambda: self.observer.observe_over(over_s))

    def poll(self, *, full: bool = False) -> TimedReading[Snapshot[V]] | None:
        """Read each broker's outflow and role, in a few milliseconds, or everything: a late broker delays no answer of
        the others. Return None where a broker cannot be asked for so little."""
        return self.observer.poll(full=full)

    def observe(self) -> Snapshot[V]:
        return self.companion.read_with(self.observer.observe)

    def spend_at_most(self, seconds: float, site: str) -> None:
        self.observer.spend_at_most(seconds, site)
        self.companion.spend_at_most(seconds, site)

    def stores(self) -> Sequence[Store]:
        return [session.store() for session in self.observer.all()]

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        """Try whether a site serves, or lets nobody in, because flags lie; return why not. Raises `BrokerError`."""
        return Listeners(self.observer).why_not(site, serving=serving)

    def cleaner(self, _primary: str, _remembered: Mapping[str, Json]) -> Cleaner:
        """Return the agent that deletes at the other site while that one serves; no broker is asked yet. Raises
        `NoCleaner` where none is needed, and `UsageError` where the settings do not let it in."""
        raise NoCleaner

    def unproven(self, _waiting: str, _pattern: str | None) -> Sequence[Unproven]:
        """List both sites, and return the copies at the standby that nothing proves to be consumed, of each queue
        that the pattern names. Raises `NoCleaner` where no copies are made, and `BrokerError`."""
        raise NoCleaner

    def close(self) -> None:
        self.observer.close()
        self.companion.close()


@dataclass(frozen=True, slots=True)
class TopologyDefinition(Generic[V]):
    """Makes an installation's topology ready for one command. `lost_on_the_way` names what the link does not bring
    over, `cannot_tell` what of that cannot be read."""

    procedure: Procedure[Any, Any]
    checks: Checks[V]
    reads: Reads[V, Any]
    tools: Callable[[Any, recipe.Recipe[V], Sender], Tools[V]]
    lost_on_the_way: tuple[str, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    recipe_type: type[recipe.Recipe[V]] = recipe.Recipe
    made: Callable[..., PairTopology[V]] = PairTopology

    def recipe(self, queues: Queues, drain: Drain, timeouts: Timeouts) -> recipe.Recipe[V]:
        return self.recipe_type(Rules(queues, drain, timeouts), self)

    def __call__(self, installation: Installation, timeouts: Timeouts, documents: Path) -> PairTopology[V]:
        observer = Observer(self.reads, installation, timeouts, documents)
        decides = self.recipe(installation.settings.queues, installation.settings.drain, timeouts)

        def driver(lease: Lease | None = None) -> PairDriver[V]:
            return PairDriver(self.procedure, self.tools(observer, decides, Sender(observer, lease)))

        return self.made(observer, decides, driver)
