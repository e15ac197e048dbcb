"""The outcome of a call or a step: done, not needed, refused or unknown. A timeout is unknown, never a no."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from dr_ctl.core.model import ExitCode, Finding, Json


@dataclass(frozen=True, slots=True)
class _Came:
    """The fields of every outcome. `word` names the outcome as journal, screen and report do."""

    word: ClassVar[str]

    text: str
    evidence: Mapping[str, Json] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Done(_Came):
    """Brought about and verified."""

    word = "done"


@dataclass(frozen=True, slots=True)
class NotNeeded(_Came):
    """The goal held already, so no call was made."""

    word = "not needed"


@dataclass(frozen=True, slots=True)
class Refused(_Came):
    """The goal was certainly not reached. `code` is the exit code that an undone run then ends with."""

    word = "refused"

    code: ExitCode = ExitCode.REVERTED


@dataclass(frozen=True, slots=True)
class Unknown(_Came):
    """No answer came, and a look did not show whether the call had an effect."""

    word = "unknown"


Outcome = Done | NotNeeded | Refused | Unknown
