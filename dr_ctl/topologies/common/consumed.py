"""This module holds the only evidence on which dr-ctl removes messages: an observation of each of them. Pure.

A message that is absent, not listed or old proves nothing, and neither do equal counts: the message stays until a
person decides.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from dr_ctl.core.errors import BrokerError


class IncompleteListing(BrokerError):
    """A listing does not show every message of its queue, so it does not prove that a message is absent."""


@dataclass(frozen=True, slots=True)
class CompleteListing:
    """The ids of a queue in a listing that shows every message. Raises `IncompleteListing` where the listing does not.
    `hidden` counts messages that no listing of this kind of broker shows; `before` and `after` are the queue's depths
    before and after the listing. `came` counts the messages that were added in between, where the broker counts them: a
    listing of as many as `before` and `came` shows each of them, even if some have left the queue since."""

    queue: str
    ids: frozenset[str]
    before: int
    after: int
    hidden: int = 0
    came: int | None = None

    def __post_init__(self) -> None:
        shown = len(self.ids) + self.hidden
        if self.came is None:
            is_complete = self.before == shown == self.after
        else:
            is_complete = self.came >= 0 and shown == self.before + self.came
        if not is_complete:
            depth = f"{self.before}" if self.before == self.after else f"{self.before}, then {self.after},"
            raise IncompleteListing(f"{self.queue} holds {depth} message(s), and a listing shows {shown} of them")


class Evidence(Protocol):
    """`proves` says whether the evidence covers each of these ids; `text` describes it to a person."""

    @property
    def text(self) -> str: ...

    def proves(self, ids: frozenset[str]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Announced:
    """The serving broker announced these ids as consumed, and counters of the same start confirm as many."""

    ids: frozenset[str]
    start: str
    counted: int
    counted_start: str

    text: ClassVar[str] = "the serving broker announced their ids, and its counters confirm that"

    def proves(self, ids: frozenset[str]) -> bool:
        return ids <= self.ids and self.start == self.counted_start and len(ids) <= self.counted


@dataclass(frozen=True, slots=True)
class Covered:
    """A complete listing of the serving queue lacks these copies, and counters of one start of that broker say that
    clients consumed at least as many messages whose copies are still at the standby."""

    copies: frozenset[str]
    listing: CompleteListing
    counted: int

    text: ClassVar[str] = "the serving broker's counters since its start cover all that its queue lacks"

    def proves(self, ids: frozenset[str]) -> bool:
        lacking = self.copies - self.listing.ids
        return ids <= lacking and len(lacking) <= self.counted


@dataclass(frozen=True, slots=True)
class Observed:
    """A reading showed that each message is consumed, or is in another queue too."""

    ids: frozenset[str]
    text: str

    def proves(self, ids: frozenset[str]) -> bool:
        return ids <= self.ids


def done_in_both_stores(local: frozenset[str], remote: frozenset[str]) -> Observed:
    """The consumers of both sites recorded these ids as processed."""
    return Observed(local & remote, "the id stores of both sites hold their ids")


def copy_exists(queue: str, ids: frozenset[str]) -> Observed:
    """A listing shows another copy of each message, and one copy is enough. The listing may be incomplete."""
    return Observed(ids, f"they are in {queue} too")


def decided(ids: frozenset[str], reason: str) -> Observed:
    """A person saw these ids, decided to remove them, and gave a reason; the messages are kept and can be put back."""
    return Observed(ids if reason.strip() else frozenset(), f"a person decided: {reason}")


class NoEvidence(ValueError):
    """Somebody tried to remove messages for which nothing was seen: a defect of dr-ctl, found before the call."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """Messages of one queue that may be removed, with the evidence for each of them. Raises `NoEvidence`."""

    ids: frozenset[str]
    by: Evidence

    def __post_init__(self) -> None:
        if not self.by.proves(self.ids):
            raise NoEvidence(f"nothing proves that these {len(self.ids)} message(s) may be removed: {self.by}")
