"""A queue that the agent keeps clean: ids announced, ids believed, ids that wait to be deleted. Asks no broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from dr_ctl.topologies.brokersync.sync.accounts import Account, Counters
from dr_ctl.topologies.brokersync.sync.batches import Waiting
from dr_ctl.topologies.topology import QueueKept

AT_MOST: Final = 200_000
"""Ids kept in memory of one queue; beyond them all are let go, and found again by a comparison of both sites."""


@dataclass
class Queue:
    """Ids go from `announced` over `looked_at` to `waiting`: a look that begins after they came confirms them."""

    pair: str
    name: str
    account: Account
    waiting: Waiting = field(default_factory=Waiting)
    announced: list[str] = field(default_factory=list)
    vanished: int = 0
    unproved: int = 0
    answered_for: bool = False
    to_compare: bool = True
    compare_not_before: float = 0.0
    _compared: tuple[datetime, bool, str] | None = None

    def hear(self, id_: str) -> None:
        self.announced.append(id_)
        if len(self.announced) + self.waiting.held > AT_MOST:
            self.forget()

    def forget(self) -> None:
        """Let go of all ids: a comparison finds them again."""
        self.announced.clear()
        self.waiting.clear()
        self.to_compare = True

    def suspects(self, counters: Counters) -> bool:
        """Say whether something left otherwise than by a client since the last look."""
        return self.vanished > 0 or self.account.vanished(counters) > 0

    def confirm(self, counters: Counters, announced: int) -> None:
        """Nothing did: the first so many announced ids came before that look, and are believed."""
        self.account.take_in(counters)
        self.waiting.add(self.announced[:announced])
        del self.announced[:announced]
        self.to_compare = self.to_compare or self.waiting.overdue

    def doubt(self, counters: Counters) -> None:
        """Believe no announced id before somebody says so, because a message left otherwise than by a client."""
        self.vanished = max(self.vanished, self.account.vanished(counters))
        self.forget()

    def go_on(self, looks: Iterable[Counters]) -> None:
        """Somebody answers for it, or nobody has looked before."""
        self.account.accept(looks)
        self.vanished = self.unproved = 0
        self.forget()

    def compared(self, at: datetime, residue: frozenset[str], why_not: str, counters: Counters | None = None) -> None:
        """A comparison found these copies, and `counters` were read after it. Where more copies were found than these
        cover, none of them is deleted. Where the comparison did not see all, and `why_not`, what waits stays too."""
        excess = len(residue) - self.account.covers(counters)
        if excess > 0 and not self.answered_for:
            self.vanished = self.unproved = excess
            self.forget()
            self.not_compared(at, why_not)
            return
        self.account.allowed += max(0, excess)
        self.answered_for = False
        if why_not:
            self.waiting.add_others(residue)
        else:
            self.waiting.replace(residue)
        self._compared = (at, not why_not, why_not)
        self.to_compare = False

    def not_compared(self, at: datetime, why_not: str) -> None:
        self._compared = (at, False, why_not)

    @property
    def seen(self) -> QueueKept:
        found = QueueKept(
            self.pair,
            self.name,
            deleted=self.waiting.deleted,
            waiting=len(self.waiting),
            unconfirmed=len(self.announced),
            absent=self.waiting.absent,
            vanished=self.vanished,
        )
        if self._compared is None:
            return found
        at, whole, why_not = self._compared
        return replace(found, compared=at, whole=whole, why_not=why_not)
