"""Tends a lock beside its run: looking at it and renewing it is work beside it for each broker, so that no call waits
for it, and one that is silent keeps nobody from the others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import Event, beside, system
from dr_ctl.engine.holding import BrokerLock, Lease
from dr_ctl.engine.lease import LockDocument, Store

# Within the second that a look may be old when a call goes out, so that no call has to wait for one.
LOOK_EVERY_S: Final = 0.7
SOON_S: Final = 0.1


@contextmanager
def tended(stores: Sequence[Store], who: LockDocument, clock: Clock) -> Iterator[Lease]:
    """A lock to take; once it is held it is kept until the block ends, by itself. The stores are closed then."""
    lease = Lease(stores, who, clock)
    over = system().event()
    keeping = [beside(partial(_keep, lease, slot, over), f"lock at {slot.name}") for slot in lease.slots]
    try:
        yield lease
    finally:
        over.set()
        for each in keeping:
            each.wait()
        for store in stores:
            store.close()


def _keep(lease: Lease, slot: BrokerLock, over: Event) -> None:
    wait_s = LOOK_EVERY_S
    while not over.wait(wait_s):
        wait_s = LOOK_EVERY_S
        with suppress(BrokerError):  # the next call says so, if it is still so
            lease.tend(slot)
            age_s = lease.age_s(slot)  # the run's own looks count too, and have an age
            wait_s = max(LOOK_EVERY_S - age_s, SOON_S) if age_s < LOOK_EVERY_S else LOOK_EVERY_S
