"""The time of a process without a request, and of one that reads both sites."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.moves import environment
from bench.table import Figure
from dr_ctl_lab.lab.lab import Lab

STARTS = 11


def measured() -> list[Figure]:
    ours = [sys.executable, "-m", "dr_ctl", "--help"]
    yardstick = [sys.executable, "-c", "import typer"]
    timed(ours), timed(yardstick)  # the first time reads from disk
    took = [(timed(ours), timed(yardstick)) for _ in range(STARTS)]
    helps, imports = zip(*took, strict=True)
    helped = Figure("`dr-ctl --help` beside `import typer`", "s", helps, imports, goal=1.5)
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab") as lab:
        status, env = [sys.executable, "-m", "dr_ctl", "status"], environment(lab, folder)
        timed(status, env)
        return [helped, Figure("`status` of one pair", "s", tuple(timed(status, env) for _ in range(STARTS)), most=0.5)]


def timed(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    return time.perf_counter() - began
