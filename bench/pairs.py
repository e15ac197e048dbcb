"""The outage and the threads of a move, by number of pairs."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.moves import environment
from bench.table import HERE, Figure
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin

SIMULATED, REAL = (1, 4, 50), (1, 4)
WARM, MOVES = 2, 6
WHILE_OUT = ("fence", "drain", "verify", "activate")
Place = AbstractContextManager[Lab | PlayedTwin]


@dataclass(frozen=True, slots=True)
class Move:
    """One move by dr-ctl: the outage, the largest number of threads, and the time of each step."""

    out_s: float
    threads: int
    steps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Moved:
    """Moves of the same pairs by dr-ctl, and the outages of the bare script."""

    ours: Sequence[Move]
    bare: tuple[float, ...]

    @property
    def out_s(self) -> tuple[float, ...]:
        return tuple(our.out_s for our in self.ours)


def measured() -> list[Figure]:
    """The brokers share the machine's cores with dr-ctl; the bare script's moves of the same pairs show their part."""
    simulated = _moved(SIMULATED, _twin)
    most = simulated[SIMULATED[-1]].ours
    return [
        *_compared("simulated", simulated),
        *_by_step(SIMULATED[-1], most),
        *_compared("real", _moved(REAL, _lab)),
        Figure(
            f"threads of dr-ctl with {SIMULATED[-1]} pairs, at most", "", (float(max(item.threads for item in most)),)
        ),
    ]


def _compared(label: str, moved: dict[int, Moved]) -> Iterator[Figure]:
    smallest, *larger = moved
    for pairs in larger:
        name = f"{label}: clients out, {pairs} pairs beside one"
        yield Figure(name, "s", moved[pairs].out_s, moved[smallest].out_s, goal=1.2)
    for pairs, item in moved.items():
        yield Figure(f"{label}: clients out, {pairs} pair(s) beside the bare script", "s", item.out_s, item.bare)


def _by_step(pairs: int, moves: Sequence[Move]) -> Iterator[Figure]:
    for name in WHILE_OUT:
        yield Figure(
            f"simulated: {pairs} pairs, of that the step {name}", "s", tuple(move.steps[name] for move in moves)
        )


def _twin(pairs: int, folder: Path) -> Place:
    return PlayedTwin.up(folder, pairs=[f"orders-{number}" for number in range(1, pairs + 1)])


def _lab(pairs: int, folder: Path) -> Place:
    return Lab.up(folder, pairs=pairs)


def _moved(sizes: tuple[int, ...], up: Callable[[int, Path], Place]) -> dict[int, Moved]:
    """Moves by number of pairs: there and back with each tool in turn; the first ones warm the brokers."""
    result = dict[int, Moved]()
    for pairs in sizes:
        ours, bare = list[Move](), list[float]()
        with tempfile.TemporaryDirectory() as folder, up(pairs, Path(folder) / "sites") as stage:
            for number in range(-WARM, 2 * MOVES):
                target = ("paris", "london")[number % 2]
                if number // 2 % 2:
                    ours.append(_move(stage, folder, target))
                else:
                    bare.append(_move_bare(stage.settings_path, target))
        result[pairs] = Moved(ours[WARM:], tuple(bare))
    return result


def _move_bare(settings: Path, target: str) -> float:
    command = [sys.executable, str(HERE / "bare_swapover.py"), str(settings), target]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _move(stage: Lab | PlayedTwin, folder: str, target: str) -> Move:
    env = environment(stage, folder)
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
        document = json.loads(process.stdout.read())
    assert (document["exit_code"], {item["serving"] for item in document["data"]["pairs"]}) == (0, {target}), document
    return Move(document["data"]["outage_s"], threads, _steps(Path(folder) / "state" / "runs" / document["run"]))


def _steps(run: Path) -> dict[str, float]:
    """The time of each step, from the journal."""
    lines = (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ended = [entry for line in lines if (entry := json.loads(line))["kind"] == "step" and "took_s" in entry["evidence"]]
    return {entry["step"].partition("-")[2]: entry["evidence"]["took_s"] for entry in ended}


def _threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except FileNotFoundError:
        return 0
