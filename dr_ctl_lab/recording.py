"""The monitor beside a demo or a rehearsal: it records what happens there."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from dr_ctl.agents.monitor import Monitor
from dr_ctl.core.system import in_background, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings.model import Installation
from dr_ctl.topologies import registry


@contextmanager
def recording(installation: Installation, *, every_s: float) -> Iterator[None]:
    """Record history beside what happens in the block, which begins once a first reading was made."""
    begun, enough = system().event(), system().event()

    def record() -> None:
        nowhere = installation.file.parent  # history has no documents in it
        try:
            with (
                closing(registry.opened(installation, Timeouts(), nowhere)) as topology,
                closing(Monitor(installation, topology, every_s=every_s)) as monitor,
            ):
                while not enough.is_set():
                    monitor.sample()
                    begun.set()
                    monitor.wait(None)
        finally:
            begun.set()

    recorded = in_background(record, "monitor")
    begun.wait()
    try:
        yield
    finally:
        enough.set()
        recorded.result()
