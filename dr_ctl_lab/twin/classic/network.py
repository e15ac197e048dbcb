"""A network connector of a Classic broker: it forwards the included queues, and its counters start anew with each
bridge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.classic.composite import PATH
from dr_ctl_lab.twin.messages import Message, Queue

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.broker import ClassicBroker


class Forwarding(Bridge):
    """Forwards one queue to the queue of the same name, and writes the broker path into the message."""

    def __init__(self, broker: ClassicBroker, queue: Queue) -> None:
        super().__init__(queue.name, queue, queue.name, broker.clock)
        self._broker = broker

    def take(self, queue: Queue, message: Message) -> None:
        super().take(queue, message)
        self._broker.dispatched[queue.name] += 1

    def outgoing(self, message: Message) -> Message:
        return replace(message, headers={**message.headers, PATH: f"[{self._broker.ident}]"})

    def _on_confirmed(self, message: Message) -> None:
        self._broker.forwarded[self.queue.name] += 1
        self._broker.remove(self.queue, message)

    def drop(self) -> None:
        super().drop()
        self.forwarded = self.acked = 0


class NetworkConnector:
    """Management shows whether the bridge is up, not whether the connector is started."""

    def __init__(self, broker: ClassicBroker, peer: str, includes: Sequence[str]) -> None:
        self.name, self.peer = f"to-{peer}", peer
        self._broker, self._includes = broker, tuple(includes)
        self.forwardings: list[Forwarding] = []

    @property
    def up(self) -> bool:
        return bool(self.forwardings) and all(forwarding.connected for forwarding in self.forwardings)

    @property
    def started(self) -> bool:
        return any(forwarding.started for forwarding in self.forwardings)

    def on_start(self) -> None:
        self.forwardings = [Forwarding(self._broker, self._broker.queue_named(name)) for name in self._includes]
        self.start()

    def on_death(self) -> None:
        for forwarding in self.forwardings:
            forwarding.on_death()

    def start(self) -> None:
        for forwarding in self.forwardings:
            forwarding.started = True
        self._broker.changed.notify_all()

    def stop(self) -> None:
        for forwarding in self.forwardings:
            forwarding.stop()
        self._broker.changed.notify_all()
