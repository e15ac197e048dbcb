"""A lab that goes down takes along whoever loads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dr_ctl_lab.lab import loads
from tests.lab.waiting import eventually

LOADING = """
import sys, time
from pathlib import Path
from dr_ctl_lab.lab import loads
with loads.running(Path(sys.argv[1])):
    time.sleep(60)
"""


def noted(directory: Path) -> list[Path]:
    return list((directory / loads.FOLDER).glob("*"))


def test_a_load_in_another_process_is_ended(tmp_path: Path) -> None:
    loading = subprocess.Popen([sys.executable, "-c", LOADING, str(tmp_path)])
    try:
        eventually(lambda: noted(tmp_path))

        loads.end_all(tmp_path)

        assert loading.wait(timeout=5) != 0
    finally:
        loading.kill()
        loading.wait()


def test_a_load_that_ended_by_itself_is_named_no_more_and_this_process_is_left_alone(tmp_path: Path) -> None:
    with loads.running(tmp_path):
        loads.end_all(tmp_path)
        assert noted(tmp_path)

    assert not noted(tmp_path)


def test_a_note_that_names_nobody_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / loads.FOLDER).mkdir()
    (tmp_path / loads.FOLDER / "1").write_text("{")

    loads.end_all(tmp_path)
