"""The built wheel carries the runbooks and the second package: installed elsewhere, both are found."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def closure(name: str) -> set[str]:
    """What is installed where this package is, on any platform, as the installed packages say."""
    required: set[str] = set()
    waiting = [name]
    while waiting:
        for value in map(Requirement, requires(waiting.pop()) or ()):
            wanted = canonicalize_name(value.name)
            if wanted not in required and (value.marker is None or value.marker.evaluate({"extra": ""})):
                required.add(wanted)
                waiting.append(wanted)
    return required


def locked(name: str) -> set[str]:
    pins = re.findall(r"^([a-z0-9-]+)==([^ ]+)(.*)$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    return {package for package, _, marker in pins if "win32" not in marker}


def test_the_locks_pin_what_dr_ctl_needs_and_nothing_of_its_developers() -> None:
    needed = closure("dr-ctl")

    assert locked("requirements.lock") == needed
    assert locked("requirements-move.lock") == needed - {"pyspark", "py4j"}


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
    assert (elsewhere / "share" / "man" / "man1" / "dr-ctl.1").read_text("utf-8").startswith(".TH DR\\-CTL 1 ")
    assert "swapover" in listed
    assert "Pacemaker" in word
    assert lab.startswith("Usage: dr-ctl lab up ")
    assert str(elsewhere / "dr_ctl" / "_runbooks") in listed
    schema = json.loads((tmp_path / "written" / "schemas" / "lab-up.json").read_text(encoding="utf-8"))
    assert schema["title"] == "the document of dr-ctl lab up"
    for example in (ROOT / "examples").iterdir():
        assert (tmp_path / "written" / example.name).read_bytes() == example.read_bytes()
        assert (tmp_path / "written" / example.name).stat().st_mode & 0o111 == example.stat().st_mode & 0o111
