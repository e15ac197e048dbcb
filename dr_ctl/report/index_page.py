"""The page over all runs and rehearsals of a time: what was reached, against what was asked.

Each run says what its own report says. Figures of a run are held against the objectives that held when it was made.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import items, mapping, moment, number, text
from dr_ctl.core.findings import Tone
from dr_ctl.engine.operations import FAILBACK, FAILOVER, REHEARSE, SWAPOVER
from dr_ctl.engine.record import Verdict as Sealed
from dr_ctl.engine.record import approvers, check
from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.evidence import LOST, RECOVERY, Measured, authors
from dr_ctl.report.reading import Material, read_run
from dr_ctl.report.values import count, many, seconds
from dr_ctl.report.view import Page, view

_DAY_S: Final = 86_400
_NONE: Final = "none in this time"


class Kind(Enum):
    PLANNED = "planned move"
    LOSS = "loss of a site"
    REHEARSAL = "rehearsal"
    OTHER = "other"


_KINDS: Final[Mapping[str, Kind]] = {
    SWAPOVER: Kind.PLANNED,
    FAILBACK: Kind.PLANNED,
    FAILOVER: Kind.LOSS,
    REHEARSE: Kind.REHEARSAL,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run, and how it was judged: `sign` is that of a tone, empty where there was nothing to judge."""

    text: str
    judged: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A run or a rehearsal. `by` are users with their hosts. `link` leads to its report; `record` says what is wrong
    with its files, if anything is."""

    at: datetime
    kind: Kind
    what: str
    words: str
    tone: Tone
    by: tuple[tuple[str, str], ...]
    approved: str
    reason: str
    out: Figure
    lost: Figure
    link: str = ""
    record: str = ""
    measured: tuple[Measured, ...] = ()
    out_s: float | None = None
    lost_at_most: float | None = None

    @property
    def date(self) -> str:
        return f"{self.at:%Y-%m-%d}"

    @property
    def time(self) -> str:
        return f"{self.at:%H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Line:
    """A kind of figure over the whole time, against its objective."""

    name: str
    objective: str
    runs: str
    worst: str
    last: str
    judged: str
    sign: str


@dataclass(frozen=True, slots=True)
class IndexPage:
    title: str
    period: str
    made: str
    tone: Tone
    words: str
    sentence: str
    tiles: tuple[tuple[str, str, str], ...]
    lines: tuple[Line, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def index_page(
    runs: Iterable[RunFiles], rehearsals: Path, since: datetime, now: datetime, *, beside: Path
) -> IndexPage:
    """The page of everything since a moment. `beside` is the folder that the page will lie in: links lead from there.
    No settings are read: the installation's name is that of its last run."""
    materials = [(files, read_run(files)) for files in runs]
    begun = [(files, material) for files, material in materials if material.entries]
    rows = [_row(files, material, beside) for files, material in begun]
    played, torn = _on_twins(rehearsals)
    rows += played
    rows = sorted((row for row in rows if since <= row.at), key=lambda row: row.at)
    empty = [check(files).verdict for files, material in materials if not material.entries and _since(files, since)]
    never, altered = empty.count(Sealed.NOT_BEGUN), empty.count(Sealed.ALTERED)
    unread = len(empty) - never
    notes = [f"{many(never, 'run')} never began: nothing was changed."] if never else []
    notes += [f"The journal of {many(unread, 'run')} cannot be read: nobody knows what came of it."] if unread else []
    notes += [f"The evidence of {many(torn, 'rehearsal')} on a twin cannot be read."] if torn else []
    lines = tuple(line for line in map(_line, _SUMMED, [rows] * len(_SUMMED)) if line is not None)
    tone, words = _verdict(rows, lines, altered=altered, unread=unread)
    names = [text(mapping(by.get("about")).get("name")) for _, material in begun for by in authors(material)]
    name = next(filter(None, reversed(names)), "")
    kinds = {kind: [row for row in rows if row.kind is kind] for kind in Kind}
    nouns = {
        Kind.PLANNED: ("planned move", "planned moves"),
        Kind.LOSS: ("loss of a site", "losses of a site"),
        Kind.REHEARSAL: ("rehearsal", "rehearsals"),
        Kind.OTHER: ("other run", "other runs"),
    }
    said = [many(len(kinds[kind]), *nouns[kind]) for kind in Kind if kinds[kind] or kind is not Kind.OTHER]
    return IndexPage(
        title=f"Runs and rehearsals of {name}" if name else "Runs and rehearsals",
        period=f"{since:%Y-%m-%d} to {now:%Y-%m-%d}",
        made=f"{now:%Y-%m-%d %H:%M} UTC",
        tone=tone,
        words=words,
        sentence=f"{', '.join(said)}.",
        tiles=tuple(_tiles(kinds, now)),
        lines=lines,
        rows=tuple(reversed(rows)),
        notes=tuple(notes),
    )


def _row(files: RunFiles, material: Material, beside: Path) -> Row:
    page = view(material)
    plan = material.plans[0] if material.plans else {}
    ask = mapping(plan.get("ask"))
    by = authors(material)
    checked = check(files)
    bounds = mapping(mapping(mapping(material.result).get("data")).get("bounds"))
    kind = _KINDS.get(text(ask.get("operation")), Kind.OTHER)
    return Row(
        at=datetime.fromisoformat(material.entries[0].time).astimezone(UTC),
        kind=kind,
        what=page.title,
        words="; ".join([page.verdict.summary or page.verdict.words, *page.verdict.price]),
        tone=page.verdict.tone,
        by=tuple(dict.fromkeys((text(each.get("user")), text(each.get("host"))) for each in by)),
        approved=", ".join(approvers(by)),
        reason=text(ask.get("reason")),
        out=_out(page),
        lost=_lost(page, kind, ask),
        link=_link(files, beside),
        record=checked.text if checked.verdict is Sealed.ALTERED else "",
        measured=page.measured,
        out_s=page.outage.at_most_s,
        lost_at_most=number(mapping(bounds.get("lost")).get("at_most")),
    )


def _link(files: RunFiles, beside: Path) -> str:
    """Where the run's report lies from there; empty where none was written, or the page lies elsewhere."""
    if not files.report.exists() or not files.folder.is_relative_to(beside):
        return ""
    return files.report.relative_to(beside).as_posix()


def _out(page: Page) -> Figure:
    row = next((each for each in page.measured if each.name == RECOVERY), None)
    return Figure(page.outage.figure) if row is None else Figure(row.result, row.judged, row.sign)


def _lost(page: Page, kind: Kind, ask: Mapping[str, Any]) -> Figure:
    row = next((each for each in page.measured if each.name == LOST), None)
    if row is not None:
        return Figure(row.result, row.judged, row.sign)
    if kind is not Kind.PLANNED or page.verdict.tone not in (Tone.GOOD, Tone.OWED):
        return Figure("")
    return Figure("drained but for accepted differences" if mapping(ask.get("accept_difference")) else "drained first")


def _on_twins(folder: Path) -> tuple[list[Row], int]:
    """Rehearsals on a twin, by the evidence that they leave, and how many files of it cannot be read."""
    rows, torn = list[Row](), 0
    for path in sorted(folder.glob("*.json")):
        try:
            document = mapping(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            document = {}
        at, played = moment(document.get("at")), items(document.get("variations"))
        if at is not None and played:
            rows.append(_on_twin(at, played, mapping(document.get("outage_s"))))
        elif "variations" in document or not document:
            torn += 1
    return rows, torn


def _on_twin(at: datetime, played: Sequence[Any], out: Mapping[str, Any]) -> Row:
    wrong = sum(bool(items(mapping(each).get("wrong"))) for each in played)
    words = f"{wrong} judged badly" if wrong else "All were judged well"
    most = number(out.get("most"))
    figure = "" if most is None else f"{seconds(out.get('median'))}, at most {seconds(most)}"
    return Row(
        at=at.astimezone(UTC),
        kind=Kind.REHEARSAL,
        what=f"Rehearsal on simulated brokers: {many(len(played), 'variation')}",
        words=words,
        tone=Tone.BAD if wrong else Tone.GOOD,
        by=(),
        approved="",
        reason="",
        out=Figure(figure),
        lost=Figure(""),
    )


_SUMMED: Final = (
    ("Planned moves: clients out", Kind.PLANNED, RECOVERY),
    ("Losses of a site: clients out (RTO)", Kind.LOSS, RECOVERY),
    ("Losses of a site: messages lost (RPO)", Kind.LOSS, LOST),
)


def _line(summed: tuple[str, Kind, str], rows: Sequence[Row]) -> Line | None:
    """One kind of figure over all its runs; None where there is none."""
    title, kind, name = summed
    found = [(row, each) for row in rows if row.kind is kind for each in row.measured if each.name == name]
    if not found:
        return None
    figures = [row.out_s if name == RECOVERY else row.lost_at_most for row, _ in found]
    known = [figure for figure in figures if figure is not None]
    worst = (seconds(max(known)) if name == RECOVERY else f"at most {count(max(known))}") if known else "not known"
    unknown = len(figures) - len(known)
    if known and unknown:
        worst += f"; not known of {unknown}"
    last = found[-1][1]
    verdicts = {sign: sum(each.sign == sign for _, each in found) for sign in ("owed", "open", "info", "good")}
    sign = next(sign for sign, amount in verdicts.items() if amount)
    words = {"owed": "not kept", "open": "cannot tell", "info": "no objective", "good": "kept"}
    judged = ", ".join(f"{words[sign]}: {amount}" for sign, amount in verdicts.items() if amount)
    return Line(title, last.objective, count(len(found)), worst, last.result, judged, sign)


def _since(files: RunFiles, since: datetime) -> bool:
    """Whether a run is of that time by its name, all that is left of one whose journal cannot be read."""
    return files.name[:16] >= f"{since.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _verdict(rows: Sequence[Row], lines: Sequence[Line], *, altered: int, unread: int) -> tuple[Tone, str]:
    """The whole time in a sentence; the worst that is known of it decides. `altered` and `unread`: runs without a row,
    as no line of their journals can be read; the first are among the second."""
    if altered := altered + sum(bool(row.record) for row in rows):
        return Tone.BAD, f"The record of {many(altered, 'run')} was altered"
    if not rows and not unread:
        return Tone.OPEN, "No run and no rehearsal in this time"
    bad = sum(row.tone is Tone.BAD for row in rows)
    owed = ["An objective was not kept"] if any(line.sign == "owed" for line in lines) else []
    owed += [f"{many(bad, 'run or rehearsal', 'runs or rehearsals')} did not end well"] if bad else []
    if owed:
        return Tone.OWED, "; ".join(owed)
    if unread:
        return Tone.OPEN, f"What came of {many(unread, 'run')} cannot be told: no line of the journal can be read"
    if any(line.sign == "open" for line in lines):
        return Tone.OPEN, "Whether every objective was kept cannot be told"
    if any(line.sign == "good" for line in lines):
        return Tone.GOOD, "Every objective that was set was kept"
    return Tone.OPEN, "No run of this time was held against an objective"


def _tiles(kinds: Mapping[Kind, Sequence[Row]], now: datetime) -> Iterable[tuple[str, str, str]]:
    """Name, figure, and what stands below it."""
    for name, kind in (("Last planned move that went well", Kind.PLANNED), ("Last loss of a site", Kind.LOSS)):
        last = next((row for row in reversed(kinds[kind]) if row.tone in (Tone.GOOD, Tone.OWED)), None)
        yield (name, _NONE, "") if last is None else (name, last.date, f"clients out: {last.out.text}")
    well = [row for row in kinds[Kind.REHEARSAL] if row.tone in (Tone.GOOD, Tone.OWED)]
    if well:
        age = int((now - well[-1].at).total_seconds() // _DAY_S)
        yield "Last rehearsal that went well", well[-1].date, f"{many(age, 'day')} ago" if age else "today"
    else:
        yield "Last rehearsal that went well", _NONE, ""
    every = [row for rows in kinds.values() for row in rows]
    not_well = sum(row.tone in (Tone.BAD, Tone.UNDONE, Tone.OPEN) for row in every)
    yield "Runs and rehearsals", count(len(every)), f"{count(not_well)} put back, not ended, or not well"
