"""Reads each broker of a BrokerSync pair, and both sites.

The serving broker's counters say which copies may be removed at the standby. The agent of `dr-ctl sync` and a run
follow one rule: messages that lie there alone were consumed only if clients of the serving site have consumed as many
whose copies are not removed yet. Counters do not tell clients from runs. So `sync-runs.json` in STATE keeps for each
start of a broker the counters at the moment when a run opened it, after an agent had deleted copies there, and the
numbers of messages that runs since showed to browses, and of copies that they deleted. An agent's memory says in
`handed` how many of these its figures hold.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.notation import if_known
from dr_ctl.engine.debts import Notes
from dr_ctl.engine.runs import write
from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.classic import BrokerSyncBroker
from dr_ctl.settings.model import Installation, Queues
from dr_ctl.stomp_io.address import Closed, Connected, StompAccount
from dr_ctl.topologies.brokersync import checks
from dr_ctl.topologies.brokersync.sync.queue import COUNTERS, DELETED, HANDED, OPENED, SHOWN, Counters
from dr_ctl.topologies.brokersync.view import AGENT, QUEUE, BrokerView, SyncConfig
from dr_ctl.topologies.classic import beans, session, statistics
from dr_ctl.topologies.classic import reading as classic
from dr_ctl.topologies.classic.broker import lacking
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common import observer, snapshot
from dr_ctl.topologies.common.calls import OWN
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, Covered
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.view import Config, Queue

_NONE: Final[Mapping[str, Any]] = {}
BY_RUNS: Final = "sync-runs.json"
_WRITES: Final = threading.Lock()


class RunNotes:
    def __init__(self, documents: Path, site: str, pair: str) -> None:
        self._folder, self._site, self._pair = documents.parent, site, pair
        self._key = f"{site}/{pair}"

    def of(self, start: str) -> Mapping[str, Any]:
        noted: Mapping[str, Any] = _read(self._folder).get(self._key, _NONE)
        return noted if noted.get("start") == start else _NONE

    def note_opening(self, start: str, rows: Mapping[str, Counters]) -> None:
        """Note the counters before a run lets clients in: no client consumed the messages that left before."""
        opened: dict[str, Json] = {name: [row.dequeued, row.dispatched, row.expired] for name, row in rows.items()}
        with _WRITES:
            self._write({"start": start, OPENED: opened})

    def note(self, start: str, what: str, queue: str, count: int) -> None:
        """Note messages `SHOWN` to a browse, or copies `DELETED`, which counters cannot tell from clients' work."""
        with _WRITES:  # listings of both sites run at the same time
            noted = self.of(start) or {"start": start}
            counts = dict(noted.get(what, {}))
            counts[queue] = max(0, counts.get(queue, 0) + count)
            self._write({**noted, what: counts})

    def _write(self, noted: Mapping[str, Json]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self._folder / BY_RUNS, {**_read(self._folder), self._key: dict(noted)})

    def consumed(self, answer: Answered) -> Mapping[str, int]:
        """Count by queue the messages at most that clients consumed since the broker's start and whose copies the agent
        has not deleted. Without the counters of its console, every message that left counts."""
        start = answer.values["start"]
        runs = self.of(start)
        opened: Mapping[str, Sequence[int]] = runs.get(OPENED, _NONE)
        # An agent's counts hold if it has kept them since that start, and since a run opened the broker.
        last = Notes(self._folder).read()
        agents: Mapping[str, Any] = last.get("remembers", _NONE).get(self._pair, _NONE)
        handed = agents.get(HANDED, _NONE)
        if (last.get("primary"), agents.get("start"), handed.get(OPENED, _NONE)) != (self._site, start, opened):
            agents = handed = _NONE

        def done(what: str, queue: str) -> int:
            by_agent, noted, known = (int(counts.get(what, _NONE).get(queue, 0)) for counts in (agents, runs, handed))
            before = _shown_before(opened, queue) if agents and what == SHOWN else 0
            return by_agent - before + noted - known

        if answer.more:
            rows = {name: _since(row, opened.get(name)) for name, row in rows_of(answer.more[0]).items()}
            consumed = {name: row.consumed(done(SHOWN, name)) for name, row in rows.items()}
        else:
            consumed = {queue.name: queue.removed for queue in answer.values["queues"]}
        return {name: max(0, count - done(DELETED, name)) for name, count in consumed.items()}


def _read(folder: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((folder / BY_RUNS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return document


def for_agent(documents: Path, site: str, remembered: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give an agent of this site its memory, and of each pair that a run opened since the counters at that moment."""
    known = dict(remembered)
    for key, runs in _read(documents.parent).items():
        at, _, pair = key.partition("/")
        own, opened = known.get(pair, _NONE), runs.get(OPENED, _NONE)
        handed = own.get(HANDED, _NONE).get(OPENED, _NONE)
        if at == site and (own.get("start"), handed) != (runs["start"], opened):
            shown: dict[str, Json] = {name: _shown_before(opened, name) for name in opened}
            known[pair] = {"start": runs["start"], SHOWN: shown, HANDED: {OPENED: opened}}
    return known


def _shown_before(opened: Mapping[str, Sequence[int]], queue: str) -> int:
    """Count the messages that had left a queue by no client when a run opened its site."""
    _, dispatched, expired = opened.get(queue, (0, 0, 0))
    return dispatched + expired


def proven(serving: BrokerView, queue: str, copies: frozenset[str], listing: CompleteListing) -> Consumed | str:
    """Give the copies that were consumed, or say why nothing proves that. `serving` was read before the listing."""
    lacking = copies - listing.ids
    # Copies that are still to be shipped may be of consumed messages, too.
    counted = serving.consumed.get(queue, 0) - (serving.copy_queues[queue].depth if queue in serving.copy_queues else 0)
    why = serving.why_kept(queue, len(lacking))
    if why is None and len(lacking) > counted:
        why = f"copies are under way to the other site, and clients of {serving.site} consumed at most {counted} others"
    return Consumed(lacking, Covered(copies, listing, counted)) if why is None else why


def rows_of(answer: Answer) -> dict[str, Counters]:
    return {row.text("Name"): Counters.of(row) for _, row in answer.beans()}


def _since(row: Counters, opened: Sequence[int] | None) -> Counters:
    if opened is None:
        return row
    dequeued, dispatched, expired = opened
    return Counters(row.dequeued - dequeued, row.in_delivery, row.dispatched - dispatched, row.expired - expired)


class BrokerSyncSnapshot(snapshot.Snapshot[BrokerView]):
    kept_aside = "DR-RECONCILE-003.brokersync"

    def findings(self) -> Sequence[Finding]:
        both = [(view, self.peer(view)) for view in self._all()]
        waiting = [(view, peer) for view, peer in both if peer is not None and view.open and not peer.open]
        beyond = [
            found("DR-SYNC-007.beyond", queue=row.queue, other_site=peer.site, site=view.site, why=why, count=copies)
            for view, peer in waiting
            for row, copies, why in checks.unproven(view, peer, Queues(), self.traffic.get(view.pair, {}))
        ]
        return [*snapshot.Snapshot.findings(self), *beyond]


class Session(session.Session[BrokerView]):
    settings_of = BrokerSyncBroker
    settings: BrokerSyncBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        super().__init__(installation, site, pair, documents)
        # Without a console the statistics show everything or nothing.
        self.readable_alone = ReadScope.OUTFLOW if self.has_console else ReadScope(0)
        agent = self.settings.sync.connector if self.settings.sync is not None else None
        peer = installation.broker(installation.other(site), pair, BrokerSyncBroker)
        self.own = SyncConfig(self.settings.copies, peer.copies, agent)
        self.noted = RunNotes(documents, site, pair)

    def _config(self) -> Config:
        return replace(super()._config(), link=self.settings.network, mirror=self.settings.bridge)

    def _everything(self, timeout_s: float) -> BrokerView:
        if self.has_console:
            return super()._everything(timeout_s)
        return self._seen(statistics.ask(*self._listeners(timeout_s), timeout_s=timeout_s))

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return self._seen(
            classic.ask(self.reader(), broker, timeout_s=timeout_s, more=[Read(beans.queue(broker), COUNTERS)])
        )

    def _reread(self, known: BrokerView, _wanted: ReadScope, timeout_s: float) -> BrokerView:
        """Read a broker's listeners, link, copy queues and clients' queues again; other queues stay as they were."""
        own = [*known.copy_queues.values(), *known.business.values()]
        answers = self.reader().read(
            [
                Read(beans.broker(known.broker), ("BrokerId", "Slave")),
                Read(beans.connector(known.broker), ("Started",)),
                Read(beans.network(known.broker), ("Name",)),
                Read(beans.all_bridges(known.broker), ("RemoteBrokerName",)),
                *(Read(queue.bean, classic.QUEUE) for queue in own),
            ],
            timeout_s=timeout_s,
        )
        fields = Fields(known.broker, answers[0].value())
        classic.must_be_active(self.reader().url, fields)
        started = {bean: row.flag("Started") for bean, row in answers[1].beans()}
        queues = {
            old.name: replace(classic.queue(old.bean, Fields(old.bean, answer.value())), internal=old.internal)
            for old, answer in zip(own, answers[4:], strict=True)
        }
        return replace(
            known,
            start=fields.text("BrokerId"),
            acceptors=tuple(
                replace(acceptor, started=started.get(acceptor.bean, False)) for acceptor in known.acceptors
            ),
            networks=tuple(classic.networks(answers[2], answers[3])),
            queues=tuple(queues.get(queue.name, queue) for queue in known.queues),
            copy_queues={name: queues[queue.name] for name, queue in known.copy_queues.items()},
        )

    def _seen(self, answer: Answered) -> BrokerView:
        view, hold = as_view(self.values(answer), answer, self.own), Notes(self._documents.parent).hold()
        return replace(view, consumed=self.noted.consumed(answer), held=hold.text if hold is not None else None)

    def _listeners(self, timeout_s: float) -> tuple[StompAccount, Mapping[str, bool]]:
        """Choose the listener to ask for statistics: the agent's own, else the clients' one, which has to be open. Say
        which listeners of clients are open."""
        agents, clients = self.agents_listener(), self.stomp_account()
        assert clients is not None  # the settings ask for one of both
        if agents is None:
            return clients, dict.fromkeys(self.config.clients, True)
        login_result = self.try_login(timeout_s=timeout_s)
        if not isinstance(login_result, Connected | Closed):
            raise TimedOut(f"{clients.address}: cannot determine whether clients are let in: {if_known(login_result)}")
        return agents, dict.fromkeys(self.config.clients, isinstance(login_result, Connected))

    def note_opening(self) -> None:
        name = self.last_view().broker
        itself, counters = Read(beans.broker(name), ("BrokerId",)), Read(beans.queue(name), COUNTERS)
        broker, rows = self.reader().read([itself, counters])
        start = Fields(name, broker.value()).text("BrokerId")
        self.noted.note_opening(start, rows_of(rows))

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        if self.has_console:
            return super().open_listeners(timeout_s=timeout_s)
        return tuple(listener.name for listener in self.read(timeout_s=timeout_s).listeners if listener.started)


def as_view(values: Mapping[str, Any], answer: Answered, own: SyncConfig) -> BrokerView:
    named = {queue.name: queue for queue in values["queues"]}
    copy_queues = {name: replace(queue, internal=True) for name, queue in _copies(named, answer.bridged, own).items()}
    # Queues that carry copies are no client's. An arriving message is passed on at once to its own queue.
    internal = {queue.name for queue in copy_queues.values()} | {
        own.arrives.replace(QUEUE, name) for name in named if QUEUE in own.arrives
    }
    own_values = {
        "own": own,
        "copy_queues": copy_queues,
        "queues": tuple(replace(queue, internal=queue.name in internal) for queue in values["queues"]),
        "consumers": tuple(value for value in values["consumers"] if not value.client.startswith(AGENT)),
    }
    return BrokerView(**{**values, **own_values})


def _copies(named: Mapping[str, Queue], bridged: frozenset[str], own: SyncConfig) -> dict[str, Queue]:
    """Find the copy queue of each queue: the settings name it, or a bridge reads it and its name begins with that of
    the queue."""
    before, after = own.copies.split(QUEUE)
    by_origin = {}
    for name, queue in named.items():
        if name.startswith(OWN):  # such a queue keeps copies aside, which are not shipped
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
    lambda source, *more: source.open and any(judge(source, *more) for judge in (lacking, checks.unproven)),
)
