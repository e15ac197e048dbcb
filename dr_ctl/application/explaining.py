"""What an exit code or a finding is, at length, from the one table of them; docs/findings.md is made of it too.

python -m dr_ctl.application.explaining > docs/findings.md
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from dr_ctl.application.result import Result
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode

TABLE: Final = Path(__file__).with_name("findings.yaml")
NO_UNDO: Final = "There is nothing to undo: it changes nothing at a broker."
_COLUMNS: Final = 80
_HEAD: Final = """# Findings

<!-- Made from dr_ctl/application/findings.yaml: python -m dr_ctl.application.explaining > docs/findings.md -->

`dr-ctl explain 22` or `dr-ctl explain DR-RUN-003` tells one of these at the terminal. A finding has an id, a severity
(`error` refuses the operation, `warning` and `info` never do), a text with the names of your sites and queues, and
where something can be done a remedy.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is wrong, what to type or to do, what that does and costs, whether it can be undone."""

    name: str
    what: str
    do: str
    costs: str
    undo: str = NO_UNDO


def codes() -> Mapping[ExitCode, Entry]:
    return {ExitCode(int(code)): Entry(str(code), **told) for code, told in _table("codes").items()}


def findings() -> Mapping[str, Entry]:
    return {id_: Entry(id_, **told) for id_, told in _table("findings").items()}


def _table(part: str) -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))[part]
    return told


def explain(word: str) -> Result:
    """Tell one at length; raises `UsageError` where there is none of that name."""
    found = _named(word.strip().upper())
    if found is None:
        remedy = "As in `dr-ctl explain 22` or `dr-ctl explain DR-RUN-003`; `dr-ctl --help` lists the exit codes."
        raise UsageError(f"{word} is no exit code and no finding", remedy=remedy)
    summary = f"{found.name}: {found.what}"
    parts = {"To do:  ": found.do, "Effect: ": found.costs, "Undo:   ": found.undo}
    lines = [_wrapped(summary, ""), "", *(_wrapped(f"{name} {told}", " " * 9) for name, told in parts.items())]
    data = {"id": found.name, "what": found.what, "do": found.do, "costs": found.costs, "undo": found.undo}
    return Result(ExitCode.OK, summary, data={**data}, closing="\n".join(lines))


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, _COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


def _named(word: str) -> Entry | None:
    """By its number, its id, or the id that the end of a command has: DR-LOCKED is what 13 is."""
    if re.fullmatch(r"[0-9]+", word):
        return next((entry for code, entry in codes().items() if int(code) == int(word)), None)
    ends = {f"DR-{code.name.replace('_', '-')}": entry for code, entry in codes().items()}
    return findings().get(word) or ends.get(word)


def page() -> str:
    """The whole table as a document."""
    by_code = [(f"{entry.name}, `{code.outcome}`", entry) for code, entry in codes().items()]
    parts = (_HEAD, "## Exit codes\n", *_rows("code", by_code), "\n## By id\n", *_rows("id", list(findings().items())))
    return "\n".join(parts) + "\n"


def _rows(first: str, entries: list[tuple[str, Entry]]) -> Iterator[str]:
    yield f"| {first} | what is so | what to type or to do | what that does and costs | can it be undone |"
    yield "| --- | --- | --- | --- | --- |"
    for name, each in entries:
        undo = "" if each.undo == NO_UNDO else each.undo
        yield f"| {name} | {each.what} | {each.do} | {each.costs} | {undo} |"


if __name__ == "__main__":
    sys.stdout.write(page())
