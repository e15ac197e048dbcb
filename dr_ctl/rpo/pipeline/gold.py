"""The tables that Spark writes beside a history: the ledger of files, and the hours. Runs are appended, and the newest
counts; of one run one file, for what an hour says stands whole in one. So a write that was cut off, or made twice,
changes nothing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from dr_ctl.rpo.core.cut import AWAY_US
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.history.store import Store
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.tables import FILES, HOURS, REACH, ddl
from dr_ctl.rpo.pipeline.touched import Files

MOST_FILES: Final = 24
"""More files of a day, or of a ledger, become one."""
UNUSED_NS: Final = 7 * 86_400 * 1_000_000_000
"""Tables of other code or other patterns to which nothing was added for so long are nobody's."""


class Kept(NamedTuple):
    """An hour that is there: in which file, and from when on looks were read for it."""

    path: str
    reach_us: int


class Gold:
    """The tables of one site, by code and patterns."""

    def __init__(self, spark: SparkSession, history: str, folder: str) -> None:
        self._spark, self._folder, self._store = spark, folder, Store.of(history)
        self._root = f"{sql.escaped(sql.url(history))}/{folder}"
        self._before = self._names("files")

    def ledger(self) -> DataFrame | None:
        return self._read("files", FILES, torn=True) if self._names("files") else None

    def kept(self, days: Sequence[str] | None = None) -> dict[int, Kept]:
        """The hours that are there, by their newest runs."""
        if not self._names("hours"):
            return {}
        hours = self._read("hours", HOURS, torn=True)
        some = hours.where(f"kind = '{REACH}'") if days is None else hours.where(hours.day.isin([*days]))
        newest = "SELECT hour, max(struct(run, path, least)) AS best FROM {hours} WHERE kind = 'reach' GROUP BY hour"
        return {row.hour: Kept(row.best.path, row.best.least) for row in sql.over(newest, hours=some).collect()}

    def hours(self, kept: Mapping[int, Kept]) -> DataFrame | None:
        """The rows of these hours."""
        if not kept:
            return None
        hours = self._read("hours", HOURS)
        paths = [each.path for each in kept.values()]
        told = broadcast(self._spark.createDataFrame(pa.table({"at": [*kept], "in": paths})))
        text = "SELECT h.* FROM {hours} h JOIN {told} t ON t.at = h.hour AND t.in = h.path"
        return sql.over(text, hours=hours.where(hours.path.isin(sorted({*paths}))), told=told)

    def _read(self, name: str, schema: pa.Schema, *, torn: bool = False) -> DataFrame:
        """With `torn` files that cannot be read are passed over: what they held is not there."""
        reader = self._spark.read.schema(ddl(schema)).option("ignoreCorruptFiles", str(torn).lower())
        return reader.parquet(f"{self._root}/{name}").selectExpr("*", "_metadata.file_path AS path")

    def _names(self, table: str) -> list[str]:
        return [name for name in self._store.listed(f"{self._folder}/{table}") if _is_whole(name)]

    def keep(self, rows: DataFrame | None, reach: Mapping[int, int], files: Files, now_us: int) -> None:
        """Append a run, the ledger last; nothing where another did so meanwhile, whose files may be newer."""
        changes = files.changes()
        if (rows is None and not changes) or self._names("files") != self._before:
            return
        run = max(now_us, files.run + 1)
        if rows is not None:
            told = pa.table({"kind": [REACH] * len(reach), "hour": [*reach], "least": [*reach.values()]})
            whole = rows.unionByName(self._spark.createDataFrame(told), allowMissingColumns=True)
            self._append(whole.selectExpr("*", f"{run}L AS run"))
        if changes:
            columns = zip(*((*each, run) for each in changes), strict=True)
            arrays = [pa.array(each, field.type) for each, field in zip(columns, FILES, strict=True)]
            self._note(self._spark.createDataFrame(pa.table(arrays, schema=FILES)))

    def _append(self, rows: DataFrame) -> None:
        day = "date_format(timestamp_micros(hour), 'yyyy-MM-dd') AS day"
        days = rows.selectExpr(*HOURS.names, day).repartition("day")
        days.write.mode("append").partitionBy("day").parquet(f"{self._root}/hours")

    def _note(self, rows: DataFrame) -> None:
        rows.select(*FILES.names).coalesce(1).write.mode("append").parquet(f"{self._root}/files")

    def tidy(self, begin_us: int, end_us: int, now_us: int) -> None:
        """Make one file of a day that is over, and of what has become many; remove days whose looks are gone, and the
        tables that nobody has added to for a week."""
        days: dict[str, list[str]] = defaultdict(list)
        for name in self._names("hours"):
            days[name.rpartition("day=")[2][:10]].append(name)
        first, over = (f"{moment(us):%Y-%m-%d}" for us in (begin_us, end_us - AWAY_US))
        many = [day for day, names in days.items() if day >= first and len(names) > (1 if day < over else MOST_FILES)]
        if many and (hours := self.hours(self.kept(many))) is not None:
            self._append(hours)
        for day, names in days.items():
            if day < first or day in many:
                self._remove(names)
        names = self._names("files")
        if len(names) > MOST_FILES and (ledger := self.ledger()) is not None:
            text = "SELECT newest.* FROM (SELECT max_by(struct(*), run) AS newest FROM {ledger} GROUP BY file)"
            self._note(sql.over(text, ledger=ledger))
            self._remove(names)
            self._before = self._names("files")
        self._remove_unused(now_us * 1000)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._store.remove(name)
            if self._store.folder is not None:
                place, _, base = name.rpartition("/")
                self._store.remove(f"{place}/.{base}.crc")

    def _remove_unused(self, now_ns: int) -> None:
        keys: dict[str, dict[str, int]] = defaultdict(dict)
        for name, each in self._store.listed("summary").items():
            if not name.startswith(self._folder.rpartition("/")[0]):
                keys["/".join(name.split("/")[:2])][name] = each.mtime_ns
        for names in keys.values():
            if max(names.values()) < now_ns - UNUSED_NS:
                self._remove([*names])


def _is_whole(name: str) -> bool:
    """Whether a file is one of a table, and not one that is being written."""
    return (
        name.endswith(".parquet") and "/_temporary/" not in name and not name.rpartition("/")[2].startswith((".", "_"))
    )
