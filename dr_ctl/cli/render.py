"""Turns a result into standard output and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import typer

from dr_ctl.application.result import Result
from dr_ctl.cli.streams import has_reader
from dr_ctl.core.model import MARKS, ExitCode, Finding, Json
from dr_ctl.core.notation import line, page

if TYPE_CHECKING:
    from dr_ctl.cli.session import Session


def end(result: Result, session: Session) -> int:
    """Write the result, return its exit code. Where standard output refuses a run's result, standard error gets it."""
    if session.warn_exit:
        result = result.with_warn_exit()
    _write(result, session)
    if result.run is not None and not has_reader():
        with redirect_stdout(sys.stderr):
            _write(result, session)
    return result.exit_code


def _write(result: Result, session: Session) -> None:
    if session.json:
        sys.stdout.write(as_line(result.envelope(session.command)) + "\n")
    else:
        typer.echo(text_of(result))
    sys.stdout.flush()


def text_of(result: Result) -> str:
    """The result for people."""
    return "\n".join(_parts(result))


def _parts(result: Result) -> Iterator[str]:
    if result.health is not None:
        yield line(result.summary)
        return
    if result.plan is not None:
        from dr_ctl.cli.plans import plan_text  # noqa: PLC0415 - most commands show none

        yield plan_text(result.plan)
    if result.text:
        yield page(result.text.split("\n"))
    if result.groups:
        from dr_ctl.cli.grouped import groups_text, width  # noqa: PLC0415 - most commands show none

        yield groups_text(result.groups, width())
    yield from findings_and_debts(result)
    if result.report:
        yield line(f"report: {result.report}")
    good = result.code in (ExitCode.OK, ExitCode.WARNINGS)
    if result.closing:
        yield _closing(result)
    ended = f"{result.code.outcome} ({int(result.code)})"
    if not (good and result.closing):
        # A sentence that stands above as a finding's is not said a second time.
        read = result.closing or any(each.text == result.summary for each in result.findings if each.remedy)
        yield line(result.summary if good else ended if read else f"{ended}: {result.summary}")


def findings_and_debts(result: Result) -> Iterator[str]:
    for finding in () if result.already_read or result.groups else result.findings:
        if finding.text != result.summary or finding.remedy:
            yield finding_text(finding)
    for debt in result.debts:
        yield page((f" $ owed since {debt.since}: {debt.text}", f"      -> {debt.remedy}"))


def _closing(result: Result) -> str:
    if not result.groups:
        return page(result.closing.split("\n"))
    from dr_ctl.cli.grouped import width, wrapped  # noqa: PLC0415

    return "\n".join(wrapped(each, width(), then="  ") for each in result.closing.split("\n"))


def as_line(document: Mapping[str, Json]) -> str:
    """A JSON document for standard output, in ASCII where that does not speak Unicode."""
    speaks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(document, ensure_ascii=not speaks)


def finding_text(finding: Finding) -> str:
    """A finding in one or two lines, or more where it has more."""
    remedy = (f"      -> {finding.remedy}",) if finding.remedy else ()
    return page((f"{MARKS[finding.severity]} {finding.id}  {finding.text}", *finding.more, *remedy))
