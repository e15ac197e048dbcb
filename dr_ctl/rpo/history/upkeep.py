"""Keeps a history small: files of an hour that is over become one, days that are too old go.

An hour is joined under a new name first, and its files are removed then: whoever reads in between, or after a crash in
between, meets rows twice, and readers count a row once. Only files of exactly the history's own columns are touched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.history.files import SCHEMA, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_ROWS: Final = 200_000
"""No file grows beyond this: what is asked for at once after a death is read from the newest files, whole."""
_NAME: Final = re.compile(r"(\d{8}T\d{2})\d{4}-")


class Upkeep:
    """Does a little at a time, so that the next look is not kept waiting."""

    def __init__(self, root: Path, *, keep_s: float) -> None:
        self._root, self._keep = root, timedelta(seconds=keep_s)
        self._done: set[tuple[Path, str]] = set()

    def step(self, now: datetime) -> bool:
        """Remove what is too old, or join the files of one hour; false where there is nothing to do.

        Raises EnvironmentFault where the disk does not let it; nothing is lost by that.
        """
        try:
            return self._remove(now) or self._join(now)
        except OSError as error:
            raise EnvironmentFault(f"the history cannot be tidied: {error}") from error

    def _remove(self, now: datetime) -> bool:
        oldest = (now.astimezone(UTC) - self._keep).date()
        for folder in sorted(self._root.glob("date=*")):
            day = _day(folder)
            if day is None or day >= oldest:
                continue
            for file in folder.glob("site=*/*.parquet"):
                file.unlink(missing_ok=True)
            for each in (*folder.glob("site=*"), folder):
                if not any(each.iterdir()):
                    each.rmdir()
            return True
        return False

    def _join(self, now: datetime) -> bool:
        current = f"{now.astimezone(UTC):%Y%m%dT%H}"
        for folder in sorted(self._root.glob("date=*/site=*")):
            hours: dict[str, list[Path]] = defaultdict(list)
            for file in sorted(folder.glob("*.parquet")):
                if (told := _NAME.match(file.name)) is not None and told[1] < current:
                    hours[told[1]].append(file)
            for hour, files in hours.items():
                if len(files) > 1 and (folder, hour) not in self._done:
                    self._done.add((folder, hour))
                    if _joined(files, self._root):
                        return True
        return False


def _day(folder: Path) -> date | None:
    try:
        return date.fromisoformat(folder.name.removeprefix("date="))
    except ValueError:
        return None


def _joined(files: list[Path], root: Path) -> bool:
    batches = list(_batches(files))
    for batch in batches:
        tables = [pq.ParquetFile(file).read() for file in batch]
        # A join that was cut off left rows that are there twice.
        whole = pa.concat_tables(tables).group_by(SCHEMA.names, use_threads=False).aggregate([]).select(SCHEMA.names)
        whole = whole.sort_by(
            [("ts", "ascending"), ("pair", "ascending"), ("kind", "ascending"), ("name", "ascending")]
        )
        folder = batch[0].parent
        part = (date.fromisoformat(folder.parent.name.removeprefix("date=")), folder.name.removeprefix("site="))
        write_table(whole.cast(SCHEMA), part, root)
        for file in batch:
            file.unlink()
    return bool(batches)


def _batches(files: list[Path]) -> Iterator[list[Path]]:
    """Files that fit together, in order; one that cannot be read, or has other columns, stays as it is."""
    batch: list[Path] = []
    rows = 0
    for file in files:
        count = _rows(file)
        if count is None:
            continue
        if batch and rows + count > MOST_ROWS:
            if len(batch) > 1:
                yield batch
            batch, rows = [], 0
        batch.append(file)
        rows += count
    if len(batch) > 1:
        yield batch


def _rows(file: Path) -> int | None:
    try:
        told = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return None
    return told.num_rows if told.schema.to_arrow_schema().equals(SCHEMA) else None
