"""An estimate by hand: the files read with PyArrow, cut into hours, each hour asked of the mathematics, and the rows
added up in this process. What Spark says is held against this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.calendar import DAY, HOUR, SECOND, fineness
from dr_ctl.rpo.core.calibration import Tested, backtested
from dr_ctl.rpo.core.columns import READ
from dr_ctl.rpo.core.cut import AWAY_US
from dr_ctl.rpo.core.facts import Facts, Made, pair_of
from dr_ctl.rpo.core.hour import SHORT, Orders, hour, needs
from dr_ctl.rpo.core.rows import ADDED, CLASS, KEYS, OWN, SCHEMA, TOTAL, class_name
from dr_ctl.rpo.core.scope import Ask, OfScope, figures
from dr_ctl.rpo.core.summary import HORIZON_US
from dr_ctl.rpo.estimate import notes
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.row import micros
from dr_ctl.rpo.history.sources import Source
from dr_ctl.rpo.history.store import Store
from tests.rpo.usable import usable_files

PARTS = 24 * 8
AHEAD_US = HOUR


def made(asked: Request, now_us: int) -> Made | Finding:
    """Of files that can be read; of looks far in the future nothing is said."""
    files, findings = usable_files(Path(asked.history))
    sites: dict[str, list[pa.Table]] = {}
    for path in files:
        source = Source(Store.of(asked.history), path.relative_to(asked.history).as_posix())
        if (why := source.torn()) is not None:
            findings.append(source.without(why))
            continue
        sites.setdefault(path.parent.name.removeprefix("site="), []).append(pq.ParquetFile(path).read(columns=[*READ]))
    looks = {site: pa.concat_tables(tables).sort_by("ts") for site, tables in sites.items()}
    serving = _serving(looks, now_us + AHEAD_US if asked.until is None else micros(asked.until))
    site = asked.site or serving
    if site not in looks:
        return notes.nothing_of(site, set(looks))
    us = looks[site]["ts"].cast(pa.int64()).to_numpy()
    limit_us = now_us + AHEAD_US if us[0] <= now_us + AHEAD_US else us[-1]
    late = [each for table in sites[site] if (each := pc.max(table["ts"].cast(pa.int64())).as_py()) > limit_us]
    until_us = int(us[us <= limit_us][-1])
    until_us = until_us if asked.until is None else min(until_us, micros(asked.until))
    begin_us = int(us[0])
    since_us = (
        begin_us - begin_us % HOUR if asked.since is None else max(begin_us - begin_us % HOUR, micros(asked.since))
    )
    classes = () if asked.objectives is None else tuple(each.queues for each in asked.objectives.classes)
    cell_us = max(SECOND, (until_us + 1 - max(since_us, begin_us)) // PARTS) if asked.tested else 0
    horizons = tuple(int(each * SECOND) for each in asked.horizons_s)
    orders = Orders(
        begin_us, until_us + 1, since_us, until_us + 1, asked.include, asked.exclude, classes, horizons, cell_us
    )
    rows = together([SCHEMA.empty_table(), *hours(looks[site], orders)])
    facts, usual_s = facts_of(rows), HORIZON_US / SECOND
    if facts.flows and asked.horizon_s != usual_s and not asked.tested:  # of the last day
        from_us = max(facts.span_us[0], facts.span_us[1] - DAY - int(asked.horizon_s * SECOND))
        far = replace(orders, from_us=from_us, horizons_us=(int(asked.horizon_s * SECOND),))
        changes = [each.filter(pc.field("kind") == "change") for each in hours(looks[site], far)]
        rows = pa.concat_tables([rows, *changes])
    whose = partial(figures_of, rows, len(classes)), partial(tested_of, rows)
    ahead = (len(late), max(late)) if late else None
    return Made(site, serving, orders.end_us, facts, *whose, tuple(findings), ahead)


def hours(looks: pa.Table, orders: Orders) -> Iterator[pa.Table]:
    """The rows that add up of each hour; looks come in the order of their time."""
    us, is_queue = looks["ts"].cast(pa.int64()).to_numpy(), pc.equal(looks["kind"], "queue").to_numpy()
    for hour_us in range(orders.from_us - orders.from_us % HOUR, orders.to_us, HOUR):
        further, end_us = 0, min(hour_us + HOUR + AWAY_US, orders.end_us)
        while True:
            from_us, needed = orders.reach_us(hour_us, further), np.zeros(0, np.int64)
            at = slice(*np.searchsorted(us, [from_us, end_us]).tolist())
            around = looks.slice(at.start, at.stop - at.start)
            if further and (told := needs(around, hour_us, orders, from_us)) is not None:
                needed = told
            kept = ~is_queue[at] | (us[at] >= hour_us - AWAY_US) | np.isin(us[at], needed)
            found = hour(around.filter(pa.array(kept)), hour_us, orders, from_us)
            if SHORT not in found["kind"].to_pylist():
                yield found
                break
            further += 1


def _serving(looks: dict[str, pa.Table], until_us: int) -> str | None:
    """The site whose newest role is serving; failing that, the one seen serving last."""
    newest, served = {}, {}
    for site, table in looks.items():
        roles = table.filter((pc.field("kind") == "site") & (pc.field("ts").cast(pa.int64()) <= until_us))
        told = sorted(zip(roles["ts"].cast(pa.int64()).to_pylist(), roles["name"].to_pylist(), strict=True))
        if told and told[-1][1] == "serving":
            newest[site] = told[-1][0]
        if times := [us for us, role in told if role == "serving"]:
            served[site] = times[-1]
    return max(newest or served, key=(newest or served).__getitem__, default=None)


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows with equal keys put together."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
    found = whole.group_by([*KEYS], use_threads=False).aggregate([*ADDED])
    return found.rename_columns([*KEYS, *(name for name, _ in ADDED)]).select(SCHEMA.names).cast(SCHEMA)


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
    days, day = np.unique(cells - cells % DAY, return_inverse=True)
    fine = [fineness(each, end_us) for each in days.tolist()]
    of_curves = pc.equal(mine["kind"], "curve").to_numpy(zero_copy_only=False)
    both = np.array([[each.figures_us, each.curve_us] for each in fine], np.int64).reshape(-1, 2)[day]
    lengths = np.where(of_curves, both[:, 1], both[:, 0]) if len(cells) else cells
    return mine.set_column(mine.column_names.index("cell"), "cell", pa.array(cells - cells % np.maximum(1, lengths)))
