"""A site at stake in its four figures, as people read them, and which objectives they miss. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dr_ctl.core.model import some
from dr_ctl.rpo.estimate.result import LossLimit, Objectives
from dr_ctl.settings.durations import duration

_NOT_KNOWN: Final = "not known"


def figures(total: Mapping[str, Any], column: str) -> str:
    """Figures in a sentence: messages at risk, the oldest one's age, possible doubles, and the time for a drain."""
    lost, twice = (_both(total[key], column, _count) for key in ("loss", "duplicates"))
    age_s, drain_s = (_both(total[key], column, _time) for key in ("age_s", "drain_s"))
    return f"messages lost {lost}, age of the oldest {age_s}, messages twice {twice}, drain {drain_s}"


TOO_FEW: Final = "; none was missed, in looks that are too few, or too late, to say that they are met"


def _both(row: Mapping[str, Any], column: str, write: Callable[[float | None], str]) -> str:
    """The bound, with what is likely before it where that says more."""
    most, likely = write(row.get(column)), row.get("likely", {}).get(column)
    return most if likely is None or write(likely) == most else f"likely {write(likely)} (at most {most})"


def verdict(data: Mapping[str, Any], objectives: Objectives | None) -> str:
    """Whether the objectives are met, and which of them are not."""
    known = objectives is not None and data.get("total") is not None and not any(_unread(data["total"], objectives))
    unknown = f"objectives: not known{TOO_FEW if known else ''}"
    texts = {"met": "objectives met", "missed": "objectives missed", "unknown": unknown}
    text = texts.get(str(data.get("verdict")), "no objectives set")
    which = [] if objectives is None else list(_missed(data, objectives))
    return f"{text}: {some(which)}" if which else text


def _unread(scope: Mapping[str, Any], objectives: Objectives) -> Iterator[str]:
    """Limits whose figure is not known."""
    limits = {"loss": objectives.loss.messages, "age_s": objectives.loss.age_s}
    yield from (name for name, most in limits.items() if most is not None and scope[name].get("p99") is None)


def _missed(data: Mapping[str, Any], objectives: Objectives) -> Iterator[str]:
    """Limits that the 99th percentile exceeds, in all and by class."""
    yield from _above(data["total"], objectives.loss, "")
    limits = {each.queues: each.loss for each in objectives.classes}
    for row in data.get("classes", ()):
        queues = tuple(row["queues"])
        if queues in limits:
            yield from _above(row, limits[queues], f" of {', '.join(queues)}")


def _above(scope: Mapping[str, Any], limit: LossLimit, of: str) -> Iterator[str]:
    lost, age_s = scope["loss"].get("p99"), scope["age_s"].get("p99")
    if limit.messages is not None and lost is not None and lost > limit.messages:
        yield f"{_count(lost)} message(s){of} lost where {limit.messages} are allowed"
    if limit.age_s is not None and age_s is not None and age_s > limit.age_s:
        yield f"the oldest{of} {_time(age_s)} old where {_time(limit.age_s)} are allowed"


def _count(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:g}"


def _time(value_s: float | None) -> str:
    return _NOT_KNOWN if value_s is None else duration(value_s)
