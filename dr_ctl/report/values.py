"""Reading JSON without trust, and writing figures for people. An absent or odd value is None, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dr_ctl.settings.durations import duration

NOT_KNOWN: Final = "not known"
_FIRM: Final = "\N{NO-BREAK SPACE}"
_THIN: Final = "\N{NARROW NO-BREAK SPACE}"


def mapping(value: object) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """The list, or an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def text(value: object) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """The finite number; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < float("inf") else None


def moment(value: object) -> datetime | None:
    """An ISO 8601 time, in UTC."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if at is None:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def clock(at: datetime) -> str:
    """The time of day, for rows under a date."""
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def count(figure: object) -> str:
    """A count, or any figure without a unit, with its thousands apart."""
    value = number(figure)
    if value is None:
        return NOT_KNOWN
    if value == int(value):
        return f"{int(value):,}".replace(",", _THIN)
    return f"{value:,.1f}".replace(",", _THIN) if abs(value) >= 10 else f"{value:.2g}"  # noqa: PLR2004


def seconds(figure: object) -> str:
    """A duration given in seconds."""
    value = number(figure)
    if value is None:
        return NOT_KNOWN
    if value <= 0:
        return f"0{_FIRM}s"
    words = "under 1 ms" if value < 0.0005 else duration(value)  # noqa: PLR2004 - what `duration` would call 0 ms
    # "5 min 0 s" says no more than "5 min"; and no line ends between a figure and its unit.
    return words.removesuffix(" 0 s").removesuffix(" 0 min").replace(" ", _FIRM)


def many(amount: int, one: str, more: str | None = None) -> str:
    """An amount with its noun."""
    return f"{count(amount)} {one if amount == 1 else more or one + 's'}"
