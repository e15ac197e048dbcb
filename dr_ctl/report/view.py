"""A run as a page of values: every number and every sentence of the report, computed from what the run wrote."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.document import items, mapping, number, text
from dr_ctl.core.system import stamp
from dr_ctl.engine.operations import ESTIMATE
from dr_ctl.report.evidence import Fact, Measured, measured, of_what
from dr_ctl.report.forecast import Bounds, Forecast, bounds, forecast
from dr_ctl.report.outage import Outage, outage
from dr_ctl.report.outflow import Chart, charts
from dr_ctl.report.reading import Material
from dr_ctl.report.story import Act, CallMade, Story, calls_of, tell
from dr_ctl.report.timeline import Chapter, chapters
from dr_ctl.report.values import NOT_KNOWN, clock, count, many, seconds
from dr_ctl.report.verdict import Verdict, verdict

_ORDER: Final = {"error": 0, "warning": 1, "info": 2}
_PROOFS: Final = {
    ("fence", "attempt"): "by attempt: no greeting where a client was greeted before",
    ("fence", "flag"): "by flag only: no client was greeted before, so none could be seen to be refused",
    ("activate", "attempt"): "by attempt: an open listener answered a client",
    ("activate", "flag"): "by flag only: no client's greeting was tried",
}


@dataclass(frozen=True, slots=True)
class Finding:
    id: str
    severity: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call that went out. `text` is empty where the answer says no more than the outcome."""

    time: str
    site: str
    unit: str
    about: str
    request: str
    when: str
    outcome: str
    text: str
    took: str


@dataclass(frozen=True, slots=True)
class CallGroup:
    """The calls of one step, in order."""

    step: str
    rows: tuple[CallRow, ...]


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's figures for a unit before the activation."""

    unit: str
    sentence: str
    depths: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    name: str
    verdict: Verdict
    outage: Outage
    took: str
    calls_sentence: str
    of_what: tuple[Fact, ...]
    asked: tuple[Fact, ...]
    measured: tuple[Measured, ...]
    chapters: tuple[Chapter, ...]
    not_begun: tuple[str, ...]
    charts: tuple[Chart, ...]
    findings: tuple[Finding, ...]
    findings_note: str
    debts: tuple[str, ...]
    proofs: tuple[Fact, ...]
    gates: tuple[Gate, ...]
    forecast: Forecast | None
    bounds: Bounds | None
    calls: tuple[CallGroup, ...]
    not_replicated: tuple[str, ...]
    cannot_know: tuple[str, ...]
    journal: tuple[Fact, ...]
    problems: tuple[str, ...]


def view(material: Material) -> Page:
    """Compute the page. Works for any run: ended, open, resumed, cut off, or never begun."""
    story = tell(material)
    plan = material.plans[0] if material.plans else {}
    last_plan = material.plans[-1] if material.plans else {}
    result = mapping(material.result)
    out = outage(story, material)
    judged = measured(material, out)
    findings, note = _findings(material)
    foretold = forecast(story)
    return Page(
        title=_title(plan, material.name),
        name=material.name,
        verdict=verdict(material, story, judged),
        outage=out,
        took=_took(story),
        calls_sentence=_calls_sentence(story),
        of_what=of_what(material),
        asked=_asked(plan, story),
        measured=judged,
        chapters=chapters(story, out, elsewhere=ESTIMATE if foretold is not None and foretold.rows else ""),
        not_begun=story.not_begun,
        charts=charts(story),
        findings=findings,
        findings_note=note,
        debts=tuple(_debt(debt) for debt in items(result.get("debts"))),
        proofs=_proofs(story),
        gates=_gates(story),
        forecast=foretold,
        bounds=bounds(mapping(result.get("data"))),
        calls=_calls(story),
        not_replicated=tuple(map(str, items(last_plan.get("not_replicated")))),
        cannot_know=tuple(map(str, items(last_plan.get("cannot_know")))),
        journal=_journal(material, story),
        problems=material.problems,
    )


def _title(plan: Mapping[str, Any], name: str) -> str:
    ask = mapping(plan.get("ask"))
    operation = text(ask.get("operation"))
    return (
        f"{operation.capitalize()} from {text(plan.get('source'))} to {text(ask.get('target'))}" if operation else name
    )


def _took(story: Story) -> str:
    worked = sum((part.ended - part.began).total_seconds() for part in story.parts)
    return seconds(max(0.0, worked)) if story.parts else "nothing was done"


def _asked(plan: Mapping[str, Any], story: Story) -> tuple[Fact, ...]:
    ask = mapping(plan.get("ask"))
    timeout, differences = number(ask.get("timeout_s")), mapping(ask.get("accept_difference"))
    facts = [
        Fact("Operation", text(ask.get("operation")) or NOT_KNOWN),
        Fact("Source", text(plan.get("source")) or NOT_KNOWN),
        Fact("Target", text(ask.get("target")) or NOT_KNOWN),
    ]
    if ask.get("operation") == "failover":
        accepted = ask.get("accept_loss")
        facts.append(Fact("Loss accepted", "as the objectives say" if accepted is None else str(accepted)))
        if (duplicates := ask.get("accept_duplicates")) is not None:
            facts.append(Fact("Duplicates accepted", str(duplicates)))
    else:
        facts += [
            Fact("Timeout of the drain", seconds(timeout) if timeout is not None else "as the settings say"),
            Fact(
                "Messages in delivery", "may be cut" if ask.get("cut_in_flight") is True else "must come to zero first"
            ),
        ]
    if text(ask.get("presume_down")):
        facts.append(Fact("Taken for down", text(ask.get("presume_down"))))
    if differences:
        facts.append(
            Fact("Differences accepted", ", ".join(f"{queue}: {count(n)}" for queue, n in differences.items()))
        )
    if text(ask.get("expect_serving")):
        facts.append(Fact("Expected to serve before", text(ask.get("expect_serving"))))
    if story.parts:
        facts += [Fact("Begun", stamp(story.parts[0].began)), Fact("Last entry", stamp(story.parts[-1].ended))]
    return tuple(facts)


def _findings(material: Material) -> tuple[tuple[Finding, ...], str]:
    if material.result is not None:
        rows, note = items(material.result.get("findings")), ""
    else:
        rows = [each for plan in material.plans for each in items(plan.get("findings"))]
        note = "The run has not ended: these are the findings of its plan; those of its steps are told with its end."
    findings = [
        Finding(text(each.get("id")), text(each.get("severity")), text(each.get("text")), text(each.get("remedy")))
        for each in map(mapping, rows)
    ]
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda each: _ORDER.get(each.severity, 0))), note


def _debt(debt: object) -> str:
    if not isinstance(debt, Mapping):
        return str(debt)
    return text(debt.get("text")) or "; ".join(f"{key}: {value}" for key, value in debt.items())


def _proofs(story: Story) -> tuple[Fact, ...]:
    """How fence and activation were proven."""
    proofs = [(act, text(act.evidence.get("proof"))) for act in story.acts if not act.undo]
    return tuple(
        Fact(f"{act.verb} {act.site}".strip(), _PROOFS.get((act.verb, proof), proof)) for act, proof in proofs if proof
    )


def _gates(story: Story) -> tuple[Gate, ...]:
    acts: Sequence[Act] = story.of("verify")
    snapshot = acts[-1].evidence if acts else {}
    return tuple(_gate(unit, row) for unit, row in snapshot.items() if isinstance(row, Mapping) and "depths" in row)


def _gate(unit: str, row: Mapping[str, Any]) -> Gate:
    depths = mapping(row.get("depths"))
    sentence = f"The gate held in {count(row.get('samples'))} samples in a row; both sites were compared queue by queue"
    compared = f"{sentence}, and {count(row.get('ids_compared'))} messages by id"
    empty = "; all queues were empty" if not depths else ""
    return Gate(unit, f"{compared}{empty}.", tuple((queue, count(depth)) for queue, depth in depths.items()))


def _calls(story: Story) -> tuple[CallGroup, ...]:
    groups: list[tuple[str, list[CallRow]]] = []
    for act, made in calls_of(story):
        if not groups or groups[-1][0] != act.label:
            groups.append((act.label, []))
        groups[-1][1].append(_call(made))
    return tuple(CallGroup(step, tuple(rows)) for step, rows in groups)


def _call(made: CallMade) -> CallRow:
    call = made.call
    operation = text(call.get("operation")).partition("(")[0]
    arguments = ", ".join(json.dumps(each, ensure_ascii=False) for each in items(call.get("arguments")))
    return CallRow(
        time=clock(made.began),
        site=text(call.get("site")),
        unit=text(call.get("pair")),
        about=text(call.get("about")),
        request=f"{operation}({arguments}) on {text(call.get('bean'))}",
        when=text(call.get("when")),
        outcome=made.outcome,
        text="" if made.outcome == "done" else made.text,
        took=seconds((made.ended - made.began).total_seconds()) if made.ended is not None else NOT_KNOWN,
    )


def _calls_sentence(story: Story) -> str:
    made = [call for _, call in calls_of(story)]
    if not made:
        return "none went out"
    outcomes = Counter(call.outcome for call in made)
    counts = ", ".join(f"{count(amount)} {outcome}" for outcome, amount in outcomes.items())
    undone = sum(act.undo for act, _ in calls_of(story))
    return f"{many(len(made), 'call')} went out: {counts}{f'; {count(undone)} of them to undo' if undone else ''}"


def _journal(material: Material, story: Story) -> tuple[Fact, ...]:
    sealed = mapping(mapping(material.result).get("journal"))
    facts = [Fact("Entries", count(len(material.entries))), Fact("Last hash", f"`{material.last_hash}`")]
    if sealed:
        same = sealed.get("last_hash") == material.last_hash and sealed.get("count") == len(material.entries)
        sentence = (
            "the same count and last hash" if same else "ANOTHER count or last hash: one of the two files was altered"
        )
        facts.append(Fact("Seal in result.json", sentence))
    else:
        facts.append(Fact("Seal in result.json", "none: the run has not ended" if material.result is None else "none"))
    if story.back:
        sentence = (
            f"at entry {', '.join(map(count, story.back))}: order is by entry; times around it are not to be trusted"
        )
        facts.append(Fact("The clock went back", sentence))
    return tuple(facts)
