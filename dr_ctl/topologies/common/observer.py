"""Reads both sites at once, and again if a reading shows differences that it does not explain."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.errors import BrokerError, Passive, TimedOut, Unreachable
from dr_ctl.core.model import total
from dr_ctl.core.system import BackgroundTask, all_ended, boottime_s, in_background, in_parallel, stamp, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import READ_S
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.stomp_io.address import Address, speaks_amqp, takes_connections
from dr_ctl.topologies.common import rules
from dr_ctl.topologies.common.group import nodes_in_link
from dr_ctl.topologies.common.session import EVERYTHING, FOR_HISTORY, FOR_PEOPLE, ReadScope, Session
from dr_ctl.topologies.common.snapshot import Silent, Snapshot, V_co
from dr_ctl.topologies.common.view import Broker
from dr_ctl.topologies.topology import Node, TimedReading

Asked = TypeVar("Asked", bound=Session[Any])
T = TypeVar("T")
SMALL_S: Final = 2.0
LATE_S: Final = 1.0
"""The time limit for few figures, and for a broker that was silent at the last reading, or usually answers sooner."""
USUAL_FACTOR: Final = 3
"""The time limit of a reading, as a multiple of the time that the broker's last whole reading took."""
V = TypeVar("V", bound=Broker)
A = TypeVar("A")
A_co = TypeVar("A_co", bound=Session[Any], covariant=True)
MAX_READINGS: Final = 4
_ANSWER_SHARE: Final = 0.9  # the part of a reading's time limit that is for the answer
MAX_AT_ONCE: Final = 64
"""The most readings and test logins at a time; more would not be faster."""


class Watch:
    """Polls brokers. A late broker counts as silent, with its last error if there was one, and gets no new question
    before the late one has ended."""

    def __init__(self) -> None:
        self._late: dict[Session[Any], BackgroundTask[Any]] = {}
        self._silent: dict[Session[Any], Silent] = {}
        self._took_s: dict[Session[Any], float] = {}

    def close(self) -> None:
        for work in self._late.values():
            work.wait()

    def ask(
        self, sessions: Sequence[Asked], ask: Callable[[Asked], T | Silent], *, small: bool
    ) -> tuple[list[T | Silent], float]:
        """Return the answers, and the age of the last one that was not late. `small` asks for few figures."""
        for session in [session for session, late in self._late.items() if late.wait(0)]:
            self._noted(session, self._late.pop(session).result())
        reply_times: list[float] = []
        began = system().monotonic()

        def timed(session: Asked) -> T | Silent:
            answer = ask(session)
            reply_times.append(system().monotonic())
            if not small and not isinstance(answer, Silent):
                self._took_s[session] = reply_times[-1] - began
            return answer

        due = [session for session in sessions if session not in self._late]
        asked = {session: in_background(partial(timed, session), f"watch {session.site}") for session in due}
        known = self._took_s.keys() | self._silent.keys()
        limited = [reading for session, reading in asked.items() if small or session in known]
        usual_s = [] if small else [USUAL_FACTOR * self._took_s.get(session, 0.0) for session in asked]
        all_ended(limited, max([LATE_S, *usual_s]))
        for reading in [reading for reading in asked.values() if reading not in limited]:
            reading.wait()
        self._late |= {session: reading for session, reading in asked.items() if not reading.wait(0)}

        def answered(session: Asked) -> T | Silent:
            if session not in self._late:
                return asked[session].result()
            text = f"{session.site}/{session.pair}: no answer within {LATE_S:g} s"
            return self._silent.get(session, Silent(session.pair, session.site, Unreachable(text, refused=False)))

        answers = [self._noted(session, answered(session)) for session in sessions]
        return answers, system().monotonic() - max(reply_times) if self._late and reply_times else 0.0

    def _noted(self, session: Session[Any], answer: T | Silent) -> T | Silent:
        if isinstance(answer, Silent):
            self._silent[session] = answer
        else:
            self._silent.pop(session, None)
        return answer


Sites = Mapping[str, Mapping[str, V | Silent]]


class Supplement(Generic[V]):
    """Adds figures to the monitor's whole readings; this one adds none."""

    def add(self, _observer: Any, snapshot: Snapshot[V]) -> Snapshot[V]:
        return snapshot

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reads(Generic[V, A]):
    """How the brokers of a topology are read. `session` connects to a broker; `snapshot` puts both sites together.
    `unlike` says whether the two brokers of a pair, the open one first, differ by more than the movement between two
    readings explains; it is never true where a topology cannot compare counts. `observed` adds to a reading what only
    commands need, `supplement` adds to a watch's reading what takes long to read. `moves_parts` says that a part of a
    pair can move, so that a pair which has moved is still read."""

    session: Callable[[Installation, Path], Callable[[str, str], A]]
    snapshot: Callable[[Sites[V]], Snapshot[V]] = Snapshot
    unlike: Callable[[V, V, Queues, Mapping[str, int]], bool] = lambda *_: False
    observed: Callable[[Any, Callable[[], Snapshot[V]]], Snapshot[V]] = lambda _, read: read()
    supplement: Callable[[], Supplement[V]] = Supplement
    moves_parts: bool = False


class Observer(Generic[V_co, A_co]):
    """Reads each broker of an installation, and has no means to change one."""

    def __init__(
        self, reads: Reads[V_co, A_co], installation: Installation, timeouts: Timeouts, documents: Path
    ) -> None:
        settings = installation.settings
        self.installation, self.queues = installation, settings.queues
        self.timeouts, self.documents = timeouts, documents
        session = reads.session(installation, documents)
        self.brokers: Mapping[str, Mapping[str, A_co]] = {
            site: {broker.name: session(site, broker.name) for broker in section.brokers}
            for site, section in settings.sites.items()
        }
        self._reads = reads
        self._left_s: dict[str, float] = {}
        self._remembered: dict[str, Sequence[Node]] = {}
        self._watch, self._supplement = Watch(), reads.supplement()

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        """Count a site's unapplied acknowledgements; return None if that was not read in time. Raises `BrokerError`."""
        try:
            return total(self.ask_all(methodcaller("unapplied", timeout_s=timeout_s), self.at(site)))
        except TimedOut:
            return None

    def spend_at_most(self, seconds: float, site: str) -> None:
        """Limit the time that all readings of this command wait for a site that may be lost, name lookup included. Two
        readings have a reserved part of that time: the one before the other site opens, and the one at the end."""
        self._left_s[site] = max(seconds / 2, seconds - 2 * self.timeouts.last_reading_s)

    def all(self) -> Sequence[A_co]:
        return [session for brokers in self.brokers.values() for session in brokers.values()]

    def at(self, site: str) -> Sequence[A_co]:
        return list(self.brokers[site].values())

    @property
    def takeover_s(self) -> float:
        return max(session.group.takeover_s for session in self.all())

    def activations(self) -> list[str]:
        """Return, for each broker with several nodes, which activation was read."""
        return [session.group.activation for session in self.all() if session.group.takeover_s]

    def read_at(self, site: str, pairs: Collection[str] | None = None, scope: ReadScope = EVERYTHING) -> list[V_co]:
        """Read every broker of a site, or those of some pairs. Raises `BrokerError` where a broker does not answer."""
        sessions = [session for session in self.at(site) if pairs is None or session.pair in pairs]
        return self.ask_all(methodcaller("read", scope), sessions)

    def answers(
        self, sessions: Iterable[Session[V]], scope: ReadScope = EVERYTHING, within_s: float | None = None
    ) -> list[V | BrokerError]:
        """Read this scope of each of these brokers, or return its error. Few figures have a shorter time limit, so that
        the broker is asked again sooner."""
        timeout_s = min(within_s or READ_S, SMALL_S if scope is ReadScope.OUTFLOW else READ_S)
        return self.ask_each(methodcaller("read", scope, timeout_s=timeout_s), sessions)

    def answering(self, site: str) -> list[V_co]:
        views = self.ask_all(partial(self._view, min_timeout_s=0.0), self.at(site))
        return [view for view in views if not isinstance(view, Silent)]

    def link_ends(self, move: Move) -> Sequence[tuple[A_co, A_co]]:
        """Return the brokers of each pair that is still to move, the source's first."""
        ends = self.between(move.source, move.target)
        return [both for both in ends if self._reads.moves_parts or move.moves(both[0].pair)]

    def between(self, source: str, target: str) -> Sequence[tuple[A_co, A_co]]:
        return [(view, self.brokers[target][pair]) for pair, view in self.brokers[source].items()]

    def close(self) -> None:
        self._watch.close()
        self._supplement.close()
        for session in self.all():
            session.close()

    def ask_all(self, ask: Callable[[A], T], sessions: Iterable[A]) -> list[T]:
        """Ask several brokers at the same time; raise the first error after all have answered."""
        return in_parallel([partial(ask, session) for session in sessions], "read", most=MAX_AT_ONCE)

    def ask_each(self, ask: Callable[[A], T], sessions: Iterable[A]) -> list[T | BrokerError]:
        """Ask several brokers at the same time, and return an answer or an error of each."""

        def answer(session: A) -> T | BrokerError:
            try:
                return ask(session)
            except BrokerError as error:
                return error

        return self.ask_all(answer, sessions)

    def observe(self, *, min_timeout_s: float = 0.0) -> Snapshot[V_co]:
        """Read both sites, and again where counts differ by more than one reading can explain."""
        return self._reads.observed(self, partial(self._observed, min_timeout_s))

    def _observed(self, min_timeout_s: float) -> Snapshot[V_co]:
        snapshot = self.read_once(min_timeout_s=min_timeout_s)
        for _ in range(MAX_READINGS - 1):
            if not self._is_unexplained(snapshot):
                break
            system().sleep(self.timeouts.apart_s)
            before, after = snapshot, self.read_once(min_timeout_s=min_timeout_s)
            corrected = replace(self._reads.snapshot(_correct_roles(before, after)), asked_s=after.asked_s)
            snapshot = self._with_movement(before, corrected)
        return snapshot

    def observe_over(self, seconds: float) -> Snapshot[V_co]:
        """Read both sites twice, so many seconds apart; return the second reading with what moved between."""
        began = system().monotonic()
        before = self.read_once()
        system().sleep(max(0.0, began + seconds - system().monotonic()))
        again = system().monotonic()
        after = self.read_once()
        seen_twice = self._with_movement(before, after)
        return replace(seen_twice, before=before, took_s=again - began)

    def read_once(self, *, min_timeout_s: float = 0.0) -> Snapshot[V_co]:
        """Read both sites once. A site that may be lost is given `min_timeout_s`, whatever was spent on it before."""
        asked_s, ask = boottime_s(), partial(self._view, min_timeout_s=min_timeout_s)
        return replace(self._snapshot(self.ask_all(ask, self.all())), asked_s=asked_s)

    def poll(self, *, full: bool) -> TimedReading[Snapshot[V_co]] | None:
        """Read everything for a watch, or only the outflows; return None if a broker cannot be read so."""
        if not full and not all(ReadScope.OUTFLOW in session.readable_alone for session in self.all()):
            return None
        ask = partial(self._answer, scope=FOR_HISTORY if full else ReadScope.OUTFLOW, timeout_s=READ_S)
        began = system().monotonic()
        answers, ago_s = self._watch.ask(self.all(), ask, small=not full)
        took_s = system().monotonic() - began - ago_s
        snapshot = self._snapshot(answers)
        return TimedReading(self._supplement.add(self, snapshot) if full else snapshot, ago_s, took_s)

    def _snapshot(self, answers: Sequence[V_co | Silent]) -> Snapshot[V_co]:
        views = dict(zip(((session.site, session.pair) for session in self.all()), answers, strict=True))
        sites = {
            site: {pair: self._add_signs(session, views) for pair, session in brokers.items()}
            for site, brokers in self.brokers.items()
        }
        return self._reads.snapshot(sites)

    def _view(self, session: Session[V_co], min_timeout_s: float) -> V_co | Silent:
        if (left_s := self._left_s.get(session.site)) is None:
            return self._answer(session, FOR_PEOPLE, READ_S)
        within_s = max(left_s, min_timeout_s)
        text = f"{session.site}/{session.pair}: no answer in the time that a site which may be lost is given"
        no_answer = Silent(session.pair, session.site, Unreachable(text, refused=False))
        if within_s <= 0:
            return no_answer
        # Half of that time is for an answer: a broker that takes the connection and does not answer is sick.
        ask = partial(self._answer, session, FOR_PEOPLE, min(READ_S, max(left_s / 2, _ANSWER_SHARE * min_timeout_s)))
        began = system().monotonic()
        # A name look-up that hangs delays neither this reading nor the end of the command.
        reading = in_background(ask, f"look at {session.site}")
        view = reading.result() if reading.wait(within_s) else no_answer
        if isinstance(view, Silent):
            self._spent(session.site, began)
        return view

    def _answer(self, session: Session[V_co], scope: ReadScope, timeout_s: float) -> V_co | Silent:
        try:
            return session.read(scope, timeout_s=timeout_s)
        except BrokerError as error:
            refuses = session.refuses(error, within_s=self.timeouts.login_s)
            return Silent(session.pair, session.site, error, refuses, session.group.readings, session.group.left_s)

    def _spent(self, site: str, began: float) -> None:
        if site in self._left_s:
            self._left_s[site] = max(0.0, self._left_s[site] - (system().monotonic() - began))

    def _add_signs(self, session: Session[V_co], views: Mapping[tuple[str, str], V_co | Silent]) -> V_co | Silent:
        """Add what other readings show of a broker that did not answer. It lives if its peer's link is attached, or if
        a broker answers at an address of that link, even when its console and its clients' listener refuse. It is not
        proven down if another port of a clients' listener takes connections. Other nodes of it may be active, too."""
        view = views[session.site, session.pair]
        if not isinstance(view, Silent):
            self._remembered.pop(session.site, None)
            return view
        name, signs, open_ports, unnamed = f"{view.site}/{view.pair}", list[str](), list[str](), list[Node]()
        peer = next(broker for (site, pair), broker in views.items() if site != view.site and pair == view.pair)
        if not isinstance(peer, Silent):
            unnamed += nodes_in_link(peer, view.site, len(session.group.processes))
            if peer.link.hears_peer:
                signs.append(f"the link from {name} to {peer.site} is attached")
            elif view.ports_refuse:
                answering = self._test(session, speaks_amqp, peer.link.amqp_addresses)
                signs += [f"a broker answers at {address}" for address in answering]
                open_ports += [f"connections are taken at {address}" for address in self._probed(session, peer)]
        if isinstance(view.error, Passive):
            unnamed += [Node(view.site, view.pair, at, "by its listing of the cluster") for at in view.error.at]
        if session.group.has_one_node and not unnamed:
            if view.site not in self._remembered:
                self._remembered[view.site] = self._read_back(view.site)
            unnamed = [node for node in self._remembered[view.site] if node.pair == view.pair]
        if view.error.shows_life:
            signs = []  # the error already says that the broker lives, and what to do
        return replace(view, open_ports=tuple(open_ports), signs=tuple(signs), unnamed=tuple(unnamed))

    def _read_back(self, site: str) -> Sequence[Node]:
        """Return the nodes that the history has of a site whose brokers do not answer."""
        try:
            from dr_ctl.rpo.history import newest  # noqa: PLC0415 - loading Arrow takes a tenth of a second

            rows = newest.nodes(self.installation.history, site)
        except (ModuleNotFoundError, OSError):  # an unreadable history shows no node
            return ()
        # A name with a space is no address, but a sentence on what showed the node.
        nodes = [(pair, *(("", name) if " " in name else (name, "by the history")), at) for pair, name, at in rows]
        return [Node(site, pair, address, f"{shown_by}, at {stamp(at)}") for pair, address, shown_by, at in nodes]

    def _probed(self, session: Session[V_co], peer: Broker) -> list[str]:
        """Return addresses of the broker that take connections, without hosts that it shares with its peer."""
        hosts = sorted(session.hosts - self.brokers[peer.site][peer.pair].hosts)
        ports = [listener.port for listener in peer.listeners if listener.port is not None]
        return self._test(session, takes_connections, [Address(host, port) for host in hosts for port in ports])

    def _test(self, session: Session[V_co], test: Callable[..., bool], addresses: Sequence[Address]) -> list[str]:
        began = system().monotonic()
        answers = self.ask_all(lambda address: test(address, timeout_s=self.timeouts.port_s), addresses)
        self._spent(session.site, began)
        found = (address for address, accepted in zip(addresses, answers, strict=True) if accepted)
        return [f"{address.host}:{address.port}" for address in found]

    def _is_unexplained(self, snapshot: Snapshot[V_co]) -> bool:
        """Say whether counts differ by more than one reading can explain, or a broker may have died a moment ago: the
        broker's ports refuse, and its peer's link is connected."""
        for local, peer in snapshot.both(*snapshot.sites):
            source, target = (peer, local) if peer.open and not local.open else (local, peer)
            if self._reads.unlike(source, target, self.queues, snapshot.traffic.get(local.pair, {})):
                return True
        silent = [broker for site in snapshot.sites.values() for broker in site.values() if isinstance(broker, Silent)]
        refusing = [broker for broker in silent if isinstance(broker.error, Unreachable) and broker.error.refused]
        views = [view for broker in refusing if (view := snapshot.peer(broker)) is not None]
        return any(view.link.attached or (view.link.arrivals is not None and not snapshot.traffic) for view in views)

    def _with_movement(self, before: Snapshot[V_co], after: Snapshot[V_co]) -> Snapshot[V_co]:
        traffic: dict[str, Mapping[str, int]] = {}
        for pair in next(iter(after.sites.values())):
            readings = [(before.view(site, pair), after.view(site, pair)) for site in after.sites]
            traffic[pair] = rules.traffic([(was, now) for was, now in readings if was is not None and now is not None])
        return replace(after, traffic=traffic)


def _correct_roles(before: Snapshot[V], after: Snapshot[V]) -> Mapping[str, Mapping[str, V | Silent]]:
    """Return the second of two readings; a broker is not down if its peer received something from it in between."""

    def corrected(broker: V | Silent) -> V | Silent:
        has_arrivals = isinstance(broker, Silent) and _arrived(before.peer(broker), after.peer(broker))
        return replace(broker, ports_refuse=False) if isinstance(broker, Silent) and has_arrivals else broker

    sites = after.sites.items()
    return {site: {pair: corrected(broker) for pair, broker in brokers.items()} for site, brokers in sites}


def _arrived(before: Broker | None, after: Broker | None) -> bool:
    if before is None or after is None or before.start != after.start:
        return False
    was, now = before.link.arrivals, after.link.arrivals
    return was is not None and now is not None and now > was


AnyObserver = Observer[Broker, Session[Broker]]
