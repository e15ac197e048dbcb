"""A row of the history, as a value. Imports no Parquet library, because a command that only looks should not wait for
that."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.notation import duration
from dr_ctl.rpo.core.starts import node_of, same_start

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def moment(us: int) -> datetime:
    return _BEGIN + timedelta(microseconds=us)


def micros(at: datetime) -> int:
    """Microseconds after 1970; a moment without a time zone is taken as UTC."""
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _BEGIN) // timedelta(microseconds=1)


OUTFLOW_READING_KINDS: Final = ("mirror", "acks", "mixed", "site")
"""The kinds of rows that a reading of the outflows alone has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A thing at a reading. `kind` is `mirror`, `acks`, `mixed`, `queue`, `staged` (copies at the other site of that
    queue's flow, delivered there or not), `uncopied` (messages of that queue without a copy at the other site, where
    ids were compared, `delivering` of them held by clients; `*` without a depth where they are compared at all), `site`
    (`name` is then the role) or `node` (`name` is then where another node of the broker is than the settings name, or
    what shows that there is one).

    `name` is `*` for an outflow that serves all queues of its pair. `ts` is the moment of the reply, and must know its
    time zone. `took_ms`, of a `site` row, is how long before it the question went out: the counts of a reading are of a
    moment between the two. `queues_added` and `queues_acked`, of a `mixed` row, are the counts of the pair's queues
    together, where the reading read them.
    """

    site: str
    ts: datetime
    kind: str
    name: str
    pair: str | None = None
    depth: int | None = None
    delivering: int | None = None
    added: int | None = None
    removed: int | None = None
    acked: int | None = None
    oldest_ms: int | None = None
    pending: int | None = None
    link: bool | None = None
    start: str | None = None
    took_ms: int | None = None
    queues_added: int | None = None
    queues_acked: int | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Another node of a broker was seen active from `first` on, or the same one anew; `last` is the last reading that
    saw the one before."""

    site: str
    pair: str
    node: str
    last: datetime = field(metadata=HIDDEN)
    first: datetime = field(metadata=key("at"))

    @derived
    def at_most_s(self) -> float:
        return (self.first - self.last).total_seconds()

    @property
    def text(self) -> str:
        return f"node {self.node} of {self.site}/{self.pair} took over, after at most {duration(self.at_most_s)}"

    @classmethod
    def between(cls, before: Row, now: Row) -> Takeover | None:
        """Return the takeover that two readings of a broker show, the earlier one first, or None if the same node was
        active."""
        was, start = before.start or "", now.start or ""
        if same_start(was, start) or not node_of(was) or not node_of(start):
            return None
        return cls(now.site, now.pair or "", node_of(start), before.ts, now.ts)
