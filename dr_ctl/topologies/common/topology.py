"""Opens a topology of brokers in pairs for one command. Its driver executes the steps by the table of the procedure. A
step ends with a reading or an attempt that shows its effect: the answer to a call is no proof, and a flag is a weak
one, because an acceptor whose port is taken by another process reports that it is started."""

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
from dr_ctl.topologies.common.verbs.undoing import act_guarded, open_again, undo_step
from dr_ctl.topologies.common.view import V
from dr_ctl.topologies.common.wants import listeners_open_as_before
from dr_ctl.topologies.topology import Cleaner, NoCleaner, TimedReading, Unproven

S = TypeVar("S", bound=Snapshot[Any])
MAX_ATTEMPTS: Final = 3  # of a step, where nodes take over from each other
LAST: Final = "probe"
READ_ONLY_VERBS: Final = ("observe", "check")
FENCED: Final = ("fence", "drain", "verify", "activate", LAST)
QUARANTINE: Final = "quarantine"
UNDONE: Final = "undone"


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
    def __init__(self, procedure: Procedure[Any, Any], tools: Tools[V_co]) -> None:
        self._procedure, self._tools, self.by_hand = procedure, tools, tools.by_hand
        self._move: Move | None = None
        self._steps: dict[str, PlannedStep] = {}
        self._last: tuple[str, StepContext] | None = None
        self._activations: list[str] | None = None

    def observe(self) -> Snapshot[V_co]:
        """Read both sites at the end of a run. Wait until each site that is not lost has an active node, and bring a
        new active node to the state that the run had reached."""
        observer, min_timeout_s = self._tools.observer, self._tools.timeouts.last_reading_s
        until_s = system().monotonic() + observer.takeover_s
        while True:
            snapshot = observer.observe(min_timeout_s=min_timeout_s)
            vacant = [site for site, life_signs in snapshot.signs_of_life.items() if life_signs.takeovers]
            if {*vacant} <= {self._lost} or system().monotonic() >= until_s:
                return observer.observe(min_timeout_s=min_timeout_s) if self._restored_at_the_end() else snapshot
            system().sleep(self._tools.timeouts.undo_poll_s)

    def _restored_at_the_end(self) -> bool:
        observer = self._tools.observer
        if self._move is None or self._last is None or not observer.takeover_s:
            return False
        is_same = self._activations == observer.activations() and self._last[0] != UNDONE
        try:
            return not is_same and self._restore_effects(*self._last, self._move)
        except BrokerError:
            return False

    @property
    def _lost(self) -> str:
        return self._move.source if self._move is not None and self._move.spec.operation == FAILOVER else ""

    def apply(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Execute a step, and repeat it if another node of a broker becomes active meanwhile: calls to the former node
        have no effect any more, and a step sends only the calls that are missing."""
        handler, tools, self._move = self._procedure[step.verb], self._tools, move
        self._steps[step.verb] = step
        if self._activations is None or step.verb in READ_ONLY_VERBS:
            self._remember_activations(context)
        for number in range(1, MAX_ATTEMPTS + 1):
            outcome = act_guarded(lambda: handler.act(tools, step, move, context))
            if not tools.observer.takeover_s or step.verb in READ_ONLY_VERBS or number == MAX_ATTEMPTS:
                break
            if not self._taken_over(outcome, step, move, context):
                break
        has_opened = tools.may_serve or move.activation_sent
        is_done = step.verb not in READ_ONLY_VERBS and (has_opened or isinstance(outcome, Done | NotNeeded))
        self._last = (step.verb, context) if is_done else None
        is_first = step.verb == ACTIVATE and not has_opened
        if not (is_first and isinstance(outcome, Failed)):
            return outcome
        newest = [session.newest_view for session in tools.observer.all() if session.newest_view]
        is_open = tools.activation_sent or any(tools.open_at(view, move) for view in newest)
        is_outdated = tools.gate.is_outdated(move, clients_let_in=is_open)
        return replace(outcome, proof_outdated=True) if is_outdated else outcome

    def _remember_activations(self, context: StepContext) -> None:
        self._activations, self._tools.no_takeover_at_s = self._tools.observer.activations(), context.monotonic()

    def _taken_over(self, outcome: Outcome, step: PlannedStep, move: Move, context: StepContext) -> bool:
        """Wait until each broker has an active node, bring it to the state of the run, and say if it is new."""
        tools, observer = self._tools, self._tools.observer
        context.until(
            lambda: any(session.is_vacant(ask_again=step.verb == LAST) for session in observer.all()),
            holds=lambda vacant: not vacant,
            within_s=observer.takeover_s,
            poll_s=tools.timeouts.undo_poll_s,
        )
        is_new = self._activations != observer.activations()
        if not is_new and isinstance(outcome, Done | NotNeeded):
            self._remember_activations(context)
            return False
        try:
            restored = self._restore_effects(step.verb, context, move)
        except BrokerError:
            return is_new
        self._activations = observer.activations()
        return restored or is_new

    def _restore_effects(self, verb: str, context: StepContext, move: Move) -> bool:
        """Restore, after this verb, the effects of earlier calls at a new active node: keep clients out of a fenced
        source and of a closed target, keep the quarantine, and let clients in where they were. Say whether anything was
        missing. Raises `BrokerError`."""
        tools, has_opened = self._tools, verb != UNDONE and (self._tools.may_serve or move.activation_sent)
        context.until(
            lambda: [view for site in (move.source, move.target) for view in tools.observer.answering(site)],
            # The continuity plugin closes a node's listeners after its start.
            holds=lambda views: all(view.role is not Role.UNKNOWN for view in views),
            within_s=tools.observer.takeover_s,
            poll_s=tools.timeouts.undo_poll_s,
        )
        restored = tools.shut_again(
            move, context, *(move.source,) * (verb in FENCED), *(move.target,) * (not has_opened)
        )
        target = [view for view in tools.observer.answering(move.target) if view.nodes and started_since(move, view)]
        if any(view.link.listeners and not view.link.is_shut for view in target) and verb != UNDONE:
            restored |= self._repeat(QUARANTINE, "DR-NODE-007.link_open" if verb != QUARANTINE else "", context, move)
        if has_opened and any(not listener.started for view in target for listener in view.listeners):
            restored |= self._repeat(ACTIVATE, "DR-NODE-007.closed", context, move)
        if not (has_opened or self._lost or verb in FENCED):
            restored |= self._open_as_before(move.source, context, move)
        if not (has_opened or move.spec.operation in REINSTATING):
            restored |= self._open_as_before(move.target, context, move)
        return restored

    def _repeat(self, verb: str, finding: str, context: StepContext, move: Move) -> bool:
        if (step := self._steps.get(verb)) is None:
            return False
        context.notice(f"{move.target}: another node is active: {verb} once more")
        outcome = act_guarded(lambda: self._procedure[verb].act(self._tools, step, move, context))
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

        if is_open := isinstance(act_guarded(opened), Done):
            tools.report_takeover("DR-NODE-007.closed", site, context)
        return is_open

    def undo(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Repeat the undo until it is verified or the time is over, because a broker may be away for a moment. No call
        is sent while another run has the lock; then only a reading can show that the state is as before."""
        undo = self._procedure[step.verb].undo
        if undo is None:
            return NotNeeded("this step has nothing to undo")
        tools, timeouts, self._move = self._tools, self._tools.timeouts, move
        if self._activations is None:
            self._remember_activations(context)

        def undone() -> Outcome:
            if tools.observer.takeover_s and not (tools.activation_sent or move.activation_sent):
                tools.shut_again(move, context, move.target)
            return (undo.by or undo_step)(tools, step, move, context)

        waited = context.until(
            lambda: (tools.sender.reacquire(), act_guarded(undone)),
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
    """Reads something beside the brokers; this class reads nothing."""

    def read_with(self, read: Callable[[], S]) -> S:
        """Make the brokers' reading, and add the companion's own, made at the same time."""
        return read()

    def spend_at_most(self, seconds: float, site: str) -> None: ...

    def close(self) -> None: ...


@dataclass
class PairTopology(Generic[V]):
    """An installation opened for one command; `driver` makes the driver that changes brokers, under any lease."""

    observer: Observer[V, Session[V]]
    recipe: Recipe[Any]
    driver: Callable[..., Driver[Any]]
    companion: Companion = field(default_factory=Companion)

    def read(self, *, over_s: float = 0.0) -> Snapshot[V]:
        """Read the brokers once, without companions, as the monitor does several times a second; or twice, `over_s`
        apart, which shows the traffic."""
        if not over_s:
            return self.observer.read_once()
        return self.companion.read_with(lambda: self.observer.observe_over(over_s))

    def poll(self, *, full: bool = False) -> TimedReading[Snapshot[V]] | None:
        """Read each broker's outflow and role, in a few milliseconds, or everything; a late broker delays no other.
        Return None if a broker cannot be asked for these alone."""
        return self.observer.poll(full=full)

    def observe(self) -> Snapshot[V]:
        return self.companion.read_with(self.observer.observe)

    def spend_at_most(self, seconds: float, site: str) -> None:
        self.observer.spend_at_most(seconds, site)
        self.companion.spend_at_most(seconds, site)

    def stores(self) -> Sequence[Store]:
        return [session.store() for session in self.observer.all()]

    def why_not_so(self, site: str, *, serving: bool) -> str | None:
        """Test by logins whether a site serves, or lets nobody in; return why not. Raises `BrokerError`."""
        return Listeners(self.observer).why_not(site, serving=serving)

    def cleaner(self, _primary: str, _remembered: Mapping[str, Json]) -> Cleaner:
        """Return the agent that deletes consumed copies at the standby; ask no broker yet. Raises `NoCleaner` if none
        is needed, and `UsageError` if the settings lack its login."""
        raise NoCleaner

    def unproven(self, _waiting: str, _pattern: str | None) -> Sequence[Unproven]:
        """List both sites, and return the copies at the standby without evidence that they are consumed, of the queues
        that match the pattern. Raises `NoCleaner` where no copies are made, and `BrokerError`."""
        raise NoCleaner

    def close(self) -> None:
        self.observer.close()
        self.companion.close()


@dataclass(frozen=True, slots=True)
class TopologyDefinition(Generic[V]):
    """Makes an installation's topology ready for one command. `not_replicated_by_link` names what the link does not
    replicate, `unreadable` what of that cannot be read."""

    procedure: Procedure[Any, Any]
    checks: Checks[V]
    reads: Reads[V, Any]
    tools: Callable[[Any, recipe.Recipe[V], Sender], Tools[V]]
    not_replicated_by_link: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
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
