"""What is installed is whole: the wheel carries the runbooks and finds them from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the built wheel, unpacked as pip does; no network is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT))
    subprocess.run([*PIP, *build], check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(folder / "site"), wheel], check=True)
    return folder / "site"


def run(installed: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    elsewhere = installed.parent
    done = subprocess.run(
        [sys.executable, *words], cwd=elsewhere, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_installed_package_carries_its_runbooks(installed: Path) -> None:
    where = run(installed, "-c", "import dr_ctl; print(dr_ctl.__file__)")
    listed = run(installed, "-m", "dr_ctl", "runbook", "list")

    assert Path(where.strip()) == installed / "dr_ctl" / "__init__.py"
    assert "swapover" in listed
    assert str(installed / "dr_ctl" / "_runbooks") in listed


def test_the_installed_runbooks_are_those_of_the_repository(installed: Path) -> None:
    carried = {path.name: path.read_bytes() for path in (installed / "dr_ctl" / "_runbooks").iterdir()}

    assert carried == {path.name: path.read_bytes() for path in (ROOT / "runbooks").iterdir()}
