"""A site at stake in its four figures, as people read them, and which objectives they miss. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from dr_ctl.core.model import some
from dr_ctl.core.notation import duration
from dr_ctl.rpo.estimate.result import LossLimit, Objectives

_NOT_KNOWN: Final = "not known"


def figures(total: Mapping[str, Any], column: str) -> str:
    """Figures in a sentence: messages at risk, the oldest one's age, possible doubles, and the time for a drain."""
    lost, duplicates = (_both(total[key], column, _count) for key in ("loss", "duplicates"))
    age_s, drain_s = (_both(total[key], column, _time) for key in ("age_s", "drain_s"))
    return f"messages lost {lost}, age of the oldest {age_s}, duplicates {duplicates}, drain {drain_s}"


TOO_FEW: Final = " (too few readings, or too late); no violation seen"


def _both(row: Mapping[str, Any], column: str, write: Callable[[float | None], str]) -> str:
    """The bound, with what is likely before it where that says more."""
    most, likely = write(row.get(column)), row.get("likely", {}).get(column)
    return most if likely is None or write(likely) == most else f"likely {write(likely)} (at most {most})"


def as_of(data: Mapping[str, Any]) -> str:
    """What the figures of a site that is away are not; empty for one that is not."""
    outage = data.get("outage")
    if not outage:
        return ""
    return f"as of {outage['last_served']}, before the outage of {data['site']}; not the price of a failover now"


def limits(objectives: Objectives | None) -> Mapping[tuple[str, ...], Mapping[str, float]]:
    """The limits by scope (of the total: no queues) and figure."""
    if objectives is None:
        return {}
    told = {(): objectives.loss, **{each.queues: each.loss for each in objectives.classes}}
    pairs = {queues: {"loss": limit.messages, "age_s": limit.age_s} for queues, limit in told.items()}
    return {queues: {key: most for key, most in each.items() if most is not None} for queues, each in pairs.items()}


def verdict(data: Mapping[str, Any], objectives: Objectives | None) -> str:
    """Whether the objectives are met, which of them are missed by what is likely, and which nobody can tell."""
    told = str(data.get("verdict"))
    if told not in ("missed", "unknown"):
        return "objectives met" if told == "met" else "no objectives set"
    if objectives is None or data.get("total") is None:
        return "objectives missed" if told == "missed" else "objectives: not known"
    limits = list(_limited(data, objectives))
    if told == "missed":
        return f"objectives missed: {some([each.missed for each in limits if each.is_missed])}"
    if all(each.most is not None for each in limits):
        which = [each.untold for each in limits if each.is_untold]
        return f"objectives: cannot tell: {some(which)}" if which else f"objectives: not known{TOO_FEW}"
    return f"objectives: not known: {some([each.untold for each in limits if each.is_untold])}"


class _Limited(NamedTuple):
    """A limit beside the 99th percentile of its figure: likely, and at most."""

    of: str
    is_count: bool
    limit: float
    likely: float | None
    most: float | None

    @property
    def is_missed(self) -> bool:
        """By what is likely; by the bound where nothing else was told, as of an estimate that is older."""
        told = self.most if self.likely is None else self.likely
        return told is not None and told > self.limit

    @property
    def is_untold(self) -> bool:
        return not self.is_missed and (self.most is None or self.most > self.limit)

    @property
    def missed(self) -> str:
        told, likely = (self.most, "") if self.likely is None else (self.likely, "likely ")
        if self.is_count:
            return f"{likely}{_count(told)} message(s){self.of} lost where {_count(self.limit)} are allowed"
        return f"the oldest{self.of} {likely}{_time(told)} old where {_time(self.limit)} are allowed"

    @property
    def untold(self) -> str:
        write, what = (_count, "messages lost") if self.is_count else (_time, "age of the oldest")
        both = _NOT_KNOWN if self.most is None else f"likely {write(self.likely)}, at most {write(self.most)}"
        return f"{what}{self.of} {both}, where {write(self.limit)} are allowed"


def _limited(data: Mapping[str, Any], objectives: Objectives) -> Iterator[_Limited]:
    yield from _limits_of(data["total"], objectives.loss, "")
    limits = {each.queues: each.loss for each in objectives.classes}
    for row in data.get("classes", ()):
        queues = tuple(row["queues"])
        if queues in limits:
            yield from _limits_of(row, limits[queues], f" of {', '.join(queues)}")


def _limits_of(scope: Mapping[str, Any], limit: LossLimit, of: str) -> Iterator[_Limited]:
    for key, most in (("loss", limit.messages), ("age_s", limit.age_s)):
        if most is not None:
            told = scope[key]
            yield _Limited(of, key == "loss", most, told.get("likely", {}).get("p99"), told.get("p99"))


def _count(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:g}"


def _time(value_s: float | None) -> str:
    return _NOT_KNOWN if value_s is None else duration(value_s)
