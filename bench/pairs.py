"""What many pairs of brokers cost: how long clients are out while a simulated installation moves, and the threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.table import Figure
from dr_ctl.application.twins import PlayedTwin

PAIRS, MOVES = (1, 4, 50), 4


def measured() -> list[Figure]:
    """The brokers share the machine's cores with dr-ctl: of what many pairs take, theirs is a part."""
    found: dict[int, tuple[float, ...]] = {}
    threads = 0
    for pairs in PAIRS:
        names = [f"orders-{number}" for number in range(1, pairs + 1)]
        with tempfile.TemporaryDirectory() as folder, PlayedTwin.up(Path(folder) / "twin", pairs=names) as twin:
            told = [_move(twin, folder, ("paris", "london")[number % 2]) for number in range(MOVES)]
        found[pairs] = tuple(out_s for out_s, _ in told)
        threads = max(threads, *(most for _, most in told))
    one, *_ = found.values()
    return [
        Figure(f"simulated: clients out, {PAIRS[-1]} pairs beside one", "s", found[PAIRS[-1]], one, goal=1.2),
        Figure(f"simulated: clients out, {PAIRS[1]} pairs beside one", "s", found[PAIRS[1]], one),
        Figure(f"threads of dr-ctl with {PAIRS[-1]} pairs, at most", "", (float(threads),)),
    ]


def _move(twin: PlayedTwin, folder: str, target: str) -> tuple[float, int]:
    """For how long clients were out, and how many threads there were at most."""
    env = {**os.environ, "DR_CTL_CONFIG": str(twin.settings_path), "DR_CTL_STATE_DIR": f"{folder}/state"}
    command = [sys.executable, "-m", "dr_ctl", "swapover", "--to", target, "--yes", "--json"]
    threads = 0
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while process.poll() is None:
            threads = max(threads, _threads(process.pid))
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        told = json.loads(process.stdout.read())
    assert (told["exit_code"], {each["serving"] for each in told["data"]["pairs"]}) == (0, {target}), told
    return told["data"]["outage_s"], threads


def _threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except FileNotFoundError:
        return 0
