"""Findings and named checks for people: by what they are of, as wide as the terminal, counted at the end."""

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from dr_ctl.application.result import Group, counted
from dr_ctl.core.model import MARKS, Finding
from dr_ctl.core.notation import line
from dr_ctl.engine.ports import Check

_USUAL: Final = 80
_LEAST: Final = 40  # columns: what is narrower is not wrapped for
_VERDICTS: Final = {"holds": "hold", "warns": "warn", "fails": "fail", "not read": "not read"}
"""The word of a check's verdict, and of several."""


def width() -> int | None:
    """The columns of the terminal; None where standard output is none, and lines stay whole for whoever searches."""
    if not sys.stdout.isatty():
        return None
    try:
        return max(_LEAST, os.get_terminal_size(sys.stdout.fileno()).columns)
    except OSError:
        return _USUAL  # it does not say


def groups_text(groups: Sequence[Group], columns: int | None) -> str:
    """The groups one below the other, then how many errors and warnings there are."""
    findings = [finding for group in groups for finding in group.findings]
    checks = [check for group in groups for check in group.checks]
    lines = [text for group in groups if group.findings or group.checks for text in _group(group, columns)]
    if checks:
        count = Counter[str](check.verdict for check in checks)
        verdicts = ", ".join(
            f"{count[one]} {one if count[one] == 1 else several}" for one, several in _VERDICTS.items() if count[one]
        )
        lines.append(f"{len(checks)} check{'' if len(checks) == 1 else 's'}: {verdicts}")
    return "\n".join([*lines, counted(findings)])


def wrapped(text: str, columns: int | None, first: str = "", then: str | None = None) -> str:
    """A text as wide as the terminal, where it is one; no word is broken and nothing is cut."""
    if columns is None:
        return first + line(text)
    indent = " " * len(first) if then is None else then
    return textwrap.fill(
        line(text),
        columns,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _group(group: Group, columns: int | None) -> Iterator[str]:
    yield f"{line(group.title)}:"
    for check in group.checks:
        yield _check(check, columns)
    for finding in group.findings:
        yield from _finding(finding, columns)
    yield ""


def _finding(finding: Finding, columns: int | None) -> Iterator[str]:
    yield wrapped(finding.text, columns, f"{MARKS[finding.severity]} {finding.id}  ", " " * 6)
    yield from (wrapped(each, columns, " " * 6) for each in finding.more)
    if finding.remedy:
        yield wrapped(finding.remedy, columns, "      -> ")


def _check(check: Check, columns: int | None) -> str:
    ids = f"; {', '.join(dict.fromkeys(each.id for each in check.found))}" if check.found else ""
    evidence = check.evidence if check.evidence is not None else "no answer"
    return wrapped(f"{check.name} ({evidence}){ids}", columns, f"   {check.verdict:<8}  ")
