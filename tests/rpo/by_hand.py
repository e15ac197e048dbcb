"""An estimate by hand: the files read with PyArrow, cut into hours, each hour asked of the mathematics, and the rows
added up in this process. What Spark says is held against this."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.arrays import DAY_US, HOUR_US, SECOND_US
from dr_ctl.rpo.core.calibration import backtested
from dr_ctl.rpo.core.cut import READ
from dr_ctl.rpo.core.hour import HORIZON_US, HourQuery, hour
from dr_ctl.rpo.core.rows import ADDED, CLASS, OWN, REACH, SCHEMA, TOTAL, VALUES, class_name, fineness
from dr_ctl.rpo.core.scope import Facts, figures, pair_of
from dr_ctl.rpo.estimate.estimate import LoadedHistory, nothing_of
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.files import Sources, Store, rows_of
from dr_ctl.rpo.history.row import micros

KEYS = [name for name in SCHEMA.names if name not in VALUES]


def made(asked: Request, now_us: int) -> LoadedHistory | Finding:
    folder = Store.of(asked.history).folder
    findings, sites = list[Finding](), dict[str, list[pa.Table]]()
    for name in sorted({path.name.removeprefix("site=") for path in folder.glob("date=*/site=*")}):
        told = (rows_of([source], findings, READ) for source in Sources(folder).newest_first(name))
        if tables := [table for table in told if table.num_rows]:
            sites[name] = tables
    serving = _serving(sites, now_us + HOUR_US if asked.until is None else micros(asked.until))
    site = asked.site or serving
    if site not in sites:
        return nothing_of(site, set(sites))
    looks, ends = pa.concat_tables(sites[site]).sort_by("ts"), [us_of(table)[-1] for table in sites[site]]
    us = us_of(looks)
    limit_us = (
        now_us + HOUR_US if us[0] <= now_us + HOUR_US else us[-1]
    )  # of readings far in the future nothing is said
    until_us, since_us = int(us[us <= limit_us][-1]), int(us[0] - us[0] % HOUR_US)
    until_us = until_us if asked.until is None else min(until_us, micros(asked.until))
    since_us = since_us if asked.since is None else max(since_us, micros(asked.since))
    classes = () if asked.objectives is None else tuple(group.queues for group in asked.objectives.classes)
    cell_us = max(SECOND_US, (until_us + 1 - max(since_us, int(us[0]))) // 192) if asked.is_backtest else 0
    horizons = tuple(int(horizon_s * SECOND_US) for horizon_s in asked.horizons_s)
    span = int(us[0]), until_us + 1, since_us, until_us + 1
    orders = HourQuery(*span, asked.include, asked.exclude, classes, horizons, cell_us)
    rows = concatenated([*hours(looks, orders)])
    facts = facts_of(rows)
    if facts.flows and int(asked.horizon_s * SECOND_US) != HORIZON_US and not asked.is_backtest:  # of the last day
        horizon_us = int(asked.horizon_s * SECOND_US)
        from_us = max(facts.span_us[0], facts.span_us[1] - DAY_US - horizon_us)
        far = hours(looks, replace(orders, from_us=from_us, horizons_us=(horizon_us,)))
        rows = pa.concat_tables([rows, *(table.filter(pc.field("kind") == "change") for table in far)])
    scopes = [TOTAL, *map(class_name, range(len(classes))), *facts.flows]
    late = [int(end) for end in ends if end > limit_us]
    told = partial(lambda rows, ask: {one: figures(one, of_scope(rows, one, ask.end_us), ask) for one in scopes}, rows)
    whose = told, lambda ask: backtested(TOTAL, of_scope(rows, TOTAL), ask)
    return LoadedHistory(
        site, serving, until_us + 1, facts, *whose, tuple(findings), (len(late), max(late)) if late else None
    )


def us_of(looks: pa.Table) -> Any:
    return np.sort(looks["ts"].cast(pa.int64()).to_numpy())


class Looks:
    def __init__(self, looks: pa.Table) -> None:
        of_queues = pc.equal(looks["kind"], "queue")
        self._held = [(table, us_of(table)) for table in (looks.filter(of_queues), looks.filter(pc.invert(of_queues)))]

    def _between(self, which: int, from_us: int, to_us: int) -> pa.Table:
        table, us = self._held[which]
        begin, end = np.searchsorted(us, [from_us, to_us])
        return table.slice(begin, end - begin)

    def others(self, from_us: int, to_us: int) -> pa.Table:
        return self._between(1, from_us, to_us)

    def moments(self, from_us: int, to_us: int) -> pa.Table:
        return self._between(0, from_us, to_us).select(["ts", "pair"])

    def queues(self, from_us: int, to_us: int, before_us: Any) -> list[pa.Table]:
        table, us = self._held[0]
        before = table.filter(pa.array(np.isin(us, before_us))) if len(before_us) else table.slice(0, 0)
        return [pa.concat_tables([before, self._between(0, from_us, to_us)])]


def hours(looks: pa.Table, orders: HourQuery) -> Iterator[pa.Table]:
    """The rows that add up of each hour; looks come in the order of their time."""
    read = Looks(looks)
    for hour_us in range(orders.from_us - orders.from_us % HOUR_US, orders.to_us, HOUR_US):
        yield hour(read, hour_us, orders).filter(pc.field("kind") != REACH)


def _serving(sites: dict[str, list[pa.Table]], until_us: int) -> str | None:
    """The site whose newest role is serving; failing that, the one seen serving last."""
    of_sites = [(site, table.filter(pc.field("kind") == "site")) for site in sites for table in sites[site]]
    told = sorted((micros(row["ts"]), site, row["name"]) for site, table in of_sites for row in table.to_pylist())
    newest = {site: role for us, site, role in told if us <= until_us}
    served = {site: us for us, site, role in told if us <= until_us and role == "serving"}
    return max(served, key=lambda site: (newest[site] == "serving", served[site]), default=None)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables([SCHEMA.empty_table(), *tables]).group_by([*KEYS], use_threads=False).aggregate([*ADDED])
    return rows.rename_columns([*KEYS, *(name for name, _ in ADDED)]).select(SCHEMA.names).cast(SCHEMA)


def facts_of(rows: pa.Table) -> Facts:
    sums = rows.group_by(["kind", "scope", "name"], use_threads=False).aggregate([*ADDED, ("cell", "max")])
    sums = sums.rename_columns([name.partition("_")[0] for name in sums.column_names]).to_pylist()
    looks = rows.filter(pc.field("kind") == "readings").select(["scope", "cell"]).to_pylist()
    return Facts.of(sums, {(pair_of(row["scope"]), row["cell"]) for row in looks})


def of_scope(rows: pa.Table, scope: str, end_us: int = 0) -> pa.Table:
    kinds, is_shared = pc.field("kind"), scope == TOTAL or scope.startswith(CLASS)
    is_own, of_total = kinds.isin(OWN), (pc.field("is_total") | (kinds == "check")) & pc.scalar(scope == TOTAL)
    rows = rows.filter((pc.field("scope") == scope) | (is_own & pc.scalar(is_shared)) | (~is_own & of_total))
    own = pc.is_in(rows["kind"], pa.array(OWN))
    rows = rows.set_column(rows.column_names.index("flow"), "flow", pc.if_else(own, rows["scope"], rows["flow"]))
    return in_cells(rows, end_us) if end_us else rows


def in_cells(rows: pa.Table, end_us: int) -> pa.Table:
    """The rows in cells as a history tells them that ends then: what was summed up before a day was over, coarser."""
    told, lengths = zip(rows["kind"].to_pylist(), rows["cell"].to_pylist(), strict=True), {"curve": "curve_us"}
    cells = [us - us % getattr(fineness(us, end_us), lengths.get(kind, "figures_us")) for kind, us in told]
    return rows.set_column(rows.column_names.index("cell"), "cell", pa.array(cells, pa.int64()))
