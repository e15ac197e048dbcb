"""The way to each broker of a shared store, by management where it answers, or by the lock and its process."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dr_ctl.core.errors import Between, BrokerError, Passive, Sick, Unreachable
from dr_ctl.core.system import Clock
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Outcome
from dr_ctl.jolokia.http import BadValue
from dr_ctl.processes.hooks import Place
from dr_ctl.processes.secrets import variables
from dr_ctl.settings.classic import ClassicSharedStore, SharedStoreBroker
from dr_ctl.settings.model import Installation
from dr_ctl.stomp_io.address import parse_address
from dr_ctl.stomp_io.stream import takes_connections
from dr_ctl.topologies.classic import access
from dr_ctl.topologies.classic.look import ask
from dr_ctl.topologies.common import access as common
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.snapshot import Silent, Snapshot
from dr_ctl.topologies.sharedstore.lock import BrokerProcess, LockSnapshot, LockUnreadable, SilentAndUnread
from dr_ctl.topologies.sharedstore.store import SharedStore
from dr_ctl.topologies.sharedstore.view import RUN, BrokerView, StoreConfig, StoreSnapshot, beside

KNOCK_S: Final = 1.0
READINGS: Final = 4


class Access(access.Access[BrokerView]):
    def __init__(
        self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock, shared: SharedStore
    ) -> None:
        settings = installation.broker(site, pair, SharedStoreBroker)
        place = Place(installation.file.parent, variables(installation.settings))
        self.process = BrokerProcess(settings.process, place, settings.broker, site, clock)
        self._shared, self._own_name = shared, settings.broker
        self.own = StoreConfig(
            broker=settings.broker,
            holder=settings.holder,
            holders=installation.of(ClassicSharedStore).holders,
            by_row=shared.settings.dsn is not None,
            lease_s=shared.settings.lease,
            keep_alive_s=shared.settings.keep_alive,
            commands=self.process.commands,
            starts=self.process.starts,
            replicated=shared.settings.replica is not None,
        )
        super().__init__(installation, site, pair, documents, clock)

    def _look(self, timeout_s: float) -> BrokerView:
        """Take refused ports for a waiting broker, where the lock can be read. A broker that has lost the store still
        has its management, which says only that it waits."""
        try:
            return self._ask(self._own_name, timeout_s)
        except Passive:
            lock, unread = self._lock()
            return self._waiting(lock, unread, runs=True)
        except BadValue as error:
            raise Between(f"{self.site}/{self.pair} is starting or ending: {error}") from error
        except Unreachable as error:
            if not error.refused:
                raise self._alive_by_its_lease(error) from error
            if self._takes_connections():
                raise Between(f"{self.site}/{self.pair} is starting or ending: {error}") from error
            lock, unread = self._lock()
            if lock is None:
                raise SilentAndUnread(str(error), unread) from error
            return self._waiting(lock, unread, runs=self.process.runs())

    def _alive_by_its_lease(self, error: BrokerError) -> BrokerError:
        """Report as sick a silent broker whose lease lasts: the broker has lived a moment ago."""
        lock, _ = self._lock()
        if lock is None or not lock.held or lock.holder != self.own.holder:
            return error
        return Sick(f"{error}; and {lock.text}", remedy="Wait until that has run out: the other broker then takes it.")

    def _takes_connections(self) -> bool:
        if self._settings.stomp is None:
            return False
        address = parse_address(self._settings.stomp)
        return takes_connections(address, timeout_s=KNOCK_S)

    def _lock(self) -> tuple[LockSnapshot | None, str]:
        try:
            return self._shared.lock.read(), ""
        except LockUnreadable as error:
            return None, str(error)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        answers = ask(self.reader(), broker, timeout_s=timeout_s)
        lock, unread = self._lock()
        return BrokerView(
            pair=self.pair,
            site=self.site,
            config=self.config,
            own=self.own,
            broker=answers.broker.text("BrokerName"),
            version=answers.broker.text("BrokerVersion"),
            node=answers.broker.text("BrokerName"),
            start=answers.broker.text("BrokerId"),
            now_ms=self.document_files.now_ms,
            acceptors=answers.connectors,
            queues=answers.queues,
            connections=tuple(each for each, network in answers.connections if not network),
            consumers=tuple(each for each, network in answers.consumers if not network),
            prepared=answers.prepared,
            documents=self.document_files.texts(),
            disk_used=answers.share,
            obstacles=answers.obstacles,
            networks=answers.networks,
            denied=answers.denied,
            bridges=tuple(each for each, network in answers.connections if network),
            lock=lock,
            unread=unread,
            runs=True,
            lag=self._shared.lag(),
        )

    def _waiting(self, lock: LockSnapshot | None, unread: str, *, runs: bool | None) -> BrokerView:
        return BrokerView(
            pair=self.pair,
            site=self.site,
            config=self.config,
            own=self.own,
            broker=self._own_name,
            version="",
            node=self._own_name,
            start="",
            now_ms=self.document_files.now_ms,
            acceptors=(),
            queues=(),
            connections=(),
            consumers=(),
            prepared=(),
            documents=self.document_files.texts(),
            answered=False,
            lock=lock,
            unread=unread,
            runs=runs,
            lag=self._shared.lag(),
        )

    def channel(self) -> common.Channel:
        return Channel(self, super().channel())


class Channel:
    """Implements `common.access.Channel` for a broker's process, its management and its documents."""

    def __init__(self, broker: Access, to: common.Channel) -> None:
        self._broker, self._to = broker, to

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for call in calls:
            goal = call.request.get(RUN)
            outcomes += [self._broker.process.send(Goal(str(goal)))] if goal is not None else self._to.send([call])
        return outcomes

    def close(self) -> None:
        self._to.close()


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both brokers of a shared store."""

    def __init__(self, installation: Installation, clock: Clock, timeouts: Timeouts, documents: Path) -> None:
        self.shared = SharedStore.of(installation, clock)
        super().__init__(installation, clock, timeouts, documents)

    def observe(self, *, least_s: float = 0.0) -> Snapshot[BrokerView]:
        """A broker that takes the store is a moment later one that serves."""
        until = self.clock.monotonic() + self.timeouts.store_starts_s
        snapshot = super().observe(least_s=least_s)
        while between(snapshot) and self.clock.monotonic() < until:
            self.clock.sleep(self.timeouts.apart_s)
            snapshot = super().observe(least_s=least_s)
        return replace(snapshot, sites={site: self._counted(views) for site, views in snapshot.sites.items()})

    def _counted(self, views: Mapping[str, BrokerView | Silent]) -> Mapping[str, BrokerView | Silent]:
        """A holder with the messages that its store lacks, in every one of several readings: clients go on working."""
        return {
            pair: replace(view, in_memory=self._in_memory(view))
            if isinstance(view, BrokerView) and view.has_the_store
            else view
            for pair, view in views.items()
        }

    def _in_memory(self, view: BrokerView) -> Mapping[str, int]:
        least: Mapping[str, int] | None = None
        try:
            before = self.shared.counts()
            for _ in range(READINGS):
                now, was, before = self.brokers[view.site][view.pair].look(), before, self.shared.counts()
                if was is None or before is None:
                    return {}
                found = now.lacking({name: max(was.get(name, 0), before.get(name, 0)) for name in was | before})
                least = found if least is None else {name: min(n, found.get(name, 0)) for name, n in least.items()}
                if not any(least.values()):
                    return {}
        except BrokerError:
            return {}  # the gate reads it again
        return {name: count for name, count in (least or {}).items() if count}

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        del site, timeout_s
        return 0

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair, self.documents, self.clock, self.shared)

    def _seen(self, sites: Mapping[str, Mapping[str, BrokerView | Silent]]) -> StoreSnapshot:
        return StoreSnapshot(beside(sites))

    def close(self) -> None:
        super().close()
        self.shared.close()


def between(snapshot: Snapshot[BrokerView]) -> bool:
    """Say whether a broker has the store and does not serve yet, as it is starting or has died a moment ago; or may
    take it now, as nobody has it."""
    first, *_ = snapshot.sites.values()
    pairs = [[brokers[name] for brokers in snapshot.sites.values()] for name in first]
    return any(_starts(pair) or any(map(_is_between, pair)) for pair in pairs)


def _is_between(broker: BrokerView | Silent) -> bool:
    if isinstance(broker, Silent):
        return isinstance(broker.error, Between)
    return broker.named_in_vain or broker.may_take


def _starts(pair: Sequence[BrokerView | Silent]) -> bool:
    """Say whether somebody has the store whom the lock does not name, as a file does not, and all ports refuse."""
    views = [each for each in pair if isinstance(each, BrokerView)]
    closed = len(views) == len(pair) and not any(each.answered for each in views)
    return closed and any(each.lock is not None and each.lock.held and each.lock.holder is None for each in views)
