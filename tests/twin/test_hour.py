"""An hour of a monitor in minutes: what its history says of a link that hung, beside what clients sent meanwhile."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.clock import Clock
from tests.twin.hour import BEGIN

pytestmark = pytest.mark.wire

PACE, HOUR_S, RATE = 15.0, 3600.0, 40


@pytest.mark.deep
def test_an_hour_is_kept_whole_and_an_outage_of_the_link_as_large_as_it_was(tmp_path: Path) -> None:
    with (
        PlayedTwin.up(tmp_path / "twin", clock=Clock(pace=PACE)) as twin,
        twin.load(RATE, queues=("orders.in",)) as clients,
    ):
        clients.wait_for(RATE)
        command = [sys.executable, "-m", "tests.twin.hour", str(twin.settings_path), str(PACE), str(HOUR_S)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            clients.wait_for(RATE * 60, within_s=120)
            twin.cut("london", "hang")
            before = clients.counts().sent
            clients.wait_for(before + RATE * 20, within_s=60)
            lacking = clients.counts().sent - before
            twin.heal("london")
            told, _ = watching.communicate(timeout=HOUR_S / PACE)
        history = twin.settings_path.parent / "history"
        files = sorted(path for path in history.glob("date=*/site=london/*.parquet") if path.name[0] != "_")
        rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    at_queues = sorted({row["ts"] for row in rows if row["kind"] == "queue"})
    outflow = sorted((row["ts"], row["depth"]) for row in rows if row["kind"] == "mixed")
    ended = json.loads(told)

    assert watching.returncode == 0
    # It looks at everything more often than it keeps.
    assert ended["looks"] > len(at_queues) > 0.9 * HOUR_S / 5
    assert outflow[0][0] - BEGIN < (at_queues[1] - at_queues[0]) * 2
    assert (outflow[-1][0] - BEGIN).total_seconds() > 0.99 * HOUR_S
    # Its producers send an event each, and its consumers acknowledge one: what the link did not take.
    assert lacking < max(depth for _, depth in outflow) < 2.5 * lacking
    assert outflow[-1][1] <= RATE
    assert ended["mib"][1] < 1.1 * ended["mib"][0]
