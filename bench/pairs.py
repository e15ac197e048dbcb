"""What many pairs of brokers cost: how long clients are out while an installation of so many moves, and the threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.table import HERE, Figure
from dr_ctl.application.twins import PlayedTwin
from dr_ctl.lab.lab import Lab

SIMULATED, REAL = (1, 4, 50), (1, 4)
WARM, MOVES = 2, 6
Place = AbstractContextManager[Lab | PlayedTwin]


@dataclass(frozen=True, slots=True)
class Moved:
    """For how long clients were out in each move, by dr-ctl and by the bare script, and how many threads dr-ctl had."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]
    threads: int


def measured() -> list[Figure]:
    """The brokers share the machine's cores with dr-ctl: of what many pairs take, theirs is a part. What that part is
    the bare script tells, which moves the same pairs in turn."""
    simulated = _moved(SIMULATED, _twin)
    threads = max(each.threads for each in simulated.values())
    return [
        *_compared("simulated", simulated),
        *_compared("real", _moved(REAL, _lab)),
        Figure(f"threads of dr-ctl with {SIMULATED[-1]} pairs, at most", "", (float(threads),)),
    ]


def _compared(what: str, moved: dict[int, Moved]) -> Iterator[Figure]:
    one, *others = moved
    for pairs in others:
        name = f"{what}: clients out, {pairs} pairs beside one"
        yield Figure(name, "s", moved[pairs].ours, moved[one].ours, goal=1.2)
    for pairs, each in moved.items():
        yield Figure(f"{what}: clients out, {pairs} pair(s) beside the bare script", "s", each.ours, each.bare)


def _twin(pairs: int, folder: Path) -> Place:
    return PlayedTwin.up(folder, pairs=[f"orders-{number}" for number in range(1, pairs + 1)])


def _lab(pairs: int, folder: Path) -> Place:
    return Lab.up(folder, pairs=pairs)


def _moved(sizes: tuple[int, ...], up: Callable[[int, Path], Place]) -> dict[int, Moved]:
    """By how many pairs there were. Two moves of one tool, then two of the other; the first ones warm the brokers."""
    found = dict[int, Moved]()
    for pairs in sizes:
        ours, bare, threads = list[float](), list[float](), 0
        with tempfile.TemporaryDirectory() as folder, up(pairs, Path(folder) / "sites") as there:
            for number in range(-WARM, 2 * MOVES):
                target = ("paris", "london")[number % 2]
                if number // 2 % 2:
                    out_s, most = _move(there.settings_path, folder, target)
                    ours, threads = [*ours, out_s], max(threads, most)
                else:
                    bare.append(_move_bare(there.settings_path, target))
        found[pairs] = Moved(tuple(ours[WARM:]), tuple(bare), threads)
    return found


def _move_bare(settings: Path, target: str) -> float:
    command = [sys.executable, str(HERE / "bare_swapover.py"), str(settings), target]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


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
