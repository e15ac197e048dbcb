"""The commands in `examples/`, carried out as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Shell

EXAMPLES = Path(__file__).parents[2] / "examples"


def carried_out(dr_ctl: Shell, name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An example as an operator's shell runs it, in the folder of the settings."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{variables.pop('first', '')}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, **variables}
    return subprocess.run(
        [EXAMPLES / name, *words],
        cwd=dr_ctl.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_command_among_them_is_a_shell_script_that_parses() -> None:
    scripts = [each for each in EXAMPLES.iterdir() if os.access(each, os.X_OK) and each.is_file()]

    assert {"ci-check.sh", "importer.sh", "min-acks", "tell.sh"} <= {each.name for each in scripts}
    for script in scripts:
        subprocess.run(["sh", "-n", script], check=True, timeout=10)


@pytest.mark.parametrize(
    ("hooks", "code"),
    [({}, 0), ({"fence-host": {"run": ["./gone.sh"]}}, 10), ({"tell": {"run": ["sh", "-c", "true"]}}, 30)],
)
def test_a_ci_checks_settings(dr_ctl: Shell, hooks: dict[str, object], code: int) -> None:
    dr_ctl.settings("http://london:8161/console/jolokia", "http://paris:8161/console/jolokia", hooks=hooks)

    ended = carried_out(dr_ctl, "ci-check.sh")

    assert ended.returncode == code, ended.stdout
    assert "holds     the settings can be read" in ended.stdout


def test_the_workflow_of_the_ci_runs_that_command() -> None:
    workflow = yaml.safe_load((EXAMPLES / "ci-check.yaml").read_text(encoding="utf-8"))

    steps = workflow["jobs"]["check"]["steps"]
    assert steps[-1]["run"] == "./ci-check.sh dr-ctl.yaml"
    assert [step.keys() & {"uses", "run"} for step in steps] == [{"uses"}, {"uses"}, {"run"}, {"run"}]
