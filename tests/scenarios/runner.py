"""Plays a scenario: a text file of events at two sites, an operator's commands, and their output.

A line is a comment (`#`), an event (`stage.py` has the words), or a command (`$`); a blank line starts a new pair of
sites. Below a command are: its output (`>`), its standard error (`!`), its exit code if that is neither 0 nor in the
output, its changing calls in order (`call`), and the parts of the situation that changed since the last command
(`now`).

Repetitions are shortened. ` …+3` after a line: the 3 lines below it follow the same line further up in the file. Calls
for a run's lock, before its first and after its last call, are left out. A missing line with the report's path is
shown. A command without `$` is only a preparation: it must end with 0, and its output is not shown.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import tests.documents
from dr_ctl.cli.app import run
from dr_ctl.core.system import system
from tests.scenarios.calls import Normal
from tests.scenarios.stage import Stage, Unmet
from tests.timeouts import time_now
from tests.twin.matrix import Died

SHOWN: Final = ("> ", "! ", "exit ", "call ", "now ")
LOCK: Final = "dr-ctl.lock."


@dataclass
class Step:
    """A line with its further lines: the output of a command, or the content of a file."""

    number: int
    text: str
    lines: list[str] = field(default_factory=list)

    @property
    def is_command(self) -> bool:
        return self.text.startswith("$ ")

    def written(self) -> str:
        return "\n".join([self.text, *self.lines])


def parse(path: Path) -> list[Step]:
    """The lines of a scenario. Unmet, with the line's number, where one is out of place."""
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
    if not any(step.is_command for step in steps):
        raise Unmet(f"{path}:{len(steps)}: no command is typed")
    return steps


def play(path: Path) -> list[Step]:
    """Play a scenario; return its lines with the present output."""
    steps, shown_before = parse(path), Output()
    firsts = [0, *(at for at, step in enumerate(steps) if not step.text), len(steps)]
    for first, end in pairwise(firsts):
        with Stage.set() as stage:
            player = Player(stage, shown_before)
            for step in steps[first:end]:
                try:
                    player.do(step)
                except Exception as error:
                    raise Unmet(f"{path}:{step.number}: {step.text}: {error}") from error
            if left := stage.untouched():
                raise Unmet(f"{path}:{steps[end - 1].number}: has not happened by the end: {'; '.join(left)}")
    return steps


def written(steps: Sequence[Step]) -> str:
    return "\n".join(step.written() for step in steps) + "\n"


class Output:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._at: dict[str, list[int]] = {}

    def briefly(self, lines: Sequence[str]) -> Iterator[str]:
        """Shorten repetitions of earlier lines to their first line and the number of the others."""
        at = 0
        while at < len(lines):
            same = max((self._same(lines[at:], remote) for remote in self._at.get(lines[at], ())), default=0)
            is_shortened = same > 1 and len(lines[at]) > len("> ")
            yield f"{lines[at]} …+{same - 1}" if is_shortened else lines[at]
            at += same if is_shortened else 1
        for line in [*lines, ""]:
            self._at.setdefault(line, []).append(len(self._lines))
            self._lines.append(line)

    def _same(self, lines: Sequence[str], remote: int) -> int:
        pairs = zip(lines, self._lines[remote : remote + len(lines)], strict=False)
        return next(
            (count for count, (one, other) in enumerate(pairs) if one != other),
            min(len(lines), len(self._lines) - remote),
        )


class Player:
    """Plays the lines of one stage, and adds the output of its commands."""

    def __init__(self, stage: Stage, shown_before: Output) -> None:
        self._stage, self._said = stage, shown_before
        self._normal = Normal(stage.home)
        self._situation: dict[str, str] = {}

    def do(self, step: Step) -> None:
        if step.is_command:
            step.lines = list(self._shown(step.text.removeprefix("$ ")))
        elif step.text.startswith("dr-ctl "):
            self._set(step.text)
        elif step.text.startswith("file "):
            self._stage.write(step.text.removeprefix("file "), [line.removeprefix("    ") for line in step.lines])
        elif step.text and not step.text.startswith("#"):
            self._stage.do(step.text)

    def _set(self, line: str) -> None:
        code, said = self._typed(shlex.split(line)[1:])
        if code != "0":
            raise Unmet(f"ended with {code}: {''.join(text for _, text in said)}")

    def _shown(self, line: str) -> Iterator[str]:
        """The output of one command; after a `|` only parts of it: JSON values by path, the last lines (`tail 5`), or
        lines that match a pattern (`grep billing|mailer`)."""
        stage, normal = self._stage, self._normal
        program, *words = shlex.split(line.partition(" | ")[0])
        paths = line.partition(" | ")[2].split()
        if program == "cat":
            yield from _marked(">", normal((stage.home / words[0]).read_text(encoding="utf-8")))
            return
        if program != "dr-ctl":
            raise Unmet("only dr-ctl and cat are typed here")
        assert stage.twin
        items, journals = self._situation or self._normally(stage.at_first), _journals(stage.home)
        code, said = self._typed(words)
        out = "".join(text for mark, text in said if mark == ">")
        cut, paths = (paths, []) if paths[:1] in (["tail"], ["grep"]) else ([], paths)
        lines = [item for mark, text in said if mark == "!" or not paths for item in _marked(mark, normal(text))]
        reports = self._reports(journals) if not paths else set()
        missing = reports - {*lines} if not cut and code.isdigit() else set()
        shown = [*self._said.briefly(_cut([line for line in lines if line not in reports], *cut))]
        yield from shown
        for path in paths:
            yield f"> {path}: {normal(json.dumps(_part(json.loads(out), path.split('.')), ensure_ascii=False))}"
        if code != "0" and not any(re.match(rf"> \w+ \({code}\)(?!.* …\+)", line) for line in shown):
            yield f"exit {code}"
        yield from (f"call {normal(item)}" for item in _grouped(_without_lock(stage.calls, stage.locks_of_others)))
        self._situation = self._normally(stage.situation())
        width = max(map(len, self._situation))
        for place in [*self._situation, *(items.keys() - self._situation.keys())]:
            if self._situation.get(place) != items.get(place):
                yield f"now {place:<{width}}  {self._situation.get(place, 'nothing')}"
        yield from (f"now no {line.removeprefix('> ')}" for line in sorted(missing))

    def _reports(self, journals_before: Mapping[Path, int]) -> set[str]:
        """The output lines with the reports of runs that were changed since."""
        written = _journals(self._stage.home).items() - journals_before.items()
        return {f"> report: {self._normal(str(path.parent))}/report.html" for path, _ in written}

    def _normally(self, situation: Mapping[str, str]) -> dict[str, str]:
        return {place: self._normal(value) for place, value in situation.items()}

    def _typed(self, words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        """Type a command; its exit code, and what it said, each piece with the stream that it came by."""
        stage = self._stage
        assert stage.twin
        stage.calls.clear()
        newest = max((path.name for path in (stage.home / "state" / "runs").glob("*")), default="RUN")
        code, said = _typed(stage, [newest if word == "RUN" else word for word in words])
        tests.documents.no_none("".join(text for _, text in said))
        _tells_no_secret(stage, said)
        out = "".join(text for mark, text in said if mark == ">")
        if out.startswith('{"'):
            for document in map(json.loads, out.splitlines()):
                tests.documents.hold(document, json.loads(out.splitlines()[-1])["command"])
        system().sleep(1.0)  # nobody types two commands in one second
        return code, said


def _cut(lines: Sequence[str], how: str = "", what: str = "") -> Sequence[str]:
    return lines[-int(what) :] if how == "tail" else [line for line in lines if re.search(what, line[2:])]


def _journals(home: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in home.glob("*/runs/*/journal.jsonl")}


def _without_lock(calls: Sequence[tuple[str, str]], locks_of_others: set[str]) -> Sequence[tuple[str, str]]:
    """The calls without those for a run's lock, where these are as usual."""
    of_lock = [(at, place, *made.split(" ", 1)) for at, (place, made) in enumerate(calls) if LOCK in made]
    others = [at for at, (_, made) in enumerate(calls) if LOCK not in made] or [len(calls)]
    own = {place: name for at, place, verb, name in of_lock if verb == "createQueue" and at < others[0]}
    given_back = {
        place for at, place, verb, _ in of_lock if verb == "updateQueue" and (at > others[-1] or others == [len(calls)])
    }
    goes_as_always = given_back == own.keys() and all(
        name not in locks_of_others if verb == "destroyQueue" else name == own.get(place)
        for _, place, verb, name in of_lock
    )
    return [call for call in calls if LOCK not in call[1]] if goes_as_always else calls


def _grouped(calls: Sequence[tuple[str, str]]) -> list[str]:
    """The calls in order, with one line for successive calls at a broker, or for equal calls at several pairs."""
    lines: list[tuple[str, list[str], list[str]]] = []
    for place, of_place in groupby(calls, itemgetter(0)):
        site, _, pair = place.partition("/")
        made = [_times(len([*same]), node_group) for node_group, same in groupby(call for _, call in of_place)]
        if pair and lines and (lines[-1][0], lines[-1][2]) == (site, made) and pair not in lines[-1][1]:
            lines[-1][1].append(pair)
        else:
            lines.append((site, [pair] if pair else [], made))
    value: list[tuple[str, list[str]]] = []
    for site, pairs, made in lines:
        where = f"{site} ({', '.join(sorted(pairs))})" if pairs else site
        if value and value[-1][0] == where:
            value[-1][1].extend(made)
        else:
            value.append((where, made))
    return [f"{where}: {'; '.join(made)}" for where, made in value]


def _times(count: int, call: str) -> str:
    return call if count == 1 else f"{count} x {call}"


def _typed(stage: Stage, words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Type a command; its exit code, and what it said, each piece with the stream that it came by."""
    said: list[tuple[str, str]] = []
    person = _Person(stage) if stage.answers else None
    out, err = _Stream(">", said), _Stream("!", said)
    err.is_terminal = person is not None
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with stage.patch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", person or io.StringIO())
        if stage.death is not None:
            stage.death.strike(patch)
        try:
            code = str(run(list(words), time_now()))
        except Died:
            code = "none: killed"
        finally:
            stage.death = None
            for number, handler in before.items():
                signal.signal(number, handler)
    return code, [(mark, text) for mark, text in said if text]


class _Stream(io.StringIO):
    """A stream that appends to a list shared with the other stream."""

    is_terminal = False

    def __init__(self, mark: str, said: list[tuple[str, str]]) -> None:
        super().__init__()
        self._mark, self._said = mark, said

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if text == " ":
            return count  # before the answer of a person
        before = self._said.pop()[1] if self._said and self._said[-1][0] == self._mark else ""
        self._said.append((self._mark, before + text))
        return count


class _Person(io.StringIO):
    """Types the prepared answers, one at each question; hangs up after the last."""

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
    """The value at a path of keys; of a list without an index, of each item."""
    if not keys:
        return document
    if isinstance(document, list) and not keys[0].isdigit():
        return [_part(item, keys) for item in document]
    return _part(document[int(keys[0]) if isinstance(document, list) else keys[0]], keys[1:])


def _tells_no_secret(stage: Stage, said: Sequence[tuple[str, str]]) -> None:
    secrets = {word for host in stage.places.values() for word in host.broker.users.values()}
    if any(secret in text for secret in secrets for _, text in said):
        raise Unmet("it tells a password")
