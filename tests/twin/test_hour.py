"""An hour of a monitor in minutes: what its history says of a link that hung, beside what clients sent meanwhile.

`python -m tests.twin.test_hour SETTINGS` watches an hour of its own time, which passes faster, and prints how many
looks at everything it made and how large it was, in MiB, in either half."""

import json
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.patience import Patience
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.clock import Clock

pytestmark = pytest.mark.wire

BEGIN = datetime(2026, 3, 1, 12, 50, tzinfo=UTC)  # an hour is over, and its files are joined, in the first half
PACE, HOUR_S, RATE = 15.0, 3600.0, 40


class Paced:
    """Implements `Clock`."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._began_s) * PACE

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / PACE)


def watch(settings: Path) -> None:
    installation, clock = load(settings), Paced()
    halves = ([0.0], [0.0])
    with (
        closing(registry.opened(installation, clock, Patience(), settings.parent)) as topology,
        closing(Monitor(installation, topology, clock)) as monitor,
    ):
        while clock.monotonic() < HOUR_S:
            monitor.sample()
            told = Path("/proc/self/status").read_text(encoding="ascii")
            halves[clock.monotonic() > HOUR_S / 2].append(int(told.partition("VmRSS:")[2].split()[0]) / 1024)
            monitor.wait(HOUR_S)
    print(json.dumps({"looks": monitor.looks, "mib": [max(each) for each in halves]}))


@pytest.mark.deep
def test_an_hour_is_kept_whole_and_an_outage_of_the_link_as_large_as_it_was(tmp_path: Path) -> None:
    with (
        PlayedTwin.up(tmp_path / "twin", clock=Clock(pace=PACE)) as twin,
        twin.load(RATE, queues=("orders.in",)) as clients,
    ):
        clients.wait_for(RATE)
        command = [sys.executable, "-m", "tests.twin.test_hour", str(twin.settings_path)]
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


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
