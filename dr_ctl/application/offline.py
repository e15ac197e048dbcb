"""`validate --offline`: the settings by themselves, for a CI: no broker is asked, and nothing is written.

The file was read before this begins, with all that is wrong in it. Here: what stands beside it, as commands, runbooks
and certificates, and what it says unwisely.
"""

import os
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dr_ctl.application.approvals import why_none
from dr_ctl.application.caller import Caller
from dr_ctl.application.grouping import SETTINGS, grouped
from dr_ctl.application.installation import folder, unverified_at
from dr_ctl.application.result import Result, counted
from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Severity, some
from dr_ctl.engine import runbook
from dr_ctl.engine.operations import HOOK
from dr_ctl.engine.ports import Check
from dr_ctl.settings import model
from dr_ctl.settings.model import Installation


def validate(caller: Caller, *, verbose: bool = False) -> Result:
    """Every check that needs no broker, 10 where one fails; `verbose` lists them."""
    installation = caller.installation()
    checks = list(checked(installation))
    findings = list(dict.fromkeys(finding for each in checks for finding in each.found))
    settings = installation.settings
    pairs = {broker.name for site in settings.sites.values() for broker in site.brokers}
    about = f"{installation.file.name}: {settings.topology}, {' and '.join(settings.sites)}, {len(pairs)} pair(s)"
    failed = any(each.severity is Severity.ERROR for each in findings)
    data: dict[str, Json] = {
        "settings": str(installation.file),
        "topology": settings.topology,
        "checks": document([each.aged(0.0) for each in checks]),
    }
    groups = grouped(installation, findings, checks, (), verbose=verbose)
    code = ExitCode.PRECHECK_FAILED if failed else ExitCode.OK
    summary = f"{about}: {counted(findings)}; no broker was asked"
    return Result(code, summary, findings, data, groups=groups)


def checked(installation: Installation) -> Iterator[Check]:
    """The checks of the settings by themselves, each with what it read."""
    yield Check("the settings can be read", SETTINGS, str(installation.file))
    yield _secrets(installation)
    yield _addresses(installation)
    yield _commands(installation)
    yield _files(installation)
    yield from _runbooks(installation)
    yield from _approvals(installation)
    for site in installation.settings.sites:
        against = unverified_at(installation, site)
        yield Check("certificates are verified", site, "not verified" if against else "verified", _listed(against))


def _approvals(installation: Installation) -> Iterator[Check]:
    if (wanted := installation.settings.approvals) is not None:
        what = f"{wanted.needed} of {wanted.signers}, before {', '.join(wanted.of)}"
        yield Check("signatures of plans can be verified", SETTINGS, what, _listed(why_none(installation)))


def _listed(finding: Finding | None) -> Sequence[Finding]:
    return [] if finding is None else [finding]


def _secrets(installation: Installation) -> Check:
    secrets = dict(model.secrets(installation.settings))
    against = [
        found("DR-SETTINGS-003", where=where, file=installation.file.name)
        for where, secret in secrets.items()
        if secret.plain is not None
    ]
    sources = list(dict.fromkeys(secret.source for secret in secrets.values()))
    return Check("no password stands in the settings", SETTINGS, some(sources) or "no password", against)


def _addresses(installation: Installation) -> Check:
    by_address: dict[str, list[str]] = {}
    for site, settings in installation.settings.sites.items():
        for broker in settings.brokers:
            if address := getattr(broker, "jolokia", None):
                by_address.setdefault(str(address).rstrip("/").lower(), []).append(f"{site}/{broker.name}")
    shared = {address: names for address, names in by_address.items() if len(names) > 1}
    against = [found("DR-SETTINGS-006", brokers=" and ".join(names)) for names in shared.values()]
    return Check("each broker has a management address of its own", SETTINGS, f"{len(by_address)} address(es)", against)


def _commands(installation: Installation) -> Check:
    problems: dict[Finding, list[str]] = {}
    names: list[str] = []
    for where, words in model.commands(installation.settings):
        names.append(words[0])
        for finding in _command(installation, words):
            problems.setdefault(finding, []).append(where)
    name = "every command that the settings name can be started"
    return Check(name, SETTINGS, some([*dict.fromkeys(names)]) or "no command", _placed(problems))


def _command(installation: Installation, words: Sequence[str]) -> Iterator[Finding]:
    """Against the words of a command: its program first, then files that it is given."""
    program = words[0]
    if os.sep not in program:
        if shutil.which(program) is None:
            yield found("DR-SETTINGS-002", f"no program {program} is on the PATH of this machine", _ON_HOST)
    elif not (path := installation.path(program)).is_file():
        yield _missing(program, path)
    elif not os.access(path, os.X_OK):
        yield found("DR-SETTINGS-001", f"{path} cannot be executed", f"`chmod +x {path}`.")
    for word in words[1:]:
        if word.startswith(("./", "../")) and not (path := installation.path(word)).exists():
            remedy = "Mend the path, unless the command makes that file."
            yield found("DR-SETTINGS-002", f"{path} is not there", remedy)


def _placed(problems: Mapping[Finding, Sequence[str]]) -> list[Finding]:
    """Each problem once, with all the places in the settings that name it."""
    return [replace(finding, text=f"{finding.text} ({some(places)})") for finding, places in problems.items()]


_ON_HOST: Final = "Nothing, where the machines that run dr-ctl have it."


def _missing(name: str, path: Path) -> Finding:
    """An absolute path may be there on another machine; a relative one is kept with the settings."""
    if Path(name).is_absolute():
        return found("DR-SETTINGS-002", f"{path} is not on this machine", _ON_HOST)
    remedy = "Paths are relative to the settings file: mend the path, or put the file there."
    return found("DR-SETTINGS-001", f"{path} is not there", remedy)


def _files(installation: Installation) -> Check:
    files = dict(model.files(installation.settings))
    problems: dict[Finding, list[str]] = {}
    for where, name in files.items():
        path = installation.path(name)
        if not path.exists():
            problems.setdefault(_missing(name, path), []).append(where)
        elif where.endswith(".tls.ca") and (why := _no_authority(path)) is not None:
            finding = found("DR-SETTINGS-001", f"{path} {why}", "It is a file of PEM certificates.")
            problems.setdefault(finding, []).append(where)
    name = "every file that is kept with the settings is there"
    return Check(name, SETTINGS, some([*files.values()]) or "no file", _placed(problems))


def _no_authority(path: Path) -> str | None:
    try:
        ssl.create_default_context(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        return f"holds no certificates: {error.strerror or error}"
    return None


def _runbooks(installation: Installation) -> Iterator[Check]:
    """The runbooks in force, and the hooks that they name against those that the settings have."""
    place, hooks = folder(installation), installation.settings.hooks
    called = {name for name in hooks if name.startswith(runbook.FENCING)}  # `fence` calls these by itself
    if not place.exists():
        return  # which the files' check tells
    whole = True
    for operation in runbook.OPERATIONS:
        path = place / f"{operation}.yaml"
        book, problems = runbook.lint(path, installation.settings.order)
        against = [replace(each, remedy=f"Mend {path}; `dr-ctl runbook lint` checks it.") for each in problems]
        whole = whole and book is not None
        for step in book.steps if book is not None else ():
            if step.verb == HOOK and (name := str(step.words["name"])) not in hooks:
                against.append(
                    found("DR-SETTINGS-004", runbook=path.name, line=step.line, hook=name, file=installation.file.name)
                )
            elif step.verb == HOOK:
                called.add(str(step.words["name"]))
        steps = ", ".join(step.verb for step in book.steps) if book is not None else f"{path} cannot be read"
        yield Check(f"the runbook of {operation} can be read", SETTINGS, steps, against)
    unused = [name for name in hooks if name not in called] if whole else []
    against = [found("DR-SETTINGS-005", hook=name) for name in unused]
    yield Check("every hook is called by a runbook", SETTINGS, some([*hooks]) or "no hook", against)
