"""The files of a history; the hours, a table that Spark reads and writes; and the ledger of the files that the hours
were made from.

The ledger shows which hours are to be summed up again: those of files that are new, changed or removed. Each run
appends to the hours, and the newest run counts. One file holds all rows of an hour of a run, so that an interrupted or
repeated write changes nothing. The ledger is written atomically, after the hours."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import broadcast

from dr_ctl.core.document import HIDDEN, document, read
from dr_ctl.core.model import Role, by_key
from dr_ctl.core.system import in_parallel
from dr_ctl.rpo.core.arrays import DAY_US, HOUR_US
from dr_ctl.rpo.core.cut import LONGEST_GAP_US
from dr_ctl.rpo.core.rows import REACH
from dr_ctl.rpo.history.files import NAMED, Source, Store, day_us
from dr_ctl.rpo.history.row import micros, moment
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.sql import HOURS, ddl

SERVING: Final = Role.SERVING.value
NEVER: Final = micros(datetime.max.replace(tzinfo=UTC))
READERS: Final = 16
"""So many footers are read at the same time, because a remote store takes time for each."""
AHEAD_US: Final = HOUR_US
"""A reading stamped later than now by more than this had a wrong clock, unless all readings are."""


class History:
    def __init__(self, where: str) -> None:
        self.sites: dict[str, dict[str, fs.FileInfo]] = {}
        self.store = Store.of(where)
        for name, info in self.store.listed().items():
            if own := NAMED.fullmatch(name):
                self.sites.setdefault(own["site"], {})[name] = info

    def serving(self, since_us: int, until_us: int | None, now_us: int) -> str | None:
        """Return the site whose newest role is serving; failing that, the one seen serving last. Roles stamped far in
        the future count only if no end is named and there are no others."""
        ends_us = [now_us + AHEAD_US, NEVER] if until_us is None else [until_us]
        for end_us in ends_us:
            newest = {site: self._role(site, since_us, end_us) for site in self.sites}
            serving = {site: us for site, (us, role) in newest.items() if role == SERVING}
            served = serving or {site: self._role(site, since_us, end_us, SERVING)[0] for site in newest}
            if any(us >= 0 for us, _ in newest.values()):
                return max((site for site in served if served[site] >= 0), key=served.__getitem__, default=None)
        return None

    def _role(self, site: str, since_us: int, until_us: int, role: str | None = None) -> tuple[int, str]:
        """Return the moment and the role of a site's last reading, or of its last one in `role`. The newest days are
        read first."""
        which = (pc.field("ts") >= moment(since_us)) & (pc.field("ts") <= moment(until_us))
        which &= (pc.field("kind") == "site") & (pc.scalar(True) if role is None else pc.field("name") == role)
        first, last = (f"date={moment(us):%Y-%m-%d}" for us in (since_us, until_us))
        days = {day: [*files] for day, files in groupby(self.sites[site], lambda name: name.partition("/")[0])}
        for day in sorted((day for day in days if first <= day <= last), reverse=True):
            asked = [partial(Source(self.store, name).read, ("ts", "name"), which) for name in days[day]]
            rows = pa.concat_tables([rows for rows, _ in in_parallel(asked, "roles", most=READERS)])
            if rows.num_rows:
                last = rows.filter(pc.field("ts") == pc.max(rows["ts"]))
                return micros(last["ts"][0].as_py()), max(last["name"].to_pylist())
        return -1, ""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a site, and the time of its readings. `why` is the reason if it is left out; it may then hold any
    reading of its day. With `is_new` the ledger lacks it, or has another state of it."""

    name: str
    length: int
    modified: int
    first_us: int = 0
    last_us: int = -1
    rows: int = 0
    why: str = ""
    is_new: bool = field(default=False, metadata=HIDDEN)

    @property
    def is_read(self) -> bool:
        return self.rows > 0 and not self.why


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files that the hours were made from, as of the last run."""

    run: int = 0
    files: tuple[File, ...] = ()


@dataclass(slots=True)
class Files:
    """The files of a site, and those of the ledger that were removed or changed (`gone`). `ahead` are files with
    readings stamped far in the future."""

    all: list[File]
    gone: list[File]
    ahead: list[File] = field(default_factory=list)

    @classmethod
    def of(cls, history: History, site: str, ledger: Ledger, torn: Collection[str]) -> Files:
        """Read the footers of files that the ledger does not know. Spark could not read the `torn` files completely."""
        store, known = history.store, {file.name: file for file in ledger.files}
        listed = {name: File(name, info.size, info.mtime_ns // 1000) for name, info in history.sites[site].items()}
        states = {name: (file.length, file.modified) for name, file in known.items()}
        same = {name for name, file in listed.items() if states.get(name) == (file.length, file.modified)}
        new = [name for name in listed if name not in same or name in torn]
        asked = [partial(_from_footer, store, listed[name], is_torn=name in torn) for name in new]
        read = {file.name: file for file in in_parallel(asked, "footers", most=READERS)}
        gone = [file for name, file in known.items() if name not in same]
        return cls([read.get(name) or known[name] for name in listed], gone)

    @property
    def noted(self) -> tuple[File, ...]:
        """The files for the ledger, without those ahead, which are read again each time."""
        ahead = {file.name for file in self.ahead}
        return tuple(replace(file, is_new=False) for file in self.all if file.name not in ahead)

    @property
    def read(self) -> list[File]:
        return [file for file in self.all if file.is_read]

    def touched(self, begin_us: int, end_us: int, reach: Mapping[int, int]) -> set[int]:
        """Return the hours made from files that are new or gone. `reach` has the first reading that each hour used."""
        new = [file for file in self.all if file.is_new]
        spans = [(file.first_us, file.last_us) for file in (*new, *self.gone) if file.last_us >= file.first_us]
        near = {
            hour
            for first, last in spans
            for hour in range((first - LONGEST_GAP_US) // HOUR_US * HOUR_US, last + LONGEST_GAP_US + 1, HOUR_US)
            if begin_us - begin_us % HOUR_US <= hour < end_us
        }
        far = {hour for hour, back in reach.items() for first, last in spans if back <= last and first < hour}
        return near | far


def _from_footer(store: Store, file: File, *, is_torn: bool) -> File:
    """Return a file with the facts of its footer, and with the reason if it is left out. Raises FileNotFoundError if it
    was replaced meanwhile."""
    source = Source(store, file.name)
    (first_us, last_us, rows), why = source.span()
    if is_torn and why is None:
        whole, why = source.read()
        if whole.num_rows:
            raise FileNotFoundError(file.name)
    if why:
        first_us, last_us = day_us(file.name), day_us(file.name) + DAY_US - 1
    return replace(file, is_new=True, first_us=first_us, last_us=last_us, rows=rows, why=why or "")


MAX_FILES: Final = 24
"""More files of a day become one."""
UNUSED_NS: Final = 7 * 86_400 * 1_000_000_000
"""Tables of other code or other patterns are removed if nothing was added to them for so long."""


class SummaryTables:
    def __init__(self, spark: SparkSession, history: str, folder: str) -> None:
        self._spark, self._folder, self._store = spark, folder, Store.of(history)
        self._root = f"{sql.escaped(sql.url(history))}/{folder}"
        for name, value in sql.settings(history).items():
            spark.conf.set(name, value)
        self._path = f"{folder}/files.json"
        self._before, self.ledger = self._written(), Ledger()
        with suppress(FileNotFoundError, ValueError), self._store.opened(self._path) as file:
            self.ledger = read(Ledger, json.loads(file.read()))

    def _written(self) -> tuple[int, int] | None:
        """Return the size of the ledger and when it was written, or None without one."""
        info = self._store.listed(self._folder, recursive=False).get(self._path)
        return None if info is None else (info.size, info.mtime_ns)

    def cached(self, days: Sequence[str] | None = None) -> dict[int, Row]:
        """Return the stored hours, each with its file (`path`) and the begin of the readings that it used (`least`)."""
        if not self._names():
            return {}
        hours = self._hours(torn=True)
        some = hours.where(f"kind = '{REACH}'") if days is None else hours.where(hours.day.isin([*days]))
        newest = "SELECT hour, max(struct(run, path, least)) AS best FROM {hours} WHERE kind = 'reach' GROUP BY hour"
        return {row.hour: row.best for row in sql.over(newest, hours=some).collect()}

    def hours(self, kept: Mapping[int, Row]) -> DataFrame | None:
        if not kept:
            return None
        hours = self._hours()
        paths = [summary.path for summary in kept.values()]
        wanted = broadcast(self._spark.createDataFrame(pa.table({"at": [*kept], "in": paths})))
        text = "SELECT h.* FROM {hours} h JOIN {wanted} t ON t.at = h.hour AND t.in = h.path"
        return sql.over(text, hours=hours.where(hours.path.isin(sorted({*paths}))), wanted=wanted)

    def _hours(self, *, torn: bool = False) -> DataFrame:
        """With `torn` skip files that cannot be read."""
        reader = self._spark.read.schema(ddl(HOURS)).option("ignoreCorruptFiles", str(torn).lower())
        return reader.parquet(f"{self._root}/hours").selectExpr("*", "_metadata.file_path AS path")

    def _names(self) -> list[str]:
        """Return the files of the hours, without unfinished ones."""
        names = (name for name in self._store.listed(f"{self._folder}/hours") if "/_temporary/" not in name)
        return [name for name in names if re.fullmatch(r"[^._].*\.parquet", name.rpartition("/")[2])]

    def keep(self, rows: DataFrame | None, files: Files, now_us: int) -> None:
        """Append a run and write the ledger, unless another process, whose files may be newer, did so meanwhile."""
        ledger = Ledger(max(now_us, self.ledger.run + 1), files.noted)
        if (rows is None and ledger.files == self.ledger.files) or self._written() != self._before:
            return
        if rows is not None:
            self._append(rows.selectExpr("*", f"{ledger.run}L AS run"))
        text = json.dumps(document(ledger)).encode()
        self._store.write(self._path, lambda sink: sink.write(text))

    def _append(self, rows: DataFrame) -> None:
        day = "date_format(timestamp_micros(hour), 'yyyy-MM-dd') AS day"
        days = rows.selectExpr(*HOURS.names, day).repartition("day")
        days.write.mode("append").partitionBy("day").parquet(f"{self._root}/hours")

    def tidy(self, begin_us: int, end_us: int, now_us: int) -> None:
        """Merge the files of each past day, and of days with too many; remove days whose readings are gone, and tables
        without additions for a week."""
        days = by_key((name.rpartition("day=")[2][:10], name) for name in self._names())
        first, over = (f"{moment(us):%Y-%m-%d}" for us in (begin_us, end_us - LONGEST_GAP_US))
        many = [day for day, names in days.items() if day >= first and len(names) > (1 if day < over else MAX_FILES)]
        if many and (hours := self.hours(self.cached(many))) is not None:
            self._append(hours)
        for day, names in days.items():
            if day < first or day in many:
                self._remove(names)
        self._remove_unused(now_us * 1000)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._store.remove(name)
            if self._store.folder is not None:
                place, _, base = name.rpartition("/")
                self._store.remove(f"{place}/.{base}.crc")

    def _remove_unused(self, now_ns: int) -> None:
        others = {
            name: info.mtime_ns
            for name, info in self._store.listed("summary").items()
            if not name.startswith(self._folder.rpartition("/")[0])
        }
        for _, files in groupby(others, lambda name: name.split("/")[1]):
            names = [*files]
            if max(map(others.__getitem__, names)) < now_ns - UNUSED_NS:
                self._remove(names)
