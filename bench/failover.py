"""The time from a failover's command until clients are served, where the dead site refuses connections, and the time of
a reading that shows the site as down."""

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from bench.moves import environment
from bench.table import Figure
from dr_ctl.core.model import Role
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings import loader
from dr_ctl.topologies.registry import opened
from dr_ctl_lab.lab.lab import Lab

LOSSES, RATE = 5, 300


def measured() -> list[Figure]:
    served_s, detected_s = [], []
    with tempfile.TemporaryDirectory() as folder, Lab.up(Path(folder) / "lab") as lab:

        def dr_ctl(*words: str) -> None:
            command = [sys.executable, "-m", "dr_ctl", *words, "--yes", "--quiet"]
            subprocess.run(command, check=True, env=environment(lab, folder), stdout=subprocess.DEVNULL)

        lost, target = "london", "paris"
        for number in range(-1, LOSSES):
            with lab.load(RATE, work_ms=1) as load:
                load.wait_for(RATE)
                lab.kill(lost)
                detection_s = _detection_s(lab, lost)
                began = datetime.now(UTC)
                dr_ctl("failover", "--to", target, "--accept-loss", "unknown", "--accept-duplicates", "unknown")
                load.wait_for(load.counts().sent + RATE // 2)
                served = load.stop().receive_gap.until
            assert served is not None
            if number >= 0:
                served_s.append((datetime.fromisoformat(served) - began).total_seconds())
                detected_s.append(detection_s)
            lab.start(lost)
            dr_ctl("reinstate", lost)
            lost, target = target, lost
    name = f"mirror: failover under {RATE} messages/s, from the command to the first message"
    return [
        Figure(name, "s", tuple(served_s), most=1.0),
        Figure("of that, a reading that tells that the site is down", "s", tuple(detected_s)),
    ]


def _detection_s(lab: Lab, lost: str) -> float:
    with closing(opened(loader.load(lab.settings_path), Timeouts(), lab.directory)) as topology:
        began = time.monotonic()
        snapshot = topology.observe()
        assert snapshot.roles[lost] is Role.DOWN, [
            (broker.site, broker.role, broker.silent) for broker in snapshot.brokers
        ]
        return time.monotonic() - began
