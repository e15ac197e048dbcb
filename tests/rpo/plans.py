"""The shape of a physical plan: what costs, counted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PYTHON = r"Python|MapInPandas|MapInArrow|FlatMapGroups|MapPartitions|DeserializeToObject"


def shape(frame: DataFrame) -> dict[str, int]:
    """Count the scans of files, the wide exchanges (a broadcast is none), the sorts and the steps through Python."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return {
        "scans": len(re.findall(r"FileScan", plan)),
        "exchanges": len(re.findall(r"(?<!Broadcast)(?<!Reused)Exchange (?:hash|range|Single|Round)", plan)),
        "sorts": len(re.findall(r"\bSort \[", plan)),
        "python": len(re.findall(PYTHON, plan)),
    }
