"""Reads the history without Spark, which would be too slow here: the newest readings of one site, for `bounds`; the
last time of a role or an attached link; nodes that the settings do not name; the periods of each role, and the readings
of a window of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.core.arrays import SECOND_US, Flags, Ints
from dr_ctl.rpo.core.starts import first_texts
from dr_ctl.rpo.history.files import (
    MAX_FILES,
    SCHEMA,
    WRITTEN,
    Source,
    Sources,
    begun,
    folder_of,
    kept,
    name_of,
    read,
    rows_of,
)
from dr_ctl.rpo.history.row import Row, Takeover, micros, moment
from dr_ctl.settings.model import HistoryLocation


def gaps(us: Ints) -> Flags:
    """Flag each time from a reading to the next that is a gap, by the usual one."""
    return np.diff(us) > longest_us(us)


def longest_us(us: Ints) -> int:
    """The longest time between two readings that is no gap: four times the usual one, and no less than a second."""
    return max(SECOND_US, 4 * usual_us(us))


def usual_us(us: Ints) -> int:
    return int(np.median(np.diff(us))) if len(us) > 1 else 0


def with_wrong_time(outflows: pa.Table, downs: Ints) -> Mapping[str, Ints]:
    """Return, by pair, the times of readings of outflows whose time stamp is too late. `downs` has the times at which
    the site was seen down, in order: the counters of a process end with it.

    Counters of one start of a broker only grow, so a reading with a lower counter than an earlier one was made before
    that one: its clock was ahead. A counter that somebody reset stays low, and no later reading reaches the old value:
    counting starts again at that reading."""
    bad: dict[str, list[Ints]] = {}
    rows = outflows.filter(pc.is_valid(outflows["added"])).sort_by("ts")
    runs = rows.group_by(["pair", "kind", "name", "start"], use_threads=False).aggregate(
        [("ts", "list"), ("added", "list")]
    )
    for name, *lists in zip(*(runs[column] for column in ("pair", "ts_list", "added_list")), strict=True):
        pair, (us, added) = name.as_py(), (column.values.cast(pa.int64()).to_numpy() for column in lists)
        most = np.maximum.accumulate(added)
        low = added < most
        if not low.any():
            continue
        again = np.maximum.accumulate(added[::-1])[::-1] >= most
        holder = np.maximum.accumulate(np.where(low, 0, np.arange(len(us))))
        ended = np.searchsorted(downs, us) > np.searchsorted(downs, us[holder])
        bad.setdefault(pair, []).append(us[low & (again | ended)])
    return {pair: np.unique(np.concatenate(moments)) for pair, moments in bad.items()}


def _with_equal_start_ids(rows: pa.Table) -> pa.Table:
    starts = pc.dictionary_encode(rows["start"].combine_chunks())
    words = starts.dictionary.to_pylist()
    firsts = first_texts(words)
    if all(text == first for text, first in firsts.items()):
        return rows
    first_words = pa.array([firsts[word] for word in words])
    texts = pa.DictionaryArray.from_arrays(starts.indices, first_words).dictionary_decode()
    return rows.set_column(rows.schema.get_field_index("start"), "start", texts)


OUTFLOWS: Final = ("mirror", "acks", "mixed")
_SMALL_KINDS: Final = ~pc.field("kind").isin(["queue", "staged", "uncopied"])
"""An hour of readings of ten thousand queues has millions of rows, and few of these kinds."""
WINDOW_US: Final = 600 * SECOND_US
"""So much time without gaps, before the last reading of an outflow, is read for its rate."""
OTHERS_WITHIN_US: Final = 3600 * SECOND_US
"""Readings of other pairs are searched for in so much time before the newest reading of any outflow."""
NOW_US: Final = 1 << 62
"""Later than any reading."""
COMPARED_US: Final = 60 * SECOND_US
"""So much time before the last reading that both sites answered is read for comparing them."""
_MIN_READINGS: Final = 3
"""At least so many readings are read, so that there is an interval between two of them."""
_NONE: Final = np.zeros(0, np.int64)
NO_ROWS: Final = SCHEMA.append(pa.field("us", pa.int64())).empty_table()
_SMALL_COLUMNS: Final = ("ts", "pair", "kind", "name", "added", "start")


@dataclass(slots=True)
class Recent:
    """The last minutes of a site. `pairs` are those of the settings, else those that the readings name. `table` has the
    rows; `spans` has by pair the period in which they count, in microseconds. `roles` has the moments of the readings
    that saw the site in a role, in order. `later` counts readings that are stamped later than now. `compared` has by
    pair the minute before the last reading that both sites answered, with the other one's rows of that time
    (`peer_rows`)."""

    pairs: set[str] = field(default_factory=set)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    table: pa.Table = field(default_factory=lambda: NO_ROWS)
    roles: Mapping[str, Ints] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    later: int = 0
    is_empty: bool = False
    peer_rows: pa.Table | None = None
    compared: Mapping[str, Recent] = field(default_factory=dict)

    def saw(self, role: Role) -> Ints:
        return self.roles.get(role.value, _NONE)


def recent(
    history: HistoryLocation, site: str, pairs: Sequence[str] = (), *, until_us: int = NOW_US, other: str | None = None
) -> Recent:
    """Read backwards until every pair's outflow has been seen with some minutes before it, or the history is over.

    `pairs` are those that the settings name; without them, those that the newest readings name. Readings after
    `until_us` are passed over, and counted. `other` is the site whose content is read beside. A reading that a command
    has made and kept since is the last one."""
    rows, findings = read(history, lambda files: _Reading(files, site, frozenset(pairs), until_us, other).recent())
    if rows.is_empty and not rows.findings and not findings:  # an unread history is not an empty one
        findings.append(found("DR-RPO-001.of_site", site=site, place=history.shown))
    return replace(rows, findings=[*findings, *rows.findings])


def last_message(recorded: Recent) -> datetime | None:
    """Return the last reading that saw a message come in or be consumed, or None if no reading saw one."""
    moved_us = [0]
    if recorded.table.num_rows:
        rows = recorded.table.filter(pc.equal(recorded.table["kind"], "queue")).sort_by("ts")
        queues = rows.group_by(["pair", "name", "start"], use_threads=False).aggregate(
            [("ts", "list"), ("added", "list"), ("acked", "list")]
        )
        for us, *counters in zip(*(queues[f"{column}_list"] for column in ("ts", "added", "acked")), strict=True):
            later = us.values.cast(pa.int64()).to_numpy()[1:]
            for counts in counters:
                grown = np.diff(counts.values.cast(pa.float64()).to_numpy(zero_copy_only=False)) > 0
                grown &= np.diff(us.values.cast(pa.int64()).to_numpy()) <= WINDOW_US
                moved_us += [int(later[grown][-1])] if grown.any() else []
    return moment(max(moved_us)) if max(moved_us) else None


class _Reading:
    """A pass over the files: it reads roles and outflows alone as far back as it takes, then all of the last
    minutes."""

    def __init__(self, files: Sources, site: str, pairs: frozenset[str], until_us: int, other: str | None) -> None:
        self._files, self._site, self._pairs, self._until_us, self._other = files, site, pairs, until_us, other
        self._kept = {of: kept(files.near, of) for of in (site, other) if of is not None}
        self._sources: list[Source] = []
        self._roles: dict[str, list[Ints]] = defaultdict(list)
        self._named: set[str] = set()
        self._outflows: list[pa.Table] = []
        self._later: set[int] = set()
        self._findings: list[Finding] = []

    def recent(self) -> Recent:
        self._read_backwards()
        spans, bad = self._spans()
        spans = self._continued(spans)
        roles = {role: np.setdiff1d(np.concatenate(moments), bad) for role, moments in self._roles.items()}
        pairs = set(self._pairs or self._named)
        ends = [end for span in spans.values() for end in span]
        table = self._rows(self._site, self._sources, min(ends), max(ends), bad) if ends else NO_ROWS
        counts = len(self._later), not self._sources
        return Recent(pairs, spans, table, roles, self._findings, *counts, compared=self._compared(spans, bad))

    def _read_backwards(self) -> None:
        for tail in self._files.tails(self._site):
            self._take(tail)
        oldest_us = None
        for source in self._files.newest_first(self._site):
            begin_us = _begin_us(source)
            if begin_us is not None:
                if oldest_us is not None and self._is_enough(oldest_us):
                    return
                if begin_us <= self._until_us:
                    oldest_us = begin_us
            self._take(source)

    def _take(self, source: Source) -> None:
        few = rows_of([source], self._findings, _SMALL_COLUMNS, _SMALL_KINDS)
        is_late = pc.greater(few["ts"].cast(pa.int64()), self._until_us)
        self._later |= set(pc.unique(few.filter(is_late)["ts"].cast(pa.int64())).to_pylist())
        few = few.filter(pc.invert(is_late))
        of_site = few.filter(pc.equal(few["kind"], "site"))
        for role in pc.unique(of_site["name"]).to_pylist():
            moments = of_site.filter(pc.equal(of_site["name"], role))["ts"]
            self._roles[role].append(np.unique(moments.cast(pa.int64()).to_numpy()))
        self._named |= set(pc.unique(few["pair"].drop_null()).to_pylist())
        of_outflows = few.filter(pc.is_in(few["kind"], pa.array(OUTFLOWS)))
        self._outflows += [of_outflows] if of_outflows.num_rows else []
        self._sources.append(source)

    def _spans(self) -> tuple[dict[str, tuple[int, int]], Ints]:
        """Return by pair from when to when its readings count, and the moments of readings that were made earlier than
        they say."""
        if not self._outflows:
            return {}, _NONE
        outflows = _with_equal_start_ids(pa.concat_tables(self._outflows))
        downs = np.unique(np.concatenate([_NONE, *self._roles.get(Role.DOWN.value, ())]))
        bad = with_wrong_time(outflows, downs)
        spans = {}
        for pair in pc.unique(outflows["pair"]).to_pylist():
            us = np.unique(outflows.filter(pc.equal(outflows["pair"], pair))["ts"].cast(pa.int64()).to_numpy())
            us = np.setdiff1d(us, bad.get(pair, _NONE))
            if len(us) and (not self._pairs or pair in self._pairs):
                spans[pair] = _begin_of_window(us), int(us[-1])
        return spans, np.unique(np.concatenate([_NONE, *bad.values()]))

    def _is_enough(self, oldest_us: int) -> bool:
        """Whether files that begin earlier have nothing more to tell."""
        spans, _ = self._spans()
        if not spans:
            return False
        if oldest_us < max(last for _, last in spans.values()) - OTHERS_WITHIN_US:
            return True
        return (self._pairs or self._named) <= spans.keys() and all(oldest_us <= begin for begin, _ in spans.values())

    def _continued(self, spans: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Continue recorded readings by the kept one, unless a later one is recorded: the counts of readings that
        overlap may be in any order."""
        rows = self._kept[self._site]
        at, last_us = rows.filter(pc.equal(rows["kind"], "site")), max((last for _, last in spans.values()), default=0)
        us = at["ts"].cast(pa.int64()).to_pylist()
        if not us or not last_us < us[0] - at["took_ms"][0].as_py() * 1000 <= self._until_us:
            self._kept = {}
            return spans
        self._roles[at["name"][0].as_py()].append(np.array(us[:1]))
        read = set(rows.filter(pc.is_in(rows["kind"], pa.array(OUTFLOWS)))["pair"].to_pylist())
        return {pair: (begin, us[0] if pair in read else end) for pair, (begin, end) in spans.items()}

    def _rows(self, site: str, sources: Iterable[Source], begin: int, end: int, bad: Ints) -> pa.Table:
        """Return the rows of that time, without readings that have a wrong time."""
        within = (pc.field("ts") >= moment(begin)) & (pc.field("ts") <= moment(min(end, self._until_us)))
        last = self._kept.get(site, SCHEMA.empty_table()).filter(within)
        table = _with_equal_start_ids(pa.concat_tables([rows_of(sources, self._findings, where=within), last]))
        us = table["ts"].cast(pa.int64())
        return table.append_column("us", us).filter(pc.invert(pc.is_in(us, pa.array(bad))))

    def _compared(self, spans: Mapping[str, tuple[int, int]], bad: Ints) -> Mapping[str, Recent]:
        """Return by pair what both sites held when both answered last."""
        if self._other is None:
            return {}
        compared = {}
        for pair, (_, last) in spans.items():
            is_answer = (pc.field("kind") == "site") & pc.field("start").is_valid() & (pc.field("pair") == pair)
            is_answer &= pc.field("ts") <= moment(last)
            last_rows = self._kept.get(self._other, SCHEMA.empty_table()).filter(is_answer)
            answered = pc.max(last_rows["ts"]).as_py() or _last(self._files, self._other, is_answer)
            if answered is None:
                continue
            end = micros(answered)
            begin = end - COMPARED_US
            both = ((site, self._near(site, begin, end)) for site in (self._site, self._other))
            own, peer_rows = (self._rows(*sources, begin, end, bad) for sources in both)
            compared[pair] = Recent({pair}, {pair: (begin, end)}, own, peer_rows=peer_rows)
        return compared

    def _near(self, site: str, begin: int, end: int) -> Iterator[Source]:
        yield from self._files.tails(site)
        for source in self._files.newest_first(site):
            begin_us = _begin_us(source)
            if begin_us is None or begin_us <= end:
                yield source
            if begin_us is not None and begin_us <= begin:
                return


def _begin_of_window(us: Ints) -> int:
    """Return the time of the first reading that counts: some minutes back, not counting gaps, and at most an hour."""
    last, apart, is_gap = int(us[-1]), np.diff(us), gaps(us)
    passed, missed = (np.where(of, apart, 0)[::-1].cumsum() for of in (~is_gap, is_gap))
    before = int(np.searchsorted(passed, WINDOW_US))
    longer_us = int(missed[: before + 1][-1]) if len(missed) else 0
    return min(max(last - WINDOW_US - longer_us, last - OTHERS_WITHIN_US), int(us[-_MIN_READINGS:][0]))


def _begin_us(source: Source) -> int | None:
    begin = begun(source.base)
    return None if begin is None else micros(begin)


def last_reading(
    history: HistoryLocation, sites: Iterable[str], *, role: Role | None = None, link_of: str | None = None
) -> tuple[datetime | None, list[Finding]]:
    """Return the last reading of any of these sites; with `role` one that saw a site in that role, with `link_of` one
    that saw the link of that pair connected. It is None if the newest files hold none; the finding says that a store
    did not answer, which may have later ones."""
    matches = None
    if role is not None:
        matches = (pc.field("kind") == "site") & (pc.field("name") == role.value)
    elif link_of is not None:
        matches = (pc.field("pair") == link_of) & pc.field("link")
    last, findings = read(history, lambda files: [_last(files, site, matches) for site in sites])
    return max((at for at in last if at is not None), default=None), findings


def _last(files: Sources, site: str, matches: pc.Expression | None) -> datetime | None:
    rows = next(_newest(files, site, ("ts",), matches), None)
    return None if rows is None else pc.max(rows["ts"]).as_py()


def nodes(history: HistoryLocation, site: str) -> Sequence[tuple[str, str, datetime]]:
    """Return the nodes of a site's brokers that the settings do not name: pair, name and latest time of each that the
    last whole reading of its broker showed, or a later one. A node that this reading did not show has gone."""

    def listed(files: Sources) -> Sequence[tuple[str, str, datetime]]:
        tables = []
        for rows in _newest(files, site, ("ts", "pair", "kind", "name")):
            tables.append(rows)
            if pc.any(pc.equal(rows["kind"], "queue")).as_py():
                break  # earlier files have earlier readings
        latest, read_at = (_latest(tables, kind, *by) for kind, *by in (("node", "name"), ("queue",)))
        return [(pair, name, at) for (pair, name), at in latest.items() if at >= read_at.get((pair,), at)]

    return read(history, listed)[0]


def _latest(tables: Sequence[pa.Table], kind: str, *by: str) -> dict[tuple[str, ...], datetime]:
    """Return the latest moment of the rows of a kind, by pair and these columns."""
    keys, rows = ["pair", *by], pa.concat_tables([NO_ROWS, *tables], promote_options="default")
    of_kind = rows.filter(pc.field("kind") == kind).group_by(keys, use_threads=False).aggregate([("ts", "max")])
    return {tuple(str(row[key]) for key in keys): row["ts_max"] for row in of_kind.to_pylist()}


def _newest(
    files: Sources, site: str, columns: tuple[str, ...], matches: pc.Expression | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a site that match, the newest first: by file, and as many files as this looks back. A torn file
    tells nothing here; the estimate names such files."""
    for source in chain(files.tails(site), islice(files.newest_first(site), MAX_FILES)):
        if (rows := rows_of([source], [], columns, matches)).num_rows:
            yield rows


_WITHIN_S: Final = 60.0
"""A store elsewhere may take so long for a month of files."""


@dataclass(frozen=True, slots=True)
class RolePeriod:
    """Readings one after the other that saw a site in one role: the first of them and the last."""

    site: str
    role: str
    first: datetime
    last: datetime


def role_periods(
    history: HistoryLocation, sites: Sequence[str], since: datetime | None = None
) -> tuple[list[RolePeriod], list[Finding]]:
    """The periods of each site, in the order of their first readings; findings name what could not be read. `since`
    leaves out earlier readings."""
    is_role = pc.field("kind") == "site"
    if since is not None:
        is_role &= pc.field("ts") >= moment(micros(since))

    def of_site(files: Sources, site: str, findings: list[Finding]) -> Iterator[RolePeriod]:
        # The last minute's readings may stand in a file already; reading them twice changes no period.
        sources = chain(files.newest_first(site, since), files.tails(site))
        readings = rows_of(sources, findings, ["ts", "name"], is_role).sort_by("ts")
        runs, us = pc.run_end_encode(readings["name"].combine_chunks()), readings["ts"].cast(pa.int64()).to_pylist()
        ends = runs.run_ends.to_pylist()
        for role, begin, end in zip(runs.values.to_pylist(), [0, *ends][:-1], ends, strict=True):
            yield RolePeriod(site, role, moment(us[begin]), moment(us[end - 1]))

    def listed(files: Sources) -> tuple[list[RolePeriod], list[Finding]]:
        findings: list[Finding] = []
        return [period for site in sites for period in of_site(files, site, findings)], findings

    (listed_periods, findings), silent = read(history, listed, within_s=_WITHIN_S)
    return sorted(listed_periods, key=lambda period: period.first), [*silent, *findings]


def only_begun(history: HistoryLocation) -> Finding | None:
    """Report a monitor that began so lately that none of its samples stands in a file for estimates."""
    sites = {tail.parent.name.partition("=")[2] for tail in history.near.glob("date=*/site=*/_tail-*")}
    periods = role_periods(history, [*sites])[0] if sites else []
    if not periods:
        return None
    took = max(period.last for period in periods) - periods[0].first
    return found("DR-RPO-001.begun", seconds=f"{took.total_seconds():.0f}")


def takeovers(history: HistoryLocation, sites: Sequence[str], since: datetime) -> list[Takeover]:
    """Return the takeovers of brokers with several nodes, by time."""
    of_group = (pc.field("kind") == "site") & pc.match_substring(pc.field("start"), "/")
    where = of_group & (pc.field("ts") >= moment(micros(since)))

    def of_files(files: Sources) -> list[Takeover]:
        sources = {site: chain(files.newest_first(site, since), files.tails(site)) for site in sites}
        tables = {site: rows_of(sources[site], [], ["ts", "pair", "start"], where) for site in sites}
        return [takeover for site in sites for takeover in _takeovers(site, tables[site])]

    return sorted(read(history, of_files, within_s=_WITHIN_S)[0], key=lambda takeover: takeover.first)


def _takeovers(site: str, readings: pa.Table) -> Iterator[Takeover]:
    rows = readings.sort_by([("pair", "ascending"), ("ts", "ascending")])
    starts = rows["start"].combine_chunks().dictionary_encode().indices.to_numpy()
    for index in np.flatnonzero(np.diff(starts)) if len(starts) else ():
        both = rows.slice(int(index), 2).to_pylist()
        before, now = (Row(site=site, kind="site", name="", **row) for row in both)
        if before.pair == now.pair and (seen := Takeover.between(before, now)) is not None:
            yield seen


def excerpt(
    history: HistoryLocation, sites: Sequence[str], since: datetime, until: datetime
) -> tuple[dict[str, bytes], list[Finding]]:
    """Return files by their names below a root of their own, one a site; findings name what could not be read."""
    within = (pc.field("ts") >= moment(micros(since))) & (pc.field("ts") <= moment(micros(until)))

    def packed(files: Sources) -> tuple[dict[str, bytes], list[Finding]]:
        findings: list[Finding] = []
        written = {}
        for site in sites:
            rows = rows_of(files.newest_first(site, since, until), findings, where=within).sort_by("ts")
            newest = pc.max(rows["ts"]).as_py()
            # The next file will hold only some of the readings of a tail.
            later = within if newest is None else within & (pc.field("ts") > newest)
            rows = pa.concat_tables([rows, rows_of(files.tails(site), findings, where=later)])
            if rows.num_rows:
                first = pc.min(rows["ts"]).as_py()
                buffer = pa.BufferOutputStream()
                pq.write_table(rows, buffer, **WRITTEN)
                name = folder_of((first.date(), site), Path()) / name_of(first)
                written[name.as_posix()] = bytes(buffer.getvalue().to_pybytes())
        return written, findings

    (written, findings), silent = read(history, packed, within_s=_WITHIN_S)
    return written, [*silent, *findings]
