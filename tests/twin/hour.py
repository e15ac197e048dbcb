"""A monitor whose time passes faster: `python -m tests.twin.hour SETTINGS PACE SECONDS` watches so many seconds of its
time and prints how many looks at everything it made and how large it was, in MiB, in either half."""

import json
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.patience import Patience
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry

BEGIN = datetime(2026, 3, 1, 12, 50, tzinfo=UTC)  # an hour is over, and its files are joined, in the first half


class Paced:
    """Implements `Clock`."""

    def __init__(self, pace: float) -> None:
        self._pace, self._began_s = pace, time.monotonic()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._began_s) * self._pace

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._pace)


def main(settings: Path, pace: float, lasting_s: float) -> None:
    installation, clock = load(settings), Paced(pace)
    halves = ([0.0], [0.0])
    with (
        closing(registry.opened(installation, clock, Patience(), settings.parent)) as topology,
        closing(Monitor(installation, topology, clock)) as monitor,
    ):
        while clock.monotonic() < lasting_s:
            monitor.sample()
            halves[clock.monotonic() > lasting_s / 2].append(_size())
            monitor.wait(lasting_s)
    print(json.dumps({"looks": monitor.looks, "mib": [max(each) for each in halves]}))


def _size() -> float:
    told = Path("/proc/self/status").read_text(encoding="ascii")
    return int(told.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
