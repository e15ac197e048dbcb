"""`init --systemd` and `init --kubernetes`: the files that run the monitor, the agent and the monthly rehearsal of an
installation, made of its settings. Asks no broker, and writes no secret."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dr_ctl import __version__
from dr_ctl.application.automation import QUARANTINE_OPTION
from dr_ctl.application.caller import Caller
from dr_ctl.application.init import InitData, new_folder, rendered
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


def systemd(caller: Caller, out: Path, state: Path | None, does: Sequence[str] = ()) -> Result:
    """Write units for this dr-ctl, this settings file and the state directory. `does` has options of the monitor."""
    installation = caller.installation()
    state = (state or STATE).absolute()
    handed = credentials(installation)
    writable = [path for path in dict.fromkeys((state, installation.history.near)) if not path.is_relative_to(STATE)]
    program = Path(sys.executable).parent / "dr-ctl"  # of this installation of dr-ctl, where the units find it
    values = {
        "program": program if program.exists() else Path(sys.argv[0]).absolute(),
        "config": installation.file,
        "state": state,
        "user": USER,
        "does": does,
        "credentials": handed,
        "writable": writable,
        "java_home": os.environ.get("JAVA_HOME", ""),
        "estimates": installation.settings.monitor.estimate != "off",
    }
    with OpenInstallation.of(caller) as opened:
        names = [*_UNITS, *(["sync.service"] if opened.has_agent else [])]
    written = _written(out, {f"dr-ctl-{name}": f"dr-ctl-{name}" for name in names}, values)
    read = " ".join(map(str, (installation.file, *handed.values())))
    units = " ".join(name for name in written if name.removeprefix("dr-ctl-") in _STARTED)
    steps = [
        f"id {USER} || useradd --system --home-dir {STATE} {USER}",
        *(f"install -d -m 0700 {path} && chown -R {USER}:{USER} {path}" for path in writable),
        f"chgrp {USER} {read} && chmod 0640 {read}",
        f"cp {out}/dr-ctl-* /etc/systemd/system/ && systemctl daemon-reload",
        f"systemctl enable --now {units}",
        f"sudo -u {USER} {values['program']} --config {installation.file} --state-dir {state} status",
    ]
    return _result(out, written, steps, installation, does)


def kubernetes(caller: Caller, out: Path, image: str, does: Sequence[str] = ()) -> Result:
    """Write the manifests; the commands of the result make a ConfigMap and a Secret. `does` has monitor options."""
    installation = caller.installation()
    handed = credentials(installation)
    beside = {name: path for _, name in files(installation.settings) if (path := installation.path(name)).is_file()}
    if odd := sorted(name for name in beside if "/" in name):
        remedy = "Put them beside the settings file: a key of a ConfigMap has no folder."
        raise UsageError(f"files of the settings that lie in folders: {brief(odd)}", remedy=remedy)
    if not installation.history.near.is_relative_to(STATE):
        remedy = f"`history: {{path: {STATE}/history}}`; at a URL: `near: {STATE}/history` beside it."
        raise UsageError(f"the history does not lie under {STATE}, which the pods can write to", remedy=remedy)
    values = {"image": image, "does": does, "credentials": handed, "installation": installation.settings.name}
    written = _written(out, {"dr-ctl.yaml": "kubernetes.yaml"}, values)
    passwords = " ".join(f"--from-file={name}={path}" for name, path in handed.items())
    config = [f"--from-file=dr-ctl.yaml={installation.file}", *(f"--from-file={beside[name]}" for name in beside)]
    steps = [
        f"kubectl create configmap dr-ctl {' '.join(config)}",
        f"kubectl create secret generic dr-ctl {passwords}",
        f"kubectl apply -f {out}/dr-ctl.yaml",
        "kubectl exec deploy/dr-ctl -- dr-ctl status",
    ]
    return _result(out, written, steps, installation, does)


def credentials(installation: Installation) -> Mapping[str, Path]:
    """Return the files of passwords, by their names for a service. Raises `UsageError` for other secrets."""
    named = [*secrets(installation.settings)]
    loose = [where for where, secret in named if secret.env is not None or secret.plain is not None]
    if loose:
        remedy = "Put each password into a file and name that: `password: {file: london-password}`."
        raise UsageError(f"a service has no variables of yours: {brief(loose)}", remedy=remedy)
    paths = dict.fromkeys(installation.path(secret.file) for _, secret in named if secret.file is not None)
    if twice := [name for name, count in Counter(path.name for path in paths).items() if count > 1]:
        raise UsageError(f"several files of passwords have one name: {brief(twice)}", remedy="Name them differently.")
    return {path.name: path for path in paths}


def _written(out: Path, names: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    with new_folder(out):
        for name, template in names.items():
            write_text(out / name, rendered(template, values))
    return [*names]


def _result(
    out: Path, written: Sequence[str], steps: Sequence[str], installation: Installation, does: Sequence[str]
) -> Result:
    settings, findings = installation.settings, list[Finding]()
    brokers = (broker for site in settings.sites.values() for broker in site.brokers)
    has_nodes = any(isinstance(broker, Grouped) and broker.nodes for broker in brokers)
    if settings.takeover_ends_quarantine and has_nodes and QUARANTINE_OPTION not in does:
        # A monitor makes no run that nobody asked for.
        findings.append(found("DR-RETURN-004.monitor", severity=Severity.INFO))
    lines = [f"Wrote {', '.join(written)} to {out}. Next:", *(f"  {at}. {step}" for at, step in enumerate(steps, 1))]
    data = InitData(directory=out, files=written, next=steps)
    text = f"{len(written)} file(s) in {out}"
    return Result(ExitCode.OK, text, findings=findings, data=data, closing="\n".join(lines))
