"""The last moment of an earlier state, by the newest files of the history, without Spark."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Role
from dr_ctl.rpo.history.files import rows_of_tail
from dr_ctl.rpo.history.sources import Sources, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dr_ctl.core.model import Finding
    from dr_ctl.settings.model import Place

_FILES: Final = 250
"""How many files are read back: an hour of a monitor that writes one a minute, and a week of joined hours."""


def last_seen(history: Path | Place, site: str, role: Role) -> datetime | None:
    """The last look that saw the site in that role, if the newest files hold one."""
    is_so = (pc.field("kind") == "site") & (pc.field("name") == role.value)
    return read(history, lambda files: _last(files, site, ("ts", "kind", "name"), is_so))[0]


def newest_look(history: Path | Place, sites: Iterable[str]) -> tuple[datetime | None, list[Finding]]:
    """The last look at any of these sites, as a monitor that lives makes several a second; the finding says that a
    store did not answer, which may have later ones."""
    last, findings = read(history, lambda files: [_last(files, site, ("ts",)) for site in sites])
    return max((each for each in last if each is not None), default=None), findings


def link_lost(history: Path | Place, site: str, pair: str) -> datetime | None:
    """The last look that saw the link of a broker connected, if the newest files hold one."""
    is_so = (pc.field("pair") == pair) & pc.field("link")
    return read(history, lambda files: _last(files, site, ("ts", "pair", "link"), is_so))[0]


def _last(files: Sources, site: str, columns: tuple[str, ...], is_so: pc.Expression | None = None) -> datetime | None:
    """The last look of which that is so, or any."""
    for rows in newest(files, site, columns):
        matching = rows if is_so is None else rows.filter(is_so)
        if matching.num_rows:
            latest: datetime = pc.max(matching.column("ts")).as_py()
            return latest
    return None


def newest(files: Sources, site: str, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Rows of a site, the newest first: by file, and as many files as this looks back."""
    for tail in files.tails(site):
        with suppress(pa.ArrowException, OSError):
            yield rows_of_tail(tail).select([*columns])
    for source in islice(files.newest_first(site), _FILES):
        try:
            with source.opened() as file:
                rows = file.read(columns=[*columns])
        except FileNotFoundError:
            continue  # joined to others meanwhile
        except (pa.ArrowException, OSError):
            source.store.must_answer(source.name)
            continue  # a torn file tells nothing of it; the estimate names such files
        yield rows
