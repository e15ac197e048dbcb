"""Summaries of time that is over, kept beside the history: an hour, a day or a month of a site each, as one small file.

A summary is of the code that made it, of the settings' patterns, and of files of the history, whose names and sizes it
holds: where one of these is another now, it is made anew. A directory that has not changed since is not listed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

import dr_ctl.rpo
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate.periods import DAY, LATELY, Period
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.slices import File
from dr_ctl.rpo.estimate.summary import SCHEMA
from dr_ctl.rpo.history.files import hidden_until_whole, left_out, without
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.series.cut import AWAY_US

FOLDER: Final = "summary"
NOTE: Final = b"dr-ctl"
MADE_OF: Final = ("series/*.py", "estimate/summary.py", "estimate/slices.py", "estimate/periods.py", "estimate/horizon.py")  # fmt: skip  # noqa: E501
SURE_NS: Final = 2_000_000_000
"""A directory that changed so shortly before it was listed may change again without its time telling."""


@cache
def code_version() -> str:
    """Version of the code that makes summaries."""
    root = Path(dr_ctl.rpo.__file__).parent
    files = sorted(file for pattern in MADE_OF for file in root.glob(pattern))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Note:
    """Sources of a summary: the directories, when each had changed last (0: not sure), and the files in them with
    their sizes, the unreadable ones too, with why. `back_us`: from when on rows were read."""

    changed: Mapping[str, int]
    files: Mapping[str, int]
    left_out: Mapping[str, str]
    back_us: int

    def to_bytes(self) -> bytes:
        return json.dumps([self.changed, self.files, self.left_out, self.back_us]).encode()

    @classmethod
    def from_bytes(cls, told: bytes) -> Note:
        return cls(*json.loads(told))


@dataclass(frozen=True, slots=True)
class Kept:
    rows: pa.Table
    note: Note


class Folders:
    """The directories of a site's days as they are now, each looked at once."""

    def __init__(self, history: Path, site: str) -> None:
        self.history = history
        told = ((_day_us(path), path / f"site={site}") for path in history.glob("date=*"))
        self.days = {us: path for us, path in sorted(told) if us is not None and path.is_dir()}
        self._changed: dict[Path, int] = {}
        self._files: dict[Path, dict[str, int]] = {}
        self._known: dict[str, File | Finding | None] = {}

    def of(self, from_us: int, to_us: int) -> list[Path]:
        found = (self.days.get(us) for us in range(from_us - from_us % DAY, to_us, DAY))
        return [path for path in found if path is not None]

    def changed(self, folder: Path) -> int:
        if folder not in self._changed:
            self._changed[folder] = folder.stat().st_mtime_ns if folder.is_dir() else -1
        return self._changed[folder]

    def files(self, folder: Path) -> dict[str, int]:
        """The sizes of its files, by their paths within the history."""
        if folder not in self._files:
            self.changed(folder)  # before: later changes are no part of it
            found = [file for file in folder.glob("*.parquet") if not file.name.startswith((".", "_"))]
            self._files[folder] = {str(file.relative_to(self.history)): file.stat().st_size for file in sorted(found)}
        return self._files[folder]

    def known(self, name: str) -> File | Finding | None:
        """A file by its footer; the finding that says why it is left out, or None where it holds no row."""
        if name not in self._known:
            path = self.history / name
            self._known[name] = left_out(path, self.history) or File.of(str(path))
        return self._known[name]


def _day_us(folder: Path) -> int | None:
    try:
        return micros(datetime.fromisoformat(folder.name.removeprefix("date=")))
    except ValueError:
        return None


class Settled:
    """The summaries of one site that are kept for the patterns that are asked for, and what of them still holds."""

    def __init__(self, asked: Request, folders: Folders, site: str) -> None:
        self._folders = folders
        told = asked.objectives.classes if asked.objectives is not None else ()
        patterns = json.dumps([asked.include, asked.exclude, [each.queues for each in told]])
        key = f"{code_version()}-{hashlib.sha256(patterns.encode()).hexdigest()[:12]}"
        self._root = asked.history / FOLDER / key / f"site={site}"
        names = {path.stem for path in self._root.glob("*.parquet")}
        self._names = names if asked.settled else set()
        self._kept: dict[str, Kept] = {}

    def take(self, periods: Sequence[Period]) -> None:
        """Read what is kept of these periods, or of the shorter ones that they are made of."""
        wanted = [each for period in periods for each in self._present(period)]
        self._kept = {each.label: kept for each in wanted if (kept := _read(self._root / f"{each.label}.parquet"))}
        wanted = [each for each in wanted if each.label in self._kept]
        for label in self._stale(wanted):
            del self._kept[label]

    def kept(self, period: Period) -> Kept | None:
        return self._kept.get(period.label)

    @property
    def left_out(self) -> list[Finding]:
        """Reasons why files that these summaries are of were left out."""
        told = {name: why for kept in self._kept.values() for name, why in kept.note.left_out.items()}
        return [without(why) for _, why in sorted(told.items())]

    def _present(self, period: Period) -> list[Period]:
        if period.label in self._names:
            return [period]
        return [each for part in period.parts for each in self._present(part)]

    def _stale(self, periods: Sequence[Period]) -> set[str]:
        found: set[str] = set()
        by_folder: dict[Path, list[Period]] = {}
        for period in periods:
            for folder in self._folders.of(period.from_us, period.to_us):
                by_folder.setdefault(folder, []).append(period)
        for folder, mine in by_folder.items():
            notes = {each.label: self._kept[each.label].note for each in mine}
            name, changed = folder.parent.name, self._folders.changed(folder)
            if all(note.changed.get(name) == changed for note in notes.values()):
                continue
            found |= self._changed_in(folder, mine, notes)
        for period in periods:
            names = {folder.parent.name for folder in self._folders.of(period.from_us, period.to_us)}
            found |= {period.label} if self._kept[period.label].note.changed.keys() - names else set()
        others = [each for each in periods if each.label in found]
        # Summaries that looked at some of its looks, before it or after.
        return {each.label for each in periods if any(self._looked_at(each, other) for other in others)}

    def _looked_at(self, period: Period, other: Period) -> bool:
        back_us = min(period.from_us, self._kept[period.label].note.back_us)
        return back_us < other.to_us and period.to_us + AWAY_US > other.from_us

    def _changed_in(self, folder: Path, mine: Sequence[Period], notes: Mapping[str, Note]) -> set[str]:
        present = self._folders.files(folder)
        prefix = f"{folder.parent.name}/"
        known = {name for note in notes.values() for name in note.files}
        found = set()
        for label, note in notes.items():
            old = ((name, size) for name, size in note.files.items() if name.startswith(prefix))
            if any(present.get(name) != size for name, size in old):
                found.add(label)
        for name in present.keys() - known:
            file = self._folders.known(name)
            whole = isinstance(file, Finding)  # nobody knows what it would have told of
            found |= {each.label for each in mine
                      if whole or (isinstance(file, File) and file.first_us < each.to_us and file.last_us >= each.from_us)}  # fmt: skip  # noqa: E501
        return found

    def keep(self, period: Period, rows: pa.Table, back_us: int) -> None:
        """Keep a summary, whole or not at all. Raises EnvironmentFault."""
        told = rows.replace_schema_metadata({NOTE: self._note(period, back_us).to_bytes()})
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with hidden_until_whole(self._root / f"{period.label}.parquet") as file:
                pq.write_table(told, file)
            for hour in self._root.glob(f"{period.label}*T*.parquet") if period.parts else ():
                hour.unlink(missing_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"a summary of the history cannot be kept: {error}") from error

    def _note(self, period: Period, back_us: int) -> Note:
        changed, files, why = {}, {}, {}
        for folder in self._folders.of(period.from_us, period.to_us):
            at = self._folders.changed(folder)
            changed[folder.parent.name] = at if time.time_ns() - at > SURE_NS else 0
            for name, size in self._folders.files(folder).items():
                if not self._is_of(name, period):
                    continue
                files[name] = size
                if isinstance(told := self._folders.known(name), Finding):
                    why[name] = told.text
        return Note(changed, files, why, back_us)

    def _is_of(self, name: str, period: Period) -> bool:
        if period.fineness is not LATELY:
            return True
        file = self._folders.known(name)
        return file is None or isinstance(file, Finding) or (file.first_us < period.to_us and file.last_us >= period.from_us)  # fmt: skip  # noqa: E501

    def forget(self, begin_us: int) -> None:
        """Remove summaries that other code made, and those of days that are gone."""
        for path in self._root.glob("*.parquet"):
            if path.stem < f"{moment(begin_us):%Y%m%d}":
                path.unlink(missing_ok=True)
        for path in self._root.parent.parent.glob("*"):
            if path != self._root.parent and not path.name.startswith(code_version()):
                shutil.rmtree(path, ignore_errors=True)


def _read(path: Path) -> Kept | None:
    """Read it, or give None where it cannot be read, so that a new one is made."""
    try:
        table = pq.ParquetFile(path).read()
        told = (table.schema.metadata or {})[NOTE]
        return Kept(table.replace_schema_metadata(None).select(SCHEMA.names).cast(SCHEMA), Note.from_bytes(told))
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError):
        return None
