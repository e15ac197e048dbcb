"""`init --systemd` and `--kubernetes`: systemd takes the units, the monitor runs behind a root that is read-only but
for what its unit says, and the manifests fit the schemas of the API."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Shell
from tests.cli.sites import PASSWORD, Sites

FILE = {"file": "secrets/orders-password"}
NAMESPACE = Path(__file__).with_name("namespace.sh").read_text("utf-8")


@pytest.fixture(autouse=True)
def secret(dr_ctl: Shell) -> None:
    (dr_ctl.folder / "secrets").mkdir()
    (dr_ctl.folder / FILE["file"]).write_text(PASSWORD, encoding="utf-8")


def unit(path: Path) -> dict[str, list[str]]:
    lines = [line.partition("=") for line in path.read_text("utf-8").splitlines() if "=" in line and line[0] != "#"]
    keys = defaultdict(list)
    for key, _, value in lines:
        keys[key].append(value)
    return keys


def test_systemd_takes_the_units(dr_ctl: Shell) -> None:
    dr_ctl.settings(password=FILE)

    ended = dr_ctl("init", "--systemd", "units", "--auto-unfence")

    files = sorted((dr_ctl.folder / "units").iterdir())
    assert [file.name for file in files] == [
        f"dr-ctl-{name}" for name in ("monitor.service", "rehearsal.service", "rehearsal.timer", "unfence@.service")
    ]
    assert ended.out.startswith("Wrote dr-ctl-monitor.service, ")
    history, read = dr_ctl.folder / "history", f"{dr_ctl.folder}/dr-ctl.yaml"
    assert f"install -d -m 0700 {history} && chown -R dr-ctl:dr-ctl {history}\n" in ended.out
    assert re.search(rf"chgrp dr-ctl {read} .+ && chmod 0640 {read} ", ended.out)
    assert PASSWORD not in "".join(file.read_text("utf-8") for file in files)
    assert "/dr-ctl monitor --auto-unfence --metrics" in files[0].read_text("utf-8")
    if (analyze := shutil.which("systemd-analyze")) is None:
        assert not os.environ.get("CI"), "systemd-analyze is missing: the Debian package systemd has it"
        pytest.skip("systemd-analyze is missing: the Debian package systemd has it")
    done = subprocess.run([analyze, "verify", *files], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_standby_of_classic_has_the_unit_of_its_agent(dr_ctl: Shell) -> None:
    """And what a monitor that keeps nothing out leaves to people is said, of brokers of several nodes."""
    dr_ctl("init", "--topology", "classic-brokersync", "--out", "dr-ctl.yaml")
    text = (dr_ctl.folder / "dr-ctl.yaml").read_text("utf-8").replace("{env: ", "{file: ")
    nodes = "".join(f"{{name: {name}, jolokia: 'http://{name}-\\1', stomp: 'stomp://{name}-\\2'}}, " for name in "ab")
    text = re.sub(r"jolokia: http://(.+)\n.* stomp: stomp://(\S+)", f"nodes: [{nodes}]", text)
    (dr_ctl.folder / "dr-ctl.yaml").write_text(text, "utf-8")

    rows, does = (dr_ctl("init", "--systemd", out, *of) for out, of in (("units", ()), ("do", ["--auto-quarantine"])))

    assert "does not keep them out again" in rows.out + rows.err
    assert "does not keep them out again" not in does.out + does.err
    assert "--auto-quarantine" in unit(dr_ctl.folder / "do" / "dr-ctl-monitor.service")["ExecStart"][0]
    assert unit(dr_ctl.folder / "units" / "dr-ctl-sync.service")["ExecStart"][0].endswith(
        "/dr-ctl sync --metrics 127.0.0.1:9410 --json"
    )


@pytest.mark.wire
def test_the_monitor_runs_behind_a_read_only_root_as_its_unit_says(dr_ctl: Shell, sites: Sites) -> None:
    sites.settings(password=FILE)
    dr_ctl("--state-dir", "kept", "init", "--systemd", "units")
    wanted = unit(dr_ctl.folder / "units" / "dr-ctl-monitor.service")
    writable = wanted["ReadWritePaths"]
    assert writable == [str(dr_ctl.folder / "kept"), str(dr_ctl.folder / "history")]
    for item in writable:
        Path(item).mkdir(exist_ok=True)
    handed = dr_ctl.folder / "handed"
    handed.mkdir()
    for name, _, path in (name.partition(":") for name in wanted["LoadCredential"]):
        shutil.move(path, handed / name)  # nobody but systemd reads it where it lies

    namespace = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    if subprocess.run([*namespace, "mount", "-o", "remount,bind,ro", "/"], capture_output=True, check=False).returncode:
        assert not os.environ.get("CI"), "no namespace of mounts"
        pytest.skip("this user may have no namespace of mounts of its own")
    command = [
        *(*namespace, "sh", "-c", NAMESPACE, "sh"),
        *wanted["Environment"],
        f"CREDENTIALS_DIRECTORY={handed}",
        *shlex.split(wanted["ExecStart"][0].replace("127.0.0.1:9464", "127.0.0.1:0")),
        *("--for", "1s"),
    ]
    environment = {**os.environ, "FOLDER": str(dr_ctl.folder), "WRITABLE": " ".join(writable)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    first, *_, last = map(json.loads, done.stdout.splitlines())
    assert (first["roles"], last["exit_code"], last["findings"]) == ({"london": "serving", "paris": "standby"}, 0, [])
    assert list((dr_ctl.folder / "history").rglob("*.parquet"))


def test_the_manifests_fit_the_schemas_of_the_api(dr_ctl: Shell) -> None:
    dr_ctl.settings(password=FILE, history={"path": "/var/lib/dr-ctl/history"})

    ended = dr_ctl("init", "--kubernetes", "manifests", "--image", "registry.example/dr-ctl:1")

    documents = [*yaml.safe_load_all((dr_ctl.folder / "manifests" / "dr-ctl.yaml").read_text("utf-8"))]
    assert [row["kind"] for row in documents] == ["PersistentVolumeClaim", "Service", "Deployment", "CronJob"]
    pods = [documents[2]["spec"]["template"], documents[3]["spec"]["jobTemplate"]["spec"]["template"]]
    monitor, rehearsal = (pod["spec"]["containers"][0] for pod in pods)
    assert [monitor[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")] == ["/health", "/ready"]
    assert dr_ctl(*rehearsal["args"], "--dry-run", "--help").code == 0
    assert f"--from-file=orders-password={dr_ctl.folder}/{FILE['file']}" in ended.out
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make setup` installs it")
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
