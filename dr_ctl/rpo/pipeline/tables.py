"""The tables of the pipeline. Loads no Spark.

    history/date=D/site=S/            looks, as the monitor writes them
    history/summary/KEY/site=S/files  a ledger of the files that were read: the newest run of a file counts
    history/summary/KEY/site=S/hours  rows that add up, by day=D: the newest run of an hour counts

KEY tells the code and the patterns of queues that the hours were summed up by. Runs are only appended; a day that is
over is rewritten once. All of `summary` may be removed at any time.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa

import dr_ctl
from dr_ctl.rpo.core.columns import READ
from dr_ctl.rpo.core.rows import SCHEMA
from dr_ctl.rpo.history import files

_TYPES: Final = {pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN", pa.float64(): "DOUBLE"}
MADE_OF: Final = ("core/*.py", "pipeline/hours.py", "pipeline/tables.py")


def ddl(schema: pa.Schema) -> str:
    """The columns as Spark names their types."""
    return ", ".join(f"{each.name} {_TYPES.get(each.type, 'TIMESTAMP')}" for each in schema)


LOOKS: Final = ddl(pa.schema([files.SCHEMA.field(name) for name in READ]))
RUN: Final = pa.field("run", pa.int64())
FILES: Final = pa.schema(
    [
        ("file", pa.string()),
        *((name, pa.int64()) for name in ("length", "modified", "first_us", "last_us", "rows")),
        ("why", pa.string()),
        RUN,
    ]
)
"""A file of a site by its name; what told this state of it from others, the time of its
looks, why it is left out if it is. A file that has gone has the length -1."""
SUMMED: Final = SCHEMA.append(pa.field("hour", pa.int64()))
HOURS: Final = SUMMED.append(RUN)
"""Beside the rows that add up one of kind REACH of every hour: from when on looks at outflows were read for it."""
REACH: Final = "reach"


@cache
def version() -> str:
    """The version of the code that sums hours up."""
    root = Path(__file__).parent.parent
    code = hashlib.sha256(b"".join(file.read_bytes() for each in MADE_OF for file in sorted(root.glob(each))))
    return f"{dr_ctl.__version__} (code {code.hexdigest()[:12]})"


def folder(patterns: object, site: str) -> str:
    """Where the tables of a site lie, by the code and by these patterns."""
    code = version().rpartition(" ")[2].rstrip(")")
    return f"summary/{code}-{hashlib.sha256(json.dumps(patterns).encode()).hexdigest()[:12]}/site={site}"
