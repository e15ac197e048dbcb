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


def consumed(answer: Answered, site: str, pair: str, documents: Path) -> Mapping[str, int]:
    """By queue how many messages clients consumed since the broker's start whose copies the agent has not deleted, at
    most; without the counters of its console, how many left."""
    start = answer.broker.text("BrokerId")
    runs = by_runs(documents, site, pair, start)
    opened: Mapping[str, Sequence[int]] = runs.get(OPENED, _NONE)
    agents = _remembered(documents, site, pair, start, opened)

    def done(what: str, queue: str) -> int:
        by_agent, noted, handed = (
            int(counts.get(what, _NONE).get(queue, 0)) for counts in (agents, runs, _handed(agents))
        )
        before = _shown_before(opened, queue) if agents and what == SHOWN else 0
        return by_agent - before + noted - handed

    if answer.more:
        rows = {name: _since(row, opened.get(name)) for name, row in rows_of(answer.more[0]).items()}
        left = {name: row.consumed(done(SHOWN, name)) for name, row in rows.items()}
    else:
        left = {queue.name: queue.removed for queue in answer.queues}
    return {name: max(0, count - done(DELETED, name)) for name, count in left.items()}


def for_agent(documents: Path, site: str, remembered: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an agent that follows this site has to know: its own memory, and how the counters stood where a run has
    opened that site since."""
    known = dict(remembered)
    for key, runs in _read(documents.parent / BY_RUNS).items():
        at, _, pair = key.partition("/")
        own, opened = known.get(pair, _NONE), runs.get(OPENED, _NONE)
        if at == site and not (own.get("start") == runs["start"] and _handed(own).get(OPENED, _NONE) == opened):
            shown: dict[str, Json] = {name: _shown_before(opened, name) for name in opened}
            known[pair] = {"start": runs["start"], SHOWN: shown, HANDED: {OPENED: opened}}
    return known


def _shown_before(opened: Mapping[str, Sequence[int]], queue: str) -> int:
    """What no client consumed of the messages that had left a queue when a run opened its site."""
    _, dispatched, expired = opened.get(queue, (0, 0, 0))
    return dispatched + expired


def _handed(agents: Mapping[str, Any]) -> Mapping[str, Any]:
    handed: Mapping[str, Any] = agents.get(HANDED, _NONE)
    return handed


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
    """The counters of each queue."""
    return {row.text("Name"): Counters.of(row) for _, row in answer.beans()}


def _since(row: Counters, opened: Sequence[int] | None) -> Counters:
    if opened is None:
        return row
    dequeued, dispatched, expired = opened
    return Counters(row.dequeued - dequeued, row.in_delivery, row.dispatched - dispatched, row.expired - expired)


def note_opening(documents: Path, site: str, pair: str, start: str, rows: Mapping[str, Counters]) -> None:
    """Note how the counters stand before a run lets clients in: what left that broker before was no client's work."""
    opened: dict[str, Json] = {name: [row.dequeued, row.dispatched, row.expired] for name, row in rows.items()}
    with _WRITES:
        _write(documents, site, pair, {"start": start, OPENED: opened})


def note(documents: Path, site: str, pair: str, start: str, what: str, queue: str, count: int) -> None:
    """Note what a run did: so many more messages of a queue were `SHOWN` to a browse, or their copies `DELETED`."""
    with _WRITES:  # both sites are listed at the same time
        broker = by_runs(documents, site, pair, start) or {"start": start}
        counts = dict(broker.get(what, {}))
        counts[queue] = max(0, counts.get(queue, 0) + count)
        _write(documents, site, pair, {**broker, what: counts})


def held(documents: Path) -> str | None:
    """Say who forbids deletion, and why; returns None where nobody does."""
    hold = Notes(documents.parent).hold()
    return hold.text if hold is not None else None


_NONE: Final[Mapping[str, Any]] = {}
BY_RUNS: Final = "sync-runs.json"
_WRITES: Final = threading.Lock()


def by_runs(documents: Path, site: str, pair: str, start: str) -> Mapping[str, Any]:
    """What runs noted of that start of a broker."""
    kept: Mapping[str, Any] = _read(documents.parent / BY_RUNS).get(f"{site}/{pair}", _NONE)
    return kept if kept.get("start") == start else _NONE


def _write(documents: Path, site: str, pair: str, broker: Mapping[str, Json]) -> None:
    path = documents.parent / BY_RUNS
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(path, {**_read(path), f"{site}/{pair}": dict(broker)})


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return document


def _remembered(
    documents: Path, site: str, pair: str, start: str, opened: Mapping[str, Sequence[int]]
) -> Mapping[str, Any]:
    """The counts that an agent of this machine has kept since that start of the broker, and since a run opened it."""
    last = Notes(documents.parent).read()
    kept: Mapping[str, Any] = last.get("remembers", _NONE).get(pair, _NONE)
    since = (last.get("primary"), kept.get("start"), _handed(kept).get(OPENED, _NONE))
    return kept if since == (site, start, opened) else _NONE
