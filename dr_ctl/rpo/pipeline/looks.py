"""The history as Spark reads it: which files there are, their looks, and which site serves."""

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from dr_ctl.rpo.core.calendar import HOUR
from dr_ctl.rpo.history.files import NAMED
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.history.store import Store
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.tables import LOOKS

AHEAD_US: Final = HOUR
"""A look this far in the future of the clock is one whose own clock was wrong, where others are not."""


class History:
    """The files of all sites, by name: as the store lists them, whose looks Spark reads."""

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark, self._root = spark, sql.escaped(sql.url(where))
        for name, value in sql.settings(where).items():
            spark.conf.set(name, value)
        self._sites: dict[str, dict[str, fs.FileInfo]] = {}
        self.store = Store.of(where)
        for name, each in self.store.listed().items():
            if own := NAMED.fullmatch(name):
                self._sites.setdefault(own["site"], {})[name] = each

    @property
    def sites(self) -> list[str]:
        return sorted(self._sites)

    def files(self, site: str) -> Mapping[str, fs.FileInfo]:
        return self._sites[site]

    def looks(self, names: Collection[str], *, torn: bool = False) -> DataFrame:
        """The looks of these files, by path and moment. With `torn` those that cannot be read are passed over. Raises
        FileNotFoundError where one has gone meanwhile."""
        folders = {_folder(name) for name in names}
        reader = self._spark.read.schema(LOOKS).option("pathGlobFilter", "*.parquet")
        reader = reader.option("ignoreCorruptFiles", str(torn).lower())
        found = reader.parquet(*(f"{self._root}/{sql.escaped(each)}" for each in sorted(folders)))
        columns = ("unix_micros(ts) AS us" if each == "ts" else each for each in found.columns)
        looks = found.selectExpr("_metadata.file_path AS path", *columns)
        there = sum(_folder(name) in folders for files in self._sites.values() for name in files)
        if len(names) == there:
            return looks
        wanted = {*names}
        # Paths of single files begin with one slash, those of a listing with three.
        paths = [path.replace("file:///", "file:/") for path in found.inputFiles() if named(path) in wanted]
        if len(paths) < len(wanted):
            raise FileNotFoundError
        return looks.where(f"path IN ({', '.join(map(sql.text, paths))})")

    def serving(self, since_us: int, until_us: int | None, now_us: int) -> str | None:
        """The site whose newest role is serving; failing that, the one seen serving last. Roles from far in the future
        count where no end is named and there are no others."""
        end_us = now_us + AHEAD_US if until_us is None else until_us
        first, last = (f"date={moment(us):%Y-%m-%d}" for us in (since_us, end_us))
        newest = [self._newest_day(files, first, last) for files in self._sites.values()]
        told = self._roles([name for own in newest for name in own], since_us, end_us)
        serve = {site: us for site, us, role, _ in told if role == "serving"}
        if not serve or len(told) < sum(map(bool, newest)):
            every = [name for files in self._sites.values() for name in files]
            told = self._roles(every, since_us, end_us)
            if not told and until_us is None:
                told = self._roles(every, since_us, 1 << 62)
            serve = {site: us for site, us, role, _ in told if role == "serving"}
        served = serve or {site: us for site, _, _, us in told if us is not None}
        return max(served, key=served.__getitem__, default=None)

    @staticmethod
    def _newest_day(names: Collection[str], first: str, last: str) -> list[str]:
        within = [name for name in names if first <= name.partition("/")[0] <= last]
        newest = max(map(_folder, within), default="")
        return [name for name in within if _folder(name) == newest]

    def _roles(self, names: Collection[str], since_us: int, until_us: int) -> list[tuple[str, int, str, int | None]]:
        """By site the newest role and its moment, and when it was seen serving last."""
        if not names:
            return []
        rows = sql.over(
            """
            SELECT site, newest.us, newest.name, served FROM (
              SELECT regexp_extract(path, '/site=([^/]*)/[^/]*$', 1) AS site, max(struct(us, name)) AS newest,
                max(us) FILTER (WHERE name = 'serving') AS served
              FROM {looks} WHERE kind = 'site' AND us BETWEEN {since} AND {until} GROUP BY 1)
            """,
            looks=self.looks(names, torn=True),
            since=since_us,
            until=until_us,
        )
        return [(unquote(row.site), row.us, row.name, row.served) for row in rows.collect()]


def named(path: str) -> str:
    """A file by its name in the history, of its path as Spark writes it."""
    return unquote(f"date={path.rpartition('/date=')[2]}")


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
