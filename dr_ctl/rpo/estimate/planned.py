"""Sources of an estimate: summaries of time that is over, and of the rest the files, with as much before it as the cut
needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate import notes, slices
from dr_ctl.rpo.estimate.facts import newest_first_of, serving, sites_of
from dr_ctl.rpo.estimate.periods import DAY, Calendar, Period
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.slices import File, Slice, Summarized
from dr_ctl.rpo.estimate.summaries import Folders, Kept, Settled
from dr_ctl.rpo.estimate.summary import coarsened
from dr_ctl.rpo.history.files import newest_first
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.series.cut import AWAY_US

NEAR: Final = 2
"""So many days before the time whose rows are read are listed; all of them where the cut lies further back."""


@dataclass(frozen=True, slots=True)
class Range:
    """A time whose rows are read."""

    from_us: int
    to_us: int

    def holds(self, period: Period) -> bool:
        return self.from_us <= period.from_us and period.to_us <= self.to_us


@dataclass(frozen=True, slots=True)
class Planned:
    """Site and time to read; `periods` of that time are over; `ranges` are read from `files`, the rest is in
    `settled` (None: the files hold all). `goes_back`: history has files before these."""

    site: str
    serving: str | None
    calendar: Calendar
    window: Range
    periods: tuple[Period, ...]
    ranges: tuple[Range, ...]
    files: tuple[File, ...]
    findings: tuple[Finding, ...] = ()
    settled: Settled | None = None
    goes_back: bool = False

    @classmethod
    def of_files(cls, paths: Sequence[str], asked: Request) -> Self | Finding:
        """Read all that these files hold of the window."""
        serves = serving(newest_first_of(paths), asked)
        site, sites = asked.site or serves, sites_of(paths)
        if site is None or site not in sites:
            return notes.nothing_of(site, set(sites))
        files = slices.files_of(sites[site])
        if not files:
            return notes.nothing_of(site, set(sites))
        first, last = min(file.first_us for file in files), max(file.last_us for file in files)
        calendar, window = _window(first, last, asked)
        return cls(site, serves, calendar, window, (), (window,), files)

    @classmethod
    def of_history(cls, asked: Request, back_days: int | None = NEAR) -> Self | Finding:
        """Read what no summary tells. `back_days` is None for all."""
        sites = sorted({path.name.removeprefix("site=") for path in asked.history.glob("date=*/site=*")})
        newest: dict[str, Callable[[], Iterable[str]]] = {site: partial(_newest, asked, site) for site in sites}
        serves = serving(newest, asked)
        site = asked.site or serves
        if site is None or site not in sites:
            return notes.nothing_of(site, set(sites))
        folders = Folders(asked.history, site)
        last_us = _last_us(folders)
        if last_us is None:
            return notes.nothing_of(site, set(sites))
        calendar, window = _window(min(folders.days), last_us, asked)
        settled = Settled(asked, folders, site)
        periods = calendar.periods(window.from_us, window.to_us)
        settled.take(periods)
        ranges = _unread(settled, periods, window)
        listed = [each for told in ranges for each in folders.of(
            0 if back_days is None else told.from_us - back_days * DAY, told.to_us + AWAY_US)]  # fmt: skip
        known = [folders.known(name) for folder in dict.fromkeys(listed) for name in folders.files(folder)]
        files = tuple(each for each in known if isinstance(each, File))
        left_out = {each.text: each for each in (*settled.left_out, *known) if isinstance(each, Finding)}
        goes_back = bool(files) and len(dict.fromkeys(listed)) < len(folders.days)
        return cls(site, serves, calendar, window, tuple(periods), tuple(ranges), files, tuple(left_out.values()), settled, goes_back)  # fmt: skip  # noqa: E501

    def slices(self, asked: Request, cores: int, edge_us: int) -> list[Slice]:
        """The ranges cut into slices."""
        classes = () if asked.objectives is None else tuple(each.queues for each in asked.objectives.classes)
        begin, end = self.calendar.begin_us, self.calendar.end_us
        told = Slice(0, 0, begin, end, (), asked.include, asked.exclude, classes, goes_back=self.goes_back)
        found = []
        for each in self.ranges:
            whole = replace(told, from_us=each.from_us, to_us=each.to_us, files=self.files)
            found += slices.plan(whole, cores, edge_us=edge_us)
        return found

    def whole(self, read: Sequence[Summarized], *, keep: bool) -> list[pa.Table]:
        """Put what is kept and what was read together; with `keep`, summaries that were not there are from now on."""
        rows = pa.concat_tables([each.rows for each in read])
        if self.settled is None:
            return [rows]
        back_us = {hour: us for each in read for hour, us in each.back_us.items()}
        found = [rows]
        for period in self.periods:
            parts = list(_kept(self.settled, period, self.window))
            tables, is_there = [each.rows for each in parts], self.settled.kept(period) is not None
            found += tables if is_there else [coarsened(tables, period.fineness)] if tables else []
            if keep and not is_there and self.window.holds(period):
                whole = [*tables, _between(rows, period.from_us, period.to_us)]
                back = [us for hour, us in back_us.items() if period.from_us <= hour < period.to_us]
                first_us = min([period.from_us, *back, *(each.note.back_us for each in parts)])
                self.settled.keep(period, coarsened(whole, period.fineness), first_us)
        if keep:
            self.settled.forget(self.calendar.begin_us)
        return found


def _window(first_us: int, last_us: int, asked: Request) -> tuple[Calendar, Range]:
    begin = max(first_us, first_us if asked.since is None else micros(asked.since))
    end = min(last_us, last_us if asked.until is None else micros(asked.until)) + 1
    return Calendar.of(first_us, end), Range(begin, end)


def _newest(asked: Request, site: str) -> Iterable[str]:
    return (str(path) for path in newest_first(asked.history, site) if _before(path, asked))


def _before(path: Path, asked: Request) -> bool:
    return asked.until is None or path.parent.parent.name <= f"date={asked.until:%Y-%m-%d}"


def _last_us(folders: Folders) -> int | None:
    """The last look of a history: in the newest day that has one."""
    for folder in reversed(folders.days.values()):
        known = [folders.known(name) for name in folders.files(folder)]
        if found := [each.last_us for each in known if isinstance(each, File)]:
            return max(found)
    return None


def _kept(settled: Settled, period: Period, window: Range) -> Iterator[Kept]:
    kept = settled.kept(period) if window.holds(period) else None
    if kept is not None:
        yield kept
    else:
        for part in period.parts:
            yield from _kept(settled, part, window)


def _unread(settled: Settled, periods: Sequence[Period], window: Range) -> list[Range]:
    """The time that no summary tells, each as long as it goes."""
    found: list[Range] = []

    def add(from_us: int, to_us: int) -> None:
        if found and found[-1].to_us == from_us:
            from_us = found.pop().from_us
        found.append(Range(from_us, to_us))

    def walk(period: Period) -> None:
        from_us, to_us = max(period.from_us, window.from_us), min(period.to_us, window.to_us)
        if from_us >= to_us or (window.holds(period) and settled.kept(period) is not None):
            return
        if period.parts:
            for part in period.parts:
                walk(part)
        else:
            add(from_us, to_us)

    for period in periods:
        walk(period)
    add(periods[-1].to_us if periods else window.from_us, window.to_us)
    return found


def _between(rows: pa.Table, from_us: int, to_us: int) -> pa.Table:
    return rows.filter((pc.field("cell") >= from_us) & (pc.field("cell") < to_us))
