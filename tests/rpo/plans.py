"""The shape of a physical plan: what costs, counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PYTHON = r"Python|MapInPandas|MapInArrow|FlatMapGroups|MapPartitions|DeserializeToObject"


def shape(frame: DataFrame) -> dict[str, int]:
    """Count the scans of files, the wide exchanges (a broadcast is none), the sorts and the steps through Python."""
    plan = _plan(frame).toString()
    return {
        "scans": len(re.findall(r"FileScan", plan)),
        "exchanges": len(re.findall(r"(?<!Broadcast)(?<!Reused)Exchange (?:hash|range|Single|Round)", plan)),
        "sorts": len(re.findall(r"\bSort \[", plan)),
        "python": len(re.findall(PYTHON, plan)),
    }


@dataclass(frozen=True)
class Scan:
    """What is read of files: only these columns; `pushed` is asked of row groups, `pruned` of directories."""

    columns: frozenset[str]
    pushed: str
    pruned: str


def scans(frame: DataFrame) -> list[Scan]:
    leaves = _plan(frame).collectLeaves()
    files = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.nodeName().startswith("Scan parquet")]
    return [
        Scan(
            frozenset(file.requiredSchema().fieldNames()),
            file.dataFilters().mkString(", "),
            file.partitionFilters().mkString(", "),
        )
        for file in files
    ]


def windows(frame: DataFrame) -> int:
    """How many times rows pass a window: each holds all of a partition."""
    return len(re.findall(r"\bWindow \[", _plan(frame).toString()))


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().executedPlan()
