"""Python tasks side by side: a task gets a text and returns bytes, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType


def answers(spark: SparkSession, work: Callable[[str], bytes], texts: Sequence[str]) -> list[bytes]:
    """Have `work` answer each text, in a task of its own. Workers import its module, and need what that imports."""

    def of_number(number: int) -> bytes:
        return work(texts[number])

    # Not mapInArrow, which needs pandas and makes a stream of rows; a task has a single answer.
    answer = f.udf(of_number, BinaryType(), useArrow=False)
    numbers = spark.range(0, len(texts), 1, len(texts))
    rows = numbers.select("id", answer("id").alias("answer")).collect()
    return [bytes(row.answer) for row in sorted(rows, key=lambda row: int(row.id))]
