"""How large the monitor gets with very many queues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_MIB = 143  # 150 MB


@pytest.mark.deep
def test_ten_thousand_queues_at_two_sites_stay_below_150_mb(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.memory", str(tmp_path / "history")]

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=300
    )

    assert int(done.stdout) < LIMIT_MIB
    assert len(list(tmp_path.glob("history/date=*/site=*/*.parquet"))) >= 4


def test_its_memory_is_given_back_by_the_allocator_of_the_system(tmp_path: Path) -> None:
    """Arrow reads which to take when it is loaded: nothing before the command may have loaded it."""
    missing = tmp_path / "none.yaml"
    code = (
        f"from dr_ctl.cli.app import run; run(['--config', {str(missing)!r}, 'monitor']);"
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split()[-1] == "system"
