"""What a topology does for each verb of a runbook, as a table: how it is decided, how it is done, how it is undone.

A row may be for some operations only; the first that fits is meant. Nothing here knows what the verbs act on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Draft, Hand, Move
from dr_ctl.engine.runbook import RunbookStep

Rules = TypeVar("Rules")  # what is decided by, beside what was seen
Seen = TypeVar("Seen")
Tools = TypeVar("Tools")  # what is acted with


@dataclass(frozen=True, slots=True)
class Row(Generic[Rules, Seen, Tools]):
    """One verb; `of` are the operations that the row is for, none of them named for any."""

    verb: str
    draft: Callable[[Rules, RunbookStep, Seen, Move], Draft]
    act: Callable[[Tools, PlannedStep, Move, Hand], Outcome]
    undo: Callable[[Tools, PlannedStep, Move, Hand], Outcome] | None = None
    of: tuple[str, ...] = ()


class Procedure(Generic[Rules, Seen, Tools]):
    """The rows of one topology, in the order in which a person reads them: the order of steps is the runbook's."""

    def __init__(self, *rows: Row[Rules, Seen, Tools]) -> None:
        self.rows: Sequence[Row[Rules, Seen, Tools]] = rows

    @property
    def verbs(self) -> frozenset[str]:
        return frozenset(row.verb for row in self.rows)

    def row(self, verb: str, operation: str) -> Row[Rules, Seen, Tools]:
        """The row of a verb in one operation; raises `StopIteration` where the topology has none."""
        return next(row for row in self.rows if row.verb == verb and (operation in row.of or not row.of))
