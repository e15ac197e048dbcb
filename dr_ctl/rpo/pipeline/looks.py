"""The history as Spark reads it: which files there are, their looks, and which site serves."""

from collections.abc import Collection
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dr_ctl.rpo.core.calendar import HOUR
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.pipeline import sql
from dr_ctl.rpo.pipeline.tables import LOOKS

NAME: Final = "regexp_extract(_metadata.file_path, '(date=[^/]*/site=[^/]*/[^/]*)$', 1)"
"""A file by its name in the history, as Spark writes it in URLs."""
AHEAD_US: Final = HOUR
"""A look this far in the future of the clock is one whose own clock was wrong, where others are not."""


class History:
    """The files of all sites."""

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark, self._root, self._begin = spark, sql.escaped(sql.url(where)), ""
        self._folders: dict[str, list[str]] = {}
        for name, value in sql.settings(where).items():
            spark.conf.set(name, value)
        try:
            paths = self._listed("*").inputFiles()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            paths = []
        for path in paths:
            begin, _, name = path.rpartition("/date=")
            # Paths of single files begin with one slash, those of a listing with three.
            self._begin = begin.replace("file:///", "file:/")
            self._folders.setdefault(f"date={name}".rpartition("/")[0], []).append(f"date={name}")

    @property
    def sites(self) -> list[str]:
        return sorted({folder.rpartition("site=")[2] for folder in self._folders})

    def days(self, site: str) -> list[str]:
        return sorted(folder for folder in self._folders if folder.endswith(f"/site={site}"))

    def _listed(self, site: str) -> DataFrame:
        files = self._spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet")
        return files.load(f"{self._root}/date=*/site={site}")

    def files(self, site: str) -> DataFrame:
        """The files of a site: name, length, time of change."""
        return self._listed(site).selectExpr(f"{NAME} AS file", "length", "unix_micros(modificationTime) AS modified")

    def looks(self, names: Collection[str], *, torn: bool = False) -> DataFrame:
        """The looks of these files, by file and moment. With `torn` those that cannot be read are passed over."""
        folders = sorted({name.rpartition("/")[0] for name in names})
        found = self._read(folders, torn=torn)
        if len(names) == sum(len(self._folders[folder]) for folder in folders):
            return found
        paths = ", ".join(sql.text(f"{self._begin}/{name}") for name in sorted(names))
        return found.where(f"path IN ({paths})")

    def _read(self, folders: Collection[str], *, torn: bool) -> DataFrame:
        reader = self._spark.read.schema(LOOKS).option("pathGlobFilter", "*.parquet")
        reader = reader.option("ignoreCorruptFiles", str(torn).lower())
        found = reader.parquet(*(f"{self._root}/{sql.escaped(unquote(each))}" for each in folders))
        others = (each for each in found.columns if each != "ts")
        return found.selectExpr("_metadata.file_path AS path", f"{NAME} AS file", "unix_micros(ts) AS us", *others)

    def serving(self, since_us: int, until_us: int | None, now_us: int) -> str | None:
        """The site whose newest role is serving; failing that, the one seen serving last. Roles from far in the future
        count where no end is named and there are no others."""
        end_us = now_us + AHEAD_US if until_us is None else until_us
        first, last = (f"date={moment(us):%Y-%m-%d}" for us in (since_us, end_us))
        days = ([each for each in self.days(site) if first <= each.partition("/")[0] <= last] for site in self.sites)
        newest = [each[-1] for each in days if each]
        told = self._roles(newest, since_us, end_us)
        serve = {site: us for site, us, role, _ in told if role == "serving"}
        if not serve or len(told) < len(newest):
            told = self._roles([*self._folders], since_us, end_us)
            if not told and until_us is None:
                told = self._roles([*self._folders], since_us, 1 << 62)
            serve = {site: us for site, us, role, _ in told if role == "serving"}
        served = serve or {site: us for site, _, _, us in told if us is not None}
        return max(served, key=served.__getitem__, default=None)

    def _roles(self, folders: Collection[str], since_us: int, until_us: int) -> list[tuple[str, int, str, int | None]]:
        """By site the newest role and its moment, and when it was seen serving last."""
        if not folders:
            return []
        rows = sql.over(
            """
            SELECT site, newest.us, newest.name, served FROM (
              SELECT regexp_extract(file, 'site=([^/]*)', 1) AS site, max(struct(us, name)) AS newest,
                max(us) FILTER (WHERE name = 'serving') AS served
              FROM {looks} WHERE kind = 'site' AND us BETWEEN {since} AND {until} GROUP BY 1)
            """,
            looks=self._read(folders, torn=True),
            since=since_us,
            until=until_us,
        )
        return [(row.site, row.us, row.name, row.served) for row in rows.collect()]
