"""Tends a lock beside its run: looking at it and renewing it is a thread's work for each broker, so that no call waits
for it, and one that is silent keeps nobody from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.holding import Lease, Slot
from dr_ctl.engine.lease import LockDocument, Store

# Within the second that a look may be old when a call goes out, so that no call has to wait for one.
LOOK_EVERY_S: Final = 0.7


@contextmanager
def tended(stores: Sequence[Store], who: LockDocument, clock: Clock) -> Iterator[Lease]:
    """A lock to take; once it is held it is kept until the block ends, by itself. The stores are closed then."""
    lease = Lease(stores, who, clock)
    over = Event()
    threads = [Thread(target=_keep, args=(lease, slot, over), name=f"lock at {slot.name}") for slot in lease.slots]
    for thread in threads:
        thread.daemon = True
        thread.start()
    try:
        yield lease
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for store in stores:
            store.close()


def _keep(lease: Lease, slot: Slot, over: Event) -> None:
    while not over.wait(LOOK_EVERY_S):
        try:
            lease.tend(slot)
        except BrokerError:
            continue  # the next call says so, if it is still so
