"""The tools of the step handlers: the observer, the sender of calls, the gate, and the proof that clients are kept out
or let in, by the listeners' flags and test logins."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Final, Generic

from dr_ctl.core.errors import BrokerError, LoginRefused, Throttled, Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, brief, by_key
from dr_ctl.core.system import in_background, in_parallel
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.operations import REINSTATING
from dr_ctl.engine.plan import ALL, Call, Goal
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext, Unknown
from dr_ctl.jolokia.client import CHANGE_S
from dr_ctl.processes.secrets import SecretMissing
from dr_ctl.stomp_io.address import Closed, Connected, LoginDenied, LoginResult, Silent
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import holds, missing_effects, queues_of
from dr_ctl.topologies.common.gate import Gate
from dr_ctl.topologies.common.group import NobodyActive
from dr_ctl.topologies.common.observer import AnyObserver, Observer
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.session import FOR_FENCE, ReadScope, Session
from dr_ctl.topologies.common.snapshot import Silent as NoAnswer
from dr_ctl.topologies.common.snapshot import V_co, before, started_since
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.common.wants import AtBroker, Want, Wants


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The reason why a pair is not shown to serve; `by_flag` if a flag says so, although a test login may have
    worked."""

    text: str
    by_flag: bool
    login_worked: bool = False


class Listeners:
    """Remembers where a test login worked: only there is a failed test login a proof."""

    def __init__(self, observer: AnyObserver) -> None:
        self._observer = observer
        self.logged_in: set[Session[Broker]] = set()

    def login_results(self, sessions: Sequence[Session[Broker]]) -> dict[Session[Broker], LoginResult | None]:
        tried = methodcaller("try_login", timeout_s=self._observer.timeouts.login_s)
        return dict(zip(sessions, self._observer.ask_all(tried, sessions), strict=True))

    def try_login(self, site: str) -> list[Finding]:
        """Connect to a serving site as clients do, and remember where that worked."""
        findings = []
        for session, login_result in self.login_results(self._observer.at(site)).items():
            broker = f"{session.site}/{session.pair}"
            if isinstance(login_result, Connected):
                self.logged_in.add(session)
            elif login_result is None:
                findings.append(found("DR-FENCE-001.no_address", broker=broker))
            else:
                findings.append(found("DR-FENCE-001", broker=broker, why=login_result.because))
        return findings

    def await_closed(
        self, site: str, context: StepContext, within_s: float, close: Callable[[Sequence[Broker]], object]
    ) -> Outcome:
        """Wait until all flags say closed, and no test login works where one did before. `close` is called with each
        reading to close what is open."""
        sessions = self._observer.at(site)
        probed = [session for session in sessions if session in self.logged_in or session.fenced_by_listener]

        def read() -> tuple[Sequence[Broker], str | None]:
            views = self._answering(site)
            if opened := [listener.name for view in views for listener in view.listeners if listener.started]:
                return views, f"acceptor {', '.join(opened)} says it is open"
            if contenders := [name for view in views for name in view.fence.contending]:
                return views, f"lock coordinator {', '.join(contenders)} is not stopped"
            if self.accept_client(probed):
                return views, "a client is still let in"
            remaining = list[str]()
            for view in views:  # the peer by its newest reading
                peer = next(at[view.pair].newest for name, at in self._observer.brokers.items() if name != site)
                remaining += view.fence.clients_elsewhere()
                remaining += view.fence.clients_at_link(peer[1] if peer is not None else None)
            return views, f"clients go on working behind the fence: {brief(remaining)}" if remaining else None

        poll_s = self._observer.timeouts.poll_s
        views, why = context.until(
            read,
            holds=lambda now: now[1] is None,
            within_s=within_s,
            poll_s=poll_s,
            meanwhile=lambda now: close(now[0]),
        ).reading
        if why is not None:
            return Failed(f"{site}: {why}")
        findings = tuple(self._not_lasting(views))
        lasting = bool(views) and not findings and all(view.fence.roles_revoked for view in views)
        note = "; a restart does not let clients in" if lasting else ""
        if self.logged_in.issuperset(sessions):
            text = f"clients are out: listeners closed, test login failed{note}"
            return Done(text, {"proof": "attempt", "roles_kept_out": lasting}, findings)
        named = all(session.stomp is not None for session in sessions)
        findings = (found("DR-FENCE-002" if named else "DR-FENCE-002.no_address", site=site), *findings)
        return Done(f"listeners closed, by flag only{note}", {"proof": "flag", "roles_kept_out": lasting}, findings)

    def _answering(self, site: str) -> Sequence[Broker]:
        """Read the brokers that answer. A silent broker that is not down is an error."""
        try:
            return self._observer.read_at(site, scope=FOR_FENCE)
        except BrokerError:
            snapshot = self._observer.read_once()
        for broker in snapshot.sites[site].values():
            if isinstance(broker, NoAnswer) and broker.role is not Role.DOWN:
                raise broker.error
        return snapshot.views(site)

    def _not_lasting(self, views: Sequence[Broker]) -> Iterator[Finding]:
        """Report the gaps of the lasting fence; the listeners are closed in any case."""
        keep_out = [(view, lasting) for view in views if (lasting := view.config.lasting) is not None]
        sessions = [self._observer.brokers[view.site][view.pair] for view, _ in keep_out if view.fence.roles_revoked]
        addresses = self._observer.ask_all(lambda session: session.uncovered(), sessions)
        uncovered = {(at.site, at.pair): names for at, names in zip(sessions, addresses, strict=True)}
        for view, lasting in keep_out:
            name, roles = f"{view.site}/{view.pair}", ", ".join(lasting.roles)
            if (gaps := uncovered.get((view.site, view.pair))) is None:
                yield found("DR-FENCE-007", broker=name, roles=roles)
            elif gaps:
                yield found("DR-FENCE-008", broker=name, roles=roles, left=brief(gaps))

    def why_not_serving(self, sessions: Sequence[Session[Broker]]) -> dict[str, WhyNot | None]:
        flags = methodcaller("open_listeners", timeout_s=self._observer.timeouts.flag_s)
        flags_task = in_background(partial(self._observer.ask_each, flags, sessions), "flags")
        login_results = self.login_results(sessions)
        why_not: dict[str, WhyNot | None] = {}
        for session, opened in zip(sessions, flags_task.result(), strict=True):
            login_result, why = login_results[session], None
            if isinstance(opened, BrokerError):
                why = WhyNot(f"it does not answer: {opened}", by_flag=False)
            elif isinstance(login_result, Closed | Silent):
                # A refused login is an answer too: the listener is open, but not to this user.
                why = WhyNot(f"no client is let in: {login_result.because}", by_flag=False)
            elif closed := [name for name in session.config.clients if name not in opened]:
                text, login_worked = f"acceptor {', '.join(closed)} is closed", isinstance(login_result, Connected)
                why = WhyNot(text, by_flag=True, login_worked=login_worked)
            why_not[session.pair] = why
        return why_not

    def accept_client(self, sessions: Sequence[Session[Broker]]) -> bool:
        return any(isinstance(result, Connected) for result in self.login_results(sessions).values())

    def why_not(self, site: str, *, serving: bool) -> str | None:
        """Prove by attempts that a site serves with every pair, or lets nobody in; return why that is not so."""
        sessions = self._observer.at(site)
        if serving:
            by_pair = self.why_not_serving(sessions)
            return next((why.text for why in by_pair.values() if why is not None), None)
        try:
            flags = methodcaller("open_listeners", timeout_s=self._observer.timeouts.flag_s)
            is_closed = not any(self._observer.ask_all(flags, sessions))
        except BrokerError as error:
            # Ports that refuse let no client in: a broker that waits for a store opens none.
            refused = isinstance(error, Unreachable) and error.refused
            shut = refused and all(isinstance(result, Closed) for result in self.login_results(sessions).values())
            return None if shut else f"it does not answer: {error}"
        probed = [session for session in sessions if session.fenced_by_listener]
        return None if is_closed and not (probed and self.accept_client(probed)) else "a client may be let in"

    def why_not_open_again(self, site: str, opens: Sequence[Call]) -> str | None:
        pairs = {call.unit for call in opens}
        if missing := missing_effects(opens, self._observer.read_at(site, pairs)):
            return f"effect not seen: {brief(missing)}"
        sessions = [session for session in self._observer.at(site) if session.pair in pairs]
        for session, result in self.login_results(sessions).items():
            # A closed port always contradicts the flag; another failure only where a login has worked before.
            worked_before = session in self.logged_in
            if isinstance(result, Closed) or (worked_before and isinstance(result, Silent | LoginDenied)):
                return f"no client is let in: {result.because}"
        return None


MAX_AT_ONCE: Final = 8
# A POST has one time limit for all its calls, and a broker may sync its journal for each of them.
MAX_IN_A_POST: Final = 500
ROLES: Final = (Goal.GRANT, Goal.RESTORE)
OPENING: Final = (Goal.START, Goal.OPEN)


class Sender:
    """The only way to change a broker of this topology. A dry run has none."""

    def __init__(self, observer: AnyObserver, lease: Lease | None = None) -> None:
        """Without a lease only this machine's own lock excludes a second run."""
        self._observer, self._lease = observer, lease

    @property
    def epoch(self) -> int:
        return self._lease.epoch if self._lease is not None else 0

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        """Send the calls, to several brokers at the same time, and to each in order and in few POSTs. Return the
        outcome of each call, in the order of the calls."""
        brokers = by_key(((call.site, call.unit), call) for call in calls)
        posts = in_parallel([partial(self._post, broker) for broker in brokers.values()], "change", most=MAX_AT_ONCE)
        outcomes = {key: iter(outcomes) for key, outcomes in zip(brokers, posts, strict=True)}
        return [next(outcomes[call.site, call.unit]) for call in calls]

    def reacquire(self) -> Failed | None:
        why = self._lease.reacquire() if self._lease is not None else None
        return Failed(why, code=ExitCode.STRANDED) if why is not None else None

    def _why_locked(self, calls: Sequence[Call]) -> str | None:
        """Say why the lock permits no call now. Queues to pause are recorded in the lock first."""
        if self._lease is None:
            return None
        site, pair = calls[0].site, calls[0].unit
        if (why := self._lease.why_not(site, pair, CHANGE_S)) is not None:
            return why
        view = self._observer.brokers[site][pair].last_view()
        pausing = [name for call in calls if call.goal is Goal.PAUSE for name in queues_of(call, view)]
        return self._lease.record_pauses(site, pair, pausing) if pausing else None

    def note_paused(self, site: str, pair: str, names: Collection[str]) -> str | None:
        """Record in the lock the new queues that a call for many queues has paused; return why that failed, or None."""
        return self._lease.record_pauses(site, pair, names) if self._lease is not None else None

    def _post(self, calls: Sequence[Call]) -> list[Outcome]:
        """Post the calls of one broker. After a POST without an answer, no further call is sent."""
        outcomes: list[Outcome] = []
        for start in range(0, len(calls), MAX_IN_A_POST):
            outcomes += self._post_some(calls[start : start + MAX_IN_A_POST])
            if isinstance(outcomes[-1], Unknown):
                break
        return outcomes + [Failed(f"not sent: {outcomes[-1].text}") for _ in calls[len(outcomes) :]]

    def _post_some(self, calls: Sequence[Call]) -> list[Outcome]:
        if (why := self._why_locked(calls)) is not None:
            return [Failed(why) for _ in calls]
        try:
            return self._observer.brokers[calls[0].site][calls[0].unit].send(calls)
        except (LoginRefused, Throttled, SecretMissing, NobodyActive) as error:
            return [Failed(str(error)) for _ in calls]
        except Unreachable as error:
            # A refused connection did not carry the request; another failed one may have.
            return [Failed(str(error)) if error.refused else Unknown(str(error)) for _ in calls]
        except BrokerError as error:
            return [Unknown(str(error)) for _ in calls]


class StepFailed(Exception):
    """A step cannot go on: it ends with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.text)
        self.outcome = outcome


def must_be_none(
    left: Collection[object], what: str, outcomes: Sequence[Outcome], default: str = "they are still there"
) -> None:
    """Raise `StepFailed` if a change left messages, with the broker's error, or else with the `default` reason."""
    if left:
        why = next((outcome.text for outcome in outcomes if not isinstance(outcome, Done)), default)
        raise StepFailed(Failed(f"{len(left)} {what}: {why}"))


class Tools(Generic[V_co]):
    """One command's tools. `activation_sent` is True once a call that opens the target was sent, `may_serve` once such
    a call may have had an effect, `cut_off` if a hook cuts the lost site off. `no_takeover_at_s` is the last moment
    without a known takeover. `opening_s` is how long a broker may take to let clients in after the call,
    `link_connects_s` how long a link may need to connect. `not_redelivered` names the messages that are not redelivered
    when their clients are disconnected. `by_console` says how a person opens a site in its console."""

    by_console = "start its clients' connectors"
    opening_s = 0.0
    not_redelivered = ""
    link_connects_s = 0.0

    def __init__(
        self, observer: Observer[V_co, Session[V_co]], recipe: Recipe[V_co], sender: Sender, gate: Gate[Any]
    ) -> None:
        self.observer, self.recipe, self.sender, self.gate = observer, recipe, sender, gate
        self.rules, self.timeouts = recipe.rules, observer.timeouts
        self.listeners = Listeners(observer)
        self.activation_sent = self.may_serve = self.cut_off = False
        self.no_takeover_at_s = 0.0

    def by_hand(self, site: str) -> str:
        return f"in the console of {site}: {self.by_console}, and resume its paused queues"

    def change(self, calls: Sequence[Call], context: StepContext) -> list[Outcome]:
        return context.change(calls, self.sender.send)

    def views(self, *sites: str) -> list[V_co]:
        return [view for site in sites for view in self.observer.read_at(site)]

    def views_of(self, calls: Sequence[Call]) -> list[V_co]:
        pairs: dict[str, set[str]] = {}
        for call in calls:
            pairs.setdefault(call.site, set()).add(call.unit)
        return [view for site in sorted(pairs) for view in self.observer.read_at(site, pairs[site])]

    def at(self, view: Any, move: Move) -> AtBroker:
        return AtBroker.of(self.rules, move, view)

    def needed(self, wanted: Wants, move: Move) -> tuple[list[Call], list[str]]:
        """Return the calls that these states still need, and the start id of each broker read. Raises `BrokerError`."""
        views = {name: self.observer.read_at(name) for name in dict.fromkeys(site(move) for _, site in wanted)}
        calls = [
            call
            for want, site in wanted
            for view in views[site(move)]
            for call in want(self.at(view, move))
            if not view.holds(call)
        ]
        return calls, [view.start for broker in views.values() for view in broker]

    def reach(self, wanted: Wants, move: Move, context: StepContext, failed: str = "effect not seen") -> None:
        """Send the calls that these states need. Raises `StepFailed` if the effect of one is not seen."""
        if missing := self.send_calls(wanted, move, context):
            raise StepFailed(Failed(f"{failed}: {brief([call.summary for call in missing])}"))

    def send_calls(self, wanted: Wants, move: Move, context: StepContext) -> list[Call]:
        """Send the calls that these states need; return the calls whose effect is not seen. Such a call is sent again
        only to a broker that was started again, or another node of which is active since. Raises `BrokerError`."""
        calls, starts = self.needed(wanted, move)
        sent_to: list[str] | None = None
        while calls and starts != sent_to:
            self.change(calls, context)
            sent_to = starts
            calls, starts = self.needed(wanted, move)
        return calls

    def shut_again(self, move: Move, context: StepContext, *sites: str) -> bool:
        """Close the listeners that another node opened by its broker.xml when it became active, and prove it; return
        whether there were any. A site that was open before stays open, except the source. Raises `BrokerError`."""
        opened = [
            view
            for site in sites
            for view in self.observer.answering(site)
            if view.nodes and started_since(move, view) and self.open_at(view, move)
            if site == move.source
            or move.spec.operation in REINSTATING
            or not any(before(move, view)["listeners"].values())
        ]
        for site in dict.fromkeys(view.site for view in opened):
            context.notice(f"{site}: another node is active, and had let clients in: they are kept out again")
            send = self.sending(wants.clients_kept_out, move, context)
            send([view for view in opened if view.site == site])
            if isinstance(self.listeners.await_closed(site, context, self.timeouts.fence_s, send), Done):
                self.report_takeover("DR-NODE-007.open", site, context)
        return bool(opened)

    def report_takeover(self, finding: str, site: str, context: StepContext) -> None:
        """Report for how long another node may have been open, or closed."""
        took_s = context.monotonic() - self.no_takeover_at_s
        out_s = took_s if finding == "DR-NODE-007.closed" else 0.0
        context.report(found(finding, site=site, seconds=f"{took_s:.1f}"), out_s)

    def sending(
        self, want: Want, move: Move, context: StepContext, sent: Sequence[Any] = ()
    ) -> Callable[[Sequence[Any]], list[Outcome]]:
        """Return a function that sends the calls that a reading shows to be missing, once to each broker that is not in
        `sent`, and again after a restart or a takeover."""
        starts: dict[str, str] = {view.pair: view.start for view in sent}

        def send(views: Sequence[Any]) -> list[Outcome]:
            restarted = [view for view in views if starts.get(view.pair) != view.start]
            starts.update({view.pair: view.start for view in restarted})
            calls = [call for view in restarted for call in want(self.at(view, move)) if not view.holds(call)]
            return self.change(calls, context)

        return send

    def grant_roles(self, calls: Sequence[Call], views: Sequence[V_co], context: StepContext) -> None:
        """Give the clients' roles back the rights that a lasting fence took, where `views` shows them kept out. The
        same request reloads broker.xml where that is needed. The caller has to check the effect."""
        grants = [call for call in calls if _is_grant(call) and not holds(call, views)]
        reload = {(view.site, view.pair) for view in views if view.fence.needs_reload}
        again = reload & {(call.site, call.unit) for call in grants}
        due = [call for call in calls if call in grants or (_is_reload(call) and (call.site, call.unit) in again)]
        self.change(due, context)

    def admit(self, site: str, calls: Sequence[Call], context: StepContext, *, again: bool = False) -> str | None:
        """Give the clients' roles back the rights that a lasting fence took. Broker.xml is reloaded only where the
        roles are still kept out. A match with rights that differ from the file gets its own rights back. Return why
        clients are still kept out, or None. `again` repeats a call without effect."""
        grants = [call for call in calls if _is_grant(call)]
        restores = [call for call in calls if call.goal is Goal.RESTORE]
        missing = self._missing(grants, site)
        for _ in range(2 if again else 1):
            if missing:
                self.change(missing, context)
                missing = self._missing(grants, site)
        if missing:
            units = {call.unit for call in missing}
            self.change([call for call in calls if _is_reload(call) and call.unit in units], context)
            missing = self._missing(grants, site)
        if restores and (lacking := self._missing(restores, site)):
            self.change(lacking, context)
            missing = self._missing([*grants, *restores], site)
        return f"{site}: effect not seen: {brief([call.summary for call in missing])}" if missing else None

    def _missing(self, calls: Sequence[Call], site: str) -> list[Call]:
        views = self.observer.read_at(site, {call.unit for call in calls}, ReadScope.RIGHTS)
        return [call for call in calls if not holds(call, views)]

    def open_again(self, site: str, calls: Sequence[Call], context: StepContext, within_s: float = 0.0) -> str | None:
        """Let clients in by these calls, the listeners last; return why that failed, or None."""
        if (why := self.admit(site, [call for call in calls if call.goal in ROLES], context)) is not None:
            return why
        opens = [call for call in calls if call.goal in OPENING]
        self.change(opens, context)
        by_lock = any(call.goal is Goal.START for call in opens)  # an acceptor of a lock opens once the lock is held
        return context.until(
            lambda: self.listeners.why_not_open_again(site, opens) if opens else None,
            holds=lambda why: why is None,
            within_s=within_s + (self.timeouts.lock_s if by_lock else 0.0),
            poll_s=self.timeouts.poll_s,
        ).reading

    def open_at(self, view: Any, _move: Move) -> Sequence[str]:
        """Return the units of this move that are open at a broker."""
        return [view.pair] if view.open else []


def _is_grant(call: Call) -> bool:
    return call.goal is Goal.GRANT and call.resource != ALL


def _is_reload(call: Call) -> bool:
    return call.goal is Goal.GRANT and call.resource == ALL
