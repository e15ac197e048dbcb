"""What a return has found out: what was recovered, what came twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dr_ctl.core.model import Json, some
from dr_ctl.topologies.mirror.origins import Origin, told


@dataclass
class TakenIn:
    """What a return has found out. None stands for what was not read, or was let in by a process that is gone."""

    recovered: dict[str, list[str]] | None = None
    not_read: list[str] = field(default_factory=list)
    acks: int | None = None
    acks_by_id: dict[str, list[str]] | None = None

    def begin(self) -> None:
        """From here on all that is let in is seen."""
        self.recovered, self.acks, self.acks_by_id = {}, 0, {}

    def add_recovered(self, queue: str, origins: Iterable[Origin]) -> None:
        if self.recovered is not None and (new := sorted(told(each) for each in origins)):
            self.recovered[queue] = self.recovered.get(queue, []) + new

    def add_acks(self, count: int) -> None:
        self.acks = self.acks + count if self.acks is not None else None

    def add_acked(self, queue: str, origins: Iterable[Origin]) -> None:
        found = sorted(told(each) for each in origins)
        self.add_acks(len(found))
        if self.acks_by_id is not None and found:
            self.acks_by_id[queue] = self.acks_by_id.get(queue, []) + found

    @property
    def count(self) -> int | None:
        if self.recovered is None or self.not_read:
            return None
        return sum(len(ids) for ids in self.recovered.values())

    @property
    def text(self) -> str:
        if self.recovered is None:
            return "how many messages were recovered is not known: they were let in by an earlier process"
        seen = sum(len(ids) for ids in self.recovered.values())
        if self.not_read:
            return f"at least {seen} message(s) recovered; too deep to look at each: {some(self.not_read)}"
        return f"{seen} message(s) recovered"

    def as_json(self) -> dict[str, Json]:
        return {
            "recovered": self.count,
            "ids": _lists(self.recovered or {}),
            "acknowledgements_without_message": self.acks,
            "acknowledged_ids": _lists(self.acks_by_id) if self.acks_by_id is not None else None,
        }


def _lists(ids: Mapping[str, list[str]]) -> dict[str, Json]:
    return {queue: [*each] for queue, each in ids.items()}
