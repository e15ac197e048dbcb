"""Transformations as SQL texts: one call to the JVM instead of one for every column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

_PATTERN: Final = re.compile(r"[][{}*?\\]")


def over(text: str, **given: Any) -> DataFrame:
    """Ask `text` of the frames that it names in braces; all else in braces is SQL and goes in as it stands."""
    spark: SparkSession = next(each.sparkSession for each in given.values() if hasattr(each, "sparkSession"))
    views = {name: each for name, each in given.items() if hasattr(each, "sparkSession")}
    # Formatted here, and by Spark once more: a frame stays its name in braces, braces in SQL (a queue's name) are kept.
    words = {name: str(each).replace("{", "{{").replace("}", "}}") for name, each in given.items() if name not in views}
    return spark.sql(text.format(**words, **{name: f"{{{name}}}" for name in views}), **views)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    whole, *others = frames
    for each in others:
        whole = whole.unionByName(each)
    return whole


def text(value: str | None) -> str:
    """A word as a literal; None is null."""
    if value is None:
        return "CAST(NULL AS STRING)"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def url(path: str) -> str:
    """Name a place so that a Spark elsewhere takes it for this one: a bare path it looks up in a default of its own."""
    return f"file://{Path(path).absolute()}"


def files(paths: Iterable[str]) -> list[str]:
    """Name files to read: their names are patterns to Spark, so what could be taken for one is escaped."""
    return [_PATTERN.sub(r"\\\g<0>", url(path)) for path in paths]


def rows(columns: str, given: Sequence[tuple[str, ...]], empty: str) -> str:
    """A small table written out: `given` are literals; `empty` the literals of one row that gives the types."""
    values = ", ".join(f"({', '.join(row)})" for row in given or [(empty,)])
    return f"(SELECT * FROM VALUES {values} AS t({columns}) WHERE {'true' if given else 'false'})"
