"""A shared store's broker as one reading has shown it, and the calls that only this topology has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Self

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity, brief
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.rpo.history.row import Row
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.broker import ClassicBroker
from dr_ctl.topologies.common import snapshot
from dr_ctl.topologies.common.calls import OWN, STOP, call, request
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Fence, NoLink, Residue
from dr_ctl.topologies.sharedstore.store import Lag, LockSnapshot, SilentAndUnread
from dr_ctl.topologies.topology import LinkSnapshot, Stake

RUN: Final = "process"


class StoreLink(NoLink["BrokerView"]):
    def __init__(self, view: BrokerView) -> None:
        super().__init__(view)
        if view.store.replicated:  # messages that the replica lacks; without a replica the sites use one store
            self.to_ship = view.lag.messages if view.lag is not None else None

    def unsettled(self) -> Iterator[str]:
        view = self.view
        if view.lock is None:
            yield f"the lock was not read: {view.unread}"
        if view.store.replicated and view.lag is None:
            yield "the replica's lag was not read"
        elif view.lag is not None and view.lag.size:
            yield f"{view.lag.size} byte(s) to replicate, {view.lag.messages} message(s) among them"

    def holds(self, call: Call) -> bool | None:
        match call.goal:
            case Goal.HAND_OVER:
                return not self.view.has_the_store
            case Goal.START | Goal.STOP:
                return self.view.runs is (call.goal is Goal.START)
        return None

    def to_snapshot(self, _before: BrokerView | None, _took_s: float) -> LinkSnapshot:
        view = self.view
        name = view.lock.holder if view.lock is not None else None
        held, lease_s = (view.lock.held, view.lock.left_s) if view.lock is not None else (None, None)
        figures = {"held": held, "holder": name, "lease_s": lease_s, "process": view.runs}
        return LinkSnapshot(
            view.site, view.pair, None, None, None, self.to_ship, self.unapplied, None, (self._line(),), figures
        )

    def _line(self) -> str:
        view = self.view
        lock = view.lock.text if view.lock is not None else f"the holder of the store was not read: {view.unread}"
        if view.answered:
            return lock if view.lock is None or view.lock.holder is not None else "holds the store"
        waits = "waits: its ports refuse, its process runs" if view.runs else _STATES[False]
        state = "its ports refuse, as those of a waiting broker do" if view.runs is None else waits
        state = "was told to stop, and its process was not seen to end" if view.ending else state
        return f"{state}; {lock}"

    def rows(self, _peer: BrokerView | None, at: datetime) -> Iterator[Row]:
        """Return rows of the holder only: the messages that its clients have in delivery would be duplicates."""
        view = self.view
        if not view.has_the_store or self.to_ship is None:
            return
        yield Row(
            ts=at, site=view.site, pair=view.pair, kind="mirror", name="*", start=view.start,
            depth=self.to_ship, delivering=0, added=0, removed=0, link=True,
        )  # fmt: skip
        for name, queue in view.business.items():
            if queue.depth_known:
                yield replace(
                    queue.row(view, at), kind="acks", name=name, depth=queue.delivering, delivering=0,
                    added=queue.removed, removed=queue.removed - queue.delivering, link=True,
                )  # fmt: skip

    def stake(self, _peer: BrokerView | None) -> Stake:
        return Stake(self.to_ship, None, None)

    @property
    def residue(self) -> Residue | None:
        return Residue(0, 0)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The broker's name, its name in the lock and those of both brokers, the lease and the time between its renewals,
    the commands of the process, the command line that starts it, and whether there is a replica."""

    broker: str
    holder: str
    holders: frozenset[str]
    lease_is_row: bool = False
    lease_s: float = 10.0
    keep_alive_s: float = 5.0
    commands: frozenset[Goal] = frozenset()
    starts: str = ""
    replicated: bool = False

    @property
    def start(self) -> str:
        return f"`{self.starts}` starts {self.broker}" if self.starts else f"start broker {self.broker} on its host"


# These parts of a broker that does not answer are unknown.
NOTHING_OPEN: Final[Mapping[str, Any]] = dict.fromkeys(
    ("acceptors", "queues", "connections", "consumers", "prepared"), ()
)
_STATES: Final = {True: "its process runs", False: "its process does not run", None: "whether it runs is not known"}
STOPPED: Final = f"{OWN}stopped"
"""A run that tells a broker to stop writes this document, with the id of the start that ends."""


@dataclass(frozen=True, slots=True)
class BrokerView(ClassicBroker):
    """`answered` is False if the ports refuse. `lock` is None if unread, and `unread` says why. `runs` is the state of
    its process, `lag` that of the replica. `peer_serves` says that the other broker answers, as a broker that has the
    store does. `in_memory` counts by queue the messages that the store lacked in each of several readings."""

    store: StoreConfig = field(kw_only=True)
    answered: bool = field(default=True, kw_only=True)
    lock: LockSnapshot | None = field(default=None, kw_only=True)
    unread: str = field(default="", kw_only=True)
    runs: bool | None = field(default=None, kw_only=True)
    lag: Lag | None = field(default=None, kw_only=True)
    peer_serves: bool = field(default=False, kw_only=True)
    in_memory: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    def count_missing(self, stored: Mapping[str, int]) -> Mapping[str, int]:
        lacking_counts = {name: queue.depth - stored.get(name, 0) for name, queue in self.business.items()}
        return {name: count for name, count in lacking_counts.items() if count > 0}

    @cached_property
    def link(self) -> StoreLink:
        return StoreLink(self)

    @property
    def fence(self) -> Fence:
        return Fence(self)

    @property
    def other_holder(self) -> str | None:
        if self.lock is None or not self.lock.held or self.lock.holder not in self.store.holders - {self.store.holder}:
            return None
        return self.lock.holder

    @property
    def unknown_holder(self) -> str | None:
        """Return the name in the lock, held or not, if it is neither broker's: then the holder is unknown."""
        holder = self.lock.holder if self.lock is not None else None
        return None if holder in self.store.holders else holder

    @property
    def has_the_store(self) -> bool:
        """Say whether the broker has the store: it answers, and the lock is held by no other broker."""
        return self.answered and self.lock is not None and self.lock.held and self.other_holder is None

    @property
    def may_take_store(self) -> bool:
        """Say whether the ports refuse while the broker's own lock lasts, or while no broker holds the store."""
        if self.lock is None or self.answered or self.runs is False:
            return False
        return self.lock.held is (self.lock.holder == self.store.holder)

    @property
    def ending(self) -> bool:
        """Say whether a run told the broker to stop, and its process was not seen to end. A stopping process looks like
        a waiting one: the ports refuse, and management may report `Slave`. No wait shows the difference."""
        return STOPPED in self.documents and not self.has_ended and not self.answered

    @property
    def has_ended(self) -> bool:
        """Say whether the process does not run, or has started again since it was told to stop."""
        return self.runs is False or (self.answered and self.documents.get(STOPPED) not in ("", self.start))

    @property
    def role(self) -> Role:
        """The lock decides: if both brokers let clients in, the one that is not in the lock is sick. A broker whose
        ports refuse waits, unless its process does not run. If the lock has its name, it has died or is starting."""
        if self.answered:
            return Role.SICK if self.other_holder is not None else self.by_listeners
        is_holder = self.lock is not None and self.lock.holder == self.store.holder
        return Role.DOWN if is_holder or self.runs is False else Role.STANDBY


def ending(view: BrokerView, severity: Severity = Severity.ERROR) -> Finding:
    return found("DR-STORE-004.ending", severity=severity, broker=view, site=view.site, start=view.store.start)


def both_serve(view: BrokerView) -> Iterator[Finding]:
    """Report that a broker answers as if it held the store, while the holder in the lock serves too."""
    if view.other_holder is not None and view.lock is not None and view.peer_serves:
        lock, peer = view.lock.text, view.config.peer
        holder = view.other_holder
        yield found("DR-STORE-002.both_serve", broker=view, lock=lock, holder=holder, peer=peer, site=view.site)


class StoreSnapshot(snapshot.Snapshot[BrokerView]):
    def findings(self) -> Sequence[Finding]:
        both_serving = (finding for view in self._all() for finding in both_serve(view))
        return [*both_serving, *self._of_not_waiting(), *self._of_no_holder(), *super().findings()]

    def _of_no_holder(self) -> Iterator[Finding]:
        """Report that no broker holds the store, that a broker takes it, or that this was not read."""
        brokers = [broker for site in self.sites.values() for broker in site.values()]
        errors = [broker.error for broker in brokers if isinstance(broker, Silent)]
        views = [view for site in self.sites for view in self.views(site)]
        unread = [error.unread for error in errors if isinstance(error, SilentAndUnread)]
        if unread := [*unread, *(view.unread for view in views if view.lock is None)]:
            yield found("DR-STORE-001", why=unread[0])
        if errors or any(view.answered for view in views):
            return
        if (held := next((view.lock for view in views if view.lock is not None and view.lock.held), None)) is not None:
            yield found("DR-STORE-012.held", holder=held.text)
            return
        states = brief([f"{view}: {_STATES[view.runs]}" for view in views])
        yield found("DR-STORE-012.free", states=states, starts="; ".join(view.store.start for view in views))

    def _of_not_waiting(self) -> Iterator[Finding]:
        for view in self._all():
            if view.ending:
                yield ending(view, Severity.WARNING)
            elif view.runs is False and view.peer_serves:
                start = view.store.start[0].upper() + view.store.start[1:]
                yield found("DR-STORE-004.not_running", severity=Severity.WARNING, broker=view, start=start)

    def as_if_lost(self, site: str) -> Self:
        """The lost broker's process has ended, and its lock has run out."""
        free = LockSnapshot(held=False)
        ended = {**NOTHING_OPEN, "answered": False, "runs": False}

        def change(view: BrokerView) -> BrokerView:
            return replace(view, lock=free, **(ended if view.site == site else {}))

        lost = super().as_if_lost(site)
        views_by_site = {name: {view.pair: view for view in self.views(name)} for name in self.sites}
        sites = {name: {**lost.sites[name], **views} for name, views in views_by_site.items()}
        return type(self)(sites, workloads=lost.workloads).map_brokers(change)

    def stake(self, site: str) -> Sequence[Stake]:
        """Zero for a shared store, whether a broker answered or not: no broker has messages of its own."""
        return [Stake(0, None, None)] if self.one_store else super().stake(site)

    @property
    def one_store(self) -> bool:
        return not any(view.store.replicated for site in self.sites for view in self.views(site))

    def lacks_held_store(self, site: str) -> bool:
        locks = [view.lock for name in self.sites for view in self.views(name) if view.lock is not None]
        own = [view for view in self.views(site) if view.has_the_store or view.may_take_store]
        return self.one_store and any(lock.held for lock in locks) and not own


def make_snapshot(sites: Mapping[str, Mapping[str, BrokerView | Silent]]) -> StoreSnapshot:
    merged = StoreSnapshot(sites)
    answering = {view.site for site in sites for view in merged.views(site) if view.answered}
    return merged.map_brokers(lambda view: replace(view, peer_serves=bool(answering - {view.site})))


def hand_over(view: BrokerView, to: str) -> Call:
    summary = f"stop broker {view.broker}, so that {to} takes the store,"
    if Goal.STOP in view.store.commands:
        return call(view, Goal.HAND_OVER, view.broker, {RUN: Goal.STOP.value}, summary)
    return call(view, Goal.HAND_OVER, view.broker, request(beans.broker(view.broker), STOP), summary)


def start(view: BrokerView, when: str) -> list[Call]:
    """Start the process, which then waits for the store; without a command in the settings, return no call."""
    if Goal.START not in view.store.commands:
        return []
    return [call(view, Goal.START, view.broker, {RUN: Goal.START.value}, f"start the process of {view.broker}", when)]
