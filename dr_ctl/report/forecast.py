"""The estimate that the run made, and the bounds that a failover ends with, as tables of words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.document import items, mapping, number, text
from dr_ctl.report.story import Story
from dr_ctl.report.values import NOT_KNOWN, count, seconds

COLUMNS: Final = ("now", "p50", "p95", "p99", "max")
_ROWS: Final[tuple[tuple[str, str, str, Callable[[object], str]], ...]] = (
    ("loss", "Loss", ", messages", count),
    ("age_s", "Age of the oldest lost", "", seconds),
    ("duplicates", "Duplicates", ", messages", count),
    ("drain_s", "Time to drain", "", seconds),
)
_VERDICTS: Final = {
    "met": "the objectives are met.",
    "missed": "the objectives are missed.",
    "unknown": "whether the objectives are met is not known.",
}
_UNEXPLAINED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Cell:
    """A bound; beside it what is likely and the bound's 95 % interval, where these are known."""

    figure: str
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """The 99th percentiles of a flow or a class."""

    name: str
    verdict: str
    figures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """`note` says why there is no estimate, or what to keep in mind."""

    sentence: str
    note: str
    rows: tuple[Row, ...] = ()
    scopes: tuple[Scope, ...] = ()


def forecast(story: Story) -> Forecast | None:
    """Take the last estimate that a step left, if the run had such a step."""
    acts = story.of("estimate")
    if not acts:
        return None
    for act in reversed(acts):
        estimate = mapping(act.evidence.get("estimate"))
        if estimate.get("total") is not None:
            return as_tables(estimate)
    return Forecast("", acts[-1].text or "no estimate was made")


def as_tables(estimate: Mapping[str, Any]) -> Forecast:
    """The `data` of an estimate as tables of words."""
    total, window = mapping(estimate.get("total")), mapping(estimate.get("window"))
    horizon = mapping(total.get("horizon"))
    rows = [_row(f"{name}{unit}", mapping(total.get(key)), write) for key, name, unit, write in _ROWS]
    if horizon:
        within = f" within the next {seconds(horizon.get('seconds'))}"
        rows += [
            _row(f"{name}{within}{unit}", mapping(horizon.get(key)), write) for key, name, unit, write in _ROWS[:2]
        ]
    site = text(estimate.get("site")) or "the serving site"
    verdict = _VERDICTS.get(text(estimate.get("verdict")), "no objectives are set.")
    first, last = (text(window.get(end)) or NOT_KNOWN for end in ("from", "to"))
    sentence = (
        f"If {site} died: {verdict} From {count(window.get('samples'))} samples between {first} and {last}, "
        f"which cover {seconds(window.get('covered_s'))}; "
        f"the last look was {seconds(estimate.get('stale_s'))} old."
    )
    share = number(total.get("unexplained"))
    note = ""
    if share is not None and share > _UNEXPLAINED:
        note = f"{share:.0%} of the outflow is not in the queues' counters: figures per queue are upper bounds."
    flows = [_scope(_flow(flow), "", flow) for flow in map(mapping, items(estimate.get("flows")))]
    classes = [
        _scope(", ".join(map(str, items(each.get("queues")))), text(each.get("verdict")), each)
        for each in map(mapping, items(estimate.get("classes")))
    ]
    return Forecast(sentence, note, tuple(rows), (*classes, *flows))


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure for the reader who decides: what is likely and at most, column by column, and what is allowed of it;
    `word` says how the two stand to each other, `mood` whether that is good."""

    name: str
    likely: tuple[str, ...]
    most: tuple[str, ...]
    allowed: str = ""
    word: str = ""
    mood: str = ""


def judged(estimate: Mapping[str, Any], limits: Mapping[tuple[str, ...], Mapping[str, float]]) -> tuple[Judged, ...]:
    """The total's figures, and of each class those that have a limit."""
    found = [
        _judged(f"{name}{unit}", mapping(mapping(estimate.get("total")).get(key)), write, limits.get((), {}).get(key))
        for key, name, unit, write in _ROWS
    ]
    for each in map(mapping, items(estimate.get("classes"))):
        queues = tuple(map(str, items(each.get("queues"))))
        mine = limits.get(queues, {})
        found += [
            _judged(f"{', '.join(queues)}: {name.lower()}{unit}", mapping(each.get(key)), write, mine[key])
            for key, name, unit, write in _ROWS
            if key in mine
        ]
    return tuple(found)


def _judged(name: str, row: Mapping[str, Any], write: Callable[[object], str], limit: float | None) -> Judged:
    likely, most = (tuple(write(each.get(column)) for column in COLUMNS) for each in (mapping(row.get("likely")), row))
    if limit is None:
        return Judged(name, likely, most)
    told = number(mapping(row.get("likely")).get("p99")), number(row.get("p99"))
    word, mood = ("kept", "good") if told[1] is not None and told[1] <= limit else ("cannot tell", "open")
    if told[0] is not None and told[0] > limit:
        word, mood = "missed", "bad"
    return Judged(name, likely, most, write(limit), word, mood)


def _row(name: str, row: Mapping[str, Any], write: Callable[[object], str]) -> Row:
    intervals, likely = mapping(row.get("ci95")), mapping(row.get("likely"))
    cells = (
        Cell(write(row.get(column)), _beside(likely.get(column), intervals.get(column), write)) for column in COLUMNS
    )
    return Row(name, tuple(cells))


def _beside(likely: object, interval: object, write: Callable[[object], str]) -> str:
    """The likely figure and the interval of the bound on a line each, if known."""
    lines = [] if likely is None else [f"likely {write(likely)}"]
    ends = _interval(interval, write)
    return "\n".join([*lines, ends] if ends else lines)


def _interval(interval: object, write: Callable[[object], str]) -> str:
    ends = items(interval)
    if len(ends) != 2:  # noqa: PLR2004 - an interval has two
        return ""
    return f"from {write(ends[0])}" if ends[1] is None else f"{write(ends[0])} to {write(ends[1])}"


def _flow(flow: Mapping[str, Any]) -> str:
    name = text(flow.get("name"))
    return f"{text(flow.get('from'))}/{text(flow.get('pair'))}: {'all queues' if name == '*' else name}"


def _scope(name: str, verdict: str, row: Mapping[str, Any]) -> Scope:
    return Scope(name, verdict, tuple(write(mapping(row.get(key)).get("p99")) for key, _, _, write in _ROWS))


@dataclass(frozen=True, slots=True)
class Bounds:
    rows: tuple[tuple[str, str, str], ...]
    queues: tuple[tuple[str, str, str], ...]


def bounds(data: Mapping[str, Any]) -> Bounds | None:
    """Returns None for a run without bounds, which was no failover."""
    document = mapping(data.get("bounds"))
    if not document:
        return None
    rows = [
        _bound(name, mapping(document.get(key)))
        for key, name in (("lost", "Lost, at most"), ("duplicates", "Duplicates, at most"))
    ]
    queues: Sequence[Mapping[str, Any]] = [mapping(queue) for queue in items(document.get("queues"))]
    return Bounds(
        tuple(rows),
        tuple((text(queue.get("name")), count(queue.get("lost")), count(queue.get("duplicates"))) for queue in queues),
    )


def _bound(name: str, row: Mapping[str, Any]) -> tuple[str, str, str]:
    likely = row.get("likely")
    beside = "" if likely is None else f" (likely {count(likely)})"
    return name, f"{count(row.get('at_most'))}{beside}", text(row.get("read_at")) or NOT_KNOWN
