"""Traffic on a lab for a given time, from one call: what `lab load` does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dr_ctl.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dr_ctl.lab.ledger import Counts, Verdict

LOOK_EVERY_S = 0.5


def run_load(
    lab_dir: Path,
    *,
    duration_s: float,
    rate: float,
    queues: Sequence[str] | None = None,
    producers: int = 2,
    consumers: int = 2,
    work_ms: float = 0.0,
    drain_s: float = 30.0,
    progress: Callable[[Counts], None] | None = None,
) -> Verdict:
    """Send and receive for `duration_s`, then drain and judge; `progress` hears the counts twice a second.

    An exception raised by `progress`, Ctrl-C included, ends the clients and is passed on. UsageError where no lab is.
    """
    lab = Lab.open(lab_dir)
    with lab.load(rate, queues=queues, producers=producers, consumers=consumers, work_ms=work_ms) as load:
        until = time.monotonic() + duration_s
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_EVERY_S))
            counts = load.counts()
            if progress is not None:
                progress(counts)
        return load.stop(drain_s=drain_s)
