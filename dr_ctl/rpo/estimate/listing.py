"""The files of a site's history as they are now, and what their footers say: when their looks were, whether they can be
read. What was learnt of a file is kept in an index beside the summaries, until the file is another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Finding
from dr_ctl.core.system import together
from dr_ctl.rpo.core.calendar import DAY
from dr_ctl.rpo.history.files import NAMED, day_us, without, wrong_columns
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.history.store import Identity, Store

INDEX: Final = "summary/_files-2-{site}.parquet"
SIDE_BY_SIDE: Final = 8
_COLUMNS: Final = pa.schema(
    [
        ("name", pa.string()),
        *((each, pa.int64()) for each in ("size", "mtime_ns", "first_us", "last_us", "rows")),
        ("why", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the history, and the time of its looks; `why` it is left out, if it is: it may then hold any look of
    its day."""

    name: str
    size: int
    mtime_ns: int
    first_us: int = 0
    last_us: int = -1
    rows: int = 0
    why: str = ""

    def touches(self, from_us: int, to_us: int) -> bool:
        return self.first_us < to_us and self.last_us >= from_us

    @property
    def is_read(self) -> bool:
        return self.rows > 0 and not self.why

    def finding(self) -> Finding:
        return without(f"{self.name} is left out: {self.why}")


class Listing:
    """The files of all sites."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_site: dict[str, dict[str, Identity]] = {}
        self._listed = store.listed()
        for name, identity in self._listed.items():
            match = NAMED.fullmatch(name)
            if match is not None:
                self._by_site.setdefault(match["site"], {})[name] = identity
        self._known: dict[str, tuple[File, ...]] = {}

    @property
    def sites(self) -> list[str]:
        return sorted(self._by_site)

    def under(self, folder: str) -> dict[str, Identity]:
        """Other files that lie beside the history."""
        return {name: each for name, each in self._listed.items() if name.startswith(folder)}

    def files(self, site: str) -> tuple[File, ...]:
        """Every file of a site, by name: those that cannot be read too."""
        if site not in self._known:
            index = self._index(site)
            now = self._by_site.get(site, {})
            anew = [name for name, identity in now.items() if _identity(index.get(name)) != identity]
            footers = together([partial(self._footer, name, now[name]) for name in anew], "footers", most=SIDE_BY_SIDE)
            told = {file.name: file for file in footers if file is not None}
            self._known[site] = tuple(told.get(name) or index[name] for name in now if name in told or name not in anew)
        return self._known[site]

    def newest_first(self, site: str, *, until_us: int) -> Iterable[File]:
        """A site's files that can be read and begin by then, the one with the newest look first."""
        found = [each for each in self.files(site) if each.is_read and each.first_us <= until_us]
        return sorted(found, key=lambda each: -each.last_us)

    def _index(self, site: str) -> dict[str, File]:
        try:
            with self._store.opened(INDEX.format(site=site)) as file:
                rows = pq.read_table(file).to_pylist()
            return {row["name"]: File(**row) for row in rows}
        except (pa.ArrowException, OSError, TypeError, KeyError):
            return {}  # made anew

    def keep(self, site: str, torn: Mapping[str, str]) -> None:
        """Keep what is known of the files, with those that proved to be torn inside. Raises OSError."""
        files = [replace(file, why=torn[file.name]) if file.name in torn else file for file in self.files(site)]
        if torn or {each.name: each for each in files} != self._index(site):
            table = pa.Table.from_pylist([asdict(file) for file in files], schema=_COLUMNS)
            self._store.write(INDEX.format(site=site), lambda sink: pq.write_table(table, sink))

    def _footer(self, name: str, identity: Identity) -> File | None:
        """Read the footer of a file; None where it has gone meanwhile."""
        whole = File(name, *identity)
        begin_us = day_us(name)
        with suppress(FileNotFoundError):
            try:
                with self._store.parquet(name) as file:
                    why = wrong_columns(file.schema_arrow)
                    if not why:
                        return _times(whole, file)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                self._store.must_answer(name)
                why = f"it cannot be opened ({str(error).splitlines()[0]})"
            return replace(whole, first_us=begin_us, last_us=begin_us + DAY - 1, why=why)
        return None


def _identity(file: File | None) -> Identity | None:
    return None if file is None else Identity(file.size, file.mtime_ns)


def _times(whole: File, file: pq.ParquetFile) -> File:
    told = file.metadata
    if not told.num_rows:
        return whole
    place = file.schema_arrow.get_field_index("ts")
    groups = [told.row_group(number).column(place).statistics for number in range(told.num_row_groups)]
    if all(each is not None and each.has_min_max for each in groups):
        first, last = micros(min(each.min for each in groups)), micros(max(each.max for each in groups))
    else:
        ends = pc.min_max(file.read(columns=["ts"])["ts"].cast(pa.int64()))
        first, last = ends["min"].as_py(), ends["max"].as_py()
    return replace(whole, first_us=first, last_us=last, rows=told.num_rows)
