"""The way to each broker of a BrokerSync pair, and a look at both sites that tells what nothing proves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import Clock
from dr_ctl.jolokia.client import Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.processes.secrets import resolve
from dr_ctl.settings.classic import BrokerSyncBroker
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.stomp_io.address import Closed, Connected, Login
from dr_ctl.topologies.brokersync import parity, proven
from dr_ctl.topologies.brokersync.look import as_view, glance
from dr_ctl.topologies.brokersync.view import BrokerView, SyncConfig
from dr_ctl.topologies.classic import access, beans, look, statistics
from dr_ctl.topologies.classic.look import Answered
from dr_ctl.topologies.common import observer, snapshot
from dr_ctl.topologies.common.access import READ_S, Gate, gate
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Config


class Looked(snapshot.Snapshot[BrokerView]):
    kept_aside = (
        "Where they were never done: `dr-ctl sync --settle --put-back --site {} --reason TEXT` lets clients have them. "
        "Where they were: purge that queue in the console."
    )

    def findings(self) -> Sequence[Finding]:
        return [*snapshot.Snapshot.findings(self), *self._unproven()]

    def _unproven(self) -> Iterator[Finding]:
        """Copies at a waiting site that the counters of the serving one do not cover, queue by queue."""
        for here in self._all():
            there = self.peer(here)
            if there is None or not here.open or there.open:
                continue
            for each, copies, why in parity.unproven(here, there, Queues(), self.moved.get(here.pair, {})):
                text = (
                    f"{copies} message(s) of {each.queue} lie at {there.site} beyond those at {here.site}: so many may "
                    f"come twice after a move; nothing proves that they were consumed: {why}"
                )
                remedy = f"`dr-ctl sync --settle --site {there.site} --dry-run` lists them by id."
                yield found("DR-SYNC-007", text, remedy)


class Access(access.Access[BrokerView]):
    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        self._documents = documents
        settings = installation.broker(site, pair, BrokerSyncBroker)
        other = installation.other(site)
        agent = settings.sync.connector if settings.sync is not None else None
        self.own = SyncConfig(settings.copies, installation.broker(other, pair, BrokerSyncBroker).copies, agent)
        super().__init__(installation, site, pair, documents, clock)

    def _config(self) -> Config:
        settings = self._installation.broker(self.site, self.pair, BrokerSyncBroker)
        return replace(super()._config(), link=settings.network, mirror=settings.bridge)

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return self._seen(look.ask(self.reader(), broker, timeout_s=timeout_s, more=[proven.asked(broker)]))

    def _look(self, timeout_s: float) -> BrokerView:
        if self._settings.jolokia is not None:
            return super()._look(timeout_s)
        return self._seen(statistics.ask(*self._listeners(timeout_s), timeout_s=timeout_s))

    def glance(self, *, timeout_s: float = READ_S) -> BrokerView | None:
        """Gives no glance without a console: the statistics show everything or nothing."""
        if self._settings.jolokia is None:
            return None
        return glance(self.reader(), self.names(), timeout_s=timeout_s)

    def _listeners(self, timeout_s: float) -> tuple[Gate, Mapping[str, bool]]:
        """Where the statistics are asked for, and which of the clients' listeners are open: without a listener of the
        agent's own the clients' is all there is."""
        mine, theirs = self.agents_listener(), self.gate()
        assert theirs is not None  # the settings ask for one of both
        if mine is None:
            return theirs, dict.fromkeys(self.config.clients, True)
        greeting = self.greet(timeout_s=timeout_s)
        if not isinstance(greeting, Connected | Closed):
            raise TimedOut(f"{theirs.address}: whether clients are let in cannot be told: {if_known(greeting)}")
        return mine, dict.fromkeys(self.config.clients, isinstance(greeting, Connected))

    def agents_listener(self) -> Gate | None:
        """The agent's own STOMP listener, which stays open behind a fence, if the settings name one."""
        own = self._installation.broker(self.site, self.pair, BrokerSyncBroker).sync
        if own is None:
            return None
        password = resolve(own.password, self._installation.file.parent)
        return gate(self._installation, self.site, own.stomp, Login(own.username, password))

    def note_opening(self) -> None:
        """Note its counters, before clients are let in. Raises `BrokerError`."""
        name = self.names().broker
        broker, rows = self.reader().look([Read(beans.broker(name), ("BrokerId",)), proven.asked(name)])
        start = Fields(name, broker.value()).text("BrokerId")
        proven.note_opening(self._documents, self.site, self.pair, start, proven.rows_of(rows))

    def note(self, start: str, what: str, queue: str, count: int) -> None:
        """Note what a run did that this start's counters cannot tell from clients."""
        proven.note(self._documents, self.site, self.pair, start, what, queue, count)

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        if self._settings.jolokia is not None:
            return super().open_listeners(timeout_s=timeout_s)
        return tuple(listener.name for listener in self.look(timeout_s=timeout_s).listeners if listener.started)

    def _seen(self, answered: Answered) -> BrokerView:
        view = as_view(answered, self.document_files, pair=self.pair, site=self.site, config=self.config, own=self.own)
        consumed = proven.consumed(answered, self.site, self.pair, self._documents)
        return replace(view, consumed=consumed, held=proven.held(self._documents))


Way = tuple[Access, Access]


class Observer(observer.Observer[BrokerView, Access]):
    """Looks at both sites of such an installation."""

    def _access(self, installation: Installation, site: str, pair: str) -> Access:
        return Access(installation, site, pair, self.documents, self.clock)

    def _seen(self, sites: Mapping[str, Mapping[str, BrokerView | Silent]]) -> Looked:
        return Looked(sites)

    def _unlike(self, source: BrokerView, target: BrokerView, moved: Mapping[str, int]) -> bool:
        judges = (parity.lacking, parity.unproven)
        return source.open and any(judge(source, target, self.queues, moved) for judge in judges)
