"""Options of a command that may change a broker, beside the question itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# How many messages a failover may lose; with None the objectives decide.
Accepted = int | Literal["unknown"] | None


@dataclass(frozen=True, slots=True)
class BreakLock:
    """Whether a live lock of another may be taken over, and why: the journal keeps the reason."""

    wanted: bool = False
    reason: str | None = None


NO_BREAK = BreakLock()


@dataclass(frozen=True, slots=True)
class RunOptions:
    yes: bool = False
    dry_run: bool = False
    step: bool = False
    break_lock: BreakLock = NO_BREAK
    saved: Path | None = None
    expect_serving: str | None = None
