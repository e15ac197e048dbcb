"""The settings of a move: which queues it is about, how long it may take. Pure."""

from dataclasses import dataclass

from dr_ctl.core.patience import Patience
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.queues import selects, selects_all


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings that drafts use beside the look."""

    queues: Queues
    drain: Drain
    patience: Patience

    def selects(self, name: str) -> bool:
        return selects(self.queues, name)

    def selects_all(self, beginning: str) -> bool:
        return selects_all(self.queues, beginning)

    def within(self, move: Move) -> float:
        """How long a drain may take."""
        return move.ask.timeout_s if move.ask.timeout_s is not None else self.drain.timeout

    def while_moving(self, move: Move) -> dict[str, float]:
        """The limits of a wait that goes on as long as something moves, unless somebody said how long."""
        asked = {} if move.ask.timeout_s is None else {"within": move.ask.timeout_s}
        return {**asked, "stall": self.drain.stall}
