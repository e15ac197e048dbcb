"""The files of a history on this machine, as tests look into them and spoil them; and a disk that is full."""

import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding
from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.bounds.result import Bounds, LostSite
from dr_ctl.rpo.core.cut import READ, Columns, Outflows
from dr_ctl.rpo.core.hour import HourQuery
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.step_functions import LagSeries
from dr_ctl.rpo.history.files import Sources, tables_of, write_table
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.model import HistoryLocation


def write(rows: Iterable[Row], root: Path) -> list[Path]:
    """Append the rows, one new file per day and site."""
    return [write_table(table, partition, root) for partition, table in tables_of(rows)]


def usable_files(
    root: Path, *, since: datetime | None = None, until: datetime | None = None
) -> tuple[list[Path], list[Finding]]:
    sites = sorted({path.name.removeprefix("site=") for path in root.glob("date=*/site=*")})
    named = [source for site in sites for source in Sources(root).newest_first(site, since, until)][::-1]
    whys = [source.read(())[1] for source in named]
    findings = [found("DR-RPO-002", name=source.name, why=why) for source, why in zip(named, whys, strict=True) if why]
    return [source.path for source, why in zip(named, whys, strict=True) if not why], findings


def bounds_of(where: Path | HistoryLocation, **asked: Any) -> Bounds:
    own = {name: asked.pop(name) for name in LostSite.__dataclass_fields__ if name in asked}
    return bounds(
        HistoryLocation.at(where) if isinstance(where, Path) else where, LostSite(**{"site": "london", **own}), **asked
    )


def newest_first(root: Path, site: str) -> list[Path]:
    return [source.path for source in Sources(root).newest_first(site)]


def lag_of(
    paths: Sequence[Path], *, classes: tuple[tuple[str, ...], ...] = (), exclude: tuple[str, ...] = ()
) -> LagSeries:
    """What files say as one series, without hours and rows that add up: for tests that look at single intervals."""
    rows = Columns.of(pa.concat_tables(pq.ParquetFile(path).read(columns=[*READ]) for path in sorted(paths)))
    flows = Outflows(rows)
    queues = Queues(flows, 1 + len(classes))
    queues.add(rows, flows, HourQuery(0, 0, 0, 0, exclude=exclude, classes=classes).mask, (0, 1 << 62))
    return LagSeries(flows, queues)


def tear(path: Path) -> None:
    """Its footer stays whole, its pages do not."""
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[:4] + b"\xff" * (footer - 4) + whole[footer:])


@contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
