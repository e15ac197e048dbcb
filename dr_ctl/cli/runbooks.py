"""`runbook`: the runbooks in force, shown and linted."""

from collections.abc import Sequence
from pathlib import Path

from dr_ctl.application.installation import LintData, RunbookData, RunbookEntry, RunbooksData, folder
from dr_ctl.application.result import Result
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Finding, Severity
from dr_ctl.engine import runbook
from dr_ctl.settings.loader import find


def _in_force(session: Session) -> tuple[Path, Sequence[runbook.Rule]]:
    """Where the installation's runbooks are, and what it asks of them beside what all do; without a settings file
    those that came with dr-ctl."""
    if session.config is None and not find(None).exists():
        return runbook.shipped(), ()
    installation = session.installation()
    return folder(installation), installation.settings.order


def _folder(session: Session) -> Path:
    return _in_force(session)[0]


def runbook_list(session: Session) -> Result:
    place, order = _in_force(session)
    rows: list[tuple[str, str]] = []
    for path in runbook.files(place):
        book, findings = runbook.lint(path, order)
        rows.append(
            (path.stem, book.about if book is not None else f"has {len(findings)} finding(s): see runbook lint")
        )
    text = "\n".join(f"{name:<12} {about}" for name, about in rows)
    return Result(
        ExitCode.OK,
        f"{len(rows)} runbook(s) in {place}",
        data=RunbooksData([RunbookEntry(*row) for row in rows]),
        text=text,
    )


def runbook_show(session: Session, name: str) -> Result:
    place = _folder(session)
    path = place / f"{name}.yaml"
    if path not in runbook.files(place):
        names = ", ".join(each.stem for each in runbook.files(place)) or "none"
        raise UsageError(f"no runbook {name} in {place}", remedy=f"There is {names}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"Mend {path}; `dr-ctl runbook lint` checks it."
        raise UsageError(f"{path} cannot be read: {error}", remedy=remedy) from error
    return Result(ExitCode.OK, str(path), data=RunbookData(name, text), text=text)


def runbook_lint(session: Session, files: list[Path] | None) -> Result:
    place, order = _in_force(session)
    paths = files or runbook.files(place)
    findings: list[Finding] = []
    for path in paths:
        findings += runbook.lint(path, order)[1]
    errors = sum(each.severity is Severity.ERROR for each in findings)
    code = ExitCode.PRECHECK_FAILED if errors else ExitCode.OK
    return Result(code, f"{len(paths)} runbook(s), {errors} error(s)", findings, LintData(paths))
