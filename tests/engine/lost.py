"""What the tests of failover and return share: what was asked, what is owed, what it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.engine.plan import Ask

LOSS = "DR-LOSS-001"
FAILOVER, REINSTATE, FAILBACK = Ask("failover", "paris"), Ask("reinstate", "london"), Ask("failback", "london")
DEBTS = tuple(Debt(kind, "london", "paris", "2026-11-21T02:00:00Z") for kind in DebtKind)


@dataclass
class Cost:
    """What may be lost: so much at each time of asking, the last again and again; None is not known."""

    lost: Sequence[int | None] = (0,)
    asked: int = 0

    def bounds(self) -> Mapping[str, Json]:
        return {"lost": {"at_most": self.lost[0], "read_at": None}, "duplicates": {"at_most": 0, "read_at": None}}

    def findings(self) -> Sequence[Finding]:
        return ()

    def too_high(self, ask: Ask) -> Finding | None:
        now = self.lost[min(self.asked, len(self.lost) - 1)]
        self.asked += 1
        if ask.accept_loss == "unknown" or (now is not None and now <= (ask.accept_loss or 0)):
            return None
        return Finding(LOSS, Severity.ERROR, f"{now} may be lost", "Accept it.")
