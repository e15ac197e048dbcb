"""The receive gap of a move by dr-ctl, and by a bare script with the same steps."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.table import HERE, Figure
from dr_ctl_lab.lab.artemis.continuity import JAR
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin

MOVES = 6
MIRROR_RATE, PLUGIN_RATE = 300, 100
FAST, SLOW = ("fast.a", "fast.b"), ("slow.a", "slow.b")
WAITING = 2000


def environment(lab: Lab | PlayedTwin, folder: str) -> dict[str, str]:
    return {**os.environ, "DR_CTL_CONFIG": str(lab.settings_path), "DR_CTL_STATE_DIR": f"{folder}/state"}


def mirror() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab") as lab:
        gaps = _gaps(lab, folder, "bare_swapover.py", MIRROR_RATE, None)
    return [Figure(f"mirror: receive gap of a move under {MIRROR_RATE} messages/s", "s", *gaps, goal=1.0)]


def plugin() -> list[Figure]:
    """Measure with empty queues, and with messages that no client consumes."""
    if not os.environ.get(JAR):
        print(f"the plugin's figures are NOT measured: {JAR} names no jar")
        return []
    items = []
    queues = (*FAST, *SLOW)
    for waiting, words in ((0, "nothing waiting"), (WAITING, f"{WAITING} messages waiting")):
        with (
            tempfile.TemporaryDirectory() as folder,
            Lab.up(Path(folder) / "lab", topology="artemis-continuity", queues=queues) as lab,
        ):
            if waiting:
                with lab.load(1000, queues=SLOW, consumers=0) as load:
                    load.wait_for(waiting, within_s=120)
                    load.pause_producing()
            gaps = _gaps(lab, folder, "bare_plugin.py", PLUGIN_RATE, FAST)
        name = f"plugin: receive gap of a move under {PLUGIN_RATE} messages/s, {words}"
        items.append(Figure(name, "s", *gaps, goal=1.2))
    return items


def _gaps(
    lab: Lab, folder: str, script: str, rate: int, queues: Sequence[str] | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Move there and back with each tool in turn; the first two moves only warm the brokers. Fail where a message was
    lost or duplicated."""
    took: tuple[list[float], list[float]] = ([], [])
    target = "paris"
    for number in range(-2, 2 * MOVES):
        tool = number // 2 % 2
        command = [sys.executable, "-m", "dr_ctl", "swapover", "--to", target, "--yes", "--quiet"]
        if tool:
            command = [sys.executable, str(HERE / script), str(lab.settings_path), target]
        some: dict[str, Any] = {} if queues is None else {"queues": queues}
        with lab.load(rate, work_ms=1, **some) as load:
            load.wait_for(rate)
            subprocess.run(command, check=True, env=environment(lab, folder), stdout=subprocess.DEVNULL)
            load.wait_for(load.counts().sent + rate // 2)
            verdict = load.stop()
        assert verdict.clean, verdict
        # The script does not quiesce: clients process unacknowledged messages again.
        assert tool or not verdict.redelivered, verdict
        if number >= 0:
            took[tool].append(verdict.receive_gap.seconds)
        target = "london" if target == "paris" else "paris"
    return tuple(took[0]), tuple(took[1])
