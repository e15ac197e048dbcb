"""A monitor of ten thousand queues at two sites: prints its largest size in MiB. Run as a process of its own.

What an observer makes of a broker's answer is part of it, the parsing of the answer is not.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dr_ctl.rpo.history.writer import Writer
from tests.topologies.mirror.views import at_both, snapshot

QUEUES, LOOKS = 10_000, 26


def main() -> None:
    """Two minutes of readings, and what a minute leaves on disk."""
    london, paris = at_both("orders.in", depth=4)
    [model] = [queue for queue in london.queues if queue.name == "orders.in"]
    many = tuple(replace(model, name=f"orders.in.{number:05}") for number in range(QUEUES))
    views = [
        replace(view, queues=(*[queue for queue in view.queues if queue.internal], *many)) for view in (london, paris)
    ]
    at = datetime(2026, 3, 1, tzinfo=UTC)
    writer = Writer(Path(sys.argv[1]))
    for number in range(LOOKS):
        rows = snapshot(*views).recorded(at + timedelta(seconds=5 * number))
        writer.add(rows)
        if number == LOOKS // 2:
            writer.flush()
    writer.flush()
    # Not from getrusage: that begins with the size of the process that started this one.
    text = Path("/proc/self/status").read_text(encoding="ascii")
    print(int(text.partition("VmHWM:")[2].split()[0]) // 1024)


if __name__ == "__main__":
    main()
