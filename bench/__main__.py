"""Measures the figures of docs/measured.md on this machine, alternating with a yardstick.

    python -m bench [PART ...]         starts, mirror, plugin, failover, size, pairs, incidents, monitor, pipeline,
                                       reconcile; default: all of these; pipeline-large, pipeline-long and
                                       monitor-minute where asked

A part fails where the measured program did not do its work.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence

from bench import failover, incidents, moves, pairs, pipeline, reconcile, size, starts, watching
from bench.table import Figure, keep, show

PARTS: dict[str, Callable[[], Sequence[Figure]]] = {
    "starts": starts.measured,
    "mirror": moves.mirror,
    "plugin": moves.plugin,
    "failover": failover.measured,
    "size": size.measured,
    "pairs": pairs.measured,
    "incidents": incidents.measured,
    "monitor": watching.measured,
    "pipeline": pipeline.measured,
    "reconcile": reconcile.measured,
}
LONG: dict[str, Callable[[], Sequence[Figure]]] = {
    "pipeline-large": pipeline.large,
    "pipeline-long": pipeline.long,
    "monitor-minute": watching.minute,
}


def main(parts: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as compiled:
        # An installed dr-ctl has compiled bytecode; without this it might be compiled at every start.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        for part in parts or PARTS:
            figures = {**PARTS, **LONG}[part]()
            show(figures)
            keep(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
