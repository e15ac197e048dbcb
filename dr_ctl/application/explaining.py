"""Explains exit codes, findings and the words of docs/glossary.md."""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from dr_ctl.application.result import Result
from dr_ctl.core.document import key
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import NO_UNDO, catalogue, meanings
from dr_ctl.core.machine import shipped
from dr_ctl.core.model import ExitCode

_COLUMNS: Final = 80
_ROW: Final = re.compile(r"\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|")


@dataclass(frozen=True, slots=True)
class Entry:
    name: str = field(metadata=key("id"))
    what: str
    do: str
    costs: str
    undo: str = NO_UNDO


@dataclass(frozen=True, slots=True)
class GlossaryEntry:
    """A word of dr-ctl: a row of docs/glossary.md. `field` is the word of other products, with their names."""

    word: str
    meaning: str
    field: str
    where: str


def words() -> Mapping[str, GlossaryEntry]:
    page = (shipped("docs") / "glossary.md").read_text(encoding="utf-8")
    _, _, *rows = (match.groups() for match in map(_ROW.fullmatch, page.splitlines()) if match is not None)
    return {word: GlossaryEntry(word, *cells) for word, *cells in rows}


def codes() -> Mapping[ExitCode, Entry]:
    texts = {code: f"{row.what} {row.elsewhere}".rstrip() for code, row in meanings().items()}
    return {code: Entry(f"{code:d}", texts[code], row.do, row.costs, row.undo) for code, row in meanings().items()}


def findings() -> Mapping[str, Entry]:
    kinds = sorted(catalogue().items())
    return {id_: Entry(id_, kind.what, kind.do, kind.costs, kind.undo) for id_, kind in kinds}


def explain(word: str) -> Result:
    """Explain a code, a finding or a word; raises `UsageError` for any other name."""
    entry = _find_entry(word.strip().upper())
    if entry is None:
        return _defined(word)
    parts = {"To do:  ": entry.do, "Effect: ": entry.costs, "Undo:   ": entry.undo}
    return _explained(f"{entry.name}: {entry.what}", parts, entry)


def _defined(word: str) -> Result:
    of = {name.lower(): row for name, row in words().items()}.get(" ".join(word.lower().split()))
    if of is None:
        named = f"{word} is no exit code, no finding and no word of the glossary" if word else "nothing was named"
        near = get_close_matches(word.lower(), words())
        listed = f"The words are: {', '.join(words())}." if not word else "`dr-ctl explain` lists the words."
        listed = f"The nearest words are: {', '.join(near)}." if near else listed
        remedy = (
            "As in `dr-ctl explain 22`, `dr-ctl explain DR-RUN-003` or `dr-ctl explain fence`; `dr-ctl --help` lists "
            f"the exit codes. {listed}"
        )
        raise UsageError(named, remedy=remedy)
    return _explained(f"{of.word}: {of.meaning}", {"In the field: ": of.field, "Seen in:      ": of.where}, of)


def _explained(summary: str, parts: Mapping[str, str], data: Entry | GlossaryEntry) -> Result:
    def wrapped(text: str, indent: int = 0) -> str:
        return textwrap.fill(text, _COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False)

    lines = [wrapped(summary), "", *(wrapped(f"{name} {text}", len(name) + 1) for name, text in parts.items())]
    return Result(ExitCode.OK, summary, data=data, closing="\n".join(lines))


def _find_entry(word: str) -> Entry | None:
    """Find an entry by number, outcome, finding id, or the id of an exit code's finding, as DR-LOCKED for 13."""
    if re.fullmatch(r"[0-9]+", word):
        return next((entry for code, entry in codes().items() if int(code) == int(word)), None)
    outcomes = {code.name: entry for code, entry in codes().items()}
    return findings().get(word) or outcomes.get(word.removeprefix("DR-").replace("-", "_").replace(" ", "_"))
