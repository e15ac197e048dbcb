"""`runs bundle`: all files of one run in an archive for others, without a secret.

The code lists the parts of the settings to show, not those to hide: the kind of a secret, the first word of a command,
the names of Spark's own settings.
"""

import base64
import hashlib
import html
import io
import json
import platform
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus

import yaml

from dr_ctl import __version__
from dr_ctl.application.caller import Caller
from dr_ctl.application.result import Result
from dr_ctl.core.document import document, key, mapping
from dr_ctl.core.errors import writing
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.core.notation import address
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.record import Record, check, read_run, record
from dr_ctl.engine.runs import RunFiles, write_bytes
from dr_ctl.processes.secrets import SecretMissing, resolve
from dr_ctl.report.html import render
from dr_ctl.report.run_page import RunPage
from dr_ctl.settings import model
from dr_ctl.settings.loader import SettingsError
from dr_ctl.settings.model import Installation, SparkSettings
from dr_ctl.settings.parts import Secret, Section

SCHEMA: Final = "dr-ctl/bundle/1"
MANIFEST: Final = "bundle.json"
BEFORE: Final = timedelta(hours=1)
AFTER: Final = timedelta(minutes=1)
"""The bundle has the readings from `BEFORE` the run until `AFTER` it."""
_PACKAGE: Final = re.compile(r"[A-Za-z0-9._-]+")
MASK: Final = "***"
_COMMANDS: Final = ("run", "start", "stop", "state", "command")
_MIN_LENGTH: Final = 4  # of a password: a shorter one may be part of any text


@dataclass(frozen=True, slots=True)
class BundleData:
    bundle: Path = field(metadata=key(description="where it is"))
    sha256: str
    files: Sequence[str] = field(metadata=key(description="the names in it"))


def bundle(caller: Caller, files: RunFiles, out: Path | None, *, has_settings: bool) -> Result:
    """Write the bundle; raises `UsageError` if that fails. A finding reports settings that could not be read."""
    now, installation, findings = system().now(), None, list[Finding]()
    try:
        installation = caller.installation() if has_settings else None
    except SettingsError as error:
        findings.append(found("DR-BUNDLE-001", why=str(error).splitlines()[0]))
    parts, missing = _parts(files, installation)
    findings += missing
    secret = frozenset() if installation is None else secret_texts(installation)
    clean = {name: content for name, content in parts.items() if not any(password in content for password in secret)}
    findings += [found("DR-BUNDLE-001.secret", file=name) for name in parts.keys() - clean.keys()]
    listed: dict[str, Json] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in clean.items()
    }
    manifest: dict[str, Json] = {
        "schema": SCHEMA,
        "run": files.name,
        "made_at": stamp(now),
        "verified": document(check(files)),
        "files": listed,
        "left_out": [finding.text for finding in findings],
    }
    path = out or Path(f"{files.name}.tar.gz")
    packed = _packed(files.name, {MANIFEST: _json(manifest), **clean}, now)
    with writing(f"--out {path}"):
        write_bytes(path.absolute(), packed)
    data = BundleData(path, hashlib.sha256(packed).hexdigest(), [MANIFEST, *clean])
    text = "\n".join(f"{len(content):>9}  {name}" for name, content in clean.items())
    return Result(ExitCode.OK, f"{path}: {len(packed)} bytes, no secret in it", findings, data, files.name, text)


def _parts(files: RunFiles, installation: Installation | None) -> tuple[dict[str, bytes], list[Finding]]:
    parts: dict[str, bytes] = {}
    findings: list[Finding] = []
    for path in (files.plan, files.journal, files.result):
        try:
            parts[path.name] = path.read_bytes()
        except FileNotFoundError:
            continue  # an open run has no result
        except OSError as problem:
            findings.append(found("DR-BUNDLE-001.file", file=path.name, why=problem.strerror or problem))
    parts[files.report.name] = render(RunPage(read_run(files))).encode("utf-8", "backslashreplace")
    run = record(files)
    parts["versions.json"] = _json(_versions(parts))
    if installation is None:
        findings.append(found("DR-BUNDLE-001.no_settings"))
        return parts, findings
    head = f"# {installation.file.name} as dr-ctl read it, without comments, defaults, secrets and words of commands\n"
    text = yaml.safe_dump(redacted(installation.settings), sort_keys=False, allow_unicode=True, width=120)
    parts["settings.yaml"] = (head + text).encode()
    readings, problems = _readings(installation, run)
    return {**parts, **readings}, [*findings, *problems]


def _readings(installation: Installation, run: Record) -> tuple[dict[str, bytes], list[Finding]]:
    history = installation.history
    if run.began is None or (history.folder is not None and not history.folder.is_dir()):
        return {}, [found("DR-BUNDLE-001.no_samples" if run.began else "DR-BUNDLE-001.no_begin")]
    try:
        from dr_ctl.rpo.history.newest import excerpt  # noqa: PLC0415 - a run is bundled without pyarrow too
    except ModuleNotFoundError as error:
        return {}, [found("DR-BUNDLE-001.no_package", package=error.name or error)]
    until = (run.ended or run.began + BEFORE) + AFTER
    readings, torn = excerpt(history, tuple(installation.settings.sites), run.began - BEFORE, until)
    if not readings:
        torn.append(found("DR-BUNDLE-001.no_samples"))
    return {f"history/{name}": content for name, content in readings.items()}, torn


def _versions(parts: Mapping[str, bytes]) -> dict[str, Json]:
    packages: dict[str, Json] = {}
    with suppress(PackageNotFoundError):
        packages = {match[0]: None for row in requires("dr-ctl") or () if (match := _PACKAGE.match(row))}
    for name in packages:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    plan: Mapping[str, Any] = {}
    with suppress(ValueError):
        plan = mapping(json.loads(parts.get("plan.json", b"{}")))
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


def redacted(part: Section) -> dict[str, Json]:
    """Return a part of the settings as written in the file, without secrets."""
    names = sorted(part.model_fields_set, key=[*type(part).model_fields].index)
    values = {name: _shown(name, getattr(part, name)) for name in names}
    if isinstance(part, SparkSettings) and "conf" in values:
        values["conf"] = dict.fromkeys(part.conf, MASK)
    return values


def secret_texts(installation: Installation) -> frozenset[bytes]:
    """Return each password of the settings that needs no command, in every form that a file may have, except passwords
    that are also a shown word of the settings, such as the user `admin`."""
    settings = installation.settings
    values = set[str]()
    for secret in [secret for _, secret in model.secrets(settings) if secret.command is None]:
        with suppress(SecretMissing):
            values.add(resolve(secret, installation.file.parent))
    shown_words = {*_words(redacted(settings))}
    users = {user for user in (getattr(part, "username", None) for _, part in model.parts(settings)) if user}
    hidden = (value for value in values - shown_words if len(value) >= _MIN_LENGTH)
    return frozenset(form for value in hidden for form in _forms(value, sorted(users)))


def _shown(name: str, value: object) -> Json:
    if isinstance(value, Secret):
        [(kind, source)] = value.model_dump(exclude_none=True).items()
        return {kind: MASK if kind == "plain" else _shown(kind, source)}
    if isinstance(value, Section):
        return redacted(value)
    if isinstance(value, dict):
        return {str(key): _shown(name, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        if name in _COMMANDS and value:
            return [address(str(value[0])), *[MASK] * (len(value) - 1)]
        return [_shown(name, inner) for inner in value]
    if isinstance(value, str):
        return address(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _forms(value: str, users: list[str]) -> Iterator[bytes]:
    """Yield a password as it is, escaped as in JSON, HTML and addresses, and as in a login over HTTP."""
    escaped = (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value))
    yield from (form.encode() for form in (value, *escaped, quote(value, safe=""), quote_plus(value)))
    yield from (base64.b64encode(login.encode()) for login in (value, *(f"{user}:{value}" for user in users)))


def _words(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _words(inner)
