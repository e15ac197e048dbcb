"""The lock of an installation: one store of documents a broker, tended beside the run.

Looking at it and renewing it is a thread's work for each broker, so that no call waits for it, and one that is silent
keeps nobody from the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.holding import Lease, Slot
from dr_ctl.engine.lease import LOCK, LockDocument, Look
from dr_ctl.topologies.artemis.access import Access
from dr_ctl.topologies.artemis.documents import Documents
from dr_ctl.topologies.common.names import numbered
from dr_ctl.topologies.common.observer import Observer
from dr_ctl.topologies.common.view import Broker, Seen

# Within the second that a look may be old when a call goes out, so that no call has to wait for one.
LOOK_EVERY_S: Final = 0.7


def looks(seen: Seen[Broker]) -> list[Look]:
    """The locks that an observation saw."""
    return [
        Look(
            site, view.pair, view.now_ms, tuple(LockDocument.of_text(*each) for each in numbered(view.documents, LOCK))
        )
        for site in seen.sites
        for view in seen.views(site)
    ]


def answered(seen: Seen[Broker]) -> set[tuple[str, str]]:
    """The brokers at which a lock can be taken."""
    return {(site, view.pair) for site in seen.sites for view in seen.views(site)}


@contextmanager
def leased(observer: Observer[Broker], who: LockDocument, clock: Clock) -> Iterator[Lease]:
    """A lock to take; once it is held it is kept until the block ends, by itself."""
    stores = [Documents(access) for access in observer.all() if isinstance(access, Access)]
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
