"""Work over the files of a history, in a session that suits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dr_ctl.core.model import Finding, Severity
from dr_ctl.rpo.history.files import count_rows, read_through, usable_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from dr_ctl.rpo.estimate.request import Request

Answer = TypeVar("Answer")


def over(
    asked: Request,
    work: Callable[[SparkSession, list[str], list[Finding]], Answer],
    nothing: Callable[[None, tuple[Finding, ...]], Answer],
) -> Answer:
    """Do `work` with the paths of the files and what was found on the way to them; where there is no file, `nothing`.

    Where it fails and files are torn inside, which no footer tells, these are left out and named, and it is done anew.
    Raises EnvironmentFault where Spark cannot start or finish.
    """
    files, findings = usable_files(asked.history, since=asked.since, until=asked.until)
    if not files:
        text = f"there is no history to estimate from in {asked.history}"
        remedy = "Run `dr-ctl monitor` for a while, then ask again; until then the loss is not known."
        return nothing(None, (*findings, Finding("DR-RPO-001", Severity.WARNING, text, remedy)))
    from dr_ctl.rpo.spark import session as starting  # noqa: PLC0415 - Spark is imported by those who need it only

    def done(files: Sequence[Path], findings: Sequence[Finding]) -> Answer:
        with starting.session_for(
            count_rows(files), master=asked.master, conf=asked.conf, may_take_time=asked.may_take_time
        ) as session:
            return work(session, [str(file) for file in files], list(findings))

    try:
        return done(files, findings)
    except starting.Unfinished:
        whole, torn = read_through(files, asked.history)
        if not torn or not whole:
            raise
        return done(whole, [*findings, *torn])
