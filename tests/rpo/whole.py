"""What files say as one series, without slices and rows that add up: for tests that look at single intervals."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dr_ctl.rpo.core.columns import READ, Columns
from dr_ctl.rpo.core.cut import Outflows
from dr_ctl.rpo.core.hour import Orders
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.steps import Course


def course_of(
    paths: Sequence[str], *, classes: tuple[tuple[str, ...], ...] = (), exclude: tuple[str, ...] = ()
) -> Course:
    tables = [pq.ParquetFile(path).read(columns=[*READ]) for path in sorted(paths)]
    rows = Columns.of(pa.concat_tables(tables))
    flows = Outflows.of(rows)
    mask_of = Orders(0, 0, 0, 0, exclude=exclude, classes=classes).mask
    return Course(flows, Queues.of(rows, flows, mask_of, 1 + len(classes), (0, 1 << 62)))
