"""Durations as people write them: `20ms`, `5s`, `1m`, `2h`, `30d`."""

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PATTERN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def seconds(text: object) -> float:
    """Turn a duration into seconds; raises ValueError with the remedy for anything else, a bare number included."""
    match = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number with its unit, as in 20ms, 5s, 1m, 2h or 30d")
    return float(match.group(1)) * _UNITS[match.group(2)]


def duration(value_s: float) -> str:
    """Write seconds for people: two digits that matter, in the unit that suits."""
    if value_s < 1:
        return f"{value_s * 1000:.0f} ms"
    if value_s < 60:  # noqa: PLR2004
        return f"{value_s:.2f} s" if value_s < 10 else f"{value_s:.0f} s"  # noqa: PLR2004
    minutes, rest = divmod(round(value_s), 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
