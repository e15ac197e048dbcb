"""Which site serves, by the newest files of the history. Reads no more than it must."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Role
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.row import micros


def sites_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """The files of each site, the newest last."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        found[Path(path).parent.name.removeprefix("site=")].append(path)
    return {site: sorted(files, key=lambda path: Path(path).parts[-3:]) for site, files in found.items()}


def serving(sites: Mapping[str, Callable[[], Iterable[str]]], asked: Request) -> str | None:
    """Pick the site whose newest role is serving; failing that, the one seen serving last. Of each site its files are
    told, the newest first."""
    newest = {site: next(_roles(files, asked), None) for site, files in sites.items()}
    serve = {site: told[0] for site, told in newest.items() if told is not None and told[1] == Role.SERVING.value}
    if not serve:
        served = {site: _served_us(files, asked) for site, files in sites.items()}
        serve = {site: us for site, us in served.items() if us is not None}
    return max(serve, key=lambda site: serve[site], default=None)


def newest_first_of(paths: Sequence[str]) -> dict[str, Callable[[], Iterable[str]]]:
    return {site: partial(reversed, files) for site, files in sites_of(paths).items()}


def _served_us(files: Callable[[], Iterable[str]], asked: Request) -> int | None:
    return next((us for us, role in _roles(files, asked) if role == Role.SERVING.value), None)


def _roles(files: Callable[[], Iterable[str]], asked: Request) -> Iterator[tuple[int, str]]:
    """When a site was last seen in each of its roles, a file at a time, backwards."""
    for path in files():
        try:
            rows = pq.ParquetFile(path).read(columns=["ts", "kind", "name"])
        except (pa.ArrowException, OSError):
            continue  # whoever reads the rest of it names it
        told = rows.filter(pc.field("kind") == "site")
        moments, roles = told["ts"].cast(pa.int64()).to_pylist(), told["name"].to_pylist()
        last = {role: us for us, role in sorted(zip(moments, roles, strict=True)) if _is_within(us, asked)}
        yield from sorted(((us, role) for role, us in last.items()), reverse=True)


def _is_within(us: int, asked: Request) -> bool:
    after = asked.since is None or us >= micros(asked.since)
    return after and (asked.until is None or us <= micros(asked.until))
