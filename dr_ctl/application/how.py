"""How a command that may change a broker is run: what its options say beside what is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# How much a failover may lose; None: what the objectives allow.
AcceptedLoss = int | Literal["unknown"] | None


@dataclass(frozen=True, slots=True)
class Theft:
    """Whether a live lock of another may be taken over, and why: the journal keeps the reason."""

    steal: bool = False
    reason: str | None = None


NO_THEFT = Theft()


@dataclass(frozen=True, slots=True)
class How:
    """What is asked of whom, and what the run rests on."""

    yes: bool = False
    dry_run: bool = False
    step: bool = False
    theft: Theft = NO_THEFT
    saved: Path | None = None
    expect_serving: str | None = None
