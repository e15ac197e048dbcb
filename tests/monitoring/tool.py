"""`promtool`, and which figures alert rules and dashboard ask for."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALERTS, ALERTS_TEST = EXAMPLES / "alerts.yaml", EXAMPLES / "alerts_test.yaml"
DASHBOARD = EXAMPLES / "grafana-dashboard.json"
PAGE = EXAMPLES.parent / "docs" / "monitoring.md"
_PROMTOOL = shutil.which("promtool")  # before a test hides what is on the PATH
_FIGURE = re.compile(r"\bdr_ctl_[a-z_]+\b")


def promtool(*words: str, input: bytes | None = None) -> str:  # noqa: A002 - subprocess' own name
    """What it complains of; nothing where all is well. Without the tool a test fails in CI and is skipped elsewhere."""
    if _PROMTOOL is None:
        assert not os.environ.get("CI"), "promtool is missing: the Debian package prometheus has it"
        pytest.skip("promtool is missing: the Debian package prometheus has it")
    ended = subprocess.run([_PROMTOOL, *words], input=input, capture_output=True, timeout=60, check=False)
    said = (ended.stdout + ended.stderr).decode()
    return said if ended.returncode else ""


def figures_asked_for() -> set[str]:
    expressions = [*re.findall(r"expr: (.+)", ALERTS.read_text(encoding="utf-8"))]
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    return {name for expression in expressions for name in _FIGURE.findall(expression)}


def figures_of_the_page() -> set[str]:
    return {*_FIGURE.findall(PAGE.read_text(encoding="utf-8"))}
