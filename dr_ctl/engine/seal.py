"""Whether a run's files are unaltered: the chain of its journal, and the result that seals the journal.

The journal's own reader forgives what a crash leaves. An auditor forgives nothing in a run that has ended. Lines must
be byte by byte as the journal writes them. Their number and last hash must match `result.json`, and `result.json` must
repeat the last line. A person who rewrites every file can still invent a run; no check inside one directory can prove
otherwise.
"""

import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from dr_ctl.core.document import key
from dr_ctl.engine.entries import GENESIS, Entry
from dr_ctl.engine.runs import RunFiles


class Verdict(Enum):
    ALL = "whole"
    OPEN = "open"  # not ended: the lines so far fit together, and no result seals them yet
    NOT_BEGUN = "not begun"
    ALTERED = "altered"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. `line` is the first altered line of the journal, if any."""

    verdict: Verdict
    lines: int
    text: str
    line: int | None = field(default=None, metadata=key(description="the first that does not fit"))


@dataclass(frozen=True, slots=True)
class CheckedRun:
    run: str
    checked: Checked = field(metadata=key(flat=True))


def check(files: RunFiles) -> Checked:
    """Check one run. Altered files are a verdict, not an error."""
    has_ended = files.result.exists()
    if not files.journal.exists():
        if has_ended:
            return Checked(Verdict.ALTERED, 0, "journal.jsonl is missing", 1)
        return Checked(Verdict.NOT_BEGUN, 0, "it never began: nothing was changed by it")
    lines = files.journal.read_bytes().split(b"\n")
    entries, torn = lines[:-1], lines[-1]
    past: list[Entry] = []
    for number, line in enumerate(entries, start=1):
        entry = _entry(line)
        previous = past[-1].hash() if past else GENESIS
        # Of a crash a line is left that follows others; where none can be read, nobody knows what was.
        if entry is None and past and number == len(entries) and not torn and not has_ended:
            return Checked(
                Verdict.OPEN, len(past), f"{_so_far(past)}; line {number} is torn, as a crash leaves it", number
            )
        if entry is None:
            return Checked(Verdict.ALTERED, len(past), f"line {number} of journal.jsonl was altered", number)
        if entry.previous != previous or entry.seq != number:
            text = f"line {number} of journal.jsonl does not follow the line before it"
            return Checked(Verdict.ALTERED, len(past), text, number)
        past.append(entry)
    if not has_ended:
        tail = f"; line {len(past) + 1} is torn, or being written" if torn else ""
        return Checked(Verdict.OPEN, len(past), _so_far(past) + tail)
    if torn:
        text = f"line {len(past) + 1} of journal.jsonl is torn, although the run has ended"
        return Checked(Verdict.ALTERED, len(past), text, len(past) + 1)
    return _against_result(files.result, past)


def _so_far(past: list[Entry]) -> str:
    return f"the run has not ended; its {len(past)} line(s) so far fit together"


def _entry(line: bytes) -> Entry | None:
    """The entry of a line, if the journal would write the same bytes."""
    try:
        entry, _ = Entry.of_line(line)
    except ValueError:
        return None
    return entry if entry.to_line().encode("utf-8", "backslashreplace") == line + b"\n" else None


def _against_result(path: Path, past: list[Entry]) -> Checked:
    """Compare a chain that fits in itself with the result that sealed the run."""
    try:
        result: dict[str, Any] = json.loads(path.read_bytes())
        sealed = result.pop("journal")
        count, last_hash = int(sealed["count"]), str(sealed["last_hash"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Checked(Verdict.ALTERED, len(past), "result.json cannot be read")
    if count > len(past):
        text = f"line {len(past) + 1} of journal.jsonl is missing: result.json counts {count}"
        return Checked(Verdict.ALTERED, len(past), text, len(past) + 1)
    if count < len(past):
        text = f"line {count + 1} of journal.jsonl was added: result.json counts {count}"
        return Checked(Verdict.ALTERED, len(past), text, count + 1)
    last = past[-1] if past else None
    if last is None or last.hash() != last_hash:
        text = f"line {count} of journal.jsonl, the last, and result.json do not fit: one of them was altered"
        return Checked(Verdict.ALTERED, len(past), text, count)
    if last.kind != "end" or dict(last.evidence) != result:
        text = f"result.json does not say what line {count} of journal.jsonl says of the end: it was altered"
        return Checked(Verdict.ALTERED, len(past), text)
    return Checked(Verdict.ALL, len(past), f"{count} lines, as sealed when it ended")
