"""An estimate in a terminal: what is likely beside the bound, the objective beside both, classes, queues, advice."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dr_ctl.application import estimates
from dr_ctl.application.estimates import figure
from dr_ctl.core.notation import duration
from dr_ctl.rpo.estimate.result import Objectives

_COLUMNS: Final = ("now", "p50", "p95", "p99", "max")
_NAMES: Final = (
    ("loss", "messages lost"),
    ("age_s", "age of the oldest, s"),
    ("duplicates", "duplicates"),
    ("drain_s", "time to drain, s"),
)
_LEGEND: Final = "at most: never less than what was so; p99: in 99 % of the time no more"
_Row = tuple[str, str, tuple[str, ...], str]
"""A name, which figure of it, the columns, and what is allowed."""


def estimate_table(data: Mapping[str, Any], objectives: Objectives | None) -> str:
    """Empty where there is no estimate."""
    if not data or data.get("total") is None:
        return ""
    limits = estimates.limits(objectives)
    rows = [*_rows(data["total"], limits.get((), {}), _NAMES)]
    for each in data["classes"]:
        queues = tuple(each["queues"])
        mine = limits.get(queues, {})
        names = [(key, f"{', '.join(queues)}: {name}") for key, name in _NAMES if key in mine]
        rows += _rows(each, mine, names)
    lines = [*_aligned(rows), _LEGEND, *_most_from(data), *(f"- {each}" for each in data["advice"])]
    window = data["window"]
    covered, ago = duration(window["covered_s"]), duration(data["stale_s"])
    lines.append("now: at the last reading; what a failover costs, with what may have come since: `dr-ctl status`")
    return "\n".join([*lines, f"{window['samples']} samples, {covered} covered, last reading {ago} ago"])


def _rows(scope: Mapping[str, Any], limits: Mapping[str, float], names: Any) -> Iterator[_Row]:
    for key, name in names:
        told, allowed = scope[key], limits.get(key)
        likely, most = (tuple(figure(each.get(column)) for column in _COLUMNS) for each in (told["likely"], told))
        yield name, "likely", likely, "" if allowed is None else f"{allowed:g}"
        yield "", "at most", most, ""


def _aligned(rows: list[_Row]) -> Iterator[str]:
    has_limits = any(allowed for *_, allowed in rows)
    width = max(len(name) for name, *_ in rows)
    columns = [*zip(_COLUMNS, *(cells for _, _, cells, _ in rows), strict=True)]
    widths = [max(map(len, column)) for column in columns]
    head = "".join(f"  {column:>{wide}}" for column, wide in zip(_COLUMNS, widths, strict=True))
    yield f"{'':<{width}}  {'':<7}{head}{'  allowed at p99' if has_limits else ''}"
    for name, which, cells, allowed in rows:
        told = "".join(f"  {cell:>{wide}}" for cell, wide in zip(cells, widths, strict=True))
        yield f"{name:<{width}}  {which:<7}{told}{f'  {allowed:>14}' if allowed else ''}"


def _most_from(data: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"{each['name']} {each['share']:.0%} (at most {each['most']} at a look)" for each in data["queues"]]
    if parts:
        yield f"most was likely lost of {', '.join(parts)}"
