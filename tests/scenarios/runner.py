"""Plays a scenario: a text file of what befalls two sites, the commands of an operator, and all that they show.

A line is a comment (`#`), blank, something that befalls the sites (`stage.py` has the words), or a command (`$`). What
a command showed stands below it: `>` is its output, `!` what it said on standard error, then its exit code, each call
that it changed something with in their order, and how everything is afterwards.
"""

from __future__ import annotations

import io
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import tests.documents
from dr_ctl.cli.app import run
from dr_ctl.core.system import system
from tests.patience import time_now
from tests.scenarios.calls import Normal
from tests.scenarios.stage import Stage, Unmet
from tests.twin.test_crashes import Died

SHOWN: Final = ("> ", "! ", "exit ", "call ", "now ")
SAME: Final = "now as before"


@dataclass
class Step:
    """A line with what belongs to it: the lines that a command showed, or those of a file."""

    number: int
    text: str
    lines: list[str] = field(default_factory=list)

    @property
    def is_command(self) -> bool:
        return self.text.startswith("$ ")

    def written(self) -> str:
        return "\n".join([self.text, *self.lines])


def parse(path: Path) -> list[Step]:
    """The lines of a file. Unmet, with the line, where one belongs to nothing."""
    steps: list[Step] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        last = steps[-1] if steps else Step(0, "")
        if text.startswith(SHOWN) or text in (">", "!"):
            if not last.is_command:
                raise Unmet(f"{path}:{number}: belongs to no command: {text}")
            last.lines.append(text)
        elif text.startswith("    "):
            if not last.text.startswith("file "):
                raise Unmet(f"{path}:{number}: belongs to no file: {text}")
            last.lines.append(text)
        else:
            steps.append(Step(number, text.rstrip()))
    if not steps or not steps[0].text.startswith("# "):
        raise Unmet(f"{path}:1: the first line says what it is about: # …")
    if not any(each.is_command for each in steps):
        raise Unmet(f"{path}:{len(steps)}: no command is typed")
    return steps


def play(path: Path) -> list[Step]:
    """The same lines, with what the commands show now. A line `anew` begins with other sites."""
    steps = parse(path)
    firsts = [0, *(at for at, each in enumerate(steps) if each.text == "anew"), len(steps)]
    for first, end in pairwise(firsts):
        with Stage.set() as stage:
            normal, before = Normal(stage.home), [""]
            for step in steps[first:end]:
                try:
                    _do(stage, step, normal, before)
                except Exception as error:
                    raise Unmet(f"{path}:{step.number}: {step.text}: {error}") from error
            if left := stage.untouched():
                raise Unmet(f"{path}:{steps[end - 1].number}: has not happened by the end: {'; '.join(left)}")
    return steps


def _do(stage: Stage, step: Step, normal: Callable[[str], str], before: list[str]) -> None:
    if step.is_command:
        step.lines = list(_shown(stage, step.text.removeprefix("$ "), normal, before))
    elif step.text.startswith("file "):
        stage.write(step.text.removeprefix("file "), [each.removeprefix("    ") for each in step.lines])
    elif step.text and step.text != "anew" and not step.text.startswith("#"):
        stage.do(step.text)


def written(steps: Sequence[Step]) -> str:
    return "\n".join(step.written() for step in steps) + "\n"


def _shown(stage: Stage, line: str, normal: Callable[[str], str], before: list[str]) -> Iterator[str]:
    """What one command shows: all of its output; or behind a `|` the names of the parts of its JSON document, or how
    many lines from its end (`tail 5`)."""
    newest = max((each.name for each in (stage.home / "state" / "runs").glob("*")), default="RUN")
    program, *words = (newest if word == "RUN" else word for word in shlex.split(line.partition(" | ")[0]))
    paths = line.partition(" | ")[2].split()
    if program == "cat":
        yield from _marked(">", normal((stage.home / words[0]).read_text(encoding="utf-8")))
        return
    if program != "dr-ctl":
        raise Unmet("only dr-ctl and cat are typed here")
    stage.calls.clear()
    assert stage.twin
    code, said = _typed(stage, words)
    out = "".join(text for mark, text in said if mark == ">")
    tests.documents.no_none("".join(text for _, text in said))
    _tells_no_secret(stage, said)
    if out.startswith('{"'):
        for document in map(json.loads, out.splitlines()):
            tests.documents.hold(document, json.loads(out.splitlines()[-1])["command"])
    tail = int(paths[1]) if paths[:1] == ["tail"] else None
    paths = paths if tail is None else []
    lines = [each for mark, text in said if mark == "!" or not paths for each in _marked(mark, normal(text))]
    yield from lines if tail is None else lines[-tail:]
    for path in paths:
        yield f"> {path}: {normal(json.dumps(_part(json.loads(out), path.split('.')), ensure_ascii=False))}"
    yield f"exit {code}"
    yield from (f"call {normal(each)}" for each in _grouped(stage.calls) or ["none"])
    now = "\n".join(f"now {normal(each)}" for each in stage.situation())
    yield from [SAME] if now == before[0] else now.splitlines()
    before[0] = now
    system().sleep(1.0)  # nobody types two commands in one second


def _grouped(calls: Sequence[tuple[str, str]]) -> list[str]:
    """In their order; those that one broker got one after the other are one line, and so are the same of pairs."""
    lines: list[tuple[str, list[str], list[str]]] = []
    for place, of_place in groupby(calls, itemgetter(0)):
        site, _, pair = place.partition("/")
        made = [_times(len([*same]), each) for each, same in groupby(call for _, call in of_place)]
        if pair and lines and (lines[-1][0], lines[-1][2]) == (site, made) and pair not in lines[-1][1]:
            lines[-1][1].append(pair)
        else:
            lines.append((site, [pair] if pair else [], made))
    told: list[tuple[str, list[str]]] = []
    for site, pairs, made in lines:
        where = f"{site} ({', '.join(sorted(pairs))})" if pairs else site
        if told and told[-1][0] == where:
            told[-1][1].extend(made)
        else:
            told.append((where, made))
    return [f"{where}: {'; '.join(made)}" for where, made in told]


def _times(count: int, call: str) -> str:
    return call if count == 1 else f"{count} x {call}"


def _typed(stage: Stage, words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Type a command; its exit code, and what it said, each piece with the stream that it came by."""
    said: list[tuple[str, str]] = []
    person = _Person(stage) if stage.answers else None
    with _as_it_was(stage, said, person):
        try:
            code = str(run(list(words), time_now()))
        except Died:
            code = "none: killed"
    return code, [(mark, text) for mark, text in said if text]


@contextmanager
def _as_it_was(stage: Stage, said: list[tuple[str, str]], person: _Person | None) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    out, err = _Stream(">", said), _Stream("!", said)
    err.is_terminal = person is not None
    with stage.patch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", person or io.StringIO())
        if stage.death is not None:
            stage.death.strike(patch)
        try:
            yield
        finally:
            stage.death = None
            for number, handler in before.items():
                signal.signal(number, handler)


class _Stream(io.StringIO):
    """Keeps what is written beside what the other stream was given, line by line."""

    is_terminal = False

    def __init__(self, mark: str, said: list[tuple[str, str]]) -> None:
        super().__init__()
        self._mark, self._said = mark, said

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if text == " ":
            return count  # in front of what is typed
        before = self._said.pop()[1] if self._said and self._said[-1][0] == self._mark else ""
        self._said.append((self._mark, before + text))
        return count


class _Person(io.StringIO):
    """Types what was said, a line at each question; hangs up when that is used up."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        typed = self._stage.answers.pop(0) if self._stage.answers else "hangs up"
        meanwhile, self._stage.at_question = self._stage.at_question, []
        for _, do in meanwhile:
            do()
        sys.stderr.write(f" {typed}\n")
        return "" if typed == "hangs up" else f"{typed}\n"


def _marked(mark: str, text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"{mark} {line}".rstrip()


def _part(document: Any, keys: Sequence[str]) -> Any:
    """What stands under these keys; of a list, under those of each."""
    if not keys:
        return document
    if isinstance(document, list) and not keys[0].isdigit():
        return [_part(each, keys) for each in document]
    return _part(document[int(keys[0]) if isinstance(document, list) else keys[0]], keys[1:])


def _tells_no_secret(stage: Stage, said: Sequence[tuple[str, str]]) -> None:
    secrets = {word for host in stage.places.values() for word in host.broker.users.values()}
    if any(secret in text for secret in secrets for _, text in said):
        raise Unmet("it tells a password")
