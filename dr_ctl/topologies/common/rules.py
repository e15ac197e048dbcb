"""What the settings decide of a move: which queues it speaks of, how long it may take. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dr_ctl.core.patience import Patience
from dr_ctl.engine.ports import Move
from dr_ctl.rpo.estimate.result import matches
from dr_ctl.settings.model import Drain, Queues


@dataclass(frozen=True, slots=True)
class Rules:
    """What drafts go by beside what was seen."""

    queues: Queues
    drain: Drain
    patience: Patience = field(default_factory=Patience)

    def selects(self, name: str) -> bool:
        return matches(self.queues.include, name) and not matches(self.queues.exclude, name)

    def within(self, move: Move) -> float:
        """How long a drain may take."""
        return move.ask.timeout_s if move.ask.timeout_s is not None else self.drain.timeout
