"""The estimate's plan by its shape: what is read, how often it is moved and sorted, and that Python sees no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dr_ctl.rpo.estimate import distribution, looks, spans
from dr_ctl.rpo.estimate.facts import facts
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.work import Work
from dr_ctl.rpo.history.files import write
from tests.rpo.plans import scans, shape, windows
from tests.rpo.simulator import LOADS, history

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

OF_AN_OUTFLOW = {"ts", "pair", "kind", "name", "depth", "added", "removed", "link", "start"}
OF_A_QUEUE = {"ts", "pair", "kind", "name", "depth", "added", "removed", "acked", "oldest_ms", "start"}


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    written, _ = history(LOADS[0], 1, hours=0.1, pair="p")
    return looks.read(spark, [str(path) for path in write(written, tmp_path)], Request(history=tmp_path))


@pytest.fixture
def work(rows: DataFrame) -> Work:
    outflows = looks.outflow_looks(rows).localCheckpoint()
    flows = facts(looks.facts(rows, outflows).collect()).flows
    return Work(rows, outflows, "london", flows, spans.masks(("#",), (), ()), 0)


def test_outflows_are_read_once_by_their_columns_and_moved_once(rows: DataFrame) -> None:
    plan = looks.outflow_looks(rows)

    [scan] = scans(plan)
    assert scan.columns == OF_AN_OUTFLOW
    assert "kind" in scan.pushed
    assert shape(plan)["exchanges"] == 1
    assert shape(plan)["python"] == 0


def test_queues_are_read_once_by_their_columns_and_moved_once_before_they_are_added_up(work: Work) -> None:
    plan = work.by_flow()

    [scan] = scans(plan)
    assert scan.columns == OF_A_QUEUE
    assert "kind" in scan.pushed
    assert "site" in scan.pruned
    # One move brings the looks of a queue together, one those of an outflow, one the parts of a sum. Sorted are the
    # queues by time, by where the cut falls and by time again, and the outflows by time.
    assert shape(plan) == {"scans": 1, "exchanges": 3, "sorts": 4, "python": 0}
    assert windows(plan) == 4


def test_two_cuts_cost_one_more_sort_and_nothing_is_moved_for_them(work: Work) -> None:
    queues = spans.queue_looks(work.rows, work.outflows, work.site, work.flows, masks=work.masks)
    one, both = (spans.cut_looks(queues, split=split) for split in (False, True))

    assert shape(one)["exchanges"] == shape(both)["exchanges"] == 1
    assert (shape(one)["sorts"], shape(both)["sorts"]) == (2, 3)


def test_from_the_bounds_on_no_file_is_read_again(work: Work) -> None:
    bounds = work.by_flow().localCheckpoint()
    states = work.states(bounds)
    blocks = work.blocks()
    last_day = distribution.moves(states, blocks, horizon_us=300_000_000, since_us=0)

    for plan in (states, distribution.histograms(states, blocks), last_day, distribution.here(bounds)):
        assert scans(plan) == []
        assert shape(plan)["python"] == 0
