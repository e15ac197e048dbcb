"""What many pairs of brokers cost: how long clients are out while an installation of so many moves, and the threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bench.table import Figure
from dr_ctl.application.twins import PlayedTwin
from dr_ctl.lab.lab import Lab

SIMULATED, REAL = (1, 4, 50), (1, 4)
WARM, MOVES = 2, 6
Place = AbstractContextManager[Lab | PlayedTwin]


def measured() -> list[Figure]:
    """The brokers share the machine's cores with dr-ctl: of what many pairs take, theirs is a part."""
    simulated, threads = _moved(SIMULATED, _twin)
    real, _ = _moved(REAL, _lab)
    return [
        *_beside_one("simulated", simulated),
        *_beside_one("real", real),
        Figure(f"threads of dr-ctl with {SIMULATED[-1]} pairs, at most", "", (float(threads),)),
    ]


def _beside_one(what: str, out_s: dict[int, tuple[float, ...]]) -> list[Figure]:
    one, *others = out_s
    return [
        Figure(f"{what}: clients out, {pairs} pairs beside one", "s", out_s[pairs], out_s[one], goal=1.2)
        for pairs in others
    ]


def _twin(pairs: int, folder: Path) -> Place:
    return PlayedTwin.up(folder, pairs=[f"orders-{number}" for number in range(1, pairs + 1)])


def _lab(pairs: int, folder: Path) -> Place:
    return Lab.up(folder, pairs=pairs)


def _moved(sizes: tuple[int, ...], up: Callable[[int, Path], Place]) -> tuple[dict[int, tuple[float, ...]], int]:
    """For how long clients were out, by how many pairs there were, and how many threads there were at most. The first
    moves warm the brokers."""
    found, threads = dict[int, tuple[float, ...]](), 0
    for pairs in sizes:
        with tempfile.TemporaryDirectory() as folder, up(pairs, Path(folder) / "sites") as there:
            told = [_move(there.settings_path, folder, ("paris", "london")[number % 2]) for number in range(MOVES)]
        found[pairs] = tuple(out_s for out_s, _ in told[WARM:])
        threads = max(threads, *(most for _, most in told))
    return found, threads


def _move(settings: Path, folder: str, target: str) -> tuple[float, int]:
    env = {**os.environ, "DR_CTL_CONFIG": str(settings), "DR_CTL_STATE_DIR": f"{folder}/state"}
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
