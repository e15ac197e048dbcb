"""Does the slices of a plan: in this process, or in Spark where they are many or the settings name a Spark elsewhere.

The code of a slice is the same, and so are its figures to the digit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.rows import together
from dr_ctl.rpo.estimate import kept
from dr_ctl.rpo.estimate.plan import Plan
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.slices import Slice, answer
from dr_ctl.rpo.history.files import AGAIN
from dr_ctl.rpo.history.store import Store

Do = Callable[[Sequence[Slice]], pa.Table]


def here(slices: Sequence[Slice]) -> pa.Table:
    """In this process, one after the other."""
    return together([rows for each in slices for rows in answer(each)])


def rows_of(asked: Request, now_us: int, do: Do | None = None) -> tuple[Plan, list[pa.Table], list[Finding]] | Finding:
    """The plan of what is asked and all rows of it; the finding that says why there is nothing to do. `do` does slices.

    Where a file goes meanwhile the history is looked at anew. Raises EnvironmentFault where Spark fails, or where
    summaries cannot be kept.
    """
    for _ in range(AGAIN):
        try:
            plan = Plan.of(asked, now_us)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Store.of(asked.history).fault(error) from error
        if isinstance(plan, Finding):
            return plan
        is_elsewhere = not asked.master.startswith("local") or "PYSPARK_GATEWAY_PORT" in os.environ
        if do is None and plan.slices and (is_elsewhere or plan.rows > asked.few_rows):
            from dr_ctl.rpo.spark import tasks  # noqa: PLC0415 - Spark is imported by those who need it only

            with tasks.workers(asked.master, asked.conf) as do_there:
                rows = _done(plan, do_there)
        else:
            rows = _done(plan, do or here)
        if rows is not None:
            return _settled(plan, asked, rows, now_us)
    raise EnvironmentFault("the history changed each time that it was read", remedy="Ask again.")


def _done(plan: Plan, do: Do) -> pa.Table | None:
    """The rows of all slices; None where a file was gone. A slice that needs more of the past is done again with it."""
    waiting, found = plan.slices, list[pa.Table]()
    while waiting:
        rows = do(waiting)
        faults = rows.filter((pc.field("kind") == "fault") & (pc.field("metric") != "torn")).to_pylist()
        told = {each["metric"]: each for each in faults}
        if "version" in told:
            text = f"a worker of Spark has dr-ctl {told['version']['name']}, and this is {kept.version()}"
            raise EnvironmentFault(text, remedy="Install the same dr-ctl on every worker; nothing was read.")
        if "gone" in told:
            return None
        found.append(rows)
        short = [(each["cell"], each["most"]) for each in faults if each["metric"] == "short"]
        waiting = [plan.further(each, *hour) for each in waiting for hour in short if each.holds(hour[0])]
    return together(found)


def _settled(plan: Plan, asked: Request, rows: pa.Table, now_us: int) -> tuple[Plan, list[pa.Table], list[Finding]]:
    torn = dict(
        json.loads(name)
        for name in rows.filter((pc.field("kind") == "fault") & (pc.field("metric") == "torn"))["name"].to_pylist()
    )
    findings = plan.findings
    findings += [replace(file, why=torn[file.name]).finding() for file in plan.files if file.name in torn]
    if asked.store:
        try:
            plan.listing.keep(plan.site, torn)
            begin_us = min(each.first_us for each in plan.files if each.is_read)
            kept.tidy(plan.store, plan.listing, plan.where, plan.kept, plan.calendar, begin_us, now_us * 1000)
        except OSError as error:
            raise EnvironmentFault(f"summaries of the history cannot be kept: {error}") from error
    return plan, [rows, *(each.rows for each in plan.kept.values())], findings
