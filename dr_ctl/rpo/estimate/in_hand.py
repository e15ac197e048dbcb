"""Rows that add up, in this process: what they tell of a history, and the figures of each scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.calendar import HOUR, SECOND, Calendar
from dr_ctl.rpo.core.calibration import Tested, backtested
from dr_ctl.rpo.core.facts import Facts, Made, pair_of
from dr_ctl.rpo.core.rows import ADDED, CLASS, OWN, SCHEMA, TOTAL, class_name
from dr_ctl.rpo.core.scope import Ask, OfScope, figures
from dr_ctl.rpo.core.summary import HORIZON_US
from dr_ctl.rpo.estimate import run
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.run import Do
from dr_ctl.rpo.history.row import moment


def made(asked: Request, now_us: int, do: Do | None = None) -> Made | Finding:
    told = run.rows_of(asked, now_us, do)
    if isinstance(told, Finding):
        return told
    plan, tables, findings = told
    rows = pa.concat_tables([SCHEMA.empty_table(), *tables])
    facts = facts_of(rows)
    if facts.flows and asked.horizon_s * SECOND != HORIZON_US and not asked.tested:
        rows = pa.concat_tables([rows, _far(asked, plan.site, facts, now_us, do)])
    classes = 0 if asked.objectives is None else len(asked.objectives.classes)
    ahead = None if not plan.ahead else (len(plan.ahead), max(each.last_us for each in plan.ahead))
    return Made(
        plan.site,
        plan.serving,
        plan.calendar.end_us,
        facts,
        partial(figures_of, rows, classes),
        partial(tested_of, rows),
        tuple(findings),
        ahead,
    )


def _far(asked: Request, site: str, facts: Facts, now_us: int, do: Do | None) -> pa.Table:
    """Changes that summaries do not hold: changes within another time than the usual, of the last day."""
    first, last = facts.span_us
    since_us = max(first, last - 24 * HOUR - int(asked.horizon_s * SECOND))
    day = replace(asked, site=site, since=moment(since_us), until=moment(last), settled=False, store=False,
                  horizons_s=(asked.horizon_s,))  # fmt: skip
    told = run.rows_of(day, now_us, do)
    assert not isinstance(told, Finding)
    return told[1][0].filter(pc.field("kind") == "change")


def facts_of(rows: pa.Table) -> Facts:
    keys, values = ["kind", "scope", "name"], [*ADDED, ("cell", "max")]
    sums = rows.group_by(keys, use_threads=False).aggregate(values).to_pylist()
    names = ["kind", "scope", "name", "weight_sum", "count_sum", "most_max", "least_min", "cell_max"]
    looks = rows.filter(pc.field("kind") == "looks")
    hours = {(pair_of(flow), hour) for flow, hour in zip(looks["scope"].to_pylist(), looks["cell"].to_pylist(), strict=True)}  # fmt: skip  # noqa: E501
    return Facts.of([tuple(each[name] for name in names) for each in sums], hours)


def figures_of(rows: pa.Table, classes: int, ask: Ask) -> Mapping[str, OfScope]:
    flows = rows.filter(pc.field("kind") == "looks")["scope"].unique().to_pylist()
    names = [TOTAL, *map(class_name, range(classes)), *flows]
    return {name: figures(name, of_scope(rows, name, ask.end_us), ask) for name in names}


def tested_of(rows: pa.Table, ask: Ask) -> Tested:
    return backtested(TOTAL, of_scope(rows, TOTAL), ask)


def of_scope(rows: pa.Table, scope: str, end_us: int = 0) -> pa.Table:
    """The rows that tell of a scope; in the cells of their time, where a history has an end."""
    is_own = pc.is_in(rows["kind"], pa.array(OWN))
    told = pc.and_(pc.equal(rows["scope"], scope), pc.invert(is_own))
    if scope == TOTAL:
        told = pc.or_(pc.or_(told, rows["is_total"]), pc.equal(rows["kind"], "check"))
    own = is_own if scope == TOTAL or scope.startswith(CLASS) else pc.and_(is_own, pc.equal(rows["scope"], scope))
    mine = rows.filter(pc.or_(told, own))
    flow = pc.if_else(pc.is_in(mine["kind"], pa.array(OWN)), mine["scope"], mine["flow"])
    mine = mine.set_column(mine.column_names.index("flow"), "flow", flow)
    if not end_us:
        return mine
    cells = mine["cell"].to_numpy()
    days, day = np.unique(cells - cells % (24 * HOUR), return_inverse=True)
    fineness = [Calendar(end_us).fineness(each) for each in days.tolist()]
    of_curves = pc.equal(mine["kind"], "curve").to_numpy(zero_copy_only=False)
    both = np.array([[each.figures_us, each.curve_us] for each in fineness], np.int64).reshape(-1, 2)[day]
    lengths = np.where(of_curves, both[:, 1], both[:, 0]) if len(cells) else cells
    return mine.set_column(mine.column_names.index("cell"), "cell", pa.array(cells - cells % np.maximum(1, lengths)))
