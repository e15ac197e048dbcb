"""Says which copies may be removed at the waiting site: the serving broker's counters must cover them.

The agent of `dr-ctl sync` and the run rest on the same: a message that lies at the waiting site alone was consumed only
where clients of the serving site have consumed as many, and their copies are not removed yet. `sync-runs.json` in STATE
keeps for each start of a broker what its counters cannot tell: how they stood when a run opened it, after an agent had
deleted copies there; and what runs did since, messages shown to browses, and copies deleted at the other site. An
agent's memory says in `handed` how much of that its own figures hold.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.model import Json
from dr_ctl.engine.debts import Notes
from dr_ctl.engine.runs import write
from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.topologies.brokersync.sync.queue import COUNTERS, DELETED, HANDED, OPENED, SHOWN, Counters
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.reading import Answered
from dr_ctl.topologies.common.consumed import CompleteListing, Consumed, Covered


def asked(broker: str) -> Read:
    return Read(beans.queue(broker), COUNTERS)


def held(documents: Path) -> str | None:
    """Say who forbids deletion, and why; returns None where nobody does."""
    hold = Notes(documents.parent).hold()
    return hold.text if hold is not None else None


_NONE: Final[Mapping[str, Any]] = {}
BY_RUNS: Final = "sync-runs.json"
_WRITES: Final = threading.Lock()


class RunNotes:
    """What runs noted of one broker."""

    def __init__(self, documents: Path, site: str, pair: str) -> None:
        self._folder, self._site, self._pair = documents.parent, site, pair
        self._key = f"{site}/{pair}"

    def of(self, start: str) -> Mapping[str, Any]:
        """What they noted of that start of it."""
        noted: Mapping[str, Any] = _read(self._folder).get(self._key, _NONE)
        return noted if noted.get("start") == start else _NONE

    def note_opening(self, start: str, rows: Mapping[str, Counters]) -> None:
        """Note how the counters stand before a run lets clients in: what left before was no client's work."""
        opened: dict[str, Json] = {name: [row.dequeued, row.dispatched, row.expired] for name, row in rows.items()}
        with _WRITES:
            self._write({"start": start, OPENED: opened})

    def note(self, start: str, what: str, queue: str, count: int) -> None:
        """Note what a run did that counters cannot tell from clients: so many more messages of a queue were `SHOWN` to
        a browse, or their copies `DELETED`."""
        with _WRITES:  # both sites are listed at the same time
            noted = self.of(start) or {"start": start}
            counts = dict(noted.get(what, {}))
            counts[queue] = max(0, counts.get(queue, 0) + count)
            self._write({**noted, what: counts})

    def _write(self, noted: Mapping[str, Json]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self._folder / BY_RUNS, {**_read(self._folder), self._key: dict(noted)})

    def consumed(self, answer: Answered) -> Mapping[str, int]:
        """By queue how many messages clients consumed since the broker's start whose copies the agent has not deleted,
        at most; without the counters of its console, how many left."""
        start = answer.values["start"]
        runs = self.of(start)
        opened: Mapping[str, Sequence[int]] = runs.get(OPENED, _NONE)
        # The counts that an agent of this machine has kept since that start, and since a run opened the broker.
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
    """What an agent of this site needs: its own memory, and how the counters stood where a run opened it since."""
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
    """What no client consumed of the messages that had left a queue when a run opened its site."""
    _, dispatched, expired = opened.get(queue, (0, 0, 0))
    return dispatched + expired


def covered(serving: BrokerView, queue: str, copies: frozenset[str], listing: CompleteListing) -> Consumed | str:
    """The copies at the waiting site that were consumed, by a whole listing of the serving queue; or why nothing proves
    that. `serving` is a reading from before the listing."""
    lacking = copies - listing.ids
    # Copies that are still to be shipped may be of consumed messages, too.
    counted = serving.consumed.get(queue, 0) - (serving.copying[queue].depth if queue in serving.copying else 0)
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
