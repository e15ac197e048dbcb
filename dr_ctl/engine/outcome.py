"""What came of a call or a step: done, not needed, refused or unknown. A timeout is unknown, never a no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from dr_ctl.core.model import ExitCode, Finding, Json


@dataclass(frozen=True, slots=True)
class Done:
    """Brought about and verified."""

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """It held already; nothing was changed."""

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not brought about, and that is known. `code` is the exit code that an undone run then ends with."""

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    code: ExitCode = ExitCode.REVERTED


@dataclass(frozen=True, slots=True)
class Unknown:
    """Asked, and no answer came: it may or may not have happened, and looking did not tell."""

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


Outcome = Done | NotNeeded | Refused | Unknown


def word(outcome: Outcome) -> str:
    """Name the outcome as journal, screen and report do."""
    match outcome:
        case Done():
            return "done"
        case NotNeeded():
            return "not needed"
        case Refused():
            return "refused"
        case Unknown():
            return "unknown"
        case _:
            assert_never(outcome)
