"""Writing figures for people. A figure that is absent or odd is "not known", never zero."""

from datetime import datetime
from typing import Final

from dr_ctl.core.document import number
from dr_ctl.core.notation import NOT_KNOWN, duration

_FIRM: Final = "\N{NO-BREAK SPACE}"
_THIN: Final = "\N{NARROW NO-BREAK SPACE}"


def clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def count(figure: object) -> str:
    """Write a count, or a figure without a unit, with separated thousands."""
    value = number(figure)
    if value is None:
        return NOT_KNOWN
    if value == int(value):
        return f"{int(value):,}".replace(",", _THIN)
    return f"{value:,.1f}".replace(",", _THIN) if abs(value) >= 10 else f"{value:.2g}"  # noqa: PLR2004


def seconds(figure: object) -> str:
    value = number(figure)
    if value is None:
        return NOT_KNOWN
    if value <= 0:
        return f"0{_FIRM}s"
    words = "under 1 ms" if value < 0.0005 else duration(value)  # noqa: PLR2004 - what `duration` would call 0 ms
    # "5 min 0 s" says no more than "5 min"; and no line ends between a figure and its unit.
    return words.removesuffix(" 0 s").removesuffix(" 0 min").replace(" ", _FIRM)


def many(amount: int, one: str, more: str | None = None) -> str:
    return f"{count(amount)} {one if amount == 1 else more or one + 's'}"
