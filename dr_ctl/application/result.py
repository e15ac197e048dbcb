"""The result of every command, which becomes text or one JSON document, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from dr_ctl.core.document import document, key
from dr_ctl.core.errors import DrCtlError, Stopped
from dr_ctl.core.model import ExitCode, Finding, Health, Json, Severity

if TYPE_CHECKING:
    from dr_ctl.engine.context import StopRequest
    from dr_ctl.engine.debts import Debt
    from dr_ctl.engine.plan import Plan
    from dr_ctl.engine.ports import Check

LOST: Final = "messages were lost or doubled"
C = TypeVar("C")
W = TypeVar("W")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Envelope(Generic[C, W, D]):
    """The document of a command; its type parameters are the types of the command, debts and data."""

    schema: Literal["dr-ctl/1"] = field(default="dr-ctl/1", init=False)
    command: C
    outcome: str = field(
        metadata=key(shape=Literal[*dict.fromkeys((*(code.outcome for code in ExitCode), *(h.value for h in Health)))])
    )
    exit_code: int = field(metadata=key(shape=Literal[*sorted({*map(int, ExitCode), *(h.code for h in Health)})]))
    run: str | None = field(metadata=key(description="the run that the command made, or speaks of"))
    summary: str
    findings: Sequence[Finding]
    debts: Sequence[W]
    data: D


@dataclass(frozen=True, slots=True)
class Group:
    """Findings, and maybe checks, of one site, one pair or one operation."""

    title: str
    findings: Sequence[Finding] = ()
    checks: Sequence[Check] = ()


def counted(findings: Sequence[Finding], code: ExitCode) -> str:
    """Count errors and warnings, as in "2 errors, 1 warning"; only a good end has "no errors"."""
    count = Counter(finding.severity for finding in findings)
    good = code in (ExitCode.OK, ExitCode.WARNINGS)
    counts = [(count[row], row.value) for row in (Severity.ERROR, Severity.WARNING) if count[row] or good]
    return ", ".join(f"{number or 'no'} {word}{'' if number == 1 else 's'}" for number, word in counts)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command. `data` is its own document. The body for people is `text` or `plan`, with the summary
    below; `closing` replaces the summary, below the path of the run's `report`. The person has `already_read` the
    findings, or gets them in `groups`. `health` is the answer of `check`, with figures as `text`. `--output wide` and
    `name` show `wide` and `names`. `ended` has facts of the run that the command has executed, if any; `stop` has a
    signal since it began, even if that did not change the result. `word` replaces the outcome in the text."""

    code: ExitCode
    summary: str
    findings: Sequence[Finding] = ()
    data: Any = field(default_factory=dict)
    run: str | None = None
    text: str = ""
    debts: Sequence[Debt] = ()
    plan: Plan | None = None
    already_read: bool = False
    closing: str = ""
    report: str = ""
    groups: Sequence[Group] = ()
    health: Health | None = None
    ended: Mapping[str, Json] | None = None
    wide: str = ""
    names: Sequence[str] = ()
    stop: StopRequest | None = None
    word: str = ""

    @classmethod
    def of(cls, code: ExitCode, *findings: Finding, **fields: Any) -> Result:
        """Make a result with the text of the first of these findings as its summary."""
        return cls(code, findings[0].text, findings, **fields)

    @property
    def exit_code(self) -> int:
        """The exit code of the process; only `check` has codes of its own."""
        return int(self.code) if self.health is None else self.health.code

    def envelope(self, command: str) -> dict[str, Json]:
        outcome = self.code.outcome if self.health is None else self.health.value
        shown = (self.exit_code, self.run, self.summary, self.findings, self.debts, self.data)
        made: dict[str, Json] = document(Envelope(command, outcome, *shown))
        return made


def of_error(error: DrCtlError) -> Result:
    code = ExitCode(128 + error.signum) if isinstance(error, Stopped) else error.exit_code
    first, *more = str(error).splitlines() or [type(error).__name__]
    named = error.finding or f"DR-{code.name.replace('_', '-')}"
    summary = f"{first} (and {len(more)} more)" if more else first
    return Result(code, summary, (Finding(named, Severity.ERROR, first, error.remedy, more),), run=error.run)
