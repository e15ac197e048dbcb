"""What the series of an estimate are called: the total, each class, each flow. No Spark here."""

from __future__ import annotations

from typing import Final

TOTAL: Final = "total"
CLASS: Final = "class:"
FLOW: Final = "flow:"
METRICS: Final = ("loss", "age_ms", "duplicates", "drain_ms")


def flow_scope(pair: str, flow: str) -> str:
    """Name the scope of one flow; its parts are separated by what no name of a pair holds."""
    return f"{FLOW}{pair}\n{flow}"
