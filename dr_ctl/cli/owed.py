"""What is owed, for every command that looks: from the brokers that answered, and from STATE for those that did not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dr_ctl.engine.debts import Debt, known, merged, remember


def owed(state: Path, seen: Sequence[Debt], answered: Sequence[str]) -> list[Debt]:
    """Put both together, and remember it for when a broker that holds a debt is away."""
    path = state / "debts.json"
    debts = merged(known(path), seen, answered)
    remember(path, debts)
    return debts
