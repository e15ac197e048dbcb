"""Reads the records of past runs from their files, and checks that these files are unaltered.

A damaged run must not hide the others: a value that cannot be read is None or empty.

The journal's own reader accepts the traces of a crash. An audit of a run that has ended does not: the bytes of the
lines must be as the journal writes them, their number and last hash must match `result.json`, and `result.json` must
repeat the last line. A person who rewrites every file can still invent a run; no check inside one directory can prove
otherwise.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.document import HIDDEN, derived, items, key, mapping, number, of_file, optional, text
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration
from dr_ctl.engine.journal import GENESIS, Entry, chain, is_held, letting_in
from dr_ctl.engine.runs import RunFiles

OPEN: Final = "open"
NEVER_BEGAN: Final = "none"
ABORTED: Final = "aborted"
_SAMPLE: Final = b'"kind":"sample"'  # most lines are samples, and no list needs them


@dataclass(frozen=True, slots=True)
class Listener:
    """The moment at which a step let clients in at a site, or began to keep them out."""

    site: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OutageBounds:
    """Bounds in seconds on the time that clients were out; None where a bound is not known."""

    at_least_s: float | None = field(metadata=key("at_least", digits=3))
    at_most_s: float | None = field(metadata=key("at_most", digits=3))

    @property
    def text(self) -> str:
        if self.at_most_s is None:
            return "not known" if self.at_least_s is None else f"at least {duration(self.at_least_s)}"
        if self.at_least_s is None:
            return f"at most {duration(self.at_most_s)}"
        least, most = duration(self.at_least_s), duration(self.at_most_s)
        return most if least == most else f"{least} to {most}"


@dataclass(frozen=True, slots=True)
class Record:
    """The summary of a run. `outcome` is the last command's, except `open`, `none` (never begun) and `aborted`. `ended`
    is None while the run is open, `out` if clients were not kept out or that is unknown; `epoch` is that of the run's
    lock. `let_in` is the last step that let clients in, `fenced` the first call that could keep them out. `served` has
    the serving site of each unit by the run's result, None without a result; `served_before` are the sites that served
    when the run was planned. `installation` has facts of the settings, `plan_sha256` the digest of the signed plan.
    """

    run: str
    outcome: str
    summary: str
    operation: str = field(default="", metadata=key(blank=True))
    source: str = field(default="", metadata=key(blank=True))
    target: str = field(default="", metadata=key(blank=True))
    queues: str | None = optional()
    reason: str = field(default="", metadata=key(blank=True))
    began: datetime | None = None
    ended: datetime | None = None
    authors: tuple[str, ...] = field(default=(), metadata=HIDDEN)
    approved_by: tuple[str, ...] = field(default=(), metadata=key(blank=True, optional=True))
    plan_sha256: str | None = field(default=None, metadata=HIDDEN)
    exit_code: int | None = field(default=None, metadata=HIDDEN)
    out: OutageBounds | None = field(default=None, metadata=key("out_s"))
    debts: tuple[str, ...] = ()
    epoch: int | None = field(default=None, metadata=HIDDEN)
    let_in: Listener | None = field(default=None, metadata=HIDDEN)
    fenced: Listener | None = field(default=None, metadata=HIDDEN)
    served: Mapping[str, str | None] | None = field(default=None, metadata=HIDDEN)
    served_before: tuple[str, ...] = field(default=(), metadata=HIDDEN)
    installation: Mapping[str, Any] | None = field(default=None, metadata=HIDDEN)

    @derived
    def took_s(self) -> float | None:
        """The seconds from the first line to the last, with pauses between two processes."""
        if self.began is None or self.ended is None or self.ended < self.began:  # the clock was set back meanwhile
            return None
        return round((self.ended - self.began).total_seconds(), 3)

    @derived
    def by(self) -> str | None:
        """The people who executed a part of the run, in order; None if unknown."""
        return ", ".join(dict.fromkeys(filter(None, self.authors))) or None


@dataclass(frozen=True, slots=True)
class Material:
    """The files of a run as read. `result` is None while the run has not ended; `plans` has a plan for each part."""

    name: str
    entries: Sequence[Entry] = ()
    plans: Sequence[Mapping[str, Any]] = ()
    result: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    @property
    def plan(self) -> Mapping[str, Any]:
        """The first plan, empty where none can be read."""
        return self.plans[0] if self.plans else {}

    @property
    def last_plan(self) -> Mapping[str, Any]:
        return self.plans[-1] if self.plans else {}

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.plan.get("ask"))

    @property
    def data(self) -> Mapping[str, Any]:
        """The data of the result, empty without a result."""
        return mapping(mapping(self.result).get("data"))

    @property
    def last_hash(self) -> str:
        return self.entries[-1].hash() if self.entries else GENESIS

    @property
    def authors(self) -> list[Mapping[str, Any]]:
        return authors(self.entries)

    @property
    def installation(self) -> Mapping[str, Any] | None:
        return next((mapping(author["about"]) for author in self.authors if "about" in author), None)

    @property
    def approved(self) -> Mapping[str, Any] | None:
        return next((mapping(author["approved"]) for author in self.authors if "approved" in author), None)

    @property
    def steps(self) -> dict[str, Mapping[str, Any]]:
        """Every step that was planned, by its id in the journal."""
        return {step_id(step): step for plan in self.plans for step in map(mapping, items(plan.get("steps")))}

    def listener(self, entry: Entry) -> Listener | None:
        site, at = text(self.steps.get(entry.step or "", {}).get("site")), entry.let_in_at
        return None if at is None else Listener(site, at)


def step_id(step: Mapping[str, Any]) -> str:
    return f"{int(number(step.get('number')) or 0):02d}-{text(step.get('verb'))}"


def authors(entries: Iterable[Entry]) -> list[Mapping[str, Any]]:
    """List the people who executed each part of the run, by running, resuming or undoing it."""
    listed = [mapping(entry.evidence.get("by")) for entry in entries if entry.kind in ("run", "lock")]
    return [author for author in listed if author]


def read_run(files: RunFiles) -> Material:
    """Read a run up to the first line that does not fit; the run's page shows missing or damaged parts as problems."""
    entries, problem = _valid_lines(files.journal)
    problems, result = [problem] if problem else [], of_file(files.result)
    if result is None and files.result.exists():
        problems.append("result.json could not be read: how the run ended is taken from the journal")
    if result is None:
        result = next((entry.evidence for entry in reversed(entries) if entry.kind == "end"), None)
        if result is not None and not files.result.exists():
            problems.append("the journal holds the end of the run, but result.json was not written")
    return Material(files.name, entries, _plans(files, entries), result, tuple(problems))


def _valid_lines(path: Path) -> tuple[list[Entry], str | None]:
    """Return the lines up to the first that does not fit, and a sentence on the rest."""
    try:
        raw = path.read_bytes()
    except OSError:
        return [], "there is no journal: the run never began, and nothing was changed by it"
    checked = chain(raw)
    if checked.wrong is not None:
        text = f"line {checked.wrong[0]} of the journal does not fit the lines before it"
        return checked.entries, f"{text}: it and all after it are left out"
    torn = "the last line of the journal is torn, as a crash leaves it: it is left out"
    return checked.entries, torn if checked.torn else None


def _readable(path: Path) -> list[Entry]:
    """Return the readable lines of the journal without samples, even if they are no valid chain."""
    entries: list[Entry] = []
    with suppress(OSError):
        for line in path.read_bytes().split(b"\n"):
            if line and _SAMPLE not in line:
                with suppress(ValueError):
                    entries.append(Entry.of_line(line)[0])
    return entries


def _plans(files: RunFiles, entries: Iterable[Entry]) -> list[Mapping[str, Any]]:
    plans = [mapping(entry.evidence.get("plan")) for entry in entries if entry.kind == "run"]
    return plans or [plan for plan in [of_file(files.plan)] if plan is not None]


def record(files: RunFiles) -> Record:
    entries = _readable(files.journal)
    outcome, summary, result = how_ended(files)
    run = Material(files.name, entries, _plans(files, entries), result)
    let_in = next((run.listener(entry) for entry in reversed([*letting_in(entries)])), None)
    fenced = next((run.listener(entry) for entry in entries if entry.fences), None)
    epochs = [number(mapping(author.get("lock")).get("epoch")) for author in run.authors]
    epochs += [number(entry.evidence.get("epoch")) for entry in entries if entry.kind == "lock"]
    units, out = map(mapping, items(run.data.get("pairs"))), _outage_bounds(run.data)
    last = entries[-1].at if entries else None
    if out is None and outcome == ExitCode.STRANDED.outcome and fenced is not None and last and last >= fenced.at:
        out = OutageBounds((last - fenced.at).total_seconds(), None)  # clients were locked out to the end of the run
    return Record(
        run=files.name,
        outcome=outcome,
        summary=summary,
        operation=text(run.spec.get("operation")),
        source=text(run.plan.get("source")),
        target=text(run.spec.get("target")),
        queues=text(run.spec.get("queues")) or None,
        reason=text(run.spec.get("reason")),
        began=entries[0].at if entries else None,
        ended=last if outcome != OPEN else None,
        authors=tuple("@".join(filter(None, (text(by.get("user")), text(by.get("host"))))) for by in run.authors),
        approved_by=approvers(run.authors),
        plan_sha256=None if run.approved is None else text(run.approved.get("plan_sha256")),
        exit_code=None if (code := number(result.get("exit_code"))) is None else int(code),
        out=out,
        debts=tuple(text(mapping(debt).get("text")) for debt in items(result.get("debts"))),
        epoch=max((int(epoch) for epoch in epochs if epoch is not None), default=None),
        let_in=let_in,
        fenced=fenced,
        served={text(unit.get("name")): text(unit.get("serving")) or None for unit in units} or None,
        served_before=tuple(map(text, items(run.plan.get("serving")))),
        installation=run.installation,
    )


def how_ended(files: RunFiles) -> tuple[str, str, Mapping[str, Any]]:
    """Return the outcome of a run, its summary and its result. The outcome is that of the last command, but a
    successful undo makes the run `aborted`."""
    if files.open():
        return OPEN, "under way" if is_held(files.journal) else "interrupted: no process writes its journal", {}
    if not files.result.exists():
        return NEVER_BEGAN, "it never began: nothing was changed by it", {}
    try:
        result: dict[str, Any] = json.loads(files.result.read_bytes())
        outcome, summary, was_undone = str(result["outcome"]), str(result["summary"]), result["data"].get("undone")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return "unknown", f"result.json cannot be read ({type(error).__name__}): see runs show", {}
    return ABORTED if outcome == ExitCode.OK.outcome and was_undone is not None else outcome, summary, result


def approvers(people: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """List the people who signed the plan of a run, by its journal."""
    signed = [mapping(row) for author in people for row in items(mapping(author.get("approved")).get("by"))]
    return tuple(dict.fromkeys(text(row.get("name")) for row in signed if text(row.get("name"))))


def _outage_bounds(data: Mapping[str, Any]) -> OutageBounds | None:
    """Return the outage that the run measured, or the bounds by readings for a failover."""
    measured, bounds = number(data.get("outage_s")), mapping(data.get("out_s"))
    if measured is not None:
        return OutageBounds(measured, measured)
    at_least, at_most = number(bounds.get("at_least")), number(bounds.get("at_most"))
    return None if at_least is None and at_most is None else OutageBounds(at_least, at_most)


class Verdict(Enum):
    WHOLE = "whole"
    OPEN = "open"  # the run has not ended: the lines so far fit together, and no result seals them yet
    NOT_BEGUN = "not begun"
    ALTERED = "altered"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check. `line` is the first altered line of the journal, if any."""

    verdict: Verdict
    lines: int
    text: str
    line: int | None = field(default=None, metadata=key(description="the first that does not fit"))


@dataclass(frozen=True, slots=True)
class CheckedRun:
    run: str
    checked: Checked = field(metadata=key(flat=True))


def check(files: RunFiles) -> Checked:
    """Check one run. Altered files are a verdict, not an error."""
    has_ended = files.result.exists()
    if not files.journal.exists():
        if has_ended:
            return Checked(Verdict.ALTERED, 0, "journal.jsonl is missing", 1)
        return Checked(Verdict.NOT_BEGUN, 0, "it never began: nothing was changed by it")
    raw = files.journal.read_bytes()
    checked = chain(raw, exact=True)
    past, place = checked.entries, len(checked.entries) + 1
    if checked.wrong is not None:
        return Checked(Verdict.ALTERED, len(past), f"line {place} of journal.jsonl {checked.wrong[1]}", place)
    is_complete = raw.endswith(b"\n")
    if not has_ended:
        torn = f"; line {place} is torn, {'as a crash leaves it' if is_complete else 'or being written'}"
        so_far = f"the run has not ended; its {len(past)} line(s) so far fit together{torn if checked.torn else ''}"
        return Checked(Verdict.OPEN, len(past), so_far, place if checked.torn and is_complete else None)
    if checked.torn:
        what = "was altered" if is_complete else "is torn, although the run has ended"
        return Checked(Verdict.ALTERED, len(past), f"line {place} of journal.jsonl {what}", place)
    return _against_result(files.result, past)


def _against_result(path: Path, past: list[Entry]) -> Checked:
    """Compare a valid chain with the result that seals the run."""
    try:
        result: dict[str, Any] = json.loads(path.read_bytes())
        sealed = result.pop("journal")
        count, last_hash = int(sealed["count"]), str(sealed["last_hash"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Checked(Verdict.ALTERED, len(past), "result.json cannot be read")
    if count != len(past):
        place, what = min(count, len(past)) + 1, "is missing" if count > len(past) else "was added"
        text = f"line {place} of journal.jsonl {what}: result.json counts {count}"
        return Checked(Verdict.ALTERED, len(past), text, place)
    last = past[-1] if past else None
    if last is None or last.hash() != last_hash:
        text = f"line {count} of journal.jsonl, the last, and result.json do not fit: one of them was altered"
        return Checked(Verdict.ALTERED, len(past), text, count)
    if last.kind != "end" or dict(last.evidence) != result:
        text = f"result.json does not say what line {count} of journal.jsonl says of the end: it was altered"
        return Checked(Verdict.ALTERED, len(past), text)
    return Checked(Verdict.WHOLE, len(past), f"{count} lines, as sealed when it ended")
