"""Waiting for a condition, bounded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def eventually(true: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Return once it is true; AssertionError where it is not in time."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, "did not come true in time"
        time.sleep(0.01)
