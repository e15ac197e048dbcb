"""Work over the files of a history, in a session that suits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dr_ctl.rpo.history.files import count_rows, read_through

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from dr_ctl.core.model import Finding

Answer = TypeVar("Answer")


def over(
    history: Path,
    files: Sequence[Path],
    findings: Sequence[Finding],
    work: Callable[[SparkSession, list[str], list[Finding]], Answer],
    *,
    master: str,
    conf: Mapping[str, str] | None,
    may_take_time: bool,
) -> Answer:
    """Do `work` with the paths of the files and what was found on the way to them.

    Where it fails and files are torn inside, which no footer tells, these are left out and named, and it is done anew.
    Raises EnvironmentFault where Spark cannot start or finish.
    """
    from dr_ctl.rpo.spark import session as starting  # noqa: PLC0415 - Spark is imported by those who need it only

    def done(files: Sequence[Path], findings: Sequence[Finding]) -> Answer:
        with starting.session_for(count_rows(files), master=master, conf=conf, may_take_time=may_take_time) as session:
            return work(session, [str(file) for file in files], list(findings))

    try:
        return done(files, findings)
    except starting.Unfinished:
        whole, torn = read_through(files, history)
        if not torn or not whole:
            raise
        return done(whole, [*findings, *torn])
