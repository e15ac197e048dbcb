"""Says how many copies may be removed at the waiting site: the serving broker's counters must cover them.

The agent of `dr-ctl sync` and the run rest on the same: a message that lies at the waiting site alone was consumed only
where clients of the serving site have consumed as many, and their copies are not removed yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dr_ctl.engine.notes import Notes
from dr_ctl.jolokia.client import Read
from dr_ctl.topologies.brokersync.sync.accounts import COUNTERS, Counters, counters
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.look import Answered, found


def asked(broker: str) -> Read:
    return Read(beans.all_queues(broker), COUNTERS)


def consumed(answer: Answered, site: str, pair: str, documents: Path) -> Mapping[str, int]:
    """By queue how many messages clients consumed since the broker's start whose copies the agent has not deleted, at
    most; without the counters of its console, how many left."""
    start = answer.broker.text("BrokerId")
    kept = _remembered(documents, site, pair, start)
    shown, deleted = kept.get("shown", {}), kept.get("deleted", {})
    if answer.more:
        rows: dict[str, Counters] = {each.text("Name"): counters(each) for _, each in found(answer.more[0])}
        left = {name: row.consumed(shown.get(name, 0)) for name, row in rows.items()}
    else:
        left = {queue.name: queue.removed for queue in answer.queues}
    return {name: max(0, count - deleted.get(name, 0)) for name, count in left.items()}


def held(documents: Path) -> str | None:
    """Say who forbids deletion, and why; returns None where nobody does."""
    hold = Notes(documents.parent).hold()
    return hold.text if hold is not None else None


_NONE: Final[Mapping[str, Any]] = {}


def _remembered(documents: Path, site: str, pair: str, start: str) -> Mapping[str, Any]:
    """The counts that an agent of this machine has kept since that start of the broker."""
    last = Notes(documents.parent).read()
    kept: Mapping[str, Any] = last.get("remembers", _NONE).get(pair, _NONE)
    return kept if last.get("primary") == site and kept.get("start") == start else _NONE
