"""Alert rules and dashboard: each rule is tried by Prometheus' own tool, and each page that it names is there."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.findings import catalogue

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALERTS, ALERTS_TEST = EXAMPLES / "alerts.yaml", EXAMPLES / "alerts_test.yaml"
DASHBOARD = EXAMPLES / "grafana-dashboard.json"
PAGE = EXAMPLES.parent / "docs" / "monitoring.md"
_PROMTOOL = shutil.which("promtool")  # before a test hides what is on the PATH
_FIGURE = re.compile(r"\bdr_ctl_[a-z_]+\b")
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]


def test_the_rules_do_what_their_tests_say() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)) == ""
    assert promtool("test", "rules", str(ALERTS_TEST)) == ""


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_each_rule_is_tried_both_ways_and_names_a_page_that_is_there(rule: dict[str, Any]) -> None:
    tried = yaml.safe_load(ALERTS_TEST.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tried for case in test["alert_rule_test"] if case["alertname"] == rule["alert"]]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    titles = re.findall(r"(?m)^#+ (.+)", (EXAMPLES.parent / page).read_text(encoding="utf-8").lower())

    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}
    assert not anchor or anchor in [re.sub(r"[^a-z0-9 -]", "", title).replace(" ", "-") for title in titles]


def test_a_maintenance_silences_the_rules_whose_findings_it_silences_and_no_other(tmp_path: Path) -> None:
    kinds = {
        rule["alert"]: catalogue().get(rule["annotations"]["runbook_url"].partition("#")[2].upper()) for rule in RULES
    }
    silent = {alert for alert, kind in kinds.items() if kind and not any(case.always for case in kind.cases.values())}
    # 0x600 is no number
    tried = yaml.load(ALERTS_TEST.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    [wrong] = [test for test in tried["tests"] if test["name"] == "everything is wrong"]
    for name in {*re.findall('instance="([^"]+)"', str(wrong["input_series"]))}:
        series = f'dr_ctl_maintenance{{job="dr-ctl", instance="{name}"}}'
        wrong["input_series"].append({"series": series, "values": "1x600"})
    for case in wrong["alert_rule_test"]:
        case["exp_alerts"] = [] if case["alertname"] in silent else case["exp_alerts"]
    file = tmp_path / "maintenance.yaml"
    file.write_text(json.dumps({**tried, "rule_files": [str(ALERTS)], "tests": [wrong]}), encoding="utf-8")

    assert promtool("test", "rules", str(file)) == ""
    assert {"DrCtlNobodyServes", "DrCtlBothSitesServe"} & silent == {"DrCtlNobodyServes"}


def test_the_dashboard_is_whole() -> None:
    """Each panel has a query, a place of its own and its words; the data source is asked for."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()

    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(column, row) for column in columns for row in rows}
        assert panel["title"]
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


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
