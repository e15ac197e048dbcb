"""The time of a thousand incidents on the twin: moves under load, with random faults at both brokers, each judged."""

import os
import subprocess
import sys
import time

from bench.table import HERE, Figure

INCIDENTS, SIDE_BY_SIDE = 1_000, 4
MOST_S = 600.0


def measured() -> list[Figure]:
    """Run the test with a thousand seeds, more at once than there are cores, because incidents mostly wait. Fail where
    a test fails."""
    env = {**os.environ, "DR_CTL_INCIDENTS": str(INCIDENTS)}
    test = HERE.parent / "tests" / "twin" / "test_commands.py"
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(SIDE_BY_SIDE), str(test), "-k", "whatever_fails"]
    began = time.perf_counter()
    ended = subprocess.run(command, env=env, cwd=HERE.parent, capture_output=True, text=True, check=False)
    took_s = time.perf_counter() - began
    assert f"{INCIDENTS} passed" in ended.stdout, ended.stdout
    return [
        Figure(f"simulated: {INCIDENTS} incidents, with the start of the brokers of each", "s", (took_s,), most=MOST_S)
    ]
