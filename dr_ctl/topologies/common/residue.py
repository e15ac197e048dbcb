"""Messages and acknowledgements that a returned broker still holds for its peer: counted, or named. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dr_ctl.core.model import Json
from dr_ctl.topologies.common.evidence import total


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
