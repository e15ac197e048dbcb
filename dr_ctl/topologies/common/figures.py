"""The figures of one look, as a journal keeps them, and what a returned broker still holds for its peer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Json

if TYPE_CHECKING:
    from dr_ctl.topologies.common.link import AnyLink


def evidence(looks: Iterable[tuple[str, AnyLink | BrokerError]]) -> dict[str, Json]:
    """By site; A broker that did not answer, or was not read, makes the figure of its site unknown."""
    sites: dict[str, list[AnyLink | BrokerError]] = {}
    for site, look in looks:
        sites.setdefault(site, []).append(look)
    return {site: _of(mine) for site, mine in sites.items()}


def _of(mine: list[AnyLink | BrokerError]) -> dict[str, Json]:
    silent = [each for each in mine if isinstance(each, BrokerError)]
    if silent:
        return {"unknown": str(silent[0])}
    read = [each for each in mine if not isinstance(each, BrokerError)]
    return {
        "outflow": total(each.to_ship for each in read),
        "pending": total(each.unapplied for each in read),
        "attached": every(each.attached for each in read),
    }


def said(count: int | None) -> str:
    """A count in a sentence."""
    return "an unknown number of" if count is None else str(count)


def total(figures: Iterable[int | None]) -> int | None:
    listed = list(figures)
    return None if None in listed else sum(each or 0 for each in listed)


def every(flags: Iterable[bool | None]) -> bool | None:
    """True if all flags hold, False if one does not; returns None where a flag was not read and no other is False."""
    listed = list(flags)
    return None if None in listed and False not in listed else all(listed)


@dataclass(frozen=True, slots=True)
class Residue:
    """Messages and acknowledgements that a returned broker still holds for its peer.

    `duplicates`: at most so many of its messages were done by a client there without leaving an acknowledgement.
    `acked` names messages by queue that were acknowledged there and are not in the outflow too. `done` names every
    message acknowledged there, `since` only those since its last start. A figure of None is not known."""

    messages: int
    acks: int
    duplicates: int | None = None
    acked: Mapping[str, frozenset[tuple[str, int]]] | None = None
    done: Mapping[str, frozenset[tuple[str, int]]] | None = None
    since: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)

    @classmethod
    def together(cls, several: Collection[Residue]) -> Residue:
        """Of several brokers, by count."""
        messages, acks = sum(each.messages for each in several), sum(each.acks for each in several)
        return cls(messages, acks, total(each.duplicates for each in several))

    def figures(self) -> dict[str, Json]:
        figures: dict[str, Json] = {"messages": self.messages, "acknowledgements": self.acks}
        return figures if self.duplicates is None else {**figures, "duplicates_at_most": self.duplicates}
