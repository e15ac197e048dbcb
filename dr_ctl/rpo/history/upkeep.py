"""Upkeep keeps a history small: files of an hour that is over become one, and days that are too old go.

A joined file names its parts in its footer, and the parts are removed a step later. Readers in between, or after a
crash in between, meet rows twice and count a row once. Only files with a name of the history's own are touched. Ages
are measured by the readings' own times, not by the machine's clock."""

import hashlib
import json
import math
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from fnmatch import fnmatch
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import by_key
from dr_ctl.engine.disk import locked_file
from dr_ctl.rpo.history.files import (
    NAMED,
    OPTIONAL,
    OWN,
    REMOTE_S,
    SCHEMA,
    TAILS,
    WRITTEN,
    Source,
    Store,
    begun,
    day_us,
    in_time,
    name_of,
)
from dr_ctl.settings.model import HistoryLocation

HEARTBEAT_TIMEOUT_NS: Final = 150 * 1_000_000_000
"""A monitor renews its heartbeat file each minute; after so long without that it is gone, or its machine is."""
_HEARTBEAT_PREFIX: Final = "_monitor-"


def renew(store: Store, heartbeat: str) -> None:
    text = json.dumps({"host": socket.gethostname()}).encode()
    store.write(heartbeat, lambda sink: sink.write(text))


def others(files: Mapping[str, fs.FileInfo], heartbeat: str) -> list[str]:
    """Return the heartbeat files of other monitors that live, by the files in the store once our own was renewed."""
    if heartbeat not in files:
        return []
    living_ns = files[heartbeat].mtime_ns - HEARTBEAT_TIMEOUT_NS
    fresh = (name for name, info in files.items() if info.mtime_ns > living_ns and name != heartbeat)
    return sorted(name for name in fresh if name.startswith(_HEARTBEAT_PREFIX))


def host_of(heartbeat: str) -> str:
    return heartbeat.removeprefix(_HEARTBEAT_PREFIX).rpartition("-")[0]


GROUP_ROWS: Final = 50_000
"""So many rows of a joined file are held at once, and stand together in it: those of outflows apart from those of
queues, so that a question about outflows reads nothing else."""
JOIN_AFTER: Final = timedelta(minutes=10)
"""An hour is joined so long after its end, because a failover's bound reads the newest files whole."""
ORDER: Final = [(column, "ascending") for column in ("kind", "pair", "name", "ts")]
_QUEUES: Final = ("queue", "staged", "uncopied")
LOCK: Final = "_upkeep.lock"
_PARTS: Final = b"dr-ctl.parts"
_Hours = dict[str, list[str]]


class Upkeep:
    """Upkeep does a little at a time. It raises no fault of the disk or the store: `trouble` tells it, and nothing is
    lost by it."""

    def __init__(self, history: HistoryLocation, *, keep_s: float) -> None:
        self._place = history
        self._keep_days = math.ceil(keep_s / 86_400) + 1
        # Two monitors that write to one folder of one machine have one lock, and one heartbeat file.
        folder = hashlib.sha256(str(self._place.near).encode()).hexdigest()[:8]
        self._heartbeat = f"{_HEARTBEAT_PREFIX}{socket.gethostname()}-{folder}.json"
        self._given_up: set[tuple[str, str]] = set()
        self.trouble: str | None = None

    def another(self) -> str | None:
        """Return the host of a monitor that records into the same store elsewhere just now, or None if none was seen,
        or the store does not answer. From now on others see this one."""
        if self._place.folder is not None:
            return None

        def asked() -> list[str]:
            store = Store.of(self._place.where, hurried=True)
            before = store.listed(recursive=False)
            renew(store, self._heartbeat)
            now = store.listed(recursive=False)
            living = others(now, self._heartbeat)
            if living and self._heartbeat not in before:
                store.remove(self._heartbeat)
            return living

        others_there, _ = in_time(asked, REMOTE_S)
        return host_of(others_there[0][0]) if others_there and others_there[0] else None

    def close(self) -> None:
        """Take the heartbeat file away; a file that stays counts for minutes only."""
        if self._place.folder is None and self.trouble is None:
            with suppress(OSError, EnvironmentFault):
                Store.of(self._place.where, hurried=True).remove(self._heartbeat)

    def step(self, now: datetime) -> bool:
        """Bring new files to a store elsewhere; remove what is too old or what was joined, or join the files of one
        hour. Return False if there is nothing to do, or another monitor does it."""
        try:
            self._place.near.mkdir(parents=True, exist_ok=True)
            with locked_file(self._place.near / LOCK, 0o666) as held:
                did = held is not None and self._step(now)
        except (pa.ArrowException, OSError, EnvironmentFault) as error:
            what = "tidied" if self._place.folder is not None else f"brought to {self._place.shown}"
            self.trouble = f"the history cannot be {what}: {str(error).splitlines()[0]}"
            return False
        self.trouble = None  # not before it is so: others read it meanwhile
        return did

    def _step(self, now: datetime) -> bool:
        store = Store.of(self._place.where)
        if self._place.folder is None:
            renew(store, self._heartbeat)
        files = store.listed()
        # Only one of two monitors that began at once brings its readings: both saw the same.
        if (living := others(files, self._heartbeat)) and living[0] < self._heartbeat:
            raise EnvironmentFault(f"another monitor, on {host_of(living[0])}, records into it")
        days = _days(files)
        names = [name for hours in days.values() for hour in hours.values() for name in hour]
        newest = max((name.rpartition("/")[2] for name in names), default="")
        current = f"{min(begun(newest) or now, now) - JOIN_AFTER:%Y%m%dT%H}"
        # A monitor has a new file at each step: to bring it does not put off the other work.
        did = self._place.folder is None and _uploaded(Store.of(self._place.near), store, files, current)
        return self._remove(store, files, days) or self._join(store, days, current) or did

    def _remove(self, store: Store, files: Mapping[str, fs.FileInfo], days: Mapping[str, _Hours]) -> bool:
        """Keep so many days of each site that have readings: a clock that is years ahead makes one more, and costs
        one."""
        by_site = by_key((folder.partition("/site=")[2], folder) for folder in sorted(days, reverse=True))
        old = [folder for folders in by_site.values() for folder in folders[self._keep_days :]]
        for name in files:
            base = name.rpartition("/")[2]
            # A monitor may have been killed over a file.
            is_own = (base.startswith(".") and base.endswith(".part")) or fnmatch(base, TAILS) or OWN.fullmatch(base)
            if old and name.startswith(f"{old[-1]}/") and is_own:
                store.remove(name)
        return bool(old)

    def _join(self, store: Store, days: Mapping[str, _Hours], current: str) -> bool:
        return any(
            self._join_hour(store, folder, hour, files)
            for folder, hours in days.items()
            for hour, files in hours.items()
            if hour < current and len(files) > 1 and (folder, hour) not in self._given_up
        )

    def _join_hour(self, store: Store, folder: str, hour: str, names: list[str]) -> bool:
        files = [Source(store, name) for name in names]
        footers = [_footer(file) for file in files]
        joined = {name for names, _ in footers for name in names}
        if left := [file for file in files if file.base in joined]:
            for file in left:
                store.remove(file.name)
            return True
        fit = [file for file, (_, is_ours) in zip(files, footers, strict=True) if is_ours]
        if len(fit) < 2:  # noqa: PLR2004 - one alone needs no other
            return False
        name = f"{folder}/{name_of(min(filter(None, (begun(file.base) for file in fit))))}"
        try:
            store.write(name, lambda sink: _write_joined(fit, sink))
        except (pa.ArrowException, OSError):
            if any(file.read()[1] for file in fit):
                self._given_up.add((folder, hour))  # a file torn inside would fail at every step
            raise
        return True


def _uploaded(near: Store, store: Store, files: Mapping[str, fs.FileInfo], current: str) -> bool:
    """Bring the store the files that it lacks. Files that are there go here once their hour is over: before the hour is
    joined there, and its parts are removed."""
    local = near.listed()
    new = [name for name in local if _is_file(name) and (name not in files or files[name].size != local[name].size)]
    for name in new:
        with near.opened(name) as file:
            store.write(name, lambda sink, file=file: shutil.copyfileobj(file, sink, 1 << 20))  # type: ignore[misc]
    over = [name for name in local if _is_file(name) and name not in new and name.rpartition("/")[2][:11] < current]
    for name in over:
        near.remove(name)
    return bool(new or over)


def _is_file(name: str) -> bool:
    return NAMED.fullmatch(name) is not None and OWN.fullmatch(name.rpartition("/")[2]) is not None


def _days(files: Iterable[str]) -> dict[str, _Hours]:
    days: dict[str, _Hours] = {}
    for name in sorted(files):
        if _is_file(name) and day_us(name):
            folder, _, base = name.rpartition("/")
            days.setdefault(folder, {}).setdefault(base[:11], []).append(name)
    return days


def _footer(file: Source) -> tuple[list[str], bool]:
    """Return the files that one was made of, and whether it has the history's own columns: any other stays as it is."""
    try:
        with file.store.opened(file.name) as opened:
            footer = pq.read_metadata(opened)
    except (pa.ArrowException, OSError):
        return [], False
    columns = footer.schema.to_arrow_schema().remove_metadata()
    own = pa.schema([field for field in SCHEMA if field.name in columns.names or field.name not in OPTIONAL])
    return json.loads((footer.metadata or {}).get(_PARTS, b"[]")), columns.equals(own)


def _write_joined(files: list[Source], sink: BinaryIO) -> None:
    schema = SCHEMA.with_metadata({_PARTS: json.dumps([file.base for file in files])})
    with pq.ParquetWriter(sink, schema, **WRITTEN) as writer:
        for kinds in (~pc.field("kind").isin(_QUEUES), *(pc.field("kind") == kind for kind in _QUEUES)):
            for rows in _in_groups(rows for source in files for rows in _batches(source, kinds)):
                writer.write_table(rows.sort_by(ORDER).cast(schema))


def _batches(source: Source, kinds: pc.Expression) -> Iterator[pa.Table]:
    """Read a little at a time, because a file may be an hour of many queues."""
    with source.store.opened(source.name) as file:
        fragment = ds.ParquetFileFormat().make_fragment(file)
        for batch in fragment.to_batches(schema=SCHEMA, filter=kinds, batch_readahead=1, use_threads=False):
            yield pa.Table.from_batches([batch])


def _in_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(table.num_rows for table in held) >= GROUP_ROWS:
            yield pa.concat_tables(held)
            held = []
    if any(table.num_rows for table in held):
        yield pa.concat_tables(held)
