"""`check`: every alteration of a run that has ended is found and its line named; what a crash leaves is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.engine.entries import Entry
from dr_ctl.engine.runs import RunFiles, write
from dr_ctl.engine.seal import Verdict, check
from tests.report.scribe import Scribe, cut_off, done, plan, resumed, undone


@pytest.fixture
def small(tmp_path: Path) -> RunFiles:
    """A short run that has ended: few bytes, every kind of line."""
    scribe = Scribe(tmp_path, plan=plan(steps=plan().steps[5:6])).begin()
    scribe.start("fence").sample("fence", {"outflow": 3}).stop("fence", text="Türen zu", took_s=0.25)
    scribe.journal.signal("interrupted")
    return scribe.end(0, "ok", "paris serves", pairs=[]).files


@pytest.mark.parametrize("write_run", [done, undone, resumed])
def test_a_run_that_ended_is_whole(tmp_path: Path, write_run: Callable[[Path], Scribe]) -> None:
    files = write_run(tmp_path).files

    checked = check(files)

    assert checked.verdict is Verdict.WHOLE
    assert checked.lines == len(files.journal.read_bytes().splitlines())


def test_every_byte_flipped_once_is_found_in_its_own_line(small: RunFiles) -> None:
    whole = small.journal.read_bytes()
    line, missed = 1, []

    for place, byte in enumerate(whole):
        for bits in (0x01, 0x20):
            small.journal.write_bytes(whole[:place] + bytes([byte ^ bits]) + whole[place + 1 :])
            checked = check(small)
            if (checked.verdict, checked.line) != (Verdict.ALTERED, line):
                missed.append((place, bits, checked))
        line += byte == ord("\n")

    assert missed == []
    assert line == 7


def test_every_cut_is_found(small: RunFiles) -> None:
    whole = small.journal.read_bytes()

    found = []
    for length in range(len(whole)):
        small.journal.write_bytes(whole[:length])
        found.append((check(small).verdict, check(small).line))

    assert found == [(Verdict.ALTERED, whole[:length].count(b"\n") + 1) for length in range(len(whole))]


def test_every_byte_of_the_result_counts(small: RunFiles) -> None:
    whole = small.result.read_bytes()
    missed = []

    for place, byte in enumerate(whole):
        small.result.write_bytes(whole[:place] + bytes([byte ^ 0x01]) + whole[place + 1 :])
        if check(small).verdict is not Verdict.ALTERED:
            missed.append(whole[place : place + 1])

    assert missed == []


def chained(files: RunFiles, line: int, **more: Any) -> None:
    """Write a line anew, and with it every hash after it: the chain fits in itself."""
    lines = [json.loads(each) for each in files.journal.read_bytes().splitlines()]
    lines[line - 1] |= more
    previous, told = lines[line - 1]["previous"], lines[: line - 1]
    text = "".join(Entry(**{k: v for k, v in each.items() if k != "hash"}).to_line() for each in told)
    for each in lines[line - 1 :]:
        each.pop("hash")
        entry = Entry(**(each | {"previous": previous}))
        previous = entry.hash()
        text += entry.to_line()
    files.journal.write_text(text, encoding="utf-8")


def added(small: RunFiles) -> None:
    last = json.loads(small.journal.read_bytes().splitlines()[-1])
    entry = Entry(7, last["time"], "signal", None, None, "interrupted", {}, last["hash"])
    with small.journal.open("a", encoding="utf-8") as file:
        file.write(entry.to_line())


def otherwise(old: bytes, new: bytes) -> Callable[[RunFiles], object]:
    return lambda files: files.journal.write_bytes(files.journal.read_bytes().replace(old, new))


def says_else(key: str) -> Callable[[RunFiles], None]:
    return lambda small: write(small.result, json.loads(small.result.read_bytes()) | {key: "something else"})


NOTHING_SEALED = ["", "{", "[]", "null", "{}", '{"journal": {}}', '{"journal": {"count": "x"}}']


@pytest.mark.parametrize(
    ("alter", "line", "words"),
    [
        # A chain that was made anew.
        *((partial(chained, line=n, time="2026-11-21T02:00:00.001Z"), 6, "the last, and result.json do not fit")
          for n in range(1, 7)),
        (added, 7, "line 7 of journal.jsonl was added"),
        (otherwise(b'{"seq":2,', b'{"seq": 2,'), 2, ""),  # the same entry in other bytes
        *((says_else(key), None, "result.json does not say what line 6")
          for key in ("outcome", "exit_code", "summary", "findings", "data")),
        *((partial(lambda small, text: small.result.write_text(text), text=text), None, "") for text in NOTHING_SEALED),
        (lambda small: small.journal.unlink(), 1, ""),
        (lambda small: small.journal.write_bytes(b""), 1, ""),
    ],
)  # fmt: skip
def test_what_was_altered_is_named(small: RunFiles, alter: Callable[[RunFiles], object], line: Any, words: str) -> None:
    alter(small)
    checked = check(small)
    assert checked.verdict is Verdict.ALTERED
    assert line is None or checked.line == line
    assert words in checked.text


@pytest.mark.parametrize(
    ("alter", "verdict", "line", "words"),
    [
        (lambda files: None, Verdict.OPEN, None, "its 7 line(s) so far fit together; line 8 is torn, or being written"),
        # A crash may leave a whole line that is none.
        (lambda files: files.journal.write_bytes(files.journal.read_bytes() + b"\0\0\n"), Verdict.OPEN, 8,
         "its 7 line(s) so far fit together; line 8 is torn, as a crash leaves it"),
        (lambda files: files.journal.write_bytes(b"garbage\n"), Verdict.ALTERED, 1, ""),
        (otherwise(b'"seq":3', b'"seq":4'), Verdict.ALTERED, 3, ""),
    ],
)  # fmt: skip
def test_an_open_run_is_checked_as_far_as_it_came(
    tmp_path: Path, alter: Callable[[RunFiles], object], verdict: Verdict, line: int | None, words: str
) -> None:
    files = cut_off(tmp_path).files
    alter(files)
    checked = check(files)
    assert (checked.verdict, checked.line, checked.lines) == (verdict, line, {None: 7, 8: 7, 1: 0, 3: 2}[line])
    assert checked.text.endswith(words)


def test_a_run_that_never_began_has_nothing_to_check(tmp_path: Path) -> None:
    assert check(RunFiles("20261121T020000Z-swapover-paris-7f3a", tmp_path)).verdict is Verdict.NOT_BEGUN
