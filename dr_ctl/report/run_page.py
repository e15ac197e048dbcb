"""The values that the page of a run shows: its end, what to do, its time line, and the contents of its files."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

from dr_ctl.core.document import items, mapping, number, stamp, text
from dr_ctl.core.findings import Tone, meanings
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import NOT_KNOWN
from dr_ctl.engine.ending import did
from dr_ctl.engine.operations import FENCE, NO_RETURN, UNFENCE
from dr_ctl.engine.record import Material
from dr_ctl.report.charts import Tick, TimeAxis, of_waits
from dr_ctl.report.estimate_page import of_run
from dr_ctl.report.evidence import NOT_KEPT, RECOVERY, Fact, Measured, Outage, measured, of_what, outage
from dr_ctl.report.story import Mark, Part, StepRecord, Story, calls_of, story_of
from dr_ctl.report.values import clock, count, many, seconds

_ORDER: Final = {"error": 0, "warning": 1, "info": 2}
_PROOFS: Final = {
    ("fence", "attempt"): "by attempt: a test login failed that worked before",
    ("fence", "flag"): "by flag only: this process saw no test login work before, so a failed one proves nothing",
    ("activate", "attempt"): "by attempt: a test login worked",
    ("activate", "flag"): "by flag only: no test login was tried",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headline. `units` are the units with the site that serves each at the end; `costs` are what may be lost
    or duplicated in that state, and the debts."""

    tone: Tone
    words: str
    outcome: str
    exit_code: str
    summary: str = ""
    units: tuple[tuple[str, str], ...] = ()
    advice: str = ""
    notes: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()


class Span(NamedTuple):
    """A bar: its left end and width in per cent, and whether it goes on past either end of the axis."""

    left: float
    width: float
    before: bool = False
    after: bool = False


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the run; `rows` are its steps with their bars. `band` is the time in which clients were out,
    `no_return` the point of no return."""

    title: str
    gap: str
    began: str
    ticks: tuple[Tick, ...]
    rows: tuple[tuple[StepRecord, Span], ...]
    band: Span | None
    no_return: float | None


class RunPage:
    """The values of the page. `gates` has a sentence for each unit, and the depths of its queues, as the gate saw them;
    `bounds` the bounds of a failover; `calls` the calls of each step, in order."""

    template: ClassVar = "run.html.j2"

    def __init__(self, material: Material) -> None:
        """Works for any run: ended, open, resumed, cut off, or never begun."""
        story = story_of(material)
        spec, bounds = material.spec, mapping(material.data.get("bounds"))
        operation, source, target = spec.get("operation"), material.plan.get("source"), spec.get("target")
        worked_s = sum((part.ended - part.began).total_seconds() for part in story.parts)
        self.name = material.name
        sites = f"of {text(source)}" if operation in (FENCE, UNFENCE) else f"from {text(source)} to {text(target)}"
        self.title = f"{text(operation).capitalize()} {sites}" if operation else self.name
        self.outage = outage(story, material)
        self.measured = measured(material, self.outage)
        self.verdict = verdict(material, story, self.measured)
        self.took = seconds(max(0.0, worked_s)) if story.parts else "nothing was done"
        self.calls_sentence = _calls_sentence(story)
        self.of_what = of_what(material)
        self.asked = _asked(material.plan, story)
        self.forecast = of_run(story)
        self.chapters = chapters(story, self.outage)
        self.not_begun = story.not_begun
        self.charts = of_waits(story)
        self.findings = _findings(material)
        open_note = "The run has not ended: these are the findings of its plan; its end adds those of its steps."
        self.findings_note = open_note if material.result is None else ""
        self.debts = [text(mapping(debt).get("text")) for debt in items(mapping(material.result).get("debts"))]
        self.proofs = _proofs(story)
        self.gates = [*_gates(story)]
        kinds = (("lost", "Lost, at most"), ("duplicates", "Duplicates, at most"))
        self.bounds = [_bound(name, mapping(bounds.get(key))) for key, name in kinds if bounds]
        queues = map(mapping, items(bounds.get("queues")))
        self.bounded_queues = [
            (text(of.get("name")), count(of.get("lost")), count(of.get("duplicates"))) for of in queues
        ]
        by_step = itertools.groupby(calls_of(story), key=lambda made: made[0].label)
        self.calls = [(step, [made for _, made in group]) for step, group in by_step]
        self.not_replicated = [*map(str, items(material.last_plan.get("not_replicated")))]
        self.cannot_know = [*map(str, items(material.last_plan.get("cannot_know")))]
        self.journal = _journal(material, story)
        self.problems = material.problems


def verdict(material: Material, story: Story, judged: Sequence[Measured] = ()) -> Verdict:
    """Judge by the result alone; a run without one has not ended, whatever its steps say."""
    notes = _interruptions(material, story)
    if material.result is None:
        words, advice = _open(story)
        return Verdict(Tone.OPEN, words, "open", "none yet", advice=advice, notes=notes)
    result, data = material.result, material.data
    units = map(mapping, items(data.get("pairs")))
    code = number(result.get("exit_code"))
    spec = material.spec
    named = f" {text(spec.get('queues'))}" if spec.get("queues") else ""
    what = did(text(spec.get("operation")), text(material.plan.get("source")), text(spec.get("target")), named)
    tone, words = _ended(code, text(result.get("command")), data.get("undone"), what)
    costs = [*_exposure(result, mapping(data.get("bounds"))), *_missed(judged)]
    if tone is Tone.GOOD and costs:
        tone, words = Tone.COST, f"{words}; {', '.join(costs)}"
    return Verdict(
        tone,
        words,
        outcome=text(result.get("outcome")),
        exit_code=f"{code:g}" if code is not None else NOT_KNOWN,
        summary=text(result.get("summary")),
        units=tuple((text(of.get("name")), text(of.get("serving")) or "no site was seen to serve it") for of in units),
        notes=notes,
        costs=tuple(costs),
    )


def _interruptions(material: Material, story: Story) -> tuple[str, ...]:
    by = material.authors
    notes = []
    for place, (before, after) in enumerate(itertools.pairwise(story.parts), start=1):
        who = text(by[place].get("user")) if place < len(by) else ""
        what = "undone by another process" if after.kind == "aborted" else "interrupted and resumed"
        silent = f"nothing was written for {_pause(before, after)}, from {clock(before.ended)} to {clock(after.began)}"
        notes.append(f"The run was {what}{f' ({who})' if who else ''}: {silent}.")
    return tuple(notes)


def _missed(judged: Sequence[Measured]) -> list[str]:
    """Return the objectives of a planned move that were not kept. A possible loss is listed separately."""
    late = [row.objective.removeprefix("within ") for row in judged if (row.name, row.judged) == (RECOVERY, NOT_KEPT)]
    return [f"clients were out for longer than the {limit} planned" for limit in late]


def _exposure(result: Mapping[str, Any], bounds: Mapping[str, Any]) -> list[str]:
    """Return the cost of a run that reached its state, and its debts."""
    costs = []
    for key, of, may in (("lost", "message", "may be lost"), ("duplicates", "duplicate", "are possible")):
        if key in bounds and (at_most := number(mapping(bounds[key]).get("at_most"))) != 0:
            amount = f"an unknown number of {of}s" if at_most is None else f"at most {at_most:g} {of}(s)"
            costs.append(f"{amount} {may}")
    if debts := items(result.get("debts")):
        costs.append(f"{len(debts)} debt(s) are pending")
    return costs


def _ended(code: float | None, command: str, undone: object, what: str) -> tuple[Tone, str]:
    known = next((known for known in ExitCode if known == code), None)
    if known is None:
        return Tone.BAD, "How it ended could not be read"
    if known in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        if undone is True:
            return Tone.UNDONE, "Stopped by a signal; undone"
        return Tone.BAD, "Stopped by a signal; what was changed was not undone"
    if known is ExitCode.OK and command == "abort":
        verified = "all that the run changed was undone, and the undo was verified"
        return Tone.UNDONE, f"Aborted: {'what it did stays so' if undone is False else verified}"
    tone, brief = meanings()[known].tone, meanings()[known].brief
    if undone is True:
        why = ", because the drain did not finish in time" if known is ExitCode.DRAIN_TIMEOUT else ""
        return tone, f"Not {what}{why}: undone, and verified"
    if known is ExitCode.DRAIN_TIMEOUT:
        return Tone.BAD, "The drain did not finish in time"
    done = f"{what[:1].upper()}{what[1:]}"
    headlines = {
        ExitCode.OK: f"{done}; verified",
        ExitCode.INCOMPLETE: f"{done}, but something is left to do",
        ExitCode.UNKNOWN: f"Not known to have {what}: {brief}",
    }
    return tone, headlines.get(known, f"Not {what}: {brief}")


def _open(story: Story) -> tuple[str, str]:
    if not story.parts:
        return "Never begun", "Nothing was changed by it."
    words = "Not ended: under way, or cut off"
    advice = "`dr-ctl status` shows the state of both sites."
    # Only the undo of an activation, or its proven failure, takes the run back before the point of no return.
    if any(step.calls and step.mark is not Mark.REFUSED for step in story.of("activate")):
        past = "An activating call has gone out: this cannot be undone any more."
        return words, f"{past} {advice} `dr-ctl resume` finishes it."
    return words, f"{advice} If no process works on it, `dr-ctl resume` continues it and `dr-ctl abort` undoes it."


def chapters(story: Story, out: Outage) -> tuple[Chapter, ...]:
    """Lay out each part on an axis of its own: with hours between two parts neither would be visible."""
    parts = story.parts
    return tuple(
        _chapter(part, f"Part {place} of {len(parts)}: {part.kind}" if len(parts) > 1 else "", last, out)
        for place, (part, last) in enumerate(zip(parts, (None, *parts), strict=False), start=1)
    )


def _chapter(part: Part, title: str, last: Part | None, out: Outage) -> Chapter:
    axis = TimeAxis(part.began, part.ended)
    passed = next((step for step in part.steps if step.verb == NO_RETURN and step.mark is Mark.DONE), None)
    return Chapter(
        title=title,
        gap=f"Nothing was written for {_pause(last, part)}." if last is not None else "",
        began=stamp(part.began),
        ticks=axis.ticks(),
        rows=tuple((step, _span(axis, step.began, step.ended)) for step in part.steps),
        band=_band(part, axis, out),
        no_return=axis.at(passed.ended) if passed is not None and passed.ended is not None else None,
    )


def _pause(last: Part, part: Part) -> str:
    return seconds(max(0.0, (part.began - last.ended).total_seconds()))


def _span(axis: TimeAxis, began: datetime, ended: datetime | None) -> Span:
    left, after = axis.at(began), ended is None or ended > axis.ended
    return Span(left, round(axis.at(ended or axis.ended) - left, 3), began < axis.began, after)


def _band(part: Part, axis: TimeAxis, out: Outage) -> Span | None:
    if out.began is None or out.began > part.ended or (out.ended is not None and out.ended < part.began):
        return None
    return _span(axis, out.began, out.ended)


def _asked(plan: Mapping[str, Any], story: Story) -> tuple[Fact, ...]:
    spec = mapping(plan.get("ask"))
    timeout, differences = number(spec.get("timeout_s")), mapping(spec.get("accept_difference"))
    first = ("Operation", spec.get("operation")), ("Source", plan.get("source")), ("Target", spec.get("target"))
    facts = [Fact(name, text(value) or NOT_KNOWN) for name, value in first]
    if spec.get("operation") == "failover":
        accepted, duplicates = spec.get("accept_loss"), spec.get("accept_duplicates")
        facts.append(Fact("Loss accepted", "as the objectives say" if accepted is None else str(accepted)))
        facts += [] if duplicates is None else [Fact("Duplicates accepted", str(duplicates))]
    else:
        cut = "may be cut" if spec.get("cut_in_flight") is True else "must come to zero first"
        drain = seconds(timeout) if timeout is not None else "as the settings say"
        facts += [Fact("Timeout of the drain", drain), Fact("Messages in delivery", cut)]
    optional = (
        Fact("Taken for down", text(spec.get("presume_down"))),
        Fact("Differences accepted", ", ".join(f"{queue}: {count(n)}" for queue, n in differences.items())),
        Fact("Expected to serve before", text(spec.get("expect_serving"))),
    )
    facts += [fact for fact in optional if fact.text]
    if story.parts:
        facts += [Fact("Begun", stamp(story.parts[0].began)), Fact("Last entry", stamp(story.parts[-1].ended))]
    return tuple(facts)


def _findings(material: Material) -> tuple[tuple[str, str, str, str], ...]:
    """Severity, text, remedy and id of each, errors first: of the end, or else of the plans."""
    sources = material.plans if material.result is None else (material.result,)
    rows = [mapping(row) for source in sources for row in items(source.get("findings"))]
    unique = dict.fromkeys(tuple(text(row.get(key)) for key in ("severity", "text", "remedy", "id")) for row in rows)
    return tuple(sorted(unique, key=lambda finding: _ORDER.get(finding[0], 0)))  # type: ignore[arg-type]


def _proofs(story: Story) -> tuple[Fact, ...]:
    facts: list[Fact] = []
    for step in story.steps:
        if not step.undo and (proof := text(step.evidence.get("proof"))):
            name = f"{step.verb} {step.site}".strip()
            again = ", again" * any(fact.name == name for fact in facts)
            facts.append(Fact(f"{name}{again}", _PROOFS.get((step.verb, proof), proof)))
    return tuple(facts)


def _gates(story: Story) -> Iterator[tuple[str, str, tuple[tuple[str, str], ...]]]:
    steps = story.of("verify")
    for unit, row in steps[-1].evidence.items() if steps else ():
        if isinstance(row, Mapping) and "depths" in row:
            depths = mapping(row["depths"])
            sentence = (
                f"The gate held in {count(row.get('samples'))} samples in a row; both sites were compared queue by "
            )
            sentence += f"queue, and {count(row.get('ids_compared'))} messages by id"
            sentence += "." if depths else "; all queues were empty."
            yield unit, sentence, tuple((queue, count(depth)) for queue, depth in depths.items())


def _bound(name: str, row: Mapping[str, Any]) -> tuple[str, str, str]:
    likely = row.get("likely")
    beside = "" if likely is None else f" (likely {count(likely)})"
    return name, f"{count(row.get('at_most'))}{beside}", text(row.get("read_at")) or NOT_KNOWN


def _calls_sentence(story: Story) -> str:
    made = list(calls_of(story))
    if not made:
        return "none went out"
    outcomes = Counter(call.outcome for _, call in made)
    counts = ", ".join(f"{count(amount)} {outcome}" for outcome, amount in outcomes.items())
    undone = sum(step.undo for step, _ in made)
    return f"{many(len(made), 'call')} went out: {counts}{f'; {count(undone)} of them to undo' if undone else ''}"


def _journal(material: Material, story: Story) -> tuple[Fact, ...]:
    sealed = mapping(mapping(material.result).get("journal"))
    seal = "none: the run has not ended" if material.result is None else "none"
    if sealed:
        same = sealed.get("last_hash") == material.last_hash and sealed.get("count") == len(material.entries)
        altered = "ANOTHER count or last hash: one of the two files was altered"
        seal = "the same count and last hash" if same else altered
    facts = [Fact("Entries", count(len(material.entries))), Fact("Last hash", f"`{material.last_hash}`")]
    facts.append(Fact("Seal in result.json", seal))
    if story.back:
        entries = ", ".join(map(count, story.back))
        sentence = f"at entry {entries}: entries are in the right order; times around them are unreliable"
        facts.append(Fact("The clock went back", sentence))
    return tuple(facts)
