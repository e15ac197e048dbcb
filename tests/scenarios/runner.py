"""Plays a scenario: a text file of what befalls two sites, the commands of an operator, and all that they show.

A line is a comment (`#`), something that befalls the sites (`stage.py` has the words), or a command (`$`); a blank one
begins with other sites. What a command showed stands below it: `>` is its output, `!` what it said on standard error,
then its exit code if it is neither 0 nor to be read there, each call that it changed something with in their order, and
what is otherwise than when a command was last shown. Nothing stands there where there is nothing to tell.

What is the same each time is told once. ` …+3` behind a line: the 3 lines below it are those that stand below the same
line further up in the file. A run takes its lock before its first call and gives it back after its last; the calls for
that are told where they are others, or come at another time. A run writes a report, and says where; it is told if not.
A command without its `$` only sets the stage: it ends with 0, and another scenario shows what it says.
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
    if not any(step.is_command for step in steps):
        raise Unmet(f"{path}:{len(steps)}: no command is typed")
    return steps


def play(path: Path) -> list[Step]:
    """The same lines, with what the commands show now."""
    steps, said_before = parse(path), Said()
    firsts = [0, *(at for at, step in enumerate(steps) if not step.text), len(steps)]
    for first, end in pairwise(firsts):
        with Stage.set() as stage:
            player = Player(stage, said_before)
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


class Said:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._at: dict[str, list[int]] = {}

    def briefly(self, lines: Sequence[str]) -> Iterator[str]:
        """These lines; where several are as some that were said before, the first of them and how many follow."""
        at = 0
        while at < len(lines):
            same = max((self._same(lines[at:], remote) for remote in self._at.get(lines[at], ())), default=0)
            is_brief = same > 1 and len(lines[at]) > len("> ")
            yield f"{lines[at]} …+{same - 1}" if is_brief else lines[at]
            at += same if is_brief else 1
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
    """Does the lines of one stage, and writes below its commands what they showed."""

    def __init__(self, stage: Stage, said_before: Said) -> None:
        self._stage, self._said = stage, said_before
        self._normal = Normal(stage.home)
        self._told: dict[str, str] = {}

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
        """What one command shows: all of its output; or behind a `|` what is looked at: parts of its JSON document by
        their names, lines from its end (`tail 5`), or those that a pattern is in (`grep billing|mailer`)."""
        stage, normal = self._stage, self._normal
        program, *words = shlex.split(line.partition(" | ")[0])
        paths = line.partition(" | ")[2].split()
        if program == "cat":
            yield from _marked(">", normal((stage.home / words[0]).read_text(encoding="utf-8")))
            return
        if program != "dr-ctl":
            raise Unmet("only dr-ctl and cat are typed here")
        assert stage.twin
        items, journals = self._told or self._normally(stage.at_first), _journals(stage.home)
        code, said = self._typed(words)
        out = "".join(text for mark, text in said if mark == ">")
        cut, paths = (paths, []) if paths[:1] in (["tail"], ["grep"]) else ([], paths)
        lines = [item for mark, text in said if mark == "!" or not paths for item in _marked(mark, normal(text))]
        reports = self._reports(journals) if not paths else set()
        unsaid = reports - {*lines} if not cut and code.isdigit() else set()
        shown = [*self._said.briefly(_cut([line for line in lines if line not in reports], *cut))]
        yield from shown
        for path in paths:
            yield f"> {path}: {normal(json.dumps(_part(json.loads(out), path.split('.')), ensure_ascii=False))}"
        if code != "0" and not any(re.match(rf"> \w+ \({code}\)(?!.* …\+)", line) for line in shown):
            yield f"exit {code}"
        yield from (f"call {normal(item)}" for item in _grouped(_without_lock(stage.calls, stage.locks_of_others)))
        self._told = self._normally(stage.situation())
        width = max(map(len, self._told))
        for place in [*self._told, *(items.keys() - self._told.keys())]:
            if self._told.get(place) != items.get(place):
                yield f"now {place:<{width}}  {self._told.get(place, 'nothing')}"
        yield from (f"now no {line.removeprefix('> ')}" for line in sorted(unsaid))

    def _reports(self, journals_before: Mapping[Path, int]) -> set[str]:
        """The lines that say where the reports of the runs are that were written on since."""
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


def _without_lock(calls: Sequence[tuple[str, str]], of_others: set[str]) -> Sequence[tuple[str, str]]:
    """Without those that take the lock of a run and give it back, where they go as always."""
    of_lock = [(at, place, *made.split(" ", 1)) for at, (place, made) in enumerate(calls) if LOCK in made]
    others = [at for at, (_, made) in enumerate(calls) if LOCK not in made] or [len(calls)]
    own = {place: name for at, place, verb, name in of_lock if verb == "createQueue" and at < others[0]}
    given_back = {
        place for at, place, verb, _ in of_lock if verb == "updateQueue" and (at > others[-1] or others == [len(calls)])
    }
    goes_as_always = given_back == own.keys() and all(
        name not in of_others if verb == "destroyQueue" else name == own.get(place) for _, place, verb, name in of_lock
    )
    return [call for call in calls if LOCK not in call[1]] if goes_as_always else calls


def _grouped(calls: Sequence[tuple[str, str]]) -> list[str]:
    """In their order; those that one broker got one after the other are one line, and so are the same of pairs."""
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
        return [_part(item, keys) for item in document]
    return _part(document[int(keys[0]) if isinstance(document, list) else keys[0]], keys[1:])


def _tells_no_secret(stage: Stage, said: Sequence[tuple[str, str]]) -> None:
    secrets = {word for host in stage.places.values() for word in host.broker.users.values()}
    if any(secret in text for secret in secrets for _, text in said):
        raise Unmet("it tells a password")
