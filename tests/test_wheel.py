"""The built wheel carries the runbooks: installed elsewhere, it lists them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True, timeout=120)


def test_the_wheel_carries_the_runbooks(tmp_path: Path) -> None:
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "built"), str(ROOT))
    (wheel,) = (tmp_path / "built").glob("*.whl")
    elsewhere = tmp_path / "elsewhere"
    pip("install", "--no-deps", "--no-index", "--target", str(elsewhere), str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(elsewhere), "HOME": str(tmp_path)}
    environment.pop("DR_CTL_CONFIG", None)

    def python(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    place = python("-c", "import dr_ctl; print(dr_ctl.__file__)").strip()
    listed = python("-m", "dr_ctl", "runbook", "list")

    assert place.startswith(str(elsewhere))
    assert "swapover" in listed
    assert str(elsewhere / "dr_ctl" / "_runbooks") in listed
