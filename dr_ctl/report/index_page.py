"""The index of all runs and rehearsals of a time: a table that compares results with objectives.

The words for a run are those of its own report. Its figures are compared with the objectives of its time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from dr_ctl.core.document import items, mapping, moment, number, of_file, text
from dr_ctl.core.findings import Tone
from dr_ctl.engine.operations import FAILBACK, FAILOVER, REHEARSE, SWAPOVER
from dr_ctl.engine.record import Material, approvers, check, read_run
from dr_ctl.engine.record import Verdict as Sealed
from dr_ctl.engine.runs import RunFiles
from dr_ctl.report.evidence import LOST, RECOVERY, Measured
from dr_ctl.report.run_page import RunPage
from dr_ctl.report.values import many, seconds

_PLANNED, _LOSS, _REHEARSAL, _OTHER = "planned move", "loss of a site", "rehearsal", "other run"
_NOT_MEASURED: Final = Measured("")
_KINDS: Final = {SWAPOVER: _PLANNED, FAILBACK: _PLANNED, FAILOVER: _LOSS, REHEARSE: _REHEARSAL}


@dataclass(frozen=True, slots=True)
class Row:
    """A run or a rehearsal. `by` are users with their hosts. `link` leads to its report; `record` says what is wrong
    with its files, if anything is."""

    at: datetime
    kind: str
    what: str
    words: str
    tone: Tone
    by: tuple[tuple[str, str], ...] = ()
    approved: str = ""
    reason: str = ""
    out: Measured = _NOT_MEASURED
    lost: Measured = _NOT_MEASURED
    link: str = ""
    record: str = ""
    measured: tuple[Measured, ...] = ()


class IndexPage:
    template: ClassVar = "index.html.j2"

    def __init__(
        self, runs: Iterable[RunFiles], rehearsals: Path, since: datetime, now: datetime, *, folder: Path
    ) -> None:
        """`folder` is the folder of the page: links are relative to it. No settings are read: the
        installation's name is that of its last run."""
        materials = [(files, read_run(files)) for files in runs]
        begun = [(files, material) for files, material in materials if material.entries]
        on_twins, torn = _on_twins(rehearsals)
        all_rows = [*(_row(files, material, folder) for files, material in begun), *on_twins]
        self.rows = rows = sorted((row for row in all_rows if since <= row.at), key=lambda row: row.at, reverse=True)
        # If the journal cannot be read, only the name of its folder shows the time of a run.
        first = f"{since.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        unwritten = [files for files, material in materials if not material.entries and files.name[:16] >= first]
        empty = [check(files).verdict for files in unwritten]
        never, altered = empty.count(Sealed.NOT_BEGUN), empty.count(Sealed.ALTERED)
        unread = len(empty) - never
        self.notes = [f"{many(never, 'run')} never began: nothing was changed."] if never else []
        if unread:
            self.notes.append(f"The journal of {many(unread, 'run')} cannot be read: the outcome is not known.")
        if torn:
            self.notes.append(f"The evidence of {many(torn, 'rehearsal')} on a twin cannot be read.")
        self.tone, self.words = _verdict(rows, altered=altered, unread=unread)
        names = [text(mapping(by.get("about")).get("name")) for _, material in begun for by in material.authors]
        name = next(filter(None, reversed(names)), "")
        kinds = [row.kind for row in rows]
        nouns = {_PLANNED: "planned moves", _LOSS: "losses of a site", _REHEARSAL: "rehearsals", _OTHER: "other runs"}
        counts = [many(kinds.count(one), one, more) for one, more in nouns.items() if one in kinds or one != _OTHER]
        self.title = f"Runs and rehearsals of {name}" if name else "Runs and rehearsals"
        self.period = f"{since:%Y-%m-%d} to {now:%Y-%m-%d}"
        self.made = f"{now:%Y-%m-%d %H:%M} UTC"
        self.sentence = f"{', '.join(counts)}."


def _row(files: RunFiles, material: Material, folder: Path) -> Row:
    page = RunPage(material)
    summary = page.verdict.summary or page.verdict.words
    spec, by = material.spec, material.authors
    checked = check(files)
    kind, has_moved = _KINDS.get(text(spec.get("operation")), _OTHER), (Tone.GOOD, Tone.COST)
    drained = "drained but for accepted differences" if mapping(spec.get("accept_difference")) else "drained first"
    has_link = files.report.exists() and files.folder.is_relative_to(folder)  # the page may be elsewhere
    return Row(
        at=datetime.fromisoformat(material.entries[0].time).astimezone(UTC),
        kind=kind,
        what=page.title,
        words="; ".join([summary, *(costs for costs in page.verdict.costs if costs not in summary)]),
        tone=page.verdict.tone,
        by=tuple(dict.fromkeys((text(author.get("user")), text(author.get("host"))) for author in by)),
        approved=", ".join(approvers(by)),
        reason=text(spec.get("reason")),
        out=_measured(page, RECOVERY, page.outage.figure),
        lost=_measured(page, LOST, drained if kind == _PLANNED and page.verdict.tone in has_moved else ""),
        link=files.report.relative_to(folder).as_posix() if has_link else "",
        record=checked.text if checked.verdict is Sealed.ALTERED else "",
        measured=page.measured,
    )


def _measured(page: RunPage, name: str, else_: str) -> Measured:
    return next((row for row in page.measured if row.name == name), Measured(name, result=else_))


def _on_twins(folder: Path) -> tuple[list[Row], int]:
    """Return rehearsals on a twin, from their files of evidence, and how many files cannot be read."""
    rows, torn = list[Row](), 0
    for path in sorted(folder.glob("*.json")):
        document = of_file(path) or {}
        at, variations = moment(document.get("at")), items(document.get("variations"))
        if at is None or not variations:
            torn += "variations" in document or not document
            continue
        wrong = sum(bool(items(mapping(variation).get("wrong"))) for variation in variations)
        median, most = (number(mapping(document.get("outage_s")).get(key)) for key in ("median", "most"))
        outage = "" if most is None else f"{seconds(median)}, at most {seconds(most)}"
        row = Row(
            at=at.astimezone(UTC),
            kind=_REHEARSAL,
            what=f"Rehearsal on simulated brokers: {many(len(variations), 'variation')}",
            words=f"{wrong} judged badly" if wrong else "All were judged well",
            tone=Tone.BAD if wrong else Tone.GOOD,
            out=Measured(RECOVERY, result=outage),
        )
        rows.append(row)
    return rows, torn


def _verdict(rows: Sequence[Row], *, altered: int, unread: int) -> tuple[Tone, str]:
    """Summarize the time in a sentence; the worst known result decides. `unread` runs have no row, because no line of
    their journals can be read; `altered` ones are among them."""
    if altered := altered + sum(bool(row.record) for row in rows):
        return Tone.BAD, f"The record of {many(altered, 'run')} was altered"
    if not rows and not unread:
        return Tone.OPEN, "No run and no rehearsal in this time"
    signs = {measured.sign for row in rows for measured in row.measured}
    bad = sum(row.tone is Tone.BAD for row in rows)
    wrong = ["An objective was not kept"] if "cost" in signs else []
    wrong += [f"{many(bad, 'run or rehearsal', 'runs or rehearsals')} did not end well"] if bad else []
    if wrong:
        return Tone.COST, "; ".join(wrong)
    if unread:
        return Tone.OPEN, f"The outcome of {many(unread, 'run')} is not known: no line of the journal can be read"
    if "open" in signs:
        return Tone.OPEN, "Whether every objective was kept cannot be determined"
    if "good" in signs:
        return Tone.GOOD, "Every objective that was set was kept"
    return Tone.OPEN, "No run of this time has an objective"
