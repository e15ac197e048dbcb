"""A lab that goes down takes along whoever loads it."""

import subprocess
import sys
from pathlib import Path

from dr_ctl_lab.lab import loads
from tests.broker.driving import until

LOADING = """
import sys, time
from pathlib import Path
from dr_ctl_lab.lab import loads
with loads.running(Path(sys.argv[1])):
    time.sleep(60)
"""


def test_a_load_in_another_process_is_ended_and_no_other(tmp_path: Path) -> None:
    def noted() -> list[Path]:
        return list((tmp_path / loads.FOLDER).glob("*"))

    with loads.running(tmp_path):
        loads.end_all(tmp_path)
        assert noted(), "this process is left alone"
    assert not noted(), "one that ended by itself is named no more"
    loading = subprocess.Popen([sys.executable, "-c", LOADING, str(tmp_path)])
    try:
        until(noted)
        (tmp_path / loads.FOLDER / "1").write_text("{")  # names nobody

        loads.end_all(tmp_path)

        assert loading.wait(timeout=5) != 0
    finally:
        loading.kill()
        loading.wait()
