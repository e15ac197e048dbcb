"""Reads a shared store's broker by its management, or, if that does not answer, by the lock and the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import BrokerError, Passive, Sick, StartingOrEnding, Unreachable
from dr_ctl.core.system import system
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.engine.ports import Outcome
from dr_ctl.jolokia.http import BadValue
from dr_ctl.processes.hooks import CommandContext
from dr_ctl.processes.secrets import variables
from dr_ctl.settings.classic import ClassicSharedStore, SharedStoreBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import parse_address, takes_connections
from dr_ctl.topologies.classic import session
from dr_ctl.topologies.classic.reading import ask
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.snapshot import Silent, Snapshot
from dr_ctl.topologies.sharedstore.store import BrokerProcess, LockSnapshot, SharedStore, SilentAndUnread
from dr_ctl.topologies.sharedstore.view import NOTHING_OPEN, RUN, STOPPED, BrokerView, StoreConfig, make_snapshot

CONNECT_WITHIN_S: Final = 1.0
READINGS: Final = 4


class Session(session.Session[BrokerView]):
    settings_of = SharedStoreBroker
    settings: SharedStoreBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, shared: SharedStore) -> None:
        super().__init__(installation, site, pair, documents)
        settings, self.shared = self.settings, shared
        command_context = CommandContext(installation.file.parent, variables(installation.settings))
        self.process = BrokerProcess(settings.process, command_context, settings.broker, site)
        self.store_config = StoreConfig(
            broker=settings.broker,
            holder=settings.holder,
            holders=installation.of(ClassicSharedStore).holders,
            lease_is_row=shared.settings.dsn is not None,
            lease_s=shared.settings.lease,
            keep_alive_s=shared.settings.keep_alive,
            commands=frozenset(self.process.commands),
            starts=self.process.starts,
            replicated=shared.settings.replica is not None,
        )

    @classmethod
    def each(cls, installation: Installation, documents: Path) -> Callable[[str, str], Session]:
        shared = SharedStore.of(installation)
        return lambda site, pair: cls(installation, site, pair, documents, shared)

    def close(self) -> None:
        super().close()
        self.shared.close()

    def unapplied(self, *, timeout_s: float) -> int | None:  # noqa: ARG002 - nothing is read
        return 0

    def _everything(self, timeout_s: float) -> BrokerView:
        """Read the broker. If a run told it to stop and it has ended since, the document of that is removed."""
        view = self._read_broker(timeout_s)
        if STOPPED in view.documents and view.has_ended:
            self.document_files.remove(STOPPED)
        return view

    def _read_broker(self, timeout_s: float) -> BrokerView:
        """Read the broker by its management. It waits for the store if it reports that, or if its ports refuse; refused
        ports show that only together with a lock that was read."""
        try:
            return self._ask(self.store_config.broker, timeout_s)
        except Passive:
            lock, unread = self.shared.read_lock()
            return self._waiting(lock, unread, runs=True)
        except BadValue as error:
            raise StartingOrEnding(f"{self.site}/{self.pair} is starting or ending: {error}") from error
        except Unreachable as error:
            if not error.refused:
                raise self._sick_by_lease(error) from error
            stomp = self.settings.stomp
            if stomp is not None and takes_connections(parse_address(stomp), timeout_s=CONNECT_WITHIN_S):
                raise StartingOrEnding(f"{self.site}/{self.pair} is starting or ending: {error}") from error
            lock, unread = self.shared.read_lock()
            if lock is None:
                raise SilentAndUnread(str(error), unread) from error
            return self._waiting(lock, unread, runs=self.process.runs())

    def _sick_by_lease(self, error: BrokerError) -> BrokerError:
        """Report a silent broker with a valid lease as sick: it was alive a short time ago."""
        lock, _ = self.shared.read_lock()
        if lock is None or not lock.held or lock.holder != self.store_config.holder:
            return error
        return Sick(f"{error}; and {lock.text}", remedy="Wait until the lease ends: then the other broker takes it.")

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        values = self.values(ask(self.reader(), broker, timeout_s=timeout_s))
        lock, unread = self.shared.read_lock()
        return BrokerView(**values, store=self.store_config, lock=lock, unread=unread, runs=True, lag=self.shared.lag())

    def _waiting(self, lock: LockSnapshot | None, unread: str, *, runs: bool | None) -> BrokerView:
        files, name = self.document_files, self.store_config.broker
        broker = {"pair": self.pair, "site": self.site, "config": self.config, "broker": name}
        known = {"version": "", "node": name, "start": "", "now_ms": files.now_ms, "documents": files.texts()}
        state = {"lock": lock, "unread": unread, "runs": runs, "lag": self.shared.lag()}
        return BrokerView(**{**broker, **known, **NOTHING_OPEN, **state}, store=self.store_config, answered=False)

    def is_own(self, call: Call) -> bool:
        return RUN in call.request or super().is_own(call)

    def do(self, call: Call) -> Outcome:
        goal = call.request.get(RUN)
        return self.process.send(Goal(str(goal))) if goal is not None else super().do(call)


Observer = observer.Observer[BrokerView, Session]


def observe_settled(observer: Observer, read: Callable[[], Snapshot[BrokerView]]) -> Snapshot[BrokerView]:
    """Read both sites again while a broker takes the store, because it will serve soon."""
    deadline = system().monotonic() + observer.timeouts.store_starts_s
    snapshot = read()
    while is_changing_hands(snapshot) and system().monotonic() < deadline:
        system().sleep(observer.timeouts.apart_s)
        snapshot = read()

    def with_memory_counts(view: BrokerView) -> BrokerView:
        """Add to the holder the messages that its store lacked in each of several readings, because clients work on."""
        if not view.has_the_store:
            return view
        return replace(view, in_memory=_in_memory(observer.brokers[view.site][view.pair]))

    return snapshot.map_brokers(with_memory_counts)


def _in_memory(session: Session) -> Mapping[str, int]:
    least: Mapping[str, int] | None = None
    try:
        before = session.shared.counts()
        for _ in range(READINGS):
            now, was, before = session.read(), before, session.shared.counts()
            if was is None or before is None:
                return {}
            in_memory = now.count_missing({name: max(was.get(name, 0), before.get(name, 0)) for name in was | before})
            least = in_memory if least is None else {name: min(n, in_memory.get(name, 0)) for name, n in least.items()}
            if not any(least.values()):
                return {}
    except BrokerError:
        return {}  # the gate reads the counts again
    return {name: count for name, count in (least or {}).items() if count}


READS: Final = observer.Reads(Session.each, make_snapshot, observed=observe_settled)


def is_changing_hands(snapshot: Snapshot[BrokerView]) -> bool:
    """Say whether a broker may take the store, or has it and does not serve: it is starting, or died a moment ago."""
    first, *_ = snapshot.sites.values()
    for name in first:
        pair = [brokers[name] for brokers in snapshot.sites.values()]
        errors = [broker.error for broker in pair if isinstance(broker, Silent)]
        views = [broker for broker in pair if isinstance(broker, BrokerView)]
        if any(isinstance(error, StartingOrEnding) for error in errors) or any(view.may_take_store for view in views):
            return True
        # A lock without a holder's name, a file, is held, and all ports refuse.
        unnamed = any(view.lock is not None and view.lock.held and view.lock.holder is None for view in views)
        if unnamed and not errors and not any(view.answered for view in views):
            return True
    return False
