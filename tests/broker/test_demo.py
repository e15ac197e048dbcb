"""The demo, whole: its verdict is the ledger's, it names its report, and nothing of it is left running."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rpo.test_estimate import running

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.deep]

WITHIN_S = 1500.0


def test_the_demo_ends_well_and_leaves_nothing_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dr_ctl", "demo", "--dir", str(tmp_path / "demo"), "--json"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        try:
            out, err = demo.communicate(timeout=WITHIN_S)
        finally:
            demo.terminate()  # one that hangs takes its brokers down itself; killed, it would leave them

    document = json.loads(out)
    assert (demo.returncode, document["exit_code"]) == (0, 0), err[-3000:]
    ledger = document["data"]["ledger"]
    assert ledger["counts"]["sent"] > 1000
    assert (ledger["lost"], ledger["duplicates"], ledger["redelivered"]) == (0, 0, 0)
    assert "<html" in Path(document["data"]["report"]).read_text(encoding="utf-8")
    assert running(tmp_path) == []
