"""Keeps a history small: files of an hour that is over become one, days that are too old go.

A joined file names its parts in its footer, and the parts are removed a step later. Readers in between, or after a
crash in between, meet rows twice and count a row once. Only files with a name of the history's own are touched. Ages
are measured by the looks' own times, not by the machine's clock.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.rpo.history.files import (
    ADDED,
    OWN,
    SCHEMA,
    TAILS,
    WRITTEN,
    completed,
    hidden_until_whole,
    name_of,
    read_through,
)

if TYPE_CHECKING:
    from pathlib import Path

GROUP_ROWS: Final = 50_000
"""Rows of a joined file that are held at once, and stand together in it: those of outflows apart from those of queues,
so that whoever asks for outflows reads nothing else."""
LATE: Final = timedelta(minutes=10)
"""So long after its end an hour is joined: who asks what a lost site took with it reads the newest files, whole."""
ORDER: Final = [(column, "ascending") for column in ("kind", "pair", "name", "ts")]
_QUEUES: Final = pa.array(["queue", "staged"])
LOCK: Final = "_upkeep.lock"
_PARTS: Final = b"dr-ctl.parts"
_HOUR: Final = "%Y%m%dT%H"
_DAY_S: Final = 86_400.0


class Upkeep:
    """Does a little at a time. No fault of the disk is raised: `trouble` tells it, and nothing is lost by it."""

    def __init__(self, root: Path, *, keep_s: float) -> None:
        self._root, self._keep_days = root, math.ceil(keep_s / _DAY_S) + 1
        self._given_up: set[tuple[Path, str]] = set()
        self.trouble: str | None = None

    def step(self, now: datetime) -> bool:
        """Remove what is too old or what was joined, or join the files of one hour; false where there is nothing to do,
        or another monitor does it."""
        try:
            with _alone(self._root) as is_alone:
                did = is_alone and (self._remove() or self._join(now))
        except (pa.ArrowException, OSError) as error:
            self.trouble = f"the history cannot be tidied: {error}"
            return False
        self.trouble = None  # not before it is so: others read it meanwhile
        return did

    def _remove(self) -> bool:
        """Of each site so many days stay that have looks: a clock that is years ahead makes one more, and costs one."""
        days: dict[str, list[Path]] = defaultdict(list)
        for folder in sorted(self._root.glob("date=*/site=*"), reverse=True):
            if _day(folder) is not None and any(OWN.fullmatch(file.name) for file in folder.iterdir()):
                days[folder.name].append(folder)
        old = [folder for folders in days.values() for folder in folders[self._keep_days :]]
        if not old:
            return False
        _clear(old[-1])
        return True

    def _join(self, now: datetime) -> bool:
        folders = {folder: _hours(folder) for folder in sorted(self._root.glob("date=*/site=*"))}
        newest = max((files[-1].name for hours in folders.values() for files in hours.values()), default=None)
        if newest is None:
            return False
        current = f"{(min(_begin(newest), now) - LATE).astimezone(UTC):{_HOUR}}"
        return any(
            self._join_hour(folder, hour, files)
            for folder, hours in folders.items()
            for hour, files in hours.items()
            if hour < current and len(files) > 1 and (folder, hour) not in self._given_up
        )

    def _join_hour(self, folder: Path, hour: str, files: list[Path]) -> bool:
        joined = {name for file in files for name in _parts(file)}
        if left := [file for file in files if file.name in joined]:
            for file in left:
                file.unlink(missing_ok=True)
            return True
        fit = [file for file in files if _is_ours(file)]
        if len(fit) < 2:  # noqa: PLR2004 - one alone needs no other
            return False
        try:
            _write_joined(fit, folder)
        except (pa.ArrowException, OSError):
            if read_through(fit, self._root)[1]:
                self._given_up.add((folder, hour))  # a file torn inside would fail at every step
            raise
        return True


@contextmanager
def _alone(root: Path) -> Iterator[bool]:
    """Whether no other monitor is at it."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _day(folder: Path) -> date | None:
    try:
        return date.fromisoformat(folder.parent.name.removeprefix("date="))
    except ValueError:
        return None


def _clear(folder: Path) -> None:
    """Remove what is the history's own, and the folders where nothing else lies in them."""
    for file in folder.iterdir():
        begun = file.name.startswith(".") and file.name.endswith(".part")  # a monitor was killed while it wrote it
        if begun or file.match(TAILS) or OWN.fullmatch(file.name):
            file.unlink(missing_ok=True)
    for each in (folder, folder.parent):
        if not any(each.iterdir()):
            each.rmdir()


def _begin(name: str) -> datetime:
    return datetime.strptime(name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)


def _hours(folder: Path) -> dict[str, list[Path]]:
    hours: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.iterdir()):
        if (match := OWN.fullmatch(file.name)) is not None:
            hours[match["begin"][:11]].append(file)
    return hours


def _parts(file: Path) -> list[str]:
    """The files that one was made of."""
    try:
        metadata = pq.read_metadata(file).metadata or {}
    except (pa.ArrowException, OSError):
        return []
    parts: list[str] = json.loads(metadata.get(_PARTS, b"[]"))
    return parts


def _is_ours(file: Path) -> bool:
    """Say whether it can be read and has the history's own columns; any other stays as it is."""
    try:
        told = pq.read_schema(file).remove_metadata()
    except (pa.ArrowException, OSError):
        return False
    return bool(
        told.equals(pa.schema([field for field in SCHEMA if field.name in told.names or field.name not in ADDED]))
    )


def _write_joined(files: list[Path], folder: Path) -> None:
    first = _begin(min(file.name for file in files))
    schema = SCHEMA.with_metadata({_PARTS: json.dumps([file.name for file in files])})
    with hidden_until_whole(folder / name_of(first)) as file, pq.ParquetWriter(file, schema, **WRITTEN) as writer:
        for of_queues in (False, True):
            for rows in _gathered(_of_kind(files, of_queues=of_queues)):
                writer.write_table(rows.sort_by(ORDER).cast(schema))


def _of_kind(files: Iterable[Path], *, of_queues: bool) -> Iterator[pa.Table]:
    for each in files:
        with pq.ParquetFile(each) as file:
            for number in range(file.num_row_groups):
                rows = completed(file.read_row_group(number))
                is_queue = pc.is_in(rows["kind"], _QUEUES)
                yield rows.filter(is_queue if of_queues else pc.invert(is_queue))


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in groups of at least `GROUP_ROWS`."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(each.num_rows for each in held) >= GROUP_ROWS:
            yield pa.concat_tables(held)
            held = []
    rows = pa.concat_tables(held) if held else None
    if rows is not None and rows.num_rows:
        yield rows
