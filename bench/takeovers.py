"""Kills the active node of a real broker during each step of a move under load, and prints the results.

`python -m bench.takeovers [STEP …]` (about half an hour for all)."""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.moves import environment
from dr_ctl_lab.lab.lab import Lab

STEPS = ("quiesce", "fence", "drain", "verify", "activate")
TIMES = 2
PASSED_S = 0.4
"""The largest random delay between the passed gate and the kill, for the step activate."""
RATE = 60
LIMIT_S = 180.0
HEAD = "| run | dies in | node of | end | after | serves | receive gap | lost | duplicates |"


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "a group does not come to rest"
        time.sleep(0.1)


class Operator:
    def __init__(self, lab: Lab, folder: str) -> None:
        self._environment, self._runs = environment(lab, folder), Path(folder) / "state" / "runs"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dr_ctl", *words, "--json", "--quiet"]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)

    def run(self, *words: str) -> dict[str, Any]:
        out, _ = self.begin(*words).communicate()
        document: dict[str, Any] = json.loads(out)
        return document

    def began(self, step: str, runs: int, event: str = "started") -> bool:
        """Say whether the newest run, after `runs` others, has an event of that step."""
        journals = sorted(self._runs.glob("*/journal.jsonl"))
        rows = journals[-1].read_text("utf-8").split("\n")[:-1] if len(journals) > runs else []
        return any(
            row["kind"] == "step" and row["step"].endswith(step) and row["outcome"] == event
            for row in map(json.loads, rows)
        )

    @property
    def runs(self) -> int:
        return len([*self._runs.glob("*/journal.jsonl")])


def row(lab: Lab, operator: Operator, step: str, *, at_source: bool) -> str:
    """Kill a node during one move; return the row of the result."""
    serving = served(operator)
    target = "paris" if serving == "london" else "london"
    victim, before = serving if at_source else target, operator.runs
    with lab.load(RATE) as load:
        load.wait_for(RATE)
        moving = operator.begin("swapover", "--to", target, "--yes")
        at = ("verify", before, "succeeded") if step == "activate" else (step, before)
        while moving.poll() is None and not operator.began(*at):
            time.sleep(0.005)
        time.sleep(random.uniform(0, PASSED_S) if step == "activate" else 0)
        lab.kill(victim, node="a")
        died = time.monotonic()
        document = json.loads(moving.communicate()[0])
        took = time.monotonic() - died
        load.wait_for(load.counts().sent + RATE, within_s=LIMIT_S)
        verdict = load.stop(drain_s=60)
    whole(lab, operator, victim)
    now = served(operator)
    place = "source" if at_source else "target"
    return (
        f"| {step} | {place} | {document['exit_code']} `{document['outcome']}` | {took:.1f} s | "
        f"{'target' if now == target else 'source'} | {verdict.receive_gap.seconds:.1f} s | {len(verdict.lost)} | "
        f"{len(verdict.duplicates)} |"
    )


def served(operator: Operator) -> str:
    lines: list[str] = []

    def one_serves() -> bool:
        lines[:] = [operator.run("status")["summary"]]
        return lines[0] in ("london serves", "paris serves")

    until(one_serves)
    return lines[0].split()[0]


def whole(lab: Lab, operator: Operator, site: str) -> None:
    """Start the node again, wait until it is active, and close listeners that a takeover has opened."""
    lab.start(site, node="a")
    until(lambda: any(item.name == site and item.node == "a" and item.active for item in lab.status().sites))
    until(lambda: operator.run("status")["outcome"] == "ok")
    if "split brain" in operator.run("status")["summary"]:
        operator.run("fence", site, "--yes")
    until(lambda: operator.run("validate", "--for", "swapover")["exit_code"] == 0)


def main() -> None:
    print(HEAD, "|" + " --- |" * HEAD.count(" |"), sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab", nodes=2) as lab:
        operator = Operator(lab, folder)
        until(lambda: operator.run("validate", "--for", "swapover")["exit_code"] == 0)
        cases = [(step, at) for _ in range(TIMES) for step in sys.argv[1:] or STEPS for at in (True, False)]
        for number, (step, at_source) in enumerate(cases, 1):
            print(f"| {number} {row(lab, operator, step, at_source=at_source)}", flush=True)


if __name__ == "__main__":
    main()
