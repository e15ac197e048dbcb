"""The way to each broker of a BrokerSync pair, the readings of it, and a reading of both sites.

Of a broker's queues are told those that hold copies, and the queue of each copy; of a reading, the copies that nothing
proves to be consumed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.core.notation import if_known
from dr_ctl.core.system import Clock
from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.classic import BrokerSyncBroker
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.stomp_io.address import Closed, Connected, StompAccount
from dr_ctl.topologies.brokersync import checks, proven
from dr_ctl.topologies.brokersync.view import AGENT, QUEUE, BrokerView, SyncConfig
from dr_ctl.topologies.classic import beans, session, statistics
from dr_ctl.topologies.classic import reading as classic
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common import observer, snapshot
from dr_ctl.topologies.common.calls import OWN
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.view import Config, Queue


class BrokerSyncSnapshot(snapshot.Snapshot[BrokerView]):
    kept_aside = "DR-RECONCILE-003.brokersync"

    def findings(self) -> Sequence[Finding]:
        return [*snapshot.Snapshot.findings(self), *self._unproven()]

    def _unproven(self) -> Iterator[Finding]:
        """Copies at a waiting site that the counters of the serving one do not cover, queue by queue."""
        for view in self._all():
            peer = self.peer(view)
            if peer is None or not view.open or peer.open:
                continue
            for counts, copies, why in checks.unproven(view, peer, Queues(), self.traffic.get(view.pair, {})):
                queue, other, site = counts.queue, peer.site, view.site
                yield found("DR-SYNC-007.beyond", queue=queue, other_site=other, site=site, why=why, count=copies)


class Session(session.Session[BrokerView]):
    settings_of = BrokerSyncBroker
    settings: BrokerSyncBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path, clock: Clock) -> None:
        super().__init__(installation, site, pair, documents, clock)
        # Without a console the statistics show everything or nothing.
        self.readable_alone = ReadScope.OUTFLOW if self.has_console else ReadScope(0)
        agent = self.settings.sync.connector if self.settings.sync is not None else None
        peer = installation.broker(installation.other(site), pair, BrokerSyncBroker)
        self.own = SyncConfig(self.settings.copies, peer.copies, agent)
        self.noted = proven.RunNotes(documents, site, pair)

    def _config(self) -> Config:
        return replace(super()._config(), link=self.settings.network, mirror=self.settings.bridge)

    def _everything(self, timeout_s: float) -> BrokerView:
        if self.has_console:
            return super()._everything(timeout_s)
        return self._seen(statistics.ask(*self._listeners(timeout_s), timeout_s=timeout_s))

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return self._seen(classic.ask(self.reader(), broker, timeout_s=timeout_s, more=[proven.asked(broker)]))

    def _reread(self, known: BrokerView, _wanted: ReadScope, timeout_s: float) -> BrokerView:
        return refresh(self.reader(), known, timeout_s=timeout_s)

    def _seen(self, answer: Answered) -> BrokerView:
        view = as_view(self.values(answer), answer, self.own)
        return replace(view, consumed=self.noted.consumed(answer), held=proven.held(self._documents))

    def _listeners(self, timeout_s: float) -> tuple[StompAccount, Mapping[str, bool]]:
        """Where the statistics are asked for, and which of the clients' listeners are open: without a listener of the
        agent's own the clients' is all there is."""
        agents, clients = self.agents_listener(), self.stomp_account()
        assert clients is not None  # the settings ask for one of both
        if agents is None:
            return clients, dict.fromkeys(self.config.clients, True)
        login_result = self.try_login(timeout_s=timeout_s)
        if not isinstance(login_result, Connected | Closed):
            raise TimedOut(f"{clients.address}: whether clients are let in cannot be told: {if_known(login_result)}")
        return agents, dict.fromkeys(self.config.clients, isinstance(login_result, Connected))

    def note_opening(self) -> None:
        """Note its counters, before clients are let in. Raises `BrokerError`."""
        name = self.names().broker
        broker, rows = self.reader().read([Read(beans.broker(name), ("BrokerId",)), proven.asked(name)])
        start = Fields(name, broker.value()).text("BrokerId")
        self.noted.note_opening(start, proven.rows_of(rows))

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        if self.has_console:
            return super().open_listeners(timeout_s=timeout_s)
        return tuple(listener.name for listener in self.read(timeout_s=timeout_s).listeners if listener.started)


def as_view(values: Mapping[str, Any], answer: Answered, own: SyncConfig) -> BrokerView:
    named = {queue.name: queue for queue in values["queues"]}
    copying = {name: replace(queue, internal=True) for name, queue in _copying(named, answer.bridged, own).items()}
    # No client owns queues that carry messages. An arriving message is passed on at once to its own queue.
    internal = {queue.name for queue in copying.values()} | {
        own.arrives.replace(QUEUE, name) for name in named if QUEUE in own.arrives
    }
    own_values = {
        "own": own,
        "copying": copying,
        "queues": tuple(replace(queue, internal=queue.name in internal) for queue in values["queues"]),
        "consumers": tuple(value for value in values["consumers"] if not value.client.startswith(AGENT)),
    }
    return BrokerView(**{**values, **own_values})


def refresh(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker's listeners, link, copy queues and clients' queues again; other queues stay as they were."""
    own = [*view.copying.values(), *view.business.values()]
    answers = reader.read(
        [
            Read(beans.broker(view.broker), ("BrokerId", "Slave")),
            Read(beans.connector(view.broker), ("Started",)),
            Read(beans.network(view.broker), ("Name",)),
            Read(beans.all_bridges(view.broker), ("RemoteBrokerName",)),
            *(Read(queue.bean, classic.QUEUE) for queue in own),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(view.broker, answers[0].value())
    classic.must_be_active(reader.url, fields)
    started = {bean: row.flag("Started") for bean, row in answers[1].beans()}
    queues = {
        old.name: replace(classic.queue(old.bean, Fields(old.bean, answer.value())), internal=old.internal)
        for old, answer in zip(own, answers[4:], strict=True)
    }
    return replace(
        view,
        start=fields.text("BrokerId"),
        acceptors=tuple(replace(acceptor, started=started.get(acceptor.bean, False)) for acceptor in view.acceptors),
        networks=tuple(classic.networks(answers[2], answers[3])),
        queues=tuple(queues.get(queue.name, queue) for queue in view.queues),
        copying={name: queues[queue.name] for name, queue in view.copying.items()},
    )


def _copying(named: Mapping[str, Queue], bridged: frozenset[str], own: SyncConfig) -> dict[str, Queue]:
    """Find the copy queues by the queue they copy: named as in the settings, or taken from by a bridge and named with
    another queue's name at the beginning."""
    before, after = own.copies.split(QUEUE)
    by_origin = {}
    for name, queue in named.items():
        if name.startswith(OWN):  # copies that were kept aside are not shipped
            continue
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
            by_origin[name[len(before) : len(name) - len(after)]] = queue
        elif name in bridged and (
            origins := [prefix for prefix in named if prefix != name and name.startswith(prefix)]
        ):
            by_origin[max(origins, key=len)] = queue
    return by_origin


LinkEnds = tuple[Session, Session]
Observer = observer.Observer[BrokerView, Session]


READS: Final = observer.Reads(
    Session.each,
    BrokerSyncSnapshot,
    lambda source, *more: source.open and any(judge(source, *more) for judge in (checks.lacking, checks.unproven)),
)
