"""Reading JSON without trust: an absent or odd value is empty or None, never zero."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


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
