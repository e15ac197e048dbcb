"""`runbook`: the runbooks in force, shown and linted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from dr_ctl import application
from dr_ctl.application.result import Result
from dr_ctl.cli.command import command, group
from dr_ctl.cli.options import argument
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode, Severity
from dr_ctl.engine import runbook

runbook_app = group("runbook", "The runbooks in force: list, show, lint.")


def _in_force(session: Session) -> tuple[Path, Sequence[runbook.Rule]]:
    """Return the folder and the order rules of the runbooks in force, without settings those of dr-ctl."""
    if not session.has_settings():
        return runbook.shipped(), ()
    installation = session.installation()
    return application.installation.folder(installation), installation.settings.order


@command(runbook_app, "list", example="runbook list")
def runbook_list(session: Session) -> Result:
    """The runbooks in force, and what each is for."""
    place, order = _in_force(session)
    entry = application.installation.RunbookEntry
    linted = [(path.stem, *runbook.lint(path, order)) for path in runbook.files(place)]
    rows = [
        entry(name, book.summary if book is not None else f"has {len(findings)} finding(s): see runbook lint")
        for name, book, findings in linted
    ]
    text = "\n".join(f"{row.name:<12} {row.summary}" for row in rows)
    data = application.installation.RunbooksData(rows)
    return Result(ExitCode.OK, f"{len(rows)} runbook(s) in {place}", data=data, text=text)


@command(runbook_app, "show", example="runbook show swapover")
def runbook_show(session: Session, *, name: Annotated[str, argument("NAME")]) -> Result:
    """Show a runbook as its file has it."""
    place, _ = _in_force(session)
    path = place / f"{name}.yaml"
    if path not in runbook.files(place):
        names = ", ".join(file.stem for file in runbook.files(place)) or "none"
        raise UsageError(f"no runbook {name} in {place}", remedy=f"There is {names}.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"Fix {path}; `dr-ctl runbook lint` checks it."
        raise UsageError(f"{path} cannot be read: {error}", remedy=remedy) from error
    return Result(ExitCode.OK, str(path), data=application.installation.RunbookData(name, text), text=text)


@command(runbook_app, "lint", example="runbook lint runbooks/swapover.yaml")
def runbook_lint(session: Session, *, files: Annotated[list[Path] | None, argument("[FILE]...")] = None) -> Result:
    """Everything that is wrong or unsafe in runbooks, in one pass."""
    place, order = _in_force(session)
    paths = files or runbook.files(place)
    findings = [finding for path in paths for finding in runbook.lint(path, order)[1]]
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    code = ExitCode.PRECHECK_FAILED if errors else ExitCode.OK
    data = application.installation.LintData(paths)
    return Result(code, f"{len(paths)} runbook(s), {errors} error(s)", findings, data)
