"""Slices as rows of a DataFrame, each in a task of its own; what the tasks answer adds up, and Spark adds it up.

A task is a table function over Arrow batches: `mapInArrow` does the same, and would bring pandas into every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from dr_ctl.rpo.core.rows import ADDED, KEYS, SCHEMA
from dr_ctl.rpo.estimate.slices import Slice, answer
from dr_ctl.rpo.spark.session import session

_TYPES: Final = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}


class Task:
    """Does the slices of a partition, one after the other. Workers import this module, and what it imports."""

    def eval(self, slices: Any) -> Iterator[pa.Table]:
        for text in slices.column("slice").to_pylist():
            yield from answer(Slice.from_json(text))


@contextmanager
def workers(master: str, conf: Mapping[str, str]) -> Iterator[Callable[[Sequence[Slice]], pa.Table]]:
    """Start Spark, and do slices in it until the block is over. Raises EnvironmentFault."""
    with session(master=master, conf=conf, is_busy=False) as spark:
        yield lambda slices: done(spark, slices)


def done(spark: SparkSession, slices: Sequence[Slice]) -> pa.Table:
    """Have Spark do all slices, side by side, and put rows with equal keys together."""
    columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in SCHEMA)
    task: Any = f.arrow_udtf(Task, returnType=columns)
    spark.udtf.register("dr_ctl_task", task)
    told = pa.table({"number": list(range(len(slices))), "slice": [each.to_json() for each in slices]})
    orders = spark.createDataFrame(told).repartitionByRange(len(slices), "number")
    sums = ", ".join(f"{how}({name}) AS {name}" for name, how in ADDED)
    keys = ", ".join(KEYS)
    rows = spark.sql(f"SELECT {keys}, {sums} FROM dr_ctl_task(TABLE({{orders}})) GROUP BY {keys}", orders=orders)
    return rows.toArrow().select(SCHEMA.names).cast(SCHEMA)
