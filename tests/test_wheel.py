"""The built wheel carries the runbooks and the second package: installed elsewhere, both are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pip(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True, timeout=120)


def test_the_wheel_carries_the_runbooks_and_the_lab(tmp_path: Path) -> None:
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
    word = python("-m", "dr_ctl", "explain", "fence")
    lab = python("-m", "dr_ctl", "lab", "up", "--help")

    python("-m", "dr_ctl", "init", "--examples", "written")

    assert place.startswith(str(elsewhere))
    assert "swapover" in listed
    assert "Pacemaker" in word
    assert lab.startswith("Usage: dr-ctl lab up ")
    assert str(elsewhere / "dr_ctl" / "_runbooks") in listed
    schema = json.loads((tmp_path / "written" / "schemas" / "lab-up.json").read_text(encoding="utf-8"))
    assert schema["title"] == "the document of dr-ctl lab up"
    for example in (ROOT / "examples").iterdir():
        assert (tmp_path / "written" / example.name).read_bytes() == example.read_bytes()
        assert (tmp_path / "written" / example.name).stat().st_mode & 0o111 == example.stat().st_mode & 0o111
