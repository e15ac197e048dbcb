"""How large the monitor gets with very many queues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_MIB = 143  # 150 MB


def test_ten_thousand_queues_at_two_sites_stay_below_150_mb(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.memory", str(tmp_path / "history")]

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=300
    )

    assert int(done.stdout) < LIMIT_MIB
    assert len(list(tmp_path.glob("history/date=*/site=*/*.parquet"))) >= 4
