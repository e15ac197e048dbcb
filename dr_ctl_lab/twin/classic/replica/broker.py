"""A simulated broker with the replication plugin: a source writes down what happens to its messages, a replica does the
same, in the same order, and lets no client in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.network import Forwarding
from dr_ctl_lab.twin.classic.replica.events import EVENTS, INTERMEDIATE, PLUGIN, ROLES, SEQUENCE, Event, Kind, Role
from dr_ctl_lab.twin.messages import Message, Origin, Queue, Reason

DOOR = "replication"


@dataclass(kw_only=True)
class ReplicaBroker(BridgedBroker, ClassicBroker):
    """`role` outlasts a death, and overrides the file. `console_on_replica`: a replica keeps its console open.
    `comes_closed`: somebody keeps clients out at the next start."""

    peers_door = DOOR

    role: Role = Role.REPLICA
    console_on_replica: bool = True
    comes_closed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peer: ReplicaBroker | None = None
        self.events: Forwarding | None = None
        self.acked_ms: int | None = None  # when the last event was written that the replica has
        self.applied_ms: int | None = None
        self._applies = False

    # the way to the peer

    @property
    def shipping(self) -> Iterator[Bridge]:
        if self.events is not None:
            yield self.events

    @property
    def lets_peer_in(self) -> bool:
        """A replica fetches the events; a source does not."""
        return super().lets_peer_in and self.role is Role.REPLICA

    @property
    def attached(self) -> bool:
        return self.incoming > 0 if self.role is Role.REPLICA else super().attached

    @property
    def even(self) -> bool:
        return not (EVENTS in self.queues and self.queues[EVENTS].messages)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {"role": self.role.value}

    @property
    def serves(self) -> bool:
        return self.role is not Role.REPLICA and super().serves

    def let_clients_in(self) -> None:
        """A person at the console, where nothing was under way."""
        if self.peer is not None:
            self.peer.become(Role.REPLICA)
        self.become(Role.SOURCE)

    # its life

    def booted(self) -> None:
        super().booted()
        for name in (EVENTS, INTERMEDIATE, SEQUENCE, ROLES):
            self.queue_named(name)
        self.events = Forwarding(self, self.queues[EVENTS])
        self.events.started = True
        if self.role is Role.AWAIT_ACK:
            self.role = Role.SOURCE
        self.become(self.role)
        self.comes_closed = False

    def fell(self) -> None:
        BridgedBroker.fell(self)
        ClassicBroker.fell(self)
        if self.events is not None:
            self.events.fell()
        self.acked_ms = self.applied_ms = None

    def work(self, now_s: float) -> list[float]:
        return ClassicBroker.work(self, now_s)

    # roles

    def set_role(self, role: str, force: bool) -> None:
        """Without force a source hands over to its replica, and a replica does nothing at all."""
        wanted = Role(role)
        if self.role.shown == wanted.shown:
            return
        if force:
            if wanted is Role.SOURCE:
                self._drop_events()
            self.become(wanted)
        elif wanted is Role.REPLICA:
            self._close_to_clients()
            self.role = Role.AWAIT_ACK
            self._write(Kind.FAIL_OVER)

    def become(self, role: Role) -> None:
        self.role = role
        self.acked_ms = self.applied_ms = None
        if role is Role.REPLICA:
            self._close_to_clients()
        elif self.alive:
            for acceptor in self.acceptors.values():
                if not self.comes_closed or acceptor.name == DOOR:
                    self.open_door(acceptor)
        if self.alive and (self.console_on_replica or role is not Role.REPLICA):
            self.ports.open("console")
        else:
            self.ports.close("console")
        self.cuts += 1  # the replica connects anew
        self.changed.notify_all()

    def _close_to_clients(self) -> None:
        for acceptor in self.acceptors.values():
            if acceptor.name != DOOR:
                self.close_door(acceptor)

    def _drop_events(self) -> None:
        queue = self.queues[EVENTS]
        for message in list(queue.messages.values()):
            queue.remove(message, Reason.KILLED)

    # events

    def _write(self, kind: Kind, queue: str = "", *, sent: Message | None = None, done: Origin | None = None) -> None:
        number, now_ms = self.next_number(), self.now_ms()
        written = Event(
            number, EVENTS, b"", False, {"eventType": kind.value}, timestamp_ms=now_ms, kind=kind, queue=queue,
            sent=sent, done=done, origin=self.new_origin(),
        )  # fmt: skip
        super()._store(written)

    def _store(self, message: Message) -> Queue:
        queue = super()._store(message)
        if self._captures(queue):
            self._write(Kind.SEND, queue.name, sent=replace(message))
        return queue

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        super().removed(queue, message, reason)
        if isinstance(message, Event):
            self.acked_ms = message.timestamp_ms
            if message.kind is Kind.FAIL_OVER and self.role is Role.AWAIT_ACK and self.peer is not None:
                self.become(Role.REPLICA)
                self.peer.become(Role.SOURCE)
        elif self._captures(queue):
            self._write(Kind.ACK, queue.name, done=message.origin)

    def _captures(self, queue: Queue) -> bool:
        return not self._applies and self.role is not Role.REPLICA and not queue.name.startswith(PLUGIN)

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Do the same as the source did."""
        if not isinstance(shipped, Event) or self.arrived_before(address, node, shipped.number):
            return
        self._applies = True
        try:
            self._apply(shipped)
        finally:
            self._applies = False
        self.applied_ms = shipped.timestamp_ms

    def _apply(self, event: Event) -> None:
        if event.kind is Kind.FAIL_OVER:
            return  # roles change once the source has heard that this event is here
        queue = self.queue_named(event.queue)
        if event.sent is not None and event.sent.origin not in queue.by_origin:
            self._store(replace(event.sent, number=self.next_number()))
        elif event.done is not None and (message := queue.by_origin.get(event.done)) is not None:
            self.remove(queue, message)
