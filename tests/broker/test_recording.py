"""From real brokers to an estimate: the monitor records, Spark reads, and a swapover takes it as a step."""

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import LONG_S, Operator, changed_settings
from tests.rpo.files import usable_files

pytestmark = [pytest.mark.broker, pytest.mark.deep]


def until_told(monitor: subprocess.Popen[str], role: str) -> None:
    """Read its lines until one says that London has that role."""
    assert monitor.stdout is not None
    for line in monitor.stdout:
        if json.loads(line)["roles"]["london"] == role:
            return
    raise AssertionError(f"the monitor ended before it saw {role}")


def test_the_monitor_outlives_the_brokers(
    lab: Lab, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def often(told: dict[str, Any]) -> None:
        told["history"] = {"path": str(tmp_path / "history"), "every": "200ms"}

    watched = Operator(lab, operator.state, changed_settings(lab, tmp_path, often))
    with monkeypatch.context() as without_java:  # or an estimate that it began would outlive it
        without_java.setenv("PATH", "")
        without_java.delenv("JAVA_HOME", raising=False)
        monitor = watched.start("monitor")
    for role, bring_about in (("serving", lab.kill), ("down", lab.start), ("standby", lab.open_clients)):
        until_told(monitor, role)
        bring_about("london")
    until_told(monitor, "serving")
    # The change of role is on disk before its line is told.
    monitor.kill()
    monitor.communicate(timeout=LONG_S)
    before, findings = usable_files(tmp_path / "history")
    watched.start("monitor", "--for", "1s").communicate(timeout=LONG_S)

    files, more = usable_files(tmp_path / "history")
    assert (findings, more) == ([], [])
    assert set(before) < set(files)
    rows = [row for file in files if "site=london" in str(file) for row in pq.ParquetFile(file).read().to_pylist()]
    rows.sort(key=lambda row: row["ts"])
    roles = [row["name"] for row in rows if row["kind"] == "site"]
    turns = [role for role, _ in itertools.groupby(roles) if role != "unknown"]
    assert turns == ["serving", "down", "standby", "serving"]
    starts = [start for start, _ in itertools.groupby(row["start"] for row in rows if row["kind"] == "mixed")]
    assert len(starts) == len(set(starts)) == 2
    answered = {row["ts"] for row in rows if row["kind"] == "site" and row["start"] is not None}
    assert {row["ts"] for row in rows if row["kind"] in ("mixed", "queue")} == answered
