"""What has changed since the hours were summed up: files against the ledger, and the hours that rest on those that are
new, are others now, or have gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.calendar import DAY, HOUR
from dr_ctl.rpo.core.cut import AWAY_US
from dr_ctl.rpo.history.files import OWN, day_us, without
from dr_ctl.rpo.history.sources import Source
from dr_ctl.rpo.history.store import Store
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.looks import History, named

GONE: Final = -1
Span = tuple[int, int]
_NEWEST: Final = """
    SELECT file, max_by(struct(length, modified, first_us, last_us, rows, why), run) AS was, max(run) AS run
    FROM {ledger} GROUP BY file
"""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a site, and the time of its looks; `why` it is left out, if it is: it may then hold any look of its
    day. `is_new`: the ledger does not know it, or knows another."""

    name: str
    length: int
    modified: int
    first_us: int = 0
    last_us: int = -1
    rows: int = 0
    why: str = ""
    is_new: bool = False

    def touches(self, from_us: int, to_us: int) -> bool:
        return self.first_us < to_us and self.last_us >= from_us

    @property
    def is_read(self) -> bool:
        return self.rows > 0 and not self.why

    def is_as(self, other: File) -> bool:
        return (self.length, self.modified) == (other.length, other.modified)

    def torn(self, why: str) -> File:
        begin_us = day_us(self.name)
        return replace(self, why=why, first_us=begin_us, last_us=begin_us + DAY - 1)

    def finding(self) -> Finding:
        return without(self.name, self.why)


@dataclass(slots=True)
class Files:
    """The files of a site as they are, those that the ledger knew and that are gone or others now, and its last run."""

    all: list[File]
    gone: list[File]
    run: int
    ahead: list[File] = field(default_factory=list)

    @classmethod
    def of(cls, history: History, site: str, ledger: DataFrame | None, torn: Collection[str], *, anew: bool) -> Files:
        """`torn`: files that Spark could not read to their ends. `anew`: nothing counts as known."""
        store, told = history.store, [] if ledger is None else sql.over(_NEWEST, ledger=ledger).collect()
        known = {row.file: File(row.file, *row.was) for row in told if row.was.length > GONE and not anew}
        listed = {name: File(name, each.size, each.mtime_ns // 1000) for name, each in history.files(site).items()}
        same = {name for name, each in listed.items() if name in known and known[name].is_as(each)}
        new = [name for name in listed if name not in same or name in torn]
        whys = {name: why for name in new if (why := _why(store, name) if name in torn else _unfit(store, name))}
        times = _times(history, [name for name in new if name not in whys])
        read = {name: _known(replace(listed[name], is_new=True), times, whys, store) for name in new}
        gone = [each for name, each in known.items() if name not in same]
        run = max((row.run for row in told), default=0)
        return cls([read.get(name) or known[name] for name in listed], gone, run)

    def changes(self) -> list[tuple[object, ...]]:
        """What the ledger is to be told. Files with looks from far in the future are read anew each time."""
        late, there = {each.name for each in self.ahead}, {each.name for each in self.all}
        new = [each for each in self.all if each.is_new and each.name not in late]
        gone = [replace(each, length=GONE) for each in self.gone if each.name not in there]
        return [(e.name, e.length, e.modified, e.first_us, e.last_us, e.rows, e.why) for e in (*new, *gone)]

    @property
    def read(self) -> list[File]:
        return [each for each in self.all if each.is_read]

    @property
    def spans(self) -> list[Span]:
        """The times of which something is new, or gone."""
        new = [each for each in self.all if each.is_new]
        return [(each.first_us, each.last_us) for each in (*new, *self.gone) if each.last_us >= each.first_us]

    def touched(self, begin_us: int, end_us: int, reach: Mapping[int, int]) -> set[int]:
        """The hours of a history that rest on what is new or gone. `reach`: how far back each hour looked."""
        near = {
            hour
            for first, last in self.spans
            for hour in range((first - AWAY_US) // HOUR * HOUR, last + AWAY_US + 1, HOUR)
            if begin_us - begin_us % HOUR <= hour < end_us
        }
        spans = self.spans
        far = {hour for hour, back in reach.items() for first, last in spans if back <= last and first < hour}
        return near | far


def _known(file: File, times: Mapping[str, tuple[int, int, int]], whys: Mapping[str, str], store: Store) -> File:
    if file.name in times:
        first_us, last_us, rows = times[file.name]
        return replace(file, first_us=first_us, last_us=last_us, rows=rows)
    why = whys.get(file.name) or _why(store, file.name)
    return file.torn(why) if why else file


def _times(history: History, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Of each file that has a look the first of them, the last, and how many there are."""
    if not names:
        return {}
    text = "SELECT path, min(us) AS first, max(us) AS last, count(*) AS rows FROM {looks} GROUP BY path"
    found = sql.over(text, looks=history.looks(names, torn=True)).collect()
    return {named(row.path): (row.first, row.last, row.rows) for row in found}


def _unfit(store: Store, name: str) -> str | None:
    """Why a file that somebody else wrote into the history is none of it."""
    return None if OWN.fullmatch(name.rpartition("/")[2]) else Source(store, name).why_not(())


def _why(store: Store, name: str) -> str | None:
    """Why Spark read nothing of a file, or not all, which it does not say; None of one without a look. Raises
    FileNotFoundError where it is another one by now."""
    source = Source(store, name)
    why = source.why_not()
    if why is None:
        with source.opened() as file:
            if file.metadata.num_rows:
                raise FileNotFoundError(name)
    return why
