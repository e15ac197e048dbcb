"""The agent of one direction hears at the serving site which messages were consumed, and deletes the copies at the
other.

A missed notice is never repeated. At its start the agent compares both sites, and deletes messages that only the
standby has, except those that the standby has yet to ship: where clients of the serving site have
acknowledged as many since its start whose copies are not deleted yet. Otherwise it deletes none of that queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.messages import Counters, Message, Origin, Queue, Reason

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker

LISTENER: Final = "sync"


class Agent:
    """Works from `source` to `target` while only `source` serves; while neither serves it finishes the notices heard.
    `lag_s`: delay of a deletion."""

    def __init__(self, source: BrokerSyncBroker, target: BrokerSyncBroker) -> None:
        self._source, self._target = source, target
        self.running = True
        self.lag_s = 0.0
        self._hears = False
        self._heard: dict[tuple[str, Origin], float] = {}
        self._deleted: dict[str, tuple[Counters, int]] = {}
        source.consumed_by.append(self)
        target.agent = self

    @property
    def idle(self) -> bool:
        """Say whether it has nothing to delete that it could delete."""
        return not self._heard or not self._connected

    def start(self) -> None:
        """A person wants it to clean whatever the target holds."""
        self.running, self._target.returned = True, False
        self._source.changed.notify_all()

    def stop(self) -> None:
        self.running = self._hears = False
        self._heard.clear()

    def hear(self, queue: Queue, message: Message) -> None:
        if self._hears and queue.name in self._source.units and message.origin is not None:
            self._heard[queue.name, message.origin] = self._source.clock.now_s() + self.lag_s

    def work(self, now_s: float) -> list[float]:
        """Delete what is due; the moment when something else is."""
        if not self._connected or self._target.serves:
            self._hears = False
            self._heard.clear()
            return []
        if not self._hears and self._source.serves and not self._returned():
            self._hears = True
            self._heard |= dict.fromkeys(self._covered(), now_s)
        for item in [value for value, at_s in self._heard.items() if at_s <= now_s]:
            self._delete(*item)
        return [at_s for at_s in self._heard.values() if at_s > now_s]

    @property
    def _connected(self) -> bool:
        both = (self._source, self._target)
        return self.running and all(
            item.alive and not item.frozen and item.acceptors[LISTENER].started for item in both
        )

    def _delete(self, queue: str, origin: Origin) -> None:
        """Delete a copy, or wait for its arrival."""
        remote = self._target.queues.get(queue)
        copy = remote.by_origin.get(origin) if remote is not None else None
        if remote is not None and copy is not None:
            self._target.remove(remote, copy, Reason.KILLED)
            self._spend(queue)
        waiting = self._source.queues.get(self._source.copies(queue))
        if waiting is None or origin not in waiting.by_origin:
            self._heard.pop((queue, origin), None)

    def _consumed(self) -> list[tuple[str, Origin]]:
        """Messages that only the target has, or will get, and that were not born there."""
        value: list[tuple[str, Origin]] = []
        for name in self._target.units:
            local, leaving = _ids(self._source, name), _ids(self._source, self._source.copies(name))
            remote, unshipped = _ids(self._target, name), _ids(self._target, self._target.copies(name))
            value += [(name, origin) for origin in (remote | leaving) - local - unshipped]
        return value

    def _spend(self, queue: str) -> None:
        """Count a deleted copy against what was acknowledged since that start of the serving broker."""
        counters, count = self._spent(queue)
        self._deleted[queue] = counters, count + 1

    def _spent(self, queue: str) -> tuple[Counters, int]:
        """The counters of a queue, and how many copies were deleted since they began."""
        remote = self._source.queues.get(queue)
        counters = remote.counters if remote is not None else Counters()
        known, count = self._deleted.get(queue, (counters, 0))
        return counters, count if known is counters else 0

    def _covered(self) -> list[tuple[str, Origin]]:
        """The consumed messages of the queues whose counters cover all that lack there."""
        consumed = self._consumed()
        covered = set[str]()
        for name in {queue for queue, _ in consumed}:
            counters, deleted = self._spent(name)
            if sum(queue == name for queue, _ in consumed) <= counters.acknowledged - deleted:
                covered.add(name)
        return [item for item in consumed if item[0] in covered]

    def _returned(self) -> bool:
        """Say whether the target came back with what is not the agent's to delete."""
        self._target.returned = self._target.returned and bool(self._consumed())
        return self._target.returned


def _ids(broker: BrokerSyncBroker, name: str) -> set[Origin]:
    return set(broker.queues[name].by_origin) if name in broker.queues else set()
