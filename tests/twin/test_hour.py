"""An hour of a monitor: what its history says of a link that hung, beside what clients sent meanwhile."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.clock import SystemClock, growing_s
from dr_ctl.core.patience import Patience
from dr_ctl.core.system import system
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl_lab.played import PlayedTwin

HOUR_S, RATE, HANGS_S = 3600.0, 5, (1200.0, 1260.0)


def size() -> float:
    """Of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4 / 1024


@pytest.mark.deep
def test_an_hour_is_kept_whole_and_an_outage_of_the_link_as_large_as_it_was(twin: PlayedTwin) -> None:
    installation, clock, sizes = load(twin.settings_path), SystemClock(), list[float]()
    began, began_s, lacking = system().now().astimezone(UTC), growing_s(), 0
    with (
        twin.load(RATE, queues=("orders.in",)) as clients,
        closing(registry.opened(installation, clock, Patience(), installation.file.parent)) as topology,
        closing(Monitor(installation, topology, clock)) as monitor,
    ):
        while (now_s := growing_s() - began_s) < HOUR_S:
            hangs = HANGS_S[0] <= now_s < HANGS_S[1]
            if hangs and not lacking:
                twin.cut("london", "hang")
                lacking = -clients.counts().sent
            if now_s >= HANGS_S[1] and lacking < 0:
                lacking += clients.counts().sent
                twin.heal("london")
            monitor.sample()
            sizes.append(size())
            monitor.wait(HOUR_S)

    history = twin.settings_path.parent / "history"
    files = sorted(path for path in history.glob("date=*/site=london/*.parquet") if path.name[0] != "_")
    rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    at_queues: list[datetime] = sorted({row["ts"] for row in rows if row["kind"] == "queue"})
    outflow = sorted((row["ts"], row["depth"]) for row in rows if row["kind"] == "mixed")

    assert monitor.looks > len(at_queues) > 0.9 * HOUR_S / 5  # it looks at everything more often than it keeps
    assert outflow[0][0] - began < (at_queues[1] - at_queues[0]) * 2
    assert (outflow[-1][0] - began).total_seconds() > 0.99 * HOUR_S
    # Its producers send an event each, and its consumers acknowledge one: what the link did not take.
    assert lacking < max(depth for _, depth in outflow) < 2.5 * lacking
    assert outflow[-1][1] <= RATE
    half = len(sizes) // 2
    assert max(sizes[half:]) < 1.1 * max(sizes[:half])
