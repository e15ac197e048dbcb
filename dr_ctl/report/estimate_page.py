"""The page of an estimate, for the person who decides. A table shows each figure as likely, at most and allowed; the
history follows. The report of a run has the same table, of the estimate that was made before the move."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from dr_ctl.core.document import items, mapping, number, text
from dr_ctl.core.model import Finding
from dr_ctl.core.notation import NOT_KNOWN
from dr_ctl.report.charts import Chart, Point, over_time
from dr_ctl.report.story import Story
from dr_ctl.report.values import count, seconds
from dr_ctl.rpo.core.quantities import Curves
from dr_ctl.rpo.estimate.result import Verdict, judge
from dr_ctl.rpo.history.row import moment

Limits = Mapping[tuple[str, ...], Mapping[str, float]]
"""The limit of each figure: of the total under `()`, of a class under its queues."""
NO_LIMITS: Final[Limits] = MappingProxyType({})
COLUMNS: Final = ("now", "p50", "p95", "p99", "max")
_FIGURES: Final[Mapping[str, tuple[str, Callable[[object], str]]]] = {
    "loss": ("Loss, messages", count),
    "age_s": ("Age of the oldest lost", seconds),
    "duplicates": ("Duplicates, messages", count),
    "drain_s": ("Time to drain", seconds),
}
_CHARTS: Final = (
    ("loss", "Loss over time", "messages", "loss"),
    ("age_ms", "Age of the oldest lost over time", "seconds", "age_s"),
    ("drain", "Time to drain over time", "seconds", ""),
)
_VERDICTS: Final = {
    "met": "The objectives are met",
    "missed": "The objectives are missed",
    "unknown": "Whether the objectives are met is not known",
}
_JUDGED: Final = {
    Verdict.MET: ("kept", "good"),
    Verdict.MISSED: ("missed", "bad"),
    Verdict.UNKNOWN: ("cannot tell", "open"),
}
_UNEXPLAINED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, column by column: the likely value, empty where it is not known, the bound, and the 95 % intervals of
    that. `judged` is the verdict against the limit (`allowed`), `sign` its tone."""

    name: str
    likely: tuple[str, ...]
    most: tuple[str, ...]
    intervals: tuple[str, ...]
    allowed: str = ""
    judged: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate as words. `note` says why there is none, or limits it; `scopes` are classes and
    flows with their 99th percentiles and a verdict."""

    sentence: str = ""
    note: str = ""
    figures: tuple[Figure, ...] = ()
    scopes: tuple[tuple[str, ...], ...] = ()


class EstimatePage:
    """`sentences` come first; `made` has the time, the readings and the version."""

    template: ClassVar = "estimate.html.j2"

    def __init__(
        self,
        name: str,
        data: Mapping[str, Any],
        curves: Curves | None,
        findings: Sequence[Finding],
        *,
        sentences: Sequence[str] = (),
        made: str = "",
        limits: Limits = NO_LIMITS,
    ) -> None:
        """`data` and `sentences` are those of the command."""
        is_known = data.get("total") is not None
        without_verdict = "No objectives are set" if is_known else "How many messages would be lost is not known"
        self.title = f"{name}: the possible loss of a failure"
        self.verdict = _VERDICTS.get(str(data.get("verdict")), without_verdict)
        self.sentences = [*filter(None, sentences)]
        self.forecast = as_words(data, limits) if is_known else Forecast()
        self.charts = _charts(curves, limits.get((), {})) if curves is not None else ()
        self.findings = [(finding.severity.value, finding.text, finding.remedy, finding.id) for finding in findings]
        self.made = made
        queues = data["queues"] if is_known else ()
        self.queues = [(row["name"], row["pair"], f"{row['share']:.0%}", count(row["most"])) for row in queues]
        self.advice = tuple(data["advice"]) if is_known else ()


def of_run(story: Story) -> Forecast | None:
    """Return the last estimate that a step of the run left, or None if no step made one."""
    steps = story.of("estimate")
    estimates = [mapping(step.evidence.get("estimate")) for step in reversed(steps)]
    made = next((as_words(estimate) for estimate in estimates if estimate.get("total") is not None), None)
    return made or (Forecast(note=steps[-1].text or "no estimate was made") if steps else None)


def as_words(estimate: Mapping[str, Any], limits: Limits = NO_LIMITS) -> Forecast:
    total, window = mapping(estimate.get("total")), mapping(estimate.get("window"))
    classes = [(tuple(map(str, items(row.get("queues")))), row) for row in map(mapping, items(estimate.get("classes")))]
    horizon = mapping(total.get("horizon"))
    figures = [_figure(key, name, total, limits.get((), {})) for key, (name, _) in _FIGURES.items()]
    if horizon:
        within = f" within the next {seconds(horizon.get('seconds'))}"
        figures += [_figure(key, f"{_FIGURES[key][0]}{within}", horizon, {}) for key in ("loss", "age_s")]
    figures += [
        _figure(key, f"{', '.join(queues)}: {name[0].lower()}{name[1:]}", row, limits[queues])
        for queues, row in classes
        for key, (name, _) in _FIGURES.items()
        if key in limits.get(queues, {})
    ]
    site = text(estimate.get("site")) or "the serving site"
    verdict = _VERDICTS.get(text(estimate.get("verdict")), "No objectives are set")
    first, last = (text(window.get(end)) or NOT_KNOWN for end in ("from", "to"))
    sentence = (
        f"If {site} died: {verdict[0].lower()}{verdict[1:]}. From {count(window.get('samples'))} samples between "
        f"{first} and {last}, which cover {seconds(window.get('covered_s'))}; "
        f"the last sample was {seconds(estimate.get('stale_s'))} old."
    )
    share = number(total.get("unexplained"))
    note = ""
    if share is not None and share > _UNEXPLAINED:
        note = f"{share:.0%} of the outflow is not in the queues' counters: figures per queue are upper bounds."
    scopes = [_scope(", ".join(queues), text(row.get("verdict")), row) for queues, row in classes]
    scopes += [_scope(_flow(flow), "", flow) for flow in map(mapping, items(estimate.get("flows")))]
    return Forecast(sentence, note, tuple(figures), tuple(scopes))


def _figure(key: str, name: str, scope: Mapping[str, Any], limits: Mapping[str, float]) -> Figure:
    row, write = mapping(scope.get(key)), _FIGURES[key][1]
    likely, intervals = mapping(row.get("likely")), mapping(row.get("ci95"))
    judged: tuple[str, ...] = ()
    if (limit := limits.get(key)) is not None:
        judged = (write(limit), *_JUDGED[judge(number(likely.get("p99")), number(row.get("p99")), limit)])
    return Figure(
        name,
        tuple(write(likely.get(column)) for column in COLUMNS) if likely else (),
        tuple(write(row.get(column)) for column in COLUMNS),
        tuple(_interval(intervals.get(column), write) for column in COLUMNS),
        *judged,
    )


def _interval(interval: object, write: Callable[[object], str]) -> str:
    ends = items(interval)
    if len(ends) != 2:  # noqa: PLR2004 - an interval has two
        return ""
    return f"from {write(ends[0])}" if ends[1] is None else f"{write(ends[0])} to {write(ends[1])}"


def _flow(flow: Mapping[str, Any]) -> str:
    name = text(flow.get("name"))
    return f"{text(flow.get('from'))}/{text(flow.get('pair'))}: {'all queues' if name == '*' else name}"


def _scope(name: str, verdict: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    return (name, *(write(mapping(row.get(key)).get("p99")) for key, (_, write) in _FIGURES.items()), verdict)


def _charts(curves: Curves, limits: Mapping[str, float]) -> tuple[Chart, ...]:
    first_us, last_us = curves.first_us, curves.last_us

    def points(values: Sequence[float | None]) -> list[Point]:
        width_us = (last_us - first_us + 1) / max(1, len(values))
        return [(moment(int(first_us + (n + 0.5) * width_us)), value) for n, value in enumerate(values)]

    span, limit = (moment(first_us), moment(last_us)), limits.get
    return tuple(
        over_time(title, unit, span, points(curves.most[of]), points(curves.likely.get(of, ())), limit=limit(limited))
        for of, title, unit, limited in _CHARTS
    )
