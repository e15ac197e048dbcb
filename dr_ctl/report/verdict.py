"""The headline: how the run ended, in words, and what to do where it has not."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.document import items, mapping, number, text
from dr_ctl.core.findings import MEANINGS, Tone
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.ending import did
from dr_ctl.report.evidence import NOT_KEPT, RECOVERY, Measured, authors
from dr_ctl.report.reading import Material
from dr_ctl.report.story import Mark, Story
from dr_ctl.report.values import clock, seconds

_ABORTED: Final = "Aborted: all that the run changed was undone, and the undo was verified"


@dataclass(frozen=True, slots=True)
class UnitEnd:
    """The site that serves a unit at the end; `serving` is a sentence where no site does."""

    name: str
    serving: str


@dataclass(frozen=True, slots=True)
class Verdict:
    tone: Tone
    words: str
    outcome: str
    exit_code: str
    summary: str
    units: tuple[UnitEnd, ...]
    advice: str
    notes: tuple[str, ...] = ()
    price: tuple[str, ...] = ()
    """What it cost to reach the wanted state, or is left to do."""


def verdict(material: Material, story: Story, judged: Sequence[Measured] = ()) -> Verdict:
    """Judge by the result alone; a run without one has not ended, whatever its steps say."""
    if material.result is None:
        words, advice = _open(story)
        return Verdict(Tone.OPEN, words, "open", "none yet", "", (), advice, _gone_on(material, story))
    result = material.result
    data = mapping(result.get("data"))
    units = tuple(
        UnitEnd(text(unit.get("name")), text(unit.get("serving")) or "no site was seen to serve it")
        for unit in map(mapping, items(data.get("pairs")))
    )
    code = number(result.get("exit_code"))
    known = int(code) if code is not None else None
    tone, words = _ended(known, text(result.get("command")), data.get("undone"), _did(material))
    price = [*_price(result, mapping(data.get("bounds"))), *_missed(judged)]
    if tone is Tone.GOOD and price:
        tone, words = Tone.OWED, f"{words}; {', '.join(price)}"
    outcome, summary = text(result.get("outcome")), text(result.get("summary"))
    exit_code = f"{code:g}" if code is not None else "not known"
    return Verdict(tone, words, outcome, exit_code, summary, units, "", _gone_on(material, story), tuple(price))


def _gone_on(material: Material, story: Story) -> tuple[str, ...]:
    """A sentence for each time that another process went on with the run."""
    by = authors(material)
    notes = []
    for place, (before, after) in enumerate(itertools.pairwise(story.parts), start=1):
        gap_s = max(0.0, (after.began - before.ended).total_seconds())
        who = text(by[place].get("user")) if place < len(by) else ""
        what = "undone by another process" if after.kind == "aborted" else "interrupted, and gone on with"
        silent = f"nothing was written for {seconds(gap_s)}, from {clock(before.ended)} to {clock(after.began)}"
        notes.append(f"The run was {what}{f' ({who})' if who else ''}: {silent}.")
    return tuple(notes)


def _missed(judged: Sequence[Measured]) -> list[str]:
    """What was asked of a planned move and not kept; a price stands for itself."""
    late = [each for each in judged if each.name == RECOVERY and each.judged == NOT_KEPT]
    return [f"clients were out for longer than the {each.objective.removeprefix('within ')} planned" for each in late]


def _price(result: Mapping[str, Any], bounds: Mapping[str, Any]) -> list[str]:
    """What a run that reached its state has cost, or has left to do."""
    found = []
    for key, of, may in (("lost", "message", "may be lost"), ("duplicates", "duplicate", "are possible")):
        if key in bounds and (at_most := number(mapping(bounds[key]).get("at_most"))) != 0:
            many = f"an unknown number of {of}s" if at_most is None else f"at most {at_most:g} {of}(s)"
            found.append(f"{many} {may}")
    if debts := items(result.get("debts")):
        found.append(f"{len(debts)} thing(s) are owed")
    return found


def _did(material: Material) -> str:
    """What the run was for, as a thing done."""
    plan = material.plans[0] if material.plans else {}
    ask = mapping(plan.get("ask"))
    named = f" {text(ask.get('queues'))}" if ask.get("queues") else ""
    return did(text(ask.get("operation")), text(plan.get("source")), text(ask.get("target")), named)


def _ended(code: int | None, command: str, undone: object, what: str) -> tuple[Tone, str]:
    try:
        known = ExitCode(code) if code is not None else None
    except ValueError:
        known = None
    if known in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        if undone is True:
            return Tone.UNDONE, "Stopped by a signal; undone"
        return Tone.BAD, "Stopped by a signal; what was changed was not undone"
    if known is ExitCode.OK and command == "abort":
        return Tone.UNDONE, _ABORTED
    if known is ExitCode.DRAIN_TIMEOUT and undone is not True:
        return Tone.BAD, "The drain did not finish in time"
    if known is None:
        return Tone.BAD, "How it ended could not be read"
    return MEANINGS[known].tone, _headline(known, what, undone=undone is True)


def _headline(code: ExitCode, what: str, *, undone: bool) -> str:
    """What happened; `what` is what the run was for."""
    done, brief = f"{what[:1].upper()}{what[1:]}", MEANINGS[code].brief
    if undone:
        why = ", because the drain did not finish in time" if code is ExitCode.DRAIN_TIMEOUT else ""
        return f"Not {what}{why}: put back, and verified"
    return {
        ExitCode.OK: f"{done}; verified",
        ExitCode.INCOMPLETE: f"{done}, but something is left to do",
        ExitCode.UNKNOWN: f"Not known to have {what}: {brief}",
    }.get(code, f"Not {what}: {brief}")


def _open(story: Story) -> tuple[str, str]:
    if not story.parts:
        return "Never begun", "Nothing was changed by it."
    words = "Not ended: under way, or cut off"
    look = "`dr-ctl status` says where things stand."
    # Only the undo of an activation, or its proven failure, takes the run back before the point of no return.
    gone_out = [act for act in story.of("activate") if act.calls and act.mark is not Mark.REFUSED]
    if gone_out:
        return (
            words,
            f"An activating call has gone out: this cannot be undone any more. {look} `dr-ctl resume` finishes it.",
        )
    return words, f"{look} If no process works on it, `dr-ctl resume` goes on with it and `dr-ctl abort` undoes it."
