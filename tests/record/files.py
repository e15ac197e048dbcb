"""The record's files: one for each operation on each topology, with a paragraph for each distinct course."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from tests.record.playing import Course, play
from tests.record.troubles import Trouble, deaths, faults_at_calls, faults_at_readings
from tests.twin.matrix import OPERATIONS

FOLDER: Final = Path(__file__).parent / "files"
PLAN: Final = "plan"
CALM: Final = "calm"
WIDTH: Final = 120
SHORTEST: Final = 3
# Sites whose readings get faults; other operations read in the same way. A dead site is not read.
LOOKED_AT: Final = {"swapover": ("london", "paris"), "failover": ("paris",)}
# A return with the plugin waits long at each of its many calls.
FEWER: Final = {("artemis-continuity", "reinstate"): 6, ("artemis-continuity", "failback"): 6}
PART: Final = 2
"""The number of faults of an operation in `make test`; `make deep` plays all."""


def path_of(topology: str, operation: str) -> Path:
    return FOLDER / topology / f"{operation}.txt"


def play_all(topology: str, operation: str, *, whole: bool) -> tuple[dict[str, str], list[str]]:
    """Play an operation with all faults, or with a fixed part; return the courses by fault, and failed assertions."""
    undisturbed = play(topology, operation)
    troubles = _troubles(topology, operation, undisturbed)
    troubles = troubles if whole else _spread(troubles[len(troubles) // 4 :], PART)
    courses, failures = {PLAN: _plan(undisturbed), CALM: _calm(undisturbed)}, list[str]()
    for trouble in troubles:
        try:
            other = play(topology, operation, trouble, undisturbed)
        except AssertionError as error:
            failures.append(f"{trouble}: {error}")
        else:
            courses |= {str(trouble): _beside(undisturbed, other)} if other.was_met else {}
    return courses, failures


def read(path: Path) -> dict[str, str]:
    courses = {}
    _, *paragraphs = path.read_text(encoding="utf-8").split("\n\n") if path.exists() else [""]
    for paragraph in paragraphs:
        lines = paragraph.rstrip("\n").split("\n")
        body = "\n".join(line for line in lines if line.startswith(" "))
        for heading in (line for line in lines if not line.startswith(" ")):
            words, _, numbers = heading.partition(": ")
            courses.update({f"{words}: {number}": body for number in numbers.split()} or {words: body})
    return courses


def write(path: Path, operation: str, courses: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"{path.parent.name}: {' '.join(OPERATIONS[operation].words)}"
    paragraphs = (
        "\n".join([*_headings([name for name, course in courses.items() if course == body]), body])
        for body in dict.fromkeys(courses.values())
    )
    path.write_text("\n\n".join([title, *paragraphs]) + "\n", encoding="utf-8")


def _troubles(topology: str, operation: str, undisturbed: Course) -> Sequence[Trouble]:
    troubles = [*faults_at_calls(undisturbed.changes), *deaths(undisturbed.requests)]
    if operation in LOOKED_AT:
        troubles += faults_at_readings(topology, LOOKED_AT[operation])
    return _spread(troubles, FEWER.get((topology, operation), len(troubles)))


def _spread(troubles: Sequence[Trouble], count: int) -> Sequence[Trouble]:
    """At most `count` of them, evenly distributed."""
    if len(troubles) <= count:
        return troubles
    return [troubles[round(at * (len(troubles) - 1) / (count - 1))] for at in range(count)]


def _headings(troubles: Sequence[str]) -> list[str]:
    numbers: dict[str, list[str]] = {}
    for trouble in troubles:
        words, _, number = trouble.partition(": ")
        numbers.setdefault(words, []).append(number)
    return [f"{words}: {' '.join(number)}" if number != [""] else words for words, number in numbers.items()]


def _plan(undisturbed: Course) -> str:
    """The calls of each step, by condition, and those of its undo."""
    lines = []
    for step in undisturbed.plan["steps"] if undisturbed.plan is not None else []:
        for verb, calls in ((step["verb"], step["calls"]), (f"to undo {step['verb']}", step["inverse"])):
            cases: dict[str | None, list[str]] = {}
            for call in calls:
                cases.setdefault(call["when"], []).append(call["about"])
            for case, abouts in cases.items():
                lines += _wrapped(f"{verb}{f', if {case}' if case else ''}: {'; '.join(abouts)}")
    return "\n".join(lines or ["  nothing is called"])


def _calm(undisturbed: Course) -> str:
    return "\n".join(
        [*(f"  {number:>2} {call}" for number, call in enumerate(undisturbed.calls, 1)), *_ends(undisturbed)]
    )


def _beside(undisturbed: Course, other: Course) -> str:
    """The calls that differ from the course without a fault."""
    if other.calls == undisturbed.calls:
        return "\n".join(["  as calm", *(_ends(other) if other.ends != undisturbed.ends else [])])
    first = _in_common(undisturbed.calls, other.calls)
    remaining = len(other.calls) - first
    last = min(
        remaining, _in_common([_bare(call) for call in reversed(undisturbed.calls)], map(_bare, reversed(other.calls)))
    )
    last = last if last >= SHORTEST else 0
    lines = [
        *([f"as calm to {first}"] if first else []),
        *other.calls[first : len(other.calls) - last],
        *([f"as calm from {len(undisturbed.calls) - last + 1}"] if last else []),
    ]
    return "\n".join([*_wrapped("; ".join(lines)), *_ends(other)])


def _in_common(one_course: Iterable[str], other_course: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one_course, other_course, strict=False)))


def _bare(call: str) -> str:
    """A call without the lock's number: a run that resumes another one has the next number."""
    return re.sub(r"(?<= lock\.)(\w+)\.\d+", r"\1", call)


def _ends(course: Course) -> list[str]:
    return [line for end in course.ends for line in _wrapped(f"= {end}")]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
