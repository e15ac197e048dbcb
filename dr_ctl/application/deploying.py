"""`init --systemd` and `init --kubernetes`: writes the files that run the monitor, the agent and the monthly rehearsal
of an installation. Asks no broker, and writes no secret."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dr_ctl import __version__
from dr_ctl.application.automation import QUARANTINE_OPTION
from dr_ctl.application.caller import Caller
from dr_ctl.application.init import InitData, new_folder, render
from dr_ctl.application.installation import OpenInstallation
from dr_ctl.application.result import Result
from dr_ctl.core.errors import UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Severity, brief
from dr_ctl.engine.runs import write_text
from dr_ctl.settings.model import Grouped, Installation, files, secrets

USER: Final = "dr-ctl"
STATE: Final = Path("/var/lib/dr-ctl")
IMAGE: Final = f"dr-ctl:{__version__}"
_UNITS: Final = ("monitor.service", "rehearsal.service", "rehearsal.timer", "unfence@.service")
_STARTED: Final = ("monitor.service", "rehearsal.timer", "sync.service")


def systemd(caller: Caller, out: Path, state: Path | None, options: Sequence[str] = ()) -> Result:
    """Write units for this dr-ctl, this settings file and the state directory, with options for the monitor."""
    installation = caller.installation()
    state = (state or STATE).absolute()
    passwords = credentials(installation)
    writable = [path for path in dict.fromkeys((state, installation.history.near)) if not path.is_relative_to(STATE)]
    program = Path(sys.executable).parent / "dr-ctl"  # of this installation of dr-ctl, where the units find it
    values = {
        "program": program if program.exists() else Path(sys.argv[0]).absolute(),
        "config": installation.file,
        "state": state,
        "user": USER,
        "does": options,
        "credentials": passwords,
        "writable": writable,
        "java_home": os.environ.get("JAVA_HOME", ""),
        "estimates": installation.settings.monitor.estimate != "off",
    }
    with OpenInstallation.of(caller) as opened:
        names = [*_UNITS, *(["sync.service"] if opened.has_agent else [])]
    written = _written(out, {f"dr-ctl-{name}": f"dr-ctl-{name}" for name in names}, values)
    read = " ".join(map(str, (installation.file, *passwords.values())))
    units = " ".join(name for name in written if name.removeprefix("dr-ctl-") in _STARTED)
    steps = [
        f"id {USER} || useradd --system --home-dir {STATE} {USER}",
        *(f"install -d -m 0700 {path} && chown -R {USER}:{USER} {path}" for path in writable),
        f"chgrp {USER} {read} && chmod 0640 {read}",
        f"cp {out}/dr-ctl-* /etc/systemd/system/ && systemctl daemon-reload",
        f"systemctl enable --now {units}",
        f"sudo -u {USER} {values['program']} --config {installation.file} --state-dir {state} status",
    ]
    return _result(out, written, steps, installation, options)


def kubernetes(caller: Caller, out: Path, image: str, options: Sequence[str] = ()) -> Result:
    """Write the manifests, with options for the monitor; the result has commands for a ConfigMap and a Secret."""
    installation = caller.installation()
    passwords = credentials(installation)
    beside = {name: path for _, name in files(installation.settings) if (path := installation.path(name)).is_file()}
    if odd := sorted(name for name in beside if "/" in name):
        remedy = "Put them beside the settings file: a key of a ConfigMap has no folder."
        raise UsageError(f"files of the settings are in folders: {brief(odd)}", remedy=remedy)
    if not installation.history.near.is_relative_to(STATE):
        remedy = f"`history: {{path: {STATE}/history}}`; at a URL: `near: {STATE}/history` beside it."
        raise UsageError(f"the history is not under {STATE}, which the pods can write to", remedy=remedy)
    values = {"image": image, "does": options, "credentials": passwords, "installation": installation.settings.name}
    written = _written(out, {"dr-ctl.yaml": "kubernetes.yaml"}, values)
    from_files = " ".join(f"--from-file={name}={path}" for name, path in passwords.items())
    config = [f"--from-file=dr-ctl.yaml={installation.file}", *(f"--from-file={beside[name]}" for name in beside)]
    steps = [
        f"kubectl create configmap dr-ctl {' '.join(config)}",
        f"kubectl create secret generic dr-ctl {from_files}",
        f"kubectl apply -f {out}/dr-ctl.yaml",
        "kubectl exec deploy/dr-ctl -- dr-ctl status",
    ]
    return _result(out, written, steps, installation, options)


def credentials(installation: Installation) -> Mapping[str, Path]:
    """Return the files of passwords, by their names for a service. Raises `UsageError` for other secrets."""
    listed = [*secrets(installation.settings)]
    without_file = [where for where, secret in listed if secret.env is not None or secret.plain is not None]
    if without_file:
        remedy = "Put each password into a file and name that: `password: {file: london-password}`."
        raise UsageError(f"a service has no variables of yours: {brief(without_file)}", remedy=remedy)
    paths = dict.fromkeys(installation.path(secret.file) for _, secret in listed if secret.file is not None)
    if twice := [name for name, count in Counter(path.name for path in paths).items() if count > 1]:
        raise UsageError(f"several files of passwords have one name: {brief(twice)}", remedy="Name them differently.")
    return {path.name: path for path in paths}


def _written(out: Path, names: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    with new_folder(out):
        for name, template in names.items():
            write_text(out / name, render(template, values))
    return [*names]


def _result(
    out: Path, written: Sequence[str], steps: Sequence[str], installation: Installation, options: Sequence[str]
) -> Result:
    settings, findings = installation.settings, list[Finding]()
    brokers = (broker for site in settings.sites.values() for broker in site.brokers)
    has_nodes = any(isinstance(broker, Grouped) and broker.nodes for broker in brokers)
    if settings.takeover_ends_quarantine and has_nodes and QUARANTINE_OPTION not in options:
        findings.append(found("DR-RETURN-004.monitor", severity=Severity.INFO))
    lines = [f"Wrote {', '.join(written)} to {out}. Next:", *(f"  {at}. {step}" for at, step in enumerate(steps, 1))]
    data = InitData(directory=out, files=written, next=steps)
    text = f"{len(written)} file(s) in {out}"
    return Result(ExitCode.OK, text, findings=findings, data=data, closing="\n".join(lines))
