"""The monitor of a demo or a rehearsal."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.system import in_background, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry


@contextmanager
def recording(installation: Installation, *, every_s: float) -> Iterator[None]:
    """Record history while the block runs; it starts after the first reading."""
    started, stop = system().event(), system().event()

    def record() -> None:
        folder = installation.file.parent  # the monitor stores no documents
        try:
            with (
                closing(registry.opened(installation, Timeouts(), folder)) as topology,
                closing(Monitor(installation, topology, every_s=every_s)) as monitor,
            ):
                while not stop.is_set():
                    monitor.sample()
                    started.set()
                    monitor.wait(None)
        finally:
            started.set()

    task = in_background(record, "monitor")
    started.wait()
    try:
        yield
    finally:
        stop.set()
        task.result()
