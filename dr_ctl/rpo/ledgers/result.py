"""The fate of messages by their ledgers, as plain values. This module imports neither Arrow nor Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from dr_ctl.core.document import HIDDEN, key
from dr_ctl.core.model import Finding

Kind = Literal["lost", "doubled", "recovered", "unexpected", "unknown"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of result: the number of messages, their queues, and the file with their ids."""

    count: int
    file: Path = field(metadata=key(description="the ids, one a line"))
    queues: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The fate of the messages. `events` counts the ledgers' events by kind."""

    parts: Mapping[Kind, Category] = field(metadata=key(flat=True))
    events: Mapping[str, int]
    findings: tuple[Finding, ...] = field(default=(), metadata=HIDDEN)

    @property
    def is_clean(self) -> bool:
        """True if the ledgers show no loss and no double."""
        return not self.parts["lost"].count and not self.parts["doubled"].count
