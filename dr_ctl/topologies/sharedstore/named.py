"""The names of the checks that are this topology's own, and what each reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.settings.durations import duration
from dr_ctl.topologies.classic.named import BY_CONSOLE
from dr_ctl.topologies.common.named import Named
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
    Named("DR-STORE-001", "who holds the store can be told", _lock),
    Named("DR-STORE-002", "no other broker holds it than the one that answers", _of_holder(_lock)),
    Named("DR-STORE-003", "the broker that serves holds it", _of_holder(_lock)),
    Named("DR-STORE-004", "a broker that waits runs", _process),
    Named(
        "DR-STORE-005",
        "a lease is renewed before it runs out",
        lambda view: f"every {duration(view.config.keep_alive_s)} of {duration(view.config.lease_s)}",
    ),
    Named("DR-STORE-006", "the clocks agree", _clock),
    Named("DR-STORE-007", "whether a waiting broker lives can be seen", _process),
)
