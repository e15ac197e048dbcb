"""The lines of a journal: read, each held against all before it, a torn last one cut off."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Final

from dr_ctl.core.document import read as read_document
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import Json

GENESIS: Final = "0" * 64
# A letter that no encoding has, out of a broker's answer, becomes its escape in JSON.
ANY: Final = "backslashreplace"


class JournalDamaged(DrCtlError):
    """A line other than the last is torn, or a hash does not fit."""

    remedy = (
        "The file was altered or the disk lost data. `dr-ctl status` says who serves; then `dr-ctl abort --forget RUN "
        "--reason TEXT` gives the run up: nothing of it is undone, and other runs may begin."
    )


@dataclass(frozen=True, slots=True)
class Entry:
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    seq: int
    time: str
    kind: str
    step: str | None
    call: Mapping[str, Json] | None
    outcome: str | None
    evidence: Mapping[str, Json]
    previous: str

    def body(self) -> dict[str, Json]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def hash(self) -> str:
        text = json.dumps(self.body(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", ANY)).hexdigest()

    def to_line(self) -> str:
        return json.dumps({**self.body(), "hash": self.hash()}, ensure_ascii=False, separators=(",", ":")) + "\n"

    @classmethod
    def of_line(cls, line: bytes) -> tuple[Entry, str]:
        """The entry of a line, and the hash that seals it; raises ValueError saying what does not fit."""
        try:
            row = json.loads(line)
            sealed = str(row.pop("hash"))
            return read_document(cls, row), sealed
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def is_held(path: Path) -> bool:
    """Say whether a process writes this journal now. False where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@dataclass(frozen=True, slots=True)
class Chain:
    """The lines of a journal that fit together, from the first on. `wrong` is the number of the one that does not, and
    why; `torn` says that one more begins, as a crash leaves it."""

    entries: list[Entry]
    wrong: tuple[int, str] | None = None
    torn: bool = False


def chain(raw: bytes) -> Chain:
    """Read what a journal holds, as far as it fits together."""
    entries: list[Entry] = []
    previous = GENESIS
    *whole, rest = raw.split(b"\n")
    for number, line in enumerate(whole, start=1):
        try:
            entry, sealed = Entry.of_line(line)
        except ValueError as error:
            if number == len(whole):
                return Chain(entries, torn=True)  # with its newline, but not all of its middle
            return Chain(entries, (number, f"is not a journal line: {error}"))
        if entry.hash() != sealed or entry.previous != previous or entry.seq != number:
            return Chain(entries, (number, "does not fit the lines before it"))
        previous = sealed
        entries.append(entry)
    return Chain(entries, torn=bool(rest))


def read(path: Path) -> list[Entry]:
    """Read all whole lines; a torn last one is left out. Raises `JournalDamaged` naming the line that does not fit."""
    checked = chain(path.read_bytes())
    if checked.wrong is not None:
        number, why = checked.wrong
        raise JournalDamaged(f"{path}: line {number} {why}")
    return checked.entries
