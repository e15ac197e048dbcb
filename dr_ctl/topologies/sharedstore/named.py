"""The names of the checks that are this topology's own, and what each reads. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named
from dr_ctl.topologies.sharedstore.findings import (
    LEASE_ENDS_ODDLY,
    LEASE_TOO_SHORT,
    LOCK_NAMES_ANOTHER,
    LOCK_NAMES_STRANGER,
    LOCK_NOT_READ,
    NO_LEASE,
    NOBODY_WAITS,
    NOT_IN_STORE,
    PROCESS_NOT_KNOWN,
    SERVES_WITHOUT_LOCK,
)
from dr_ctl.topologies.sharedstore.view import BrokerView


def _lock(view: BrokerView) -> str | None:
    return view.lock.text if view.lock is not None else None


def _of_holder(read: Callable[[BrokerView], str | None]) -> Callable[[BrokerView], str | None]:
    """Of a broker that answers only."""
    return lambda view: read(view) if view.answered else "it waits"


def _clock(view: BrokerView) -> str | None:
    if view.lock is None:
        return None
    if view.lock.ahead_s is None:
        return "a file has no lease"
    return f"the database's clock is {view.lock.ahead_s:+.1f} s off this machine's"


def _process(view: BrokerView) -> str:
    return {True: "its process runs", False: "its process does not run", None: "nothing says"}[view.runs]


BY_BROKER: Final[Sequence[Named[BrokerView]]] = (
    *(replace(each, read=_of_holder(each.read)) for each in BY_CONSOLE),
    Named(LOCK_NOT_READ, _lock),
    Named(LOCK_NAMES_ANOTHER, _of_holder(_lock)),
    Named(LOCK_NAMES_STRANGER, _lock),
    Named(SERVES_WITHOUT_LOCK, _of_holder(_lock)),
    Named(NO_LEASE, _of_holder(_lock)),
    Named(NOT_IN_STORE, _of_holder(lambda view: f"{sum(view.in_memory.values())} message(s) in memory alone")),
    Named(NOBODY_WAITS, _process),
    Named(
        LEASE_TOO_SHORT,
        lambda view: f"every {duration(view.own.keep_alive_s)} of {duration(view.own.lease_s)}",
    ),
    Named(LEASE_ENDS_ODDLY, _clock),
    Named(PROCESS_NOT_KNOWN, _process),
)
