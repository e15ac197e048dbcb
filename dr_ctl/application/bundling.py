"""`runs bundle`: everything of one run in a file to hand on, without a secret."""

import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

import yaml

from dr_ctl import __version__
from dr_ctl.application.caller import Caller
from dr_ctl.application.redacting import redacted, texts
from dr_ctl.application.result import Result
from dr_ctl.core.document import document, mapping
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.core.system import stamp
from dr_ctl.engine.record import Record, check, record
from dr_ctl.engine.runs import RunFiles, write_bytes
from dr_ctl.report.html import render
from dr_ctl.report.reading import read_run
from dr_ctl.report.view import view
from dr_ctl.settings.loader import SettingsError
from dr_ctl.settings.model import Installation

SCHEMA: Final = "dr-ctl/bundle/1"
MANIFEST: Final = "bundle.json"
BEFORE: Final = timedelta(hours=1)
AFTER: Final = timedelta(minutes=1)
"""The looks that go with a run: from so long before its begin until so long after its end."""
_PACKAGE: Final = re.compile(r"[A-Za-z0-9._-]+")


def bundle(caller: Caller, files: RunFiles, out: Path | None, *, has_settings: bool) -> Result:
    """Write the bundle of a run, and say what is in it. Raises `UsageError` where it cannot be written. Settings that
    cannot be read are missing in it, and told."""
    now, installation, findings = caller.clock.now(), None, list[Finding]()
    try:
        installation = caller.installation() if has_settings else None
    except SettingsError as error:
        findings.append(_missing(f"the settings could not be read: {str(error).splitlines()[0]}"))
    parts, missing = _parts(files, installation)
    findings += missing
    secret = frozenset() if installation is None else texts(installation)
    whole = {name: content for name, content in parts.items() if not any(each in content for each in secret)}
    for name in parts.keys() - whole.keys():
        text = f"{name} was left out: a password of the settings stands in it"
        findings.append(found("DR-BUNDLE-001", text))
    sealed = check(files)
    listed: dict[str, Json] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in whole.items()
    }
    manifest: dict[str, Json] = {
        "schema": SCHEMA,
        "run": files.name,
        "made_at": stamp(now),
        "verified": document(sealed),
        "files": listed,
        "left_out": [each.text for each in findings],
    }
    path = out or Path(f"{files.name}.tar.gz")
    packed = _packed(files.name, {MANIFEST: _json(manifest), **whole}, now)
    try:
        write_bytes(path.absolute(), packed)
    except OSError as problem:
        raise UsageError(
            f"--out {path}: {problem.strerror or problem}", remedy="Name a file that can be written."
        ) from problem
    data: dict[str, Json] = {
        "bundle": str(path),
        "sha256": hashlib.sha256(packed).hexdigest(),
        "files": [MANIFEST, *whole],
    }
    text = "\n".join(f"{len(content):>9}  {name}" for name, content in whole.items())
    return Result(ExitCode.OK, f"{path}: {len(packed)} bytes, no secret in it", findings, data, files.name, text)


def _parts(files: RunFiles, installation: Installation | None) -> tuple[dict[str, bytes], list[Finding]]:
    """Everything that belongs into the bundle, by name, and what is missing."""
    parts: dict[str, bytes] = {}
    findings: list[Finding] = []
    for path in (files.plan, files.journal, files.result):
        try:
            parts[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue  # an open run has no result
        except OSError as problem:
            findings.append(_missing(f"{path.name} could not be read: {problem.strerror or problem}"))
    parts[files.report.name] = render(view(read_run(files))).encode("utf-8", "backslashreplace")
    about = record(files)
    parts["versions.json"] = _json(_versions(parts))
    if installation is None:
        findings.append(_missing("there are no settings here: they and the history are missing"))
        return parts, findings
    parts["settings.yaml"] = _settings(installation)
    looks, more = _looks(installation, about)
    return {**parts, **looks}, [*findings, *more]


def _settings(installation: Installation) -> bytes:
    head = f"# {installation.file.name} as dr-ctl read it, without comments, defaults, secrets and words of commands\n"
    text = yaml.safe_dump(redacted(installation.settings), sort_keys=False, allow_unicode=True, width=120)
    return (head + text).encode()


def _looks(installation: Installation, about: Record) -> tuple[dict[str, bytes], list[Finding]]:
    history = installation.history
    if about.began is None or (history.folder is not None and not history.folder.is_dir()):
        when = "there are no looks of a monitor of that time"
        return {}, [_missing(when if about.began else "no looks of a monitor: the journal does not say when it began")]
    try:
        from dr_ctl.rpo.history.newest import excerpt  # noqa: PLC0415 - a run is bundled without pyarrow too
    except ModuleNotFoundError as error:
        return {}, [_missing(f"the looks of the monitor were not read: {error.name or error} is not installed")]
    until = (about.ended or about.began + BEFORE) + AFTER
    looks, torn = excerpt(history, tuple(installation.settings.sites), about.began - BEFORE, until)
    if not looks:
        torn.append(_missing("there are no looks of a monitor of that time"))
    return {f"history/{name}": content for name, content in looks.items()}, torn


def _versions(parts: Mapping[str, bytes]) -> dict[str, Json]:
    """Versions here now, and those of the brokers when the plan was made."""
    try:
        names = [match[0] for each in requires("dr-ctl") or () if (match := _PACKAGE.match(each))]
    except PackageNotFoundError:
        names = []
    packages: dict[str, Json] = {}
    for name in dict.fromkeys(names):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    try:
        plan = mapping(json.loads(parts.get("plan.json", b"{}")))
    except ValueError:
        plan = {}
    return {
        "dr-ctl": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "brokers": dict(mapping(mapping(plan.get("basis")).get("brokers"))),
    }


def _packed(folder: str, parts: Mapping[str, bytes], now: datetime) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in parts.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(now.timestamp())
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _json(document: Mapping[str, Json]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def _missing(text: str) -> Finding:
    return found("DR-BUNDLE-001", text)
