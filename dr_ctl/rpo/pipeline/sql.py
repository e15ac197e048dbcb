"""Transformations as SQL texts: a single call to the JVM instead of a call per column."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

_SCHEMES: Final = {"s3": "s3a", "gcs": "gs"}
_PATTERN: Final = re.compile(r"[][{}*?\\]")


def over(text: str, **given: Any) -> DataFrame:
    """Run `text` on the frames that it names in braces; other names in braces are SQL fragments."""
    spark: SparkSession = next(each.sparkSession for each in given.values() if hasattr(each, "sparkSession"))
    views = {name: each for name, each in given.items() if hasattr(each, "sparkSession")}
    # Spark formats the text once more: a frame keeps its name in braces, and braces of a queue's name are doubled.
    words = {name: str(each).replace("{", "{{").replace("}", "}}") for name, each in given.items() if name not in views}
    return spark.sql(text.format(**words, **{name: f"{{{name}}}" for name in views}), **views)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    whole, *others = frames
    for each in others:
        whole = whole.unionByName(each)
    return whole


def text(value: str | None) -> str:
    """A word as a literal, or NULL for None."""
    if value is None:
        return "CAST(NULL AS STRING)"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def url(path: str) -> str:
    """Name a place so that a Spark elsewhere takes it for this one: a bare path it looks up in a default of its own.
    What PyArrow calls `s3` Hadoop calls `s3a`."""
    if "://" not in path:
        return f"file://{Path(path).absolute()}"
    told = urlsplit(path)
    return f"{_SCHEMES.get(told.scheme, told.scheme)}://{told.netloc}{unquote(told.path)}"


def settings(path: str) -> dict[str, str]:
    """What Hadoop has to know of a place in S3, which PyArrow is told behind a `?`."""
    told = urlsplit(path)
    asked = dict(parse_qsl(told.query))
    if told.scheme != "s3":
        return {}
    found = {"fs.s3a.endpoint.region": asked.get("region", "")}
    if "endpoint_override" in asked:
        scheme = asked.get("scheme", "https")
        found["fs.s3a.endpoint"] = f"{scheme}://{asked['endpoint_override']}"
        found |= {"fs.s3a.connection.ssl.enabled": str(scheme == "https").lower(), "fs.s3a.path.style.access": "true"}
    return {name: value for name, value in found.items() if value}


def escaped(path: str) -> str:
    """A name to read: names are patterns to Spark, so what could be taken for one is escaped."""
    return _PATTERN.sub(r"\\\g<0>", path)


def files(paths: Iterable[str]) -> list[str]:
    return [escaped(url(path)) for path in paths]
