"""The agent of one direction: it gets notices of consumed messages at the serving site, and deletes the copies at the
standby.

A missed notice is never repeated. Therefore the agent compares both sites at its start, and deletes messages that only
the standby has and need not ship. It does so per queue, and only where clients of the serving site have acknowledged at
least as many messages since the broker's start, beside those whose copies are deleted already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.messages import Counters, Message, Origin, Queue, Reason

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker

LISTENER: Final = "sync"


class Agent:
    """Deletes at `target` while only `source` serves; while neither serves it finishes the notices that it got.
    `lag_s`: delay of a deletion."""

    def __init__(self, source: BrokerSyncBroker, target: BrokerSyncBroker) -> None:
        self._source, self._target = source, target
        self.running = True
        self.lag_s = 0.0
        self._is_recording = False
        self._deletions: dict[tuple[str, Origin], float] = {}
        self._deleted: dict[str, tuple[Counters, int]] = {}
        source.agents.append(self)
        target.agent = self

    @property
    def idle(self) -> bool:
        """Say whether no deletion is pending, or none is possible."""
        return not self._deletions or not self._connected

    def start(self) -> None:
        """Start, and let it delete everything at the target that it may."""
        self.running, self._target.returned = True, False
        self._source.changed.notify_all()

    def stop(self) -> None:
        self.running = self._is_recording = False
        self._deletions.clear()

    def record_consumed(self, queue: Queue, message: Message) -> None:
        if self._is_recording and queue.name in self._source.units and message.origin is not None:
            self._deletions[queue.name, message.origin] = self._source.clock.now_s() + self.lag_s

    def work(self, now_s: float) -> list[float]:
        """Delete due copies; return the times of later deletions."""
        if not self._connected or self._target.serves:
            self._is_recording = False
            self._deletions.clear()
            return []
        if not self._is_recording and self._source.serves and not self._returned():
            self._is_recording = True
            self._deletions |= dict.fromkeys(self._covered(), now_s)
        for copy in [copy for copy, at_s in self._deletions.items() if at_s <= now_s]:
            self._delete(*copy)
        return [at_s for at_s in self._deletions.values() if at_s > now_s]

    @property
    def _connected(self) -> bool:
        brokers = (self._source, self._target)
        return self.running and all(
            item.alive and not item.frozen and item.acceptors[LISTENER].started for item in brokers
        )

    def _delete(self, queue: str, origin: Origin) -> None:
        """Delete a copy; keep the deletion pending while the copy has not arrived."""
        remote = self._target.queues.get(queue)
        copy = remote.by_origin.get(origin) if remote is not None else None
        if remote is not None and copy is not None:
            self._target.remove(remote, copy, Reason.KILLED)
            self._spend(queue)
        waiting = self._source.queues.get(self._source.copies(queue))
        if waiting is None or origin not in waiting.by_origin:
            self._deletions.pop((queue, origin), None)

    def _consumed(self) -> list[tuple[str, Origin]]:
        """Messages that only the target has, or will get, and that it need not ship."""
        value: list[tuple[str, Origin]] = []
        for name in self._target.units:
            local, leaving = _ids(self._source, name), _ids(self._source, self._source.copies(name))
            remote, unshipped = _ids(self._target, name), _ids(self._target, self._target.copies(name))
            value += [(name, origin) for origin in (remote | leaving) - local - unshipped]
        return value

    def _spend(self, queue: str) -> None:
        """Count a deleted copy against the acknowledgements since the serving broker's start."""
        counters, count = self._spent(queue)
        self._deleted[queue] = counters, count + 1

    def _spent(self, queue: str) -> tuple[Counters, int]:
        """The counters of a queue, and the number of copies deleted since they began."""
        remote = self._source.queues.get(queue)
        counters = remote.counters if remote is not None else Counters()
        known, count = self._deleted.get(queue, (counters, 0))
        return counters, count if known is counters else 0

    def _covered(self) -> list[tuple[str, Origin]]:
        """The consumed messages of queues whose counters cover all that are missing at the source."""
        consumed = self._consumed()
        covered = set[str]()
        for name in {queue for queue, _ in consumed}:
            counters, deleted = self._spent(name)
            if sum(queue == name for queue, _ in consumed) <= counters.acknowledged - deleted:
                covered.add(name)
        return [item for item in consumed if item[0] in covered]

    def _returned(self) -> bool:
        """Say whether the target came back with messages that the agent must not delete."""
        self._target.returned = self._target.returned and bool(self._consumed())
        return self._target.returned


def _ids(broker: BrokerSyncBroker, name: str) -> set[Origin]:
    return set(broker.queues[name].by_origin) if name in broker.queues else set()
