"""From real brokers to an estimate: the monitor records, Spark reads, and a swapover takes it as a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dr_ctl.lab.lab import Lab
from tests.broker.driving import LONG_S, Operator, changed_settings

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_what_the_monitor_saw_is_what_estimate_and_swapover_read(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    def often(told: dict[str, Any]) -> None:
        told["history"] = {"path": str(tmp_path / "history"), "every": "200ms"}

    watched = Operator(lab, operator.state, changed_settings(lab, tmp_path, often))
    with lab.load(100, work_ms=1) as traffic:
        traffic.wait_for(50)
        out, _ = watched.start("monitor", "--for", "3s").communicate(timeout=LONG_S)
        traffic.stop()

    *looks, last = [json.loads(line) for line in out.splitlines()]
    rows = pq.read_table(tmp_path / "history").to_pylist()
    added = [row["added"] for row in rows if (row["site"], row["name"]) == ("london", "orders.in")]
    assert looks
    assert all(look["roles"] == {"london": "serving", "paris": "standby"} for look in looks)
    assert last["data"] == {"looks": len(looks), "rows": len(rows)}
    assert {row["kind"] for row in rows} == {"site", "mixed", "queue"}
    assert added == sorted(added)
    assert added[-1] > added[0]

    told = watched.run("rpo", "estimate").document["data"]
    moved = watched.run("swapover", "--to", "paris", "--yes")

    assert told["site"] == "london"
    assert told["total"]["loss"]["now"] is not None
    assert moved.code == 0, moved.document
    ends = [each for each in watched.journal() if each["kind"] == "step" and each["step"].endswith("-estimate")]
    assert ends[-1]["outcome"] == "succeeded", ends
    assert ends[-1]["evidence"]["estimate"]["total"]["loss"] == told["total"]["loss"]
