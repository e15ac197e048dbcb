"""Digests of ledgers against each other, in the driver: which buckets of messages cannot be well.

A good message was sent once and then consumed once, or is held by a site. So the sends of a good bucket equal its
consumptions plus the messages that any one site holds. A digest is a count, the exclusive or of 64-bit hashes, and the
sum of 30 of their bits: the sum tells {a, a} from {b, b}. A digest cannot tell in which order a client consumed and
received a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS: Final = 1 << 16
"""All messages fall into so many buckets by their hash: a difference costs a share of them, and digests stay few."""
SENT, DOUBT, STORED, CONSUMED, RECEIVED = range(5)
CODES: Final = {"sent": SENT, "send-in-doubt": DOUBT, "stored": STORED, "consumed": CONSUMED, "received": RECEIVED}
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Snapshot(NamedTuple):
    """The messages that a site stored by one ledger, at a moment between `at_us` and `until_us`."""

    site: str
    ledger: int
    at_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Side:
    """A digest of some events, by bucket."""

    n: Ints
    x: Ints
    s: Ints

    def __add__(self, other: Self) -> Self:
        return type(self)(self.n + other.n, self.x ^ other.x, self.s + other.s)

    def equals(self, other: Self) -> Flags:
        same: Flags = (self.n == other.n) & (self.x == other.x) & (self.s == other.s)
        return same


@dataclass(frozen=True, slots=True)
class Digests:
    """The rows have a bucket and a kind of event each. `part` is the ledger and site of the event; `epoch` counts the
    snapshot moments before; `unsent` marks queues whose sends no ledger tells."""

    bucket: Ints
    unsent: Ints
    code: Ints
    part: Ints
    epoch: Ints
    n: Ints
    x: Ints
    s: Ints

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        return cls(*(table[name].to_numpy().astype(np.int64) for name in cls.__slots__))

    def side(self, which: Flags) -> Side:
        at = self.bucket[which] + BUCKETS * self.unsent[which]
        summed = Side(*np.zeros((3, 2 * BUCKETS), np.int64))
        np.add.at(summed.n, at, self.n[which])
        np.bitwise_xor.at(summed.x, at, self.x[which])
        np.add.at(summed.s, at, self.s[which])
        return summed

    def suspects(self, snapshots: Sequence[Snapshot], newest: Sequence[Snapshot], sites: Sequence[str]) -> Ints:
        """The buckets that do not add up: at each snapshot, and in the end."""
        parts = {each: each.ledger * len(sites) + sites.index(each.site) for each in snapshots}
        held = {each: self.side((self.code == STORED) & (self.part == parts[each])) for each in snapshots}
        wrong = np.concatenate([self._unbalanced(held, newest)[:BUCKETS], self._seen_gone(held, newest)[BUCKETS:]])
        wrong |= self.side(self.code == DOUBT).n > 0
        for part in np.unique(self.part[self.code == RECEIVED]):
            # A client that reports receipts must have consumed the same messages.
            received, consumed = (self.side((self.code == code) & (self.part == part)) for code in (RECEIVED, CONSUMED))
            wrong |= (received.n > 0) & ~received.equals(consumed)
        return np.flatnonzero(wrong[:BUCKETS] | wrong[BUCKETS:])

    def _unbalanced(self, held: dict[Snapshot, Side], newest: Sequence[Snapshot]) -> Flags:
        """Buckets of queues with senders whose sends differ from consumptions plus held messages."""
        sent, consumed = self.side(self.code == SENT), self.side(self.code == CONSUMED)
        if not held:
            return ~sent.equals(consumed)
        wrong = np.zeros(2 * BUCKETS, np.bool_)
        ats, untils = (sorted({getattr(each, name) for each in held}) for name in ("at_us", "until_us"))
        for snapshot, lies in held.items():
            sent_by = self.side((self.code == SENT) & (self.epoch <= ats.index(snapshot.at_us)))
            consumed_by = self.side((self.code == CONSUMED) & (self.epoch <= untils.index(snapshot.until_us)))
            wrong |= ~sent_by.equals(consumed_by + lies)
            if snapshot in newest:
                wrong |= ~sent.equals(consumed + lies)
        return wrong

    def _seen_gone(self, held: dict[Snapshot, Side], newest: Sequence[Snapshot]) -> Flags:
        """Buckets of queues without known senders in which a message was consumed, or the snapshots differ."""
        wrong = self.side(self.code == CONSUMED).n > 0
        for snapshot, lies in held.items():
            wrong |= lies.n > 0 if snapshot not in newest else ~lies.equals(held[newest[0]])
        return wrong
