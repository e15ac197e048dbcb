"""A statement on a run that is kept outside its folder, and whether the run's files still fit it.

The chain of a journal proves that nothing inside was altered, as long as nobody wrote all of it anew. A statement names
the last line and its hash at one moment; kept where the writer of the folder cannot write, it settles that too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dr_ctl.core.loose import mapping, text
from dr_ctl.core.model import Json
from dr_ctl.engine.entries import chain
from dr_ctl.engine.runs import RunFiles

BEGIN: Final = "begin"
END: Final = "end"
_LINE: Final = re.compile(r"\brun=([\w.-]+) event=(begin|end) lines=(\d{1,9}) hash=([0-9a-f]{64}) state=([0-9a-f]*)")
_BARE: Final = re.compile(r"[\w.,:/@+-]*")
_STATE_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Statement:
    """What is said of a run: how many lines its journal had, and the hash of the last. `state` tells the runs of one
    STATE from those of others. `facts` are for people."""

    run: str
    event: str
    lines: int
    hash: str
    state: str
    facts: Mapping[str, Json] = field(default_factory=dict, compare=False)

    @property
    def line(self) -> str:
        """The statement as one line of a log."""
        return " ".join(f"{key}={_word(value)}" for key, value in self.fields.items())

    @property
    def fields(self) -> dict[str, str]:
        """The statement by name, for a log that keeps fields."""
        fixed: dict[str, Json] = {"run": self.run, "event": self.event, "lines": self.lines, "hash": self.hash}
        whole = {**fixed, "state": self.state, **self.facts}
        return {key: str(value) for key, value in whole.items() if value is not None}

    @classmethod
    def of_line(cls, line: str) -> Statement | None:
        """The statement in a line of a log, whatever stands before it; None where there is none."""
        if (match := _LINE.search(line)) is None:
            return None
        run, event, lines, last_hash, state = match.groups()
        return cls(run, event, int(lines), last_hash, state)


def of_state(identity: str) -> str:
    """What stands for a STATE in statements: short, and nothing of the machine's own id can be read from it."""
    return hashlib.sha256(identity.encode()).hexdigest()[:_STATE_DIGITS] if identity else ""


def statements(lines: Iterable[str]) -> Iterator[Statement]:
    """The statements in the lines of a log: plain ones, or the JSON of `journalctl -o json`."""
    for line in lines:
        if (statement := Statement.of_line(_message(line))) is not None:
            yield statement


class Fit(Enum):
    AGREES = "agrees"
    DIFFERS = "differs"
    OPEN = "agrees so far"  # the run has not ended, and nothing is said of an end
    NO_END = "end not there"
    NOT_THERE = "not there"
    GONE = "gone here"  # there is a statement, and no such run


@dataclass(frozen=True, slots=True)
class Compared:
    """A run beside what is said of it."""

    run: str
    fit: Fit
    text: str


def compare(files: RunFiles, said: Sequence[Statement]) -> Compared:
    """Hold a run's journal against everything that is said of it."""
    raw = files.journal.read_bytes() if files.journal.exists() else b""
    entries = chain(raw).entries
    for each in said:
        if not 0 < each.lines <= len(entries):
            text = f"line {each.lines} of journal.jsonl, which its {each.event} vouches for, is not there"
            return Compared(files.name, Fit.DIFFERS, text)
        if entries[each.lines - 1].hash() != each.hash:
            text = f"line {each.lines} of journal.jsonl is not the one that its {each.event} vouches for"
            return Compared(files.name, Fit.DIFFERS, text)
    if not said:
        return Compared(files.name, Fit.NOT_THERE, "nothing is said of it there")
    if not any(each.event == END and each.lines == len(entries) for each in said):
        if not files.result.exists():
            return Compared(files.name, Fit.OPEN, "its begin agrees; the run has not ended")
        return Compared(files.name, Fit.NO_END, "its begin agrees, and nothing is said of its end there")
    return Compared(files.name, Fit.AGREES, f"{len(said)} statement(s) agree, the last on line {len(entries)}")


def gone(names: Iterable[str], said: Iterable[Statement], state: str) -> list[Compared]:
    """The runs of this STATE of which something is said, and which are not here any more."""
    missing = {each.run: each for each in said if each.state == state and state}
    for name in names:
        missing.pop(name, None)
    return [Compared(run, Fit.GONE, f"is not here: {each.line}") for run, each in missing.items()]


def _message(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        message = mapping(json.loads(line)).get("MESSAGE")
    except (ValueError, RecursionError):
        return line
    if isinstance(message, list):  # journalctl writes what is no text as numbers
        return bytes(each for each in message if each in range(256)).decode("utf-8", "replace")
    return text(message)


def _word(word: str) -> str:
    return word if _BARE.fullmatch(word) else json.dumps(word)
