"""The headline: how the run ended, in words, and what to do where it has not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dr_ctl.core.model import ExitCode
from dr_ctl.report.reading import Material
from dr_ctl.report.story import Mark, Story
from dr_ctl.report.values import items, mapping, number, text


class Tone(Enum):
    """How the headline is to be taken; each has a shape of its own beside its colour."""

    GOOD = "good"
    UNDONE = "undone"
    BAD = "bad"
    OPEN = "open"


_WORDS: Final = {
    ExitCode.OK: (Tone.GOOD, "The wanted state holds, and that was verified"),
    ExitCode.WARNINGS: (Tone.GOOD, "The wanted state holds, and that was verified; there are warnings"),
    ExitCode.INTERNAL: (Tone.BAD, "Ended by a defect in dr-ctl"),
    ExitCode.PRECHECK_FAILED: (Tone.UNDONE, "Refused before the first call; nothing was changed"),
    ExitCode.LOSS_REFUSED: (Tone.UNDONE, "Refused: the loss is above the limit; nothing was changed"),
    ExitCode.SERVING_SITE_ALIVE: (Tone.UNDONE, "Refused: the site serves, or may; nothing was changed"),
    ExitCode.LOCKED: (Tone.UNDONE, "Another run holds the lock"),
    ExitCode.DECLINED: (Tone.UNDONE, "A person said no, or nobody could be asked"),
    ExitCode.REVERTED: (Tone.UNDONE, "Not moved: undone before the point of no return, and the undo was verified"),
    ExitCode.DRAIN_TIMEOUT: (Tone.UNDONE, "Not moved: the drain did not finish; undone, and the undo was verified"),
    ExitCode.INCOMPLETE: (Tone.BAD, "The target serves, and something that should have been done is not"),
    ExitCode.UNKNOWN: (Tone.BAD, "A call went out, and its result could not be verified"),
    ExitCode.STRANDED: (Tone.BAD, "The undo did not restore the state before: act by hand"),
}
_ABORTED: Final = "Aborted: all that the run changed was undone, and the undo was verified"


@dataclass(frozen=True, slots=True)
class UnitEnd:
    """Who serves one unit at the end; `serving` is a sentence where no site does."""

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


def verdict(material: Material, story: Story) -> Verdict:
    """Judge by the result alone; a run without one has not ended, whatever its steps say."""
    if material.result is None:
        words, advice = _open(story)
        return Verdict(Tone.OPEN, words, "open", "none yet", "", (), advice)
    result = material.result
    data = mapping(result.get("data"))
    units = tuple(
        UnitEnd(text(unit.get("name")), text(unit.get("serving")) or "no site was seen to serve it")
        for unit in map(mapping, items(data.get("pairs")))
    )
    told = number(result.get("exit_code"))
    tone, words = _ended(int(told) if told is not None else None, text(result.get("command")), data.get("undone"))
    outcome, summary = text(result.get("outcome")), text(result.get("summary"))
    return Verdict(tone, words, outcome, f"{told:g}" if told is not None else "not known", summary, units, "")


def _ended(code: int | None, command: str, undone: object) -> tuple[Tone, str]:
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
    return _WORDS.get(known, (Tone.BAD, "Ended")) if known is not None else (Tone.BAD, "How it ended could not be read")


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
