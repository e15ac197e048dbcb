"""The figures of docs/measured.md, measured again on this machine: medians, alternating, all in one run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.model import Role
from dr_ctl.lab.lab import Lab
from dr_ctl.settings import loader
from dr_ctl.topologies.registry import opened

MOVES, STARTS, LOSSES = 6, 11, 5
RATE, DELAY_MS = 300, 0
HERE = Path(__file__).parent


def main() -> None:
    """Measure all, print a table a figure."""
    with tempfile.TemporaryDirectory() as compiled:
        # An installed dr-ctl has its bytecode beside it; a shell that forbids writing any would have it compiled anew
        # at every start.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        _starts()
        _gaps()
        _failovers()


def _starts() -> None:
    """`dr-ctl --help` beside importing the library that it stands on."""
    ours = [sys.executable, "-m", "dr_ctl", "--help"]
    yardstick = [sys.executable, "-c", "import typer"]
    took: dict[str, list[float]] = {"dr-ctl --help": [], 'python -c "import typer"': []}
    _timed(ours), _timed(yardstick)  # the first time reads from disk
    for _ in range(STARTS):
        for name, command in zip(took, (ours, yardstick), strict=True):
            took[name].append(_timed(command))
    _table(f"whole process, {STARTS} runs each, alternating, s", took, goal=2.0)


def _timed(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _gaps() -> None:
    """How long clients receive nothing, moved by dr-ctl and by a bare script with the same steps."""
    took: dict[str, list[float]] = {"dr-ctl swapover --yes": [], "bare script": []}
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab", delay_ms=DELAY_MS) as lab:
        environment = {
            **os.environ,
            "DR_CTL_CONFIG": str(lab.settings_path),
            "DR_CTL_STATE_DIR": str(Path(folder) / "state"),
        }
        target = "paris"
        for number in range(-2, 2 * MOVES):
            # Two of one tool, then two of the other: each goes there and back. The first two only warm the brokers.
            name = list(took)[number // 2 % 2]
            command = [sys.executable, "-m", "dr_ctl", "swapover", "--to", target, "--yes", "--quiet"]
            if name == "bare script":
                command = [sys.executable, str(HERE / "bare_swapover.py"), str(lab.settings_path), target]
            with lab.load(RATE, work_ms=1) as load:
                load.wait_for(RATE)
                subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
                load.wait_for(load.counts().sent + RATE // 2)
                verdict = load.stop()
            assert verdict.clean, verdict
            assert not verdict.processed_twice, verdict
            if number >= 0:
                took[name].append(verdict.receive_gap.seconds)
            target = "london" if target == "paris" else "paris"
    _table(f"receive gap under {RATE} messages/s, {MOVES} moves each, alternating, s", took, goal=1.1)


def _failovers() -> None:
    """How long from the command until clients are served at the other site, with the dead one refusing connections; and
    beside it how long a look takes that tells that it is down."""
    took: dict[str, list[float]] = {"command to first message": [], "a look that tells": []}
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab") as lab:
        environment = {
            **os.environ,
            "DR_CTL_CONFIG": str(lab.settings_path),
            "DR_CTL_STATE_DIR": str(Path(folder) / "state"),
        }

        def dr_ctl(*words: str) -> None:
            command = [sys.executable, "-m", "dr_ctl", *words, "--yes", "--quiet"]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)

        lost, target = "london", "paris"
        for number in range(-1, LOSSES):
            with lab.load(RATE, work_ms=1) as load:
                load.wait_for(RATE)
                lab.kill(lost)
                detected_s = _detection_s(lab, lost)
                began = datetime.now(UTC)
                dr_ctl("failover", "--to", target, "--accept-loss", "unknown")
                load.wait_for(load.counts().sent + RATE // 2)
                served = load.stop().receive_gap.until
            assert served is not None
            if number >= 0:
                took["command to first message"].append((datetime.fromisoformat(served) - began).total_seconds())
                took["a look that tells"].append(detected_s)
            lab.start(lost)
            dr_ctl("reinstate", lost)
            lost, target = target, lost
    _table(f"failover under {RATE} messages/s, {LOSSES} losses, s", took)


def _detection_s(lab: Lab, lost: str) -> float:
    with closing(opened(loader.load(lab.settings_path), SystemClock(), lab.directory)) as topology:
        began = time.monotonic()
        assert topology.observe().roles[lost] is Role.DOWN
        return time.monotonic() - began


def _table(title: str, took: dict[str, list[float]], *, goal: float | None = None) -> None:
    print(f"\n{title}\n{'':<26}{'min':>8}{'median':>8}{'max':>8}")
    for name, values in took.items():
        print(f"{name:<26}{min(values):>8.3f}{statistics.median(values):>8.3f}{max(values):>8.3f}")
    if goal is None:
        return
    ours, yardstick = (statistics.median(values) for values in took.values())
    print(f"ratio of the medians: {ours / yardstick:.2f} (goal: at most {goal})", flush=True)


if __name__ == "__main__":
    main()
