"""The files of a history on this machine, as paths, for tests that look into them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from dr_ctl.core.model import Finding
from dr_ctl.rpo.history.files import listed_anew
from dr_ctl.rpo.history.sources import Sources


def usable_files(
    root: Path, *, since: datetime | None = None, until: datetime | None = None
) -> tuple[list[Path], list[Finding]]:
    files, findings = listed_anew(lambda: Sources(root).usable(since=since, until=until))
    return [each.path for each in files], findings


def newest_first(root: Path, site: str) -> list[Path]:
    return [each.path for each in Sources(root).newest_first(site)]
