"""Sources of an estimate: summaries of time that is over, and of the rest the looks, cut into slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.core.calendar import HOUR, SECOND, Calendar, Period
from dr_ctl.rpo.estimate import kept, notes
from dr_ctl.rpo.estimate.kept import Kept
from dr_ctl.rpo.estimate.listing import File, Listing
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.slices import NEAR_US, Slice
from dr_ctl.rpo.findings import NO_HISTORY
from dr_ctl.rpo.history.files import site_rows
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.history.store import Store

ROWS_OF_A_SLICE: Final = 1_000_000
PARTS: Final = 24 * 8
"""A test of the past is told in so many cells."""
AHEAD_US: Final = 3600 * SECOND
"""A look this far in the future of the clock is one whose own clock was wrong, where others are not."""


@dataclass(slots=True)
class Plan:
    """A site, the time that is asked for, what summaries tell of it, and slices that read the rest. `ahead`: files with
    looks from far in the future of the clock, which are left out."""

    store: Store
    listing: Listing
    site: str
    serving: str | None
    files: tuple[File, ...]
    from_us: int
    to_us: int
    calendar: Calendar
    where: str
    kept: dict[Period, Kept]
    slices: list[Slice]
    ahead: list[File] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Request, now_us: int) -> Plan | Finding:
        """Plan what is asked, or say why there is nothing to do."""
        store = Store.of(asked.history)
        listing = Listing(store)
        if not listing.sites:
            text = f"there is no history to estimate from in {asked.history}"
            remedy = "Run `dr-ctl monitor` for a while, then ask again; until then the loss is not known."
            return NO_HISTORY(text, remedy)
        serving = serving_site(store, listing, asked, now_us)
        site = asked.site or serving
        files = listing.files(site) if site in listing.sites else ()
        read = [each for each in files if each.is_read]
        if site is None or not read:
            return notes.nothing_of(site, set(listing.sites))
        begin = min(each.first_us for each in read)
        limit_us = now_us + AHEAD_US if begin <= now_us + AHEAD_US else max(each.last_us for each in read)
        last = max(_last_us(store, each, limit_us) for each in read if each.first_us <= limit_us)
        until = last if asked.until is None else min(last, micros(asked.until))
        first = begin - begin % HOUR
        since = first if asked.since is None else max(first, micros(asked.since))
        calendar = Calendar(until + 1)
        classes = () if asked.objectives is None else tuple(each.queues for each in asked.objectives.classes)
        where = kept.folder([asked.include, asked.exclude, classes], site)
        is_usual = asked.settled and not asked.tested
        periods = [each for each in calendar.periods(since, until + 1) if since <= max(each.from_us, first)]
        there = kept.taken(store, listing, where, periods, files) if is_usual else {}
        is_kept = asked.store and not asked.tested
        orders = Slice(
            history=asked.history,
            from_us=0,
            to_us=0,
            begin_us=begin,
            end_us=until + 1,
            include=asked.include,
            exclude=asked.exclude,
            classes=classes,
            horizons_us=tuple(int(each * SECOND) for each in asked.horizons_s),
            cell_us=max(SECOND, (until + 1 - max(since, begin)) // PARTS) if asked.tested else 0,
            keep=where if is_kept else None,
            version=kept.version(),
        )
        found = cls(store, listing, site, serving, files, since, until + 1, calendar, where, there, [])
        found.slices = list(found._cut(orders))
        found.ahead = [each for each in read if each.last_us > limit_us]
        return found

    @property
    def rows(self) -> int:
        """About how many rows the slices read."""
        return sum(
            file.rows
            for file in {each.name: each for told in self.slices for each in told.files}.values()
            if file.is_read
        )

    @property
    def findings(self) -> list[Finding]:
        """Files that are left out."""
        return [each.finding() for each in self.files if each.why and each.touches(self.from_us, self.to_us)]

    def further(self, told: Slice, hour_us: int, reaches_us: int) -> Slice:
        """What is left of a slice from an hour on, with files from further back."""
        return replace(told, from_us=max(told.from_us, hour_us)).with_files(self.files, reaches_us)

    def _cut(self, orders: Slice) -> Iterator[Slice]:
        """Slices of about as many rows, of whole hours, of what no summary tells."""
        hours = np.arange(self.from_us - self.from_us % HOUR, self.to_us, HOUR)
        settled = np.zeros(len(hours), bool)
        for period in self.kept:
            settled[(hours >= period.from_us) & (hours < period.to_us)] = True
        weight = np.zeros(len(hours))
        for file in self.files:
            if file.is_read and file.touches(self.from_us, self.to_us):
                at = slice(*np.searchsorted(hours, [file.first_us - HOUR + 1, file.last_us + 1]))
                weight[at] += file.rows / max(1, at.stop - at.start)
        begin, held = None, 0.0
        for hour, is_settled, rows in zip(hours.tolist(), settled.tolist(), weight.tolist(), strict=True):
            if begin is not None and (is_settled or held + rows > ROWS_OF_A_SLICE):
                yield self._slice(orders, begin, hour)
                begin = None
            if not is_settled:
                begin, held = (hour, rows) if begin is None else (begin, held + rows)
        if begin is not None:
            yield self._slice(orders, begin, self.to_us)

    def _slice(self, orders: Slice, from_us: int, to_us: int) -> Slice:
        whole = replace(orders, from_us=max(from_us, self.from_us), to_us=min(to_us, self.to_us))
        return whole.with_files(self.files, from_us - NEAR_US)


def _last_us(store: Store, file: File, limit_us: int) -> int:
    """The last look of a file that is not after the limit."""
    if file.last_us <= limit_us:
        return file.last_us
    with store.opened(file.name) as opened:
        moments = pq.read_table(opened, columns=["ts"])["ts"].cast(pa.int64())
    return int(pc.max(moments.filter(pc.less_equal(moments, limit_us))).as_py())


def serving_site(store: Store, listing: Listing, asked: Request, now_us: int) -> str | None:
    """Pick the site whose newest role is serving; failing that, the one seen serving last."""
    until_us = now_us + AHEAD_US if asked.until is None else micros(asked.until)
    if asked.until is None and not any(
        True for site in listing.sites for _ in listing.newest_first(site, until_us=until_us)
    ):
        until_us = 1 << 62  # all of it lies in the future
    newest = {site: next(_roles(store, listing, site, asked, until_us), None) for site in listing.sites}
    serve = {site: told[0] for site, told in newest.items() if told is not None and told[1] == Role.SERVING.value}
    if not serve:
        served = {
            site: next(
                (us for us, role in _roles(store, listing, site, asked, until_us) if role == Role.SERVING.value), None
            )
            for site in listing.sites
        }
        serve = {site: us for site, us in served.items() if us is not None}
    return max(serve, key=lambda site: serve[site], default=None)


def _roles(store: Store, listing: Listing, site: str, asked: Request, until_us: int) -> Iterator[tuple[int, str]]:
    """When a site was last seen in each of its roles, a file at a time, backwards."""
    since_us = 0 if asked.since is None else micros(asked.since)
    for file in listing.newest_first(site, until_us=until_us):
        try:
            with store.parquet(file.name) as told:
                rows = site_rows(told)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError):
            store.must_answer(file.name)
            continue  # whoever reads the rest of it names it
        moments, roles = rows["ts"].cast(pa.int64()).to_pylist(), rows["name"].to_pylist()
        last = {role: us for us, role in sorted(zip(moments, roles, strict=True)) if since_us <= us <= until_us}
        yield from sorted(((us, role) for role, us in last.items()), reverse=True)
