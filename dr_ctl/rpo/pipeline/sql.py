"""The columns of the pipeline's tables (docs/rpo-method.md shows where they are stored), and transformations of them as
SQL texts: one call to the JVM instead of a call per column. Loads no Spark."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

import dr_ctl
from dr_ctl.rpo.core.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


_SCHEMES: Final = {"s3": "s3a", "gcs": "gs"}
_PATTERN: Final = re.compile(r"[][{}*?\\]")


def over(text: str, **given: Any) -> DataFrame:
    """Run `text` on the frames that it names in braces; other names in braces are SQL fragments."""
    spark: SparkSession = next(value.sparkSession for value in given.values() if hasattr(value, "sparkSession"))
    views = {name: value for name, value in given.items() if hasattr(value, "sparkSession")}
    # Spark formats the text once more: a frame keeps its name in braces, and braces of a queue's name are doubled.
    words = {name: str(item).replace("{", "{{").replace("}", "}}") for name, item in given.items() if name not in views}
    return spark.sql(text.format(**words, **{name: f"{{{name}}}" for name in views}), **views)


def union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda whole, frame: whole.unionByName(frame), frames)


def text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def url(path: str) -> str:
    """Return the URL of a path, because Spark looks up a path without scheme in its default file system. PyArrow's `s3`
    is Hadoop's `s3a`."""
    if "://" not in path:
        return f"file://{Path(path).absolute()}"
    parts = urlsplit(path)
    return f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}{unquote(parts.path)}"


def settings(path: str) -> dict[str, str]:
    parts = urlsplit(path)
    asked = dict(parse_qsl(parts.query))
    if parts.scheme != "s3":
        return {}
    conf = {"fs.s3a.endpoint.region": asked.get("region", "")}
    if "endpoint_override" in asked:
        scheme = asked.get("scheme", "https")
        conf["fs.s3a.endpoint"] = f"{scheme}://{asked['endpoint_override']}"
        conf |= {"fs.s3a.connection.ssl.enabled": str(scheme == "https").lower(), "fs.s3a.path.style.access": "true"}
    return {name: value for name, value in conf.items() if value}


def escaped(path: str) -> str:
    """Escape a path to read, because Spark takes paths as patterns."""
    return _PATTERN.sub(r"\\\g<0>", path)


_TYPES: Final = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN", pa.float64(): "DOUBLE"}
MADE_OF: Final = ("core/*.py", "pipeline/hours.py", "pipeline/sql.py")


def ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {_TYPES.get(column.type, 'TIMESTAMP')}" for column in schema)


RUN: Final = pa.field("run", pa.int64())
SUMMED: Final = SCHEMA.append(pa.field("hour", pa.int64()))
HOURS: Final = SUMMED.append(RUN)


@cache
def version() -> str:
    root = Path(__file__).parent.parent
    code = hashlib.sha256(b"".join(file.read_bytes() for pattern in MADE_OF for file in sorted(root.glob(pattern))))
    return f"{dr_ctl.__version__} (code {code.hexdigest()[:12]})"


def folder(patterns: object, site: str) -> str:
    """Return the folder of a site's tables, which depends on the code and these patterns."""
    code = version().rpartition(" ")[2].rstrip(")")
    return f"summary/{code}-{hashlib.sha256(json.dumps(patterns).encode()).hexdigest()[:12]}/site={site}"
