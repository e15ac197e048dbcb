"""Writes a result to standard output, on standard streams that stop no command, whether a reader goes away, a disk is
full or a terminal closes; and returns the exit code."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

import typer

from dr_ctl import cli
from dr_ctl.application.result import Group, Result, counted
from dr_ctl.core.findings import meanings
from dr_ctl.core.model import MARKS, ExitCode, Finding, Health, Json, Severity
from dr_ctl.core.notation import line, page

if TYPE_CHECKING:
    from dr_ctl.cli.session import Session

_NAMES: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}
_USUAL: Final = 80
_LEAST: Final = 40  # columns: a narrower terminal gets lines of this length
_VERDICTS: Final = (("holds", "hold"), ("warns", "warn"), ("fails", "fail"), ("not read", "not read"))
"""The singular and the plural of each verdict."""


def end(result: Result, session: Session, *, changes: bool = False) -> int:
    """Write the result, and return its exit code. If standard output refuses a result, standard error gets it, unless
    the reader of another result than a run's went away. A full disk does not change the exit code of a command that
    `changes` something; any other command has failed to show its result. Signals are ignored from here on."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    warns = any(finding.severity in (Severity.WARNING, Severity.ERROR) for finding in result.findings)
    if session.warn_exit and warns and result.code is ExitCode.OK and result.health is None:
        result = replace(result, code=ExitCode.WARNINGS)
    _write(result, session)
    refusal = _refusal()
    if refusal is None or (refusal.errno == errno.EPIPE and result.run is None):
        return result.exit_code
    with redirect_stdout(sys.stderr):
        _write(result, session)
    if refusal.errno == errno.EPIPE:
        return result.exit_code
    _say(refusal, "the text above is only on standard error")
    if changes or result.exit_code not in (ExitCode.OK, ExitCode.WARNINGS):
        return result.exit_code
    return ExitCode.INTERNAL if result.health is None else Health.UNKNOWN.code


def end_of_help(code: int) -> int:
    """Return the exit code after help or a version, which are no result: 1 if a full disk has refused them."""
    sys.stdout.flush()
    if code != ExitCode.OK or (refusal := _refusal()) is None or refusal.errno == errno.EPIPE:
        return code
    _say(refusal, "nothing was shown")
    return ExitCode.INTERNAL


def _refusal() -> OSError | None:
    """Return why standard output has refused text, if it has and nothing reported it yet."""
    return sys.stdout.refusal if isinstance(sys.stdout, LastingStream) else None


def _say(refusal: OSError, then: str) -> None:
    if isinstance(sys.stdout, LastingStream):
        sys.stdout.refusal = None
    typer.echo(f"standard output cannot be written ({refusal.strerror or refusal}): {then}", err=True)


def _write(result: Result, session: Session) -> None:
    if session.json:
        sys.stdout.write(as_line(result.envelope(session.command)) + "\n")
    elif session.form == "yaml":
        import yaml  # noqa: PLC0415 - as below

        sys.stdout.write(yaml.safe_dump(result.envelope(session.command), sort_keys=False, explicit_start=True))
    elif session.form == "name" and result.code is ExitCode.OK:
        sys.stdout.writelines(f"{line(name)}\n" for name in result.names)
    else:
        text = text_of(replace(result, text=result.wide) if session.form == "wide" else result)
        typer.echo(text if (columns := _width()) is None else drawn(text, columns, color=session.color))
    sys.stdout.flush()


_COLORS: Final = {
    MARKS[Severity.ERROR]: "red",
    MARKS[Severity.WARNING]: "yellow",
    " $": "yellow",
    "OK": "green",
    "WA": "yellow",
    "CR": "red",
    "UN": "magenta",  # the line of `check` begins with one of these
}


def folded(text: str, stream: TextIO) -> str:
    """Fold the text if the stream is a terminal."""
    columns = _width(stream)
    return text if columns is None else drawn(text, columns, color=False)


def drawn(text: str, columns: int, *, color: bool) -> str:
    """Fold and colour the text for a terminal: no word is cut at the edge, and problems have a colour."""
    lines = []
    for row in text.split("\n"):
        begin = len(row) - len(row.lstrip()) + 2
        folded = row if len(row) <= columns else _wrapped(row, columns, then=" " * begin)
        of = _COLORS.get(row[:2]) if color and os.environ.get("TERM") != "dumb" else None
        head, space, rest = folded.partition(" - ") if row[:2].isupper() else (folded, "", "")
        lines.append(folded if of is None else f"{typer.style(head, fg=of, bold=of == 'red')}{space}{rest}")
    return "\n".join(lines)


# Not the column of a log, and no value of an option.
_MOMENT: Final = re.compile(r"(?<=.)(?<!-since )(?<!-until )(?<!-at )\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
to_the_second: Final = partial(_MOMENT.sub, r"\1 \2 UTC")
"""Write the moments in a text for people."""


def text_of(result: Result) -> str:
    return to_the_second("\n".join(_parts(result)))


def _parts(result: Result) -> Iterator[str]:
    if result.health is not None:
        yield line(f"{result.summary} | {result.text}" if result.text else result.summary)
        return
    if result.plan is not None:
        yield cli.plans.plan_text(result.plan)
    if result.text:
        yield page(result.text.split("\n"))
    if result.groups:
        yield groups_text(result.groups, _width(), result.code)
    yield from findings_and_debts(result)
    if result.report:
        yield line(f"report: {result.report}")
    good = result.code in (ExitCode.OK, ExitCode.WARNINGS)
    if result.closing and not result.groups:
        yield page(result.closing.split("\n"))
    elif result.closing:
        yield "\n".join(_wrapped(text, _width(), then="  ") for text in result.closing.split("\n"))
    ended = f"{result.word or result.code.outcome} ({int(result.code)})"
    if not (good and result.closing):
        # A finding above may have this very sentence, which is not repeated.
        read = result.closing or any(finding.text == result.summary for finding in result.findings if finding.remedy)
        # The code is that of the first verdict.
        ended += f", the answer of {result.closing.partition(':')[0]}" if result.groups and result.closing else ""
        yield line(result.summary if good else ended if read else f"{ended}: {result.summary}")
    has_error = any(finding.remedy for finding in result.findings if finding.severity is Severity.ERROR)
    if result.code in (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT) and not has_error:
        yield _wrapped(meanings()[result.code].do, _width(), "      -> ")


def findings_and_debts(result: Result) -> Iterator[str]:
    for finding in () if result.already_read or result.groups else result.findings:
        if finding.text != result.summary or finding.remedy:
            yield finding_text(finding)
    for debt in result.debts:
        yield page((f" $ pending since {debt.since}: {debt.text}", f"      -> {debt.remedy}"))


def as_line(document: Mapping[str, Json]) -> str:
    """Write a JSON document for standard output, in ASCII if that does not speak Unicode."""
    import json  # noqa: PLC0415 - help writes none

    speaks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(document, ensure_ascii=not speaks)


def finding_text(finding: Finding) -> str:
    remedy = (f"      -> {finding.remedy}",) if finding.remedy else ()
    return page((f"{MARKS[finding.severity]} {finding.id}  {finding.text}", *finding.more, *remedy))


def _width(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal; None without a terminal, so that lines stay whole for a search."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    try:
        return max(_LEAST, os.get_terminal_size(stream.fileno()).columns)
    except OSError:
        return _USUAL  # the terminal does not say


def fits(text: str) -> bool:
    """Say whether each line of the text fits the terminal; without a terminal no line is cut."""
    columns = _width()
    return columns is None or max(map(len, text.split("\n"))) <= columns


def groups_text(groups: Sequence[Group], columns: int | None, code: ExitCode = ExitCode.OK) -> str:
    """Write the groups one below the other, then the number of errors and warnings."""
    findings = [finding for group in groups for finding in group.findings]
    checks = [check for group in groups for check in group.checks]
    lines = [text for group in groups if group.findings or group.checks for text in _group(group, columns)]
    if checks:
        count = Counter[str](check.verdict for check in checks)
        verdicts = [f"{count[one]} {one if count[one] == 1 else several}" for one, several in _VERDICTS if count[one]]
        lines.append(f"{len(checks)} check{'' if len(checks) == 1 else 's'}: {', '.join(verdicts)}")
    return "\n".join([*lines, *filter(None, [counted(findings, code)])])


def _wrapped(text: str, columns: int | None, first: str = "", then: str | None = None) -> str:
    """Wrap a text for the terminal, if any; no word is broken and nothing is cut."""
    if columns is None:
        return first + line(text)
    indent = " " * len(first) if then is None else then
    fold = textwrap.TextWrapper(columns, first, indent, break_long_words=False, break_on_hyphens=False)
    return fold.fill(line(text))


def _group(group: Group, columns: int | None) -> Iterator[str]:
    yield f"{line(group.title)}:"
    for check in group.checks:
        ids = f"; {', '.join(dict.fromkeys(finding.id for finding in check.found))}" if check.found else ""
        evidence = check.evidence if check.evidence is not None else "no answer"
        yield _wrapped(f"{check.name} ({evidence}){ids}", columns, f"   {check.verdict:<8}  ")
    for finding in group.findings:
        named = finding.text.removeprefix(f"{group.title}: ")  # the title names the broker
        yield _wrapped(named, columns, f"{MARKS[finding.severity]} {finding.id}  ", " " * 6)
        yield from (_wrapped(text, columns, then=" " * 6) for text in finding.more)
        if finding.remedy:
            yield _wrapped(finding.remedy, columns, "      -> ")
    yield ""


class LastingStream(io.TextIOWrapper):
    """A text stream that swallows all text once its descriptor has refused some. Writes and flushes never raise."""

    refusal: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.refusal = self.refusal or error
        # The buffer keeps the refused text, offers it again, at Python's end at the latest - the null device takes it.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)


def make_lasting() -> None:
    """Put lasting streams in place of this process's own. A stream that the caller has closed keeps its number, so that
    no file that is opened later gets it. A character that a stream's encoding lacks is written as an escape."""
    for name, mode in _NAMES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)


def has_reader() -> bool:
    return _refusal() is None


def _lasting(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line = stream.encoding, stream.line_buffering
    return LastingStream(stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=by_line)
