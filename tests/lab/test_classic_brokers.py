"""A lab of real ActiveMQ Classic brokers beside a database: what it started is gone with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.lab.kinds import SHARED_STORE
from dr_ctl_lab.lab.lab import Lab

pytestmark = [pytest.mark.broker, pytest.mark.deep]


def test_brokers_and_database_end_with_their_lab(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, options={"database": True}) as lab:
        waiting = lab.status().sites[1]
        with pytest.raises(UsageError, match="no link joins"):
            lab.cut()
        processes = lab.processes()

    assert (waiting.running, waiting.answers, len(processes)) == (True, False, 3)
    assert not any(process.alive() for process in processes)
    assert not (tmp_path / "lab").exists()
