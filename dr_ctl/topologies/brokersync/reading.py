"""Reads each broker of a BrokerSync pair, and both sites.

The serving broker's counters decide which copies may be removed at the standby. The agent of `dr-ctl sync` and runs
follow one rule: messages that only the standby has were consumed only if clients of the serving site have consumed as
many whose copies are not removed yet. Counters do not distinguish clients and runs. So `sync-runs.json` in STATE keeps
for each start of a broker: the counters when a run opened it, the number of messages that browses of runs were shown
since, and the number of copies that runs deleted since. `handed` in an agent's memory is the part of these numbers that
its own figures include.
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

_EMPTY: Final[Mapping[str, Any]] = {}
RUNS_FILE: Final = "sync-runs.json"
_WRITES: Final = threading.Lock()


class RunNotes:
    def __init__(self, documents: Path, site: str, pair: str) -> None:
        self._folder, self._site, self._pair = documents.parent, site, pair
        self._key = f"{site}/{pair}"

    def read_for(self, start: str) -> Mapping[str, Any]:
        notes: Mapping[str, Any] = _read(self._folder).get(self._key, _EMPTY)
        return notes if notes.get("start") == start else _EMPTY

    def record_opening(self, start: str, rows: Mapping[str, Counters]) -> None:
        """Record the counters before a run lets clients in: no client consumed the messages that left before."""
        opened: dict[str, Json] = {name: [row.dequeued, row.dispatched, row.expired] for name, row in rows.items()}
        with _WRITES:
            self._write({"start": start, OPENED: opened})

    def record(self, start: str, kind: str, queue: str, count: int) -> None:
        """Record messages `SHOWN` to a browse, or copies `DELETED`, which counters cannot distinguish from clients'."""
        with _WRITES:  # listings of both sites run at the same time
            notes = self.read_for(start) or {"start": start}
            counts = dict(notes.get(kind, {}))
            counts[queue] = max(0, counts.get(queue, 0) + count)
            self._write({**notes, kind: counts})

    def _write(self, notes: Mapping[str, Json]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self._folder / RUNS_FILE, {**_read(self._folder), self._key: dict(notes)})

    def consumed(self, answer: Answered) -> Mapping[str, int]:
        """Return by queue an upper bound of the messages that clients consumed since the broker's start and whose
        copies are not deleted. Without Jolokia's counters, every message that left counts."""
        start = answer.values["start"]
        runs = self.read_for(start)
        opened: Mapping[str, Sequence[int]] = runs.get(OPENED, _EMPTY)
        # An agent's counts are valid if they are of that start, and of the latest opening by a run.
        agent_notes = Notes(self._folder).read()
        memory: Mapping[str, Any] = agent_notes.get("remembers", _EMPTY).get(self._pair, _EMPTY)
        handed = memory.get(HANDED, _EMPTY)
        if (agent_notes.get("primary"), memory.get("start"), handed.get(OPENED, _EMPTY)) != (self._site, start, opened):
            memory = handed = _EMPTY

        def count_recorded(kind: str, queue: str) -> int:
            by_agent, by_runs, both = (int(counts.get(kind, _EMPTY).get(queue, 0)) for counts in (memory, runs, handed))
            before = _shown_before(opened, queue) if memory and kind == SHOWN else 0
            return by_agent - before + by_runs - both

        if answer.extra:
            rows = {name: _counters_since(row, opened.get(name)) for name, row in read_rows(answer.extra[0]).items()}
            consumed = {name: row.consumed(count_recorded(SHOWN, name)) for name, row in rows.items()}
        else:
            consumed = {queue.name: queue.removed for queue in answer.values["queues"]}
        return {name: max(0, count - count_recorded(DELETED, name)) for name, count in consumed.items()}


def _read(folder: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads((folder / RUNS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return document


def agent_memory(documents: Path, site: str, remembered: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the memory for an agent of this site; a pair that a run has opened since starts from the counters then."""
    known = dict(remembered)
    for key, runs in _read(documents.parent).items():
        key_site, _, pair = key.partition("/")
        memory, opened = known.get(pair, _EMPTY), runs.get(OPENED, _EMPTY)
        handed = memory.get(HANDED, _EMPTY).get(OPENED, _EMPTY)
        if key_site == site and (memory.get("start"), handed) != (runs["start"], opened):
            shown: dict[str, Json] = {name: _shown_before(opened, name) for name in opened}
            known[pair] = {"start": runs["start"], SHOWN: shown, HANDED: {OPENED: opened}}
    return known


def _shown_before(opened: Mapping[str, Sequence[int]], queue: str) -> int:
    """Count the messages that had been dispatched or expired when a run opened the site."""
    _, dispatched, expired = opened.get(queue, (0, 0, 0))
    return dispatched + expired


def prove_consumed(serving: BrokerView, queue: str, copies: frozenset[str], listing: CompleteListing) -> Consumed | str:
    """Return the copies that were consumed, or the reason for no proof. `serving` was read before the listing."""
    missing = copies - listing.ids
    # Copies that are not shipped yet may be of consumed messages too.
    counted = serving.consumed.get(queue, 0) - (serving.copy_queues[queue].depth if queue in serving.copy_queues else 0)
    why = serving.why_kept(queue, len(missing))
    if why is None and len(missing) > counted:
        why = f"copies are under way to the other site, and clients of {serving.site} consumed at most {counted} others"
    return Consumed(missing, Covered(copies, listing, counted)) if why is None else why


def read_rows(answer: Answer) -> dict[str, Counters]:
    return {row.text("Name"): Counters.of(row) for _, row in answer.beans()}


def _counters_since(row: Counters, opened: Sequence[int] | None) -> Counters:
    if opened is None:
        return row
    dequeued, dispatched, expired = opened
    return Counters(row.dequeued - dequeued, row.in_delivery, row.dispatched - dispatched, row.expired - expired)


class BrokerSyncSnapshot(snapshot.Snapshot[BrokerView]):
    kept_aside = "DR-RECONCILE-003.brokersync"

    def findings(self) -> Sequence[Finding]:
        pairs = [(view, self.peer(view)) for view in self._all()]
        one_open = [(view, peer) for view, peer in pairs if peer is not None and view.open and not peer.open]
        unproven = [
            found("DR-SYNC-007.beyond", queue=row.queue, other_site=peer.site, site=view.site, why=why, count=copies)
            for view, peer in one_open
            for row, copies, why in checks.find_unproven(view, peer, Queues(), self.traffic.get(view.pair, {}))
        ]
        return [*snapshot.Snapshot.findings(self), *unproven]


class Session(session.Session[BrokerView]):
    settings_of = BrokerSyncBroker
    settings: BrokerSyncBroker

    def __init__(self, installation: Installation, site: str, pair: str, documents: Path) -> None:
        super().__init__(installation, site, pair, documents)
        # Without Jolokia, the statistics are always read completely.
        self.readable_alone = ReadScope.OUTFLOW if self.has_console else ReadScope(0)
        peer = installation.broker(installation.other(site), pair, BrokerSyncBroker)
        self.sync = SyncConfig(self.settings.copies, peer.copies)
        self.run_notes = RunNotes(documents, site, pair)

    def _config(self) -> Config:
        return replace(super()._config(), link=self.settings.network, mirror=self.settings.bridge)

    def _everything(self, timeout_s: float) -> BrokerView:
        if self.has_console:
            return super()._everything(timeout_s)
        return self._make_view(statistics.ask(*self._choose_listener(timeout_s), timeout_s=timeout_s))

    def _ask(self, broker: str, timeout_s: float) -> BrokerView:
        return self._make_view(
            classic.ask(self.reader(), broker, timeout_s=timeout_s, extra=[Read(beans.queue(broker), COUNTERS)])
        )

    def _reread(self, known: BrokerView, _wanted: ReadScope, timeout_s: float) -> BrokerView:
        """Read a broker's listeners, link, copy queues and clients' queues again; keep the other queues."""
        queues_read = [*known.copy_queues.values(), *known.business.values()]
        answers = self.reader().read(
            [
                Read(beans.broker(known.broker), ("BrokerId", "Slave")),
                Read(beans.connector(known.broker), ("Started",)),
                Read(beans.network(known.broker), ("Name",)),
                Read(beans.all_bridges(known.broker), ("RemoteBrokerName",)),
                *(Read(queue.bean, classic.QUEUE) for queue in queues_read),
            ],
            timeout_s=timeout_s,
        )
        fields = Fields(known.broker, answers[0].value())
        classic.must_be_active(self.reader().url, fields)
        started = {bean: row.flag("Started") for bean, row in answers[1].beans()}
        queues = {
            old.name: replace(classic.queue(old.bean, Fields(old.bean, answer.value())), internal=old.internal)
            for old, answer in zip(queues_read, answers[4:], strict=True)
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

    def _make_view(self, answer: Answered) -> BrokerView:
        view, hold = as_view(self.values(answer), answer, self.sync), Notes(self._documents.parent).hold()
        return replace(view, consumed=self.run_notes.consumed(answer), held=hold.text if hold is not None else None)

    def _choose_listener(self, timeout_s: float) -> tuple[StompAccount, Mapping[str, bool]]:
        """Return the listener for reading statistics, the agent's or else the clients', which has to be open then; and
        which of the clients' listeners are open."""
        agent, clients = self.agents_listener(), self.stomp_account()
        assert clients is not None  # the settings require one of both
        if agent is None:
            return clients, dict.fromkeys(self.config.clients, True)
        login_result = self.try_login(timeout_s=timeout_s)
        if not isinstance(login_result, Connected | Closed):
            raise TimedOut(f"{clients.address}: cannot determine whether clients are let in: {if_known(login_result)}")
        return agent, dict.fromkeys(self.config.clients, isinstance(login_result, Connected))

    def record_opening(self) -> None:
        name = self.last_view().broker
        itself, counters = Read(beans.broker(name), ("BrokerId",)), Read(beans.queue(name), COUNTERS)
        broker, rows = self.reader().read([itself, counters])
        start = Fields(name, broker.value()).text("BrokerId")
        self.run_notes.record_opening(start, read_rows(rows))

    def open_listeners(self, *, timeout_s: float) -> tuple[str, ...]:
        if self.has_console:
            return super().open_listeners(timeout_s=timeout_s)
        return tuple(listener.name for listener in self.read(timeout_s=timeout_s).listeners if listener.started)


def as_view(values: Mapping[str, Any], answer: Answered, config: SyncConfig) -> BrokerView:
    by_name = {queue.name: queue for queue in values["queues"]}
    copies = _copies(by_name, answer.bridged, config).items()
    copy_queues = {name: replace(queue, internal=True) for name, queue in copies}
    # Queues that carry copies are not clients'. An arriving message is forwarded at once to its queue.
    internal = {queue.name for queue in copy_queues.values()} | {
        config.arrives.replace(QUEUE, name) for name in by_name if QUEUE in config.arrives
    }
    fields = {
        "sync": config,
        "copy_queues": copy_queues,
        "queues": tuple(replace(queue, internal=queue.name in internal) for queue in values["queues"]),
        "consumers": tuple(value for value in values["consumers"] if not value.client.startswith(AGENT)),
    }
    return BrokerView(**{**values, **fields})


def _copies(queues: Mapping[str, Queue], bridged: frozenset[str], config: SyncConfig) -> dict[str, Queue]:
    """Find the copy queue of each queue: the settings name it, or a bridge reads it and its name starts with the
    queue's name."""
    prefix, suffix = config.copies.split(QUEUE)
    by_origin = {}
    for name, queue in queues.items():
        if name.startswith(OWN):  # copies kept aside are not shipped
            continue
        if name.startswith(prefix) and name.endswith(suffix) and len(name) > len(prefix) + len(suffix):
            by_origin[name[len(prefix) : len(name) - len(suffix)]] = queue
        elif name in bridged and (origins := [other for other in queues if other != name and name.startswith(other)]):
            by_origin[max(origins, key=len)] = queue
    return by_origin


LinkEnds = tuple[Session, Session]
Observer = observer.Observer[BrokerView, Session]
READS: Final = observer.Reads(
    Session.each,
    BrokerSyncSnapshot,
    lambda source, *more: source.open and any(judge(source, *more) for judge in (lacking, checks.find_unproven)),
)
