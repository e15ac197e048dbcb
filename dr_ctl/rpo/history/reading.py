"""Work over the files of a history, in a session that suits them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding
from dr_ctl.rpo.findings import NO_HISTORY
from dr_ctl.rpo.history.files import read_through, usable_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from dr_ctl.rpo.estimate.request import Request

Answer = TypeVar("Answer")
AGAIN: Final = 3
"""Times that a history which changes under the reader is read."""


def over(
    asked: Request,
    work: Callable[[SparkSession, list[str], list[Finding]], Answer],
    nothing: Callable[[None, tuple[Finding, ...]], Answer],
    listed: Callable[[], tuple[list[Path], list[Finding]]] | None = None,
) -> Answer:
    """Do `work` with the paths of the files and what was found on the way to them; where there is no file, `nothing`.

    Where it fails the history is looked at anew: files may have been joined meanwhile, and files that are torn inside,
    which no footer tells, are left out and named. `listed` lists what is read, if not all of the window is. Raises
    EnvironmentFault where Spark cannot start or finish.
    """
    listed = listed or partial(usable_files, asked.history, since=asked.since, until=asked.until)
    files, findings = listed()
    if not files:
        text = f"there is no history to estimate from in {asked.history}"
        remedy = "Run `dr-ctl monitor` for a while, then ask again; until then the loss is not known."
        return nothing(None, (*findings, NO_HISTORY(text, remedy)))
    from dr_ctl.rpo.spark import session as starting  # noqa: PLC0415 - Spark is imported by those who need it only

    conf = {**starting.TINY_WORK_CONF, **asked.conf}
    for _ in range(AGAIN):
        try:
            with starting.session(master=asked.master, conf=conf, may_take_time=asked.may_take_time) as session:
                return work(session, [str(file) for file in files], list(findings))
        except (starting.Unfinished, FileNotFoundError, pa.ArrowException):
            before = files
            files, findings = listed()
            files, torn = read_through(files, asked.history)
            findings = [*findings, *torn]
            if not files or files == before:
                raise
    raise EnvironmentFault("the history changed each time that it was read", remedy="Ask again.")
