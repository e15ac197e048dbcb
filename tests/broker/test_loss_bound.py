"""A site is killed with messages under way, again and again: what was really lost lies under the bound that was stated.

The site that is lost is London and Paris in turn. The ledger of the traffic says what was lost: messages with a
producer's receipt that no consumer ever got, once the other site's queues are empty. The bound is the one that the
failover itself states, some of them minutes after the death.

And from real brokers to an estimate: the monitor records.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest

from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.traffic import Load
from dr_ctl_lab.recording import recording
from dr_ctl_lab.rehearsal import ANY_FIGURE
from tests.broker.driving import LONG_S, Operator, changed_settings
from tests.rpo.files import usable_files

Consumers = Literal["keep up", "slow down", "drain"]
pytestmark = [pytest.mark.broker, pytest.mark.deep]
EVERY_S = 5.0


@dataclass(frozen=True)
class Death:
    """How a site dies: under which traffic, and how far the other is behind by then."""

    seed: int
    link: str
    rate: int
    work_ms: float
    behind_s: float
    settled_s: float = 2.0  # under traffic before that
    consumers: Consumers = "keep up"
    asked_after_s: float = 0.0

    @classmethod
    def of_forty(cls, seed: int) -> Death:
        """In step, or cut up to three seconds before. Of twenty the consumers slow down before the end, or work off a
        backlog; ten are asked for more than two minutes later."""
        chance = random.Random(seed)
        rate = (100, 300)[seed % 2]
        consumers = ("keep up", "keep up", "slow down", "drain")[seed // 2 % 4]
        return cls(
            seed,
            link=("in step", "cut")[seed // 8 % 2],
            rate=rate,
            work_ms=2.0,
            behind_s=chance.uniform(0.5, 3.0),
            settled_s=chance.uniform(15.0, 20.0),
            consumers=consumers,
            asked_after_s=125.0 if seed % 4 == 3 else 0.0,
        )

    def happen(self, lab: Lab, site: str, traffic: Load) -> None:
        drains = self.consumers == "drain"
        if drains:  # a third of what was sent so far waits by now
            traffic.slow_down(2000 / (0.66 * self.rate))
        traffic.wait_for(traffic.counts().sent + int(self.settled_s * self.rate))
        if drains:
            traffic.slow_down(self.work_ms)
            traffic.wait_for(traffic.counts().sent + int(0.5 * self.rate))
        if self.link != "in step":
            lab.cut(site)
        if self.consumers == "slow down":
            traffic.slow_down(2000 / (0.2 * self.rate))
        traffic.wait_for(traffic.counts().sent + int(self.behind_s * self.rate))
        lab.kill(site)


@dataclass(frozen=True)
class Told:
    death: Death
    lost: int
    lost_at_most: int
    lost_likely: int
    duplicates: int
    duplicates_at_most: int

    @property
    def width(self) -> float:
        return self.lost_at_most / (self.lost + self.death.rate)

    @property
    def is_likely(self) -> bool:
        return abs(self.lost_likely - self.lost) <= max(self.lost, self.death.rate) / 2

    @property
    def line(self) -> str:
        lost = f"lost {self.lost}, likely {self.lost_likely}, at most {self.lost_at_most}"
        death = self.death
        late = f", asked {death.asked_after_s:g} s later" if death.asked_after_s else ""
        return (
            f"seed {death.seed:2} {death.link:7} {death.rate}/s, work {death.work_ms:g} ms, consumers {death.consumers}"
            f"{late}: {lost}; twice {self.duplicates} of at most {self.duplicates_at_most}"
        )


def killed(lab: Lab, folder: Path, death: Death, site: str) -> Told:
    """Kill the site that serves, go on at the other, and take it in again.

    Each death has a history of its own: clients that find a site again send what they held back all at once, and the
    highest rate of the minutes before would be that of the last death.
    """
    history = {"path": str(folder / f"history-{death.seed}")}
    settings = changed_settings(lab, folder / f"settings-{death.seed}", lambda options: options.update(history=history))
    operator = Operator(lab, folder / "state", settings)
    target = lab.state.other(site).name
    with lab.load(death.rate, work_ms=death.work_ms) as traffic:
        traffic.wait_for(2 * death.rate)  # clients that have just connected send what they held back all at once
        with recording(load(operator.settings), every_s=EVERY_S):
            death.happen(lab, site, traffic)
            time.sleep(death.asked_after_s)  # somebody looks as late as that
            traffic.slow_down(death.work_ms)
            moved = operator.run("failover", "--to", target, "--yes", *ANY_FIGURE)
        assert moved.code == 0, moved.document
        verdict = traffic.stop()
    assert verdict.drained, verdict
    lab.delay(0)
    lab.heal()
    lab.start(site)
    rejoined = operator.run("reinstate", site, "--yes")
    assert rejoined.code == 0, rejoined.document
    bounds = moved.document["data"]["bounds"]
    lost, duplicates = bounds["lost"], bounds["duplicates"]
    stated = (lost["at_most"], lost["likely"], len(verdict.duplicates), duplicates["at_most"])
    result = Told(death, len(verdict.lost), *stated)
    print(
        result.line,
        *(finding["text"] for finding in moved.document["findings"] if finding["id"] == "DR-LOSS-002"),
        sep="\n    ",
    )
    return result


@pytest.mark.chaos
def test_of_forty_deaths_none_costs_more_than_was_said(lab: Lab, tmp_path: Path) -> None:
    """With the readings of the default settings."""
    rows = [killed(lab, tmp_path, Death.of_forty(seed), ("london", "paris")[seed % 2]) for seed in range(40)]

    assert [item.line for item in rows if item.lost > item.lost_at_most] == []
    assert [item.line for item in rows if item.duplicates > item.duplicates_at_most] == []
    assert median(item.width for item in rows) <= 2
    assert sum(item.is_likely for item in rows) >= 0.95 * len(rows)


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
    def often(document: dict[str, Any]) -> None:
        document["history"] = {"path": str(tmp_path / "history"), "every": "200ms"}

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
