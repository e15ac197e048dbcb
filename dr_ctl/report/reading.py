"""Loads the files of a run in any state: ended, open, cut off, torn, even altered. Never raises for a bad file.

Lines are checked as the journal's own reader does; `problems` names the lines and files that were left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dr_ctl.core.document import mapping
from dr_ctl.engine.entries import GENESIS, Entry, chain
from dr_ctl.engine.runs import RunFiles


@dataclass(frozen=True, slots=True)
class Material:
    """A run as it lies on disk. `result` is None while the run has not ended; `plans` has a plan for each part."""

    name: str
    entries: tuple[Entry, ...] = ()
    plans: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    @property
    def last_hash(self) -> str:
        return self.entries[-1].hash() if self.entries else GENESIS


def read_run(files: RunFiles) -> Material:
    """Read journal, plan and result; a missing or damaged file is a problem shown on the page."""
    entries, problem = _entries(files.journal)
    problems = [problem] if problem else []
    result: Mapping[str, Any] | None = None
    if files.result.exists():
        result = _document(files.result)
        if result is None:
            problems.append("result.json could not be read: how the run ended is taken from the journal")
    if result is None:
        result = next((entry.evidence for entry in reversed(entries) if entry.kind == "end"), None)
        if result is not None and not files.result.exists():
            problems.append("the journal holds the end of the run, but result.json was not written")
    plans = [mapping(entry.evidence.get("plan")) for entry in entries if entry.kind == "run"]
    if not plans and (written := _document(files.plan)) is not None:
        plans = [written]
    return Material(files.name, tuple(entries), tuple(plans), result, tuple(problems))


def _document(path: Path) -> Mapping[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _entries(path: Path) -> tuple[list[Entry], str | None]:
    """The lines up to the first that does not fit, and a sentence on the rest."""
    try:
        raw = path.read_bytes()
    except OSError:
        return [], "there is no journal: the run never began, and nothing was changed by it"
    checked = chain(raw)
    if checked.wrong is not None:
        text = f"line {checked.wrong[0]} of the journal does not fit the lines before it"
        return checked.entries, f"{text}: it and all after it are left out"
    torn = "the last line of the journal is torn, as a crash leaves it: it is left out"
    return checked.entries, torn if checked.torn else None
