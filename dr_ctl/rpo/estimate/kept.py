"""Summaries of time that is over, kept beside the history: an hour or a day of a site each, as one small file.

A summary belongs to the code that made it, to the settings' patterns, and to the files of the history that hold any
look it rests on, before it, in it and after it. It holds as long as these files are what they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

import dr_ctl
import dr_ctl.rpo
from dr_ctl.core.system import together
from dr_ctl.rpo.core.calendar import DAY, HOUR, OF_A_DAY, Calendar, Period
from dr_ctl.rpo.core.cut import AWAY_US
from dr_ctl.rpo.core.rows import SCHEMA, coarsened
from dr_ctl.rpo.estimate.listing import SIDE_BY_SIDE, File, Listing
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.history.store import Store

if TYPE_CHECKING:
    from dr_ctl.rpo.estimate.slices import Slice

NOTE: Final = b"dr-ctl"
MADE_OF: Final = (
    "core/*.py",
    *(f"estimate/{name}.py" for name in ("looks", "slices")),
)
UNUSED_NS: Final = 7 * 86_400 * 1_000_000_000
"""Summaries of other code or other patterns to which nothing was added for so long are nobody's."""


@cache
def version() -> str:
    """The version of the code that makes summaries."""
    root = Path(dr_ctl.rpo.__file__).parent
    files = sorted(file for pattern in MADE_OF for file in root.glob(pattern))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    return f"{dr_ctl.__version__} (code {code})"


def fingerprint(files: Iterable[File], from_us: int, to_us: int) -> str:
    """What tells the files that may hold a look of that time from others."""
    told = sorted((each.name, each.size, each.mtime_ns) for each in files if each.touches(from_us, to_us))
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A summary that is there; `back_us`: from when on looks were read for it."""

    period: Period
    rows: pa.Table
    back_us: int
    files: str

    def holds(self, files: Sequence[File]) -> bool:
        return fingerprint(files, self.back_us, self.period.to_us + AWAY_US) == self.files


def folder(patterns: object, site: str) -> str:
    """Where the summaries of a site lie, by the code and by these patterns."""
    code = version().rpartition(" ")[2].rstrip(")")
    return f"summary/{code}-{hashlib.sha256(json.dumps(patterns).encode()).hexdigest()[:12]}/site={site}"


def taken(
    store: Store, listing: Listing, where: str, periods: Iterable[Period], files: Sequence[File]
) -> dict[Period, Kept]:
    """The summaries of these periods, or of the hours that they are made of, that are there and hold."""
    present = listing.under(f"{where}/")
    wanted = []
    for period in periods:
        is_there = _name(where, period) in present
        wanted += (
            [period]
            if is_there or not period.is_day
            else [hour for hour in period.hours if _name(where, hour) in present]
        )
    near = _by_day(files)
    reads = [partial(_read, store, where, each) for each in wanted if _name(where, each) in present]
    told = together(reads, "summaries", most=SIDE_BY_SIDE)
    return {each.period: each for each in told if each is not None and each.holds(near.of(each))}


class _ByDay:
    """Files by the days that they touch, so that a summary is not compared with all of them."""

    def __init__(self, files: Sequence[File]) -> None:
        self._files: dict[int, list[File]] = {}
        self._long = [each for each in files if each.last_us - each.first_us > 3 * DAY]
        for each in files:
            if each.last_us - each.first_us <= 3 * DAY:
                for day in range(each.first_us // DAY, each.last_us // DAY + 1):
                    self._files.setdefault(day, []).append(each)

    def of(self, kept: Kept) -> list[File]:
        days = range(kept.back_us // DAY, (kept.period.to_us + AWAY_US) // DAY + 1)
        return [*{each.name: each for day in days for each in self._files.get(day, ())}.values(), *self._long]


def _by_day(files: Sequence[File]) -> _ByDay:
    return _ByDay(files)


def _name(where: str, period: Period) -> str:
    return f"{where}/{_label(period)}.parquet"


def _label(period: Period) -> str:
    return f"{moment(period.from_us):{'%Y%m%d' if period.is_day else '%Y%m%dT%H'}}"


def _read(store: Store, where: str, period: Period) -> Kept | None:
    """Read it, or give None where it cannot be read, so that a new one is made."""
    try:
        with store.opened(_name(where, period)) as file:
            table = pq.read_table(file)
        back_us, files = json.loads((table.schema.metadata or {})[NOTE])
        return Kept(period, table.replace_schema_metadata(None).select(SCHEMA.names).cast(SCHEMA), back_us, files)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError):
        return None


def keep(store: Store, where: str, kept: Kept) -> None:
    """Keep a summary, whole or not at all. Raises OSError."""
    told = kept.rows.replace_schema_metadata({NOTE: json.dumps([kept.back_us, kept.files]).encode()})
    store.write(_name(where, kept.period), lambda sink: pq.write_table(told, sink))


class Keeper:
    """Keeps the hours of a slice that are over, and those days of which it has every hour."""

    def __init__(self, told: Slice) -> None:
        self._told, self._calendar = told, Calendar(told.end_us)
        self._waiting: list[tuple[Period, pa.Table, int]] = []

    def take(self, hour: Period, rows: pa.Table, back_us: int) -> pa.Table:
        """The rows in the cells of their time. A summary is made once its hour, or its day, is whole."""
        told = self._told
        is_whole = told.from_us <= hour.from_us and hour.to_us <= told.to_us
        if told.keep is None or not is_whole or not self._calendar.is_over(hour):
            return rows
        day = self._calendar.day_of(hour.from_us)
        begin_us = max(day.from_us, told.begin_us - told.begin_us % HOUR)
        if self._calendar.is_over(day) and told.from_us <= begin_us and day.to_us <= told.to_us:
            self._waiting.append((hour, rows, min(back_us, hour.from_us)))
            if hour.to_us == day.to_us:
                self._keep(
                    day,
                    coarsened([each for _, each, _ in self._waiting], HOUR, OF_A_DAY.curve_us),
                    min(b for *_, b in self._waiting),
                )
                self._waiting = []
        else:
            self._keep(hour, rows, min(back_us, hour.from_us))
        return rows

    def _keep(self, period: Period, rows: pa.Table, back_us: int) -> None:
        told = self._told
        files = fingerprint(told.files, back_us, period.to_us + AWAY_US)
        assert told.keep is not None
        keep(Store.of(told.history), told.keep, Kept(period, rows, back_us, files))

    def close(self) -> None:
        """Hours of a day whose end the slice did not reach are kept one by one."""
        for hour, rows, back_us in self._waiting:
            self._keep(hour, rows, back_us)


def tidy(
    store: Store, listing: Listing, where: str, kept: dict[Period, Kept], calendar: Calendar, begin_us: int, now_ns: int
) -> None:
    """Make one summary of the hours of a day that is over, and remove what nobody needs: hours of such a day, days
    whose looks are gone, and folders that nobody has added to for a week. Raises OSError."""
    days: dict[Period, list[Kept]] = {}
    for hour, each in kept.items():
        if not hour.is_day and calendar.is_over(calendar.day_of(hour.from_us)):
            days.setdefault(calendar.day_of(hour.from_us), []).append(each)
    for day, hours in days.items():
        if len(hours) == sum(hour.to_us > begin_us for hour in day.hours):
            back_us = min(each.back_us for each in hours)
            rows = coarsened([each.rows for each in hours], HOUR, OF_A_DAY.curve_us)
            files = fingerprint(listing.files(where.rpartition("site=")[2]), back_us, day.to_us + AWAY_US)
            keep(store, where, Kept(day, rows, back_us, files))
            for each in hours:
                store.remove(_name(where, each.period))
    first = _label(Period(begin_us - begin_us % DAY, begin_us - begin_us % DAY + DAY))
    folders: dict[str, list[str]] = {}
    for name in listing.under("summary/"):
        top, _, file = name.rpartition("/")
        if top == where and file.partition(".")[0] < first:
            store.remove(name)
        elif top.count("/") == 2 and not top.startswith(where.rpartition("/")[0]):  # noqa: PLR2004 - summary/KEY/site=SITE
            folders.setdefault(top.rpartition("/")[0], []).append(name)
    for names in folders.values():
        if max(listing.under("summary/")[name].mtime_ns for name in names) < now_ns - UNUSED_NS:
            for name in names:
                store.remove(name)
