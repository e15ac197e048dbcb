"""A simulated broker with an AMQP mirror: one link and one outflow."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.current import VERSION
from dr_ctl_lab.twin.broker import ANYCAST, Broker
from dr_ctl_lab.twin.messages import Message, Origin, Queue, Reason
from dr_ctl_lab.twin.mirror.outflow import Event, Link, Outflow, Pending
from dr_ctl_lab.twin.security import ALL, APPS

OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
UNFILTERED: Final = ("dr-ctl.", "activemq.management", "$")
MAX_REMEMBERED: Final = 1000  # origins, to recognise messages that are shipped again after a break
RETRIES, RETRY_S = 5, 0.1


@dataclass(kw_only=True, eq=False)
class MirrorBroker(ArtemisBroker):
    version: ClassVar[str] = VERSION

    link: Link
    peer_connected: bool = False
    pending: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._shipped_here: OrderedDict[Origin, None] = OrderedDict()
        self.outflow = Outflow(f"{OUTFLOW_PREFIX}{self.link.name}", self.next_number())

    @property
    def attached(self) -> bool:
        return self.link.attached

    @property
    def is_settled(self) -> bool:
        return not self.outflow.events and not self.pending

    @property
    def settable(self) -> Mapping[str, Any]:
        out = self.outflow
        return {"link": self.link.started, "outflow": {"paused": out.paused, "lasting": out.lasting}}

    # clients

    def let_clients_in(self) -> None:
        self.security.remove(ALL)
        self.security.reload()
        super().let_clients_in()

    def keep_clients_out(self) -> None:
        """Close the listener; where a start would open it, take the clients' rights away too."""
        super().keep_clients_out()
        if self.acceptors[self.clients_listener].opens_at_boot:
            self.security.keep_out(APPS, ALL)

    # start and end

    def copy_journal(self, source: Broker) -> None:
        super().copy_journal(source)
        if isinstance(source, MirrorBroker):
            self.outflow.events.extend(event for event in source.outflow.events if event.durable)
            self._shipped_here.update(source._shipped_here)  # noqa: SLF001 - of the same class

    def on_start(self) -> None:
        self.link.started = self.link.records_events = self.link.configured and self.link.auto_start
        if self.link.records_events:
            self._announce()

    def on_death(self) -> None:
        self._take_down_link()
        self.peer_connected = self.link.knows_peer = False
        self.outflow.restart()

    def _announce(self) -> None:
        """Record every address and queue for the peer, as a link does that is installed."""
        for address in self.addresses:
            self._record(Event("addAddress", self.next_number(), address=address))
        for queue in self.queues.values():
            self._announce_queue(queue)

    def _announce_queue(self, queue: Queue) -> None:
        if not (queue.internal or queue.temporary):
            options = {
                "auto-created": queue.auto_created,
                "routing-type": queue.routing.upper(),
                "durable": queue.durable,
            }
            event = Event("createQueue", self.next_number(), queue.name, queue.address, options=options)
            self._record(event)

    def _record(self, event: Event) -> None:
        if self.link.records_events and not event.address.startswith(UNFILTERED):
            self.outflow.add(event)
            self.changed.notify_all()

    # the link

    def start_link(self) -> None:
        if not self.link.records_events:
            self.link.records_events = True
            self._announce()
        self.link.started = True
        self.changed.notify_all()

    def stop_link(self) -> None:
        self._take_down_link()
        self.outflow.under_way = 0
        self.changed.notify_all()

    def _take_down_link(self) -> None:
        self.link.started = self.link.connected = self.link.attached = False
        self.link.breaks += 1

    def lets_mirror_in(self, name: str) -> bool:
        """Say whether the user of the peer's link may send to the mirror's address."""
        return self.security.may(next(iter(self.security.roles)), "send", f"{OUTFLOW_PREFIX}{name}")

    # events at this broker

    def on_queue_created(self, queue: Queue) -> None:
        self._announce_queue(queue)

    def on_address_created(self, name: str) -> None:
        self._record(Event("addAddress", self.next_number(), address=name))

    def on_queue_destroyed(self, queue: Queue) -> None:
        if not (queue.internal or queue.temporary):
            self._record(Event("deleteQueue", self.next_number(), queue.name, queue.address))

    def on_routed(self, message: Message, queues: Sequence[Queue], *, direct: bool) -> None:
        del direct
        names = tuple(queue.name for queue in queues if not (queue.internal or queue.temporary))
        # Messages from the peer are not shipped back.
        if names and message.origin is None:
            self._record(
                Event(
                    "message",
                    message.number,
                    address=message.address,
                    message=message,
                    queues=names,
                    origin=(self.node, message.number),
                    durable=message.durable,
                )
            )

    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Record an acknowledgement, by the message's origin."""
        if queue.internal or queue.temporary:
            return
        origin = message.origin or (self.node, message.number)
        number = self.next_number()
        self._record(
            Event("postAck", number, queue.name, queue.address, origin=origin, reason=reason, durable=message.durable)
        )

    # events from the peer

    def apply(self, event: Event) -> None:
        match event.kind:
            case "message":
                self._arrived(event)
            case "postAck":
                if self._acknowledge(event):
                    self._echo(event)
                else:
                    self.pending.append(Pending(event, 0, self.clock.now_s() + RETRY_S))
                    self.changed.notify_all()
            case "addAddress":
                self.add_address(event.address, ANYCAST, here_only=True)
            case "createQueue" if event.queue not in self.queues:
                options = {**event.options, "name": event.queue, "address": event.address}
                self.create_queue(options, auto_created=bool(options["auto-created"]), here_only=True)
            case "deleteQueue" if event.queue in self.queues and not self.queues[event.queue].consumers:
                self.destroy_queue(event.queue, here_only=True)

    def _arrived(self, event: Event) -> None:
        shipped = event.message
        if shipped is None or event.origin in self._shipped_here:
            return
        origin = event.origin or ("", 0)
        self._shipped_here[origin] = None
        if len(self._shipped_here) > MAX_REMEMBERED:
            self._shipped_here.popitem(last=False)
        message = replace(shipped, number=self.next_number(), origin=origin, not_before_ms=None, failed=0)
        self.route(message, only=event.queues)

    def _echo(self, event: Event) -> None:
        """Send an event back to the peer, as a link does that was not attached since its start. Repeated events are not
        echoed."""
        if not self.link.knows_peer and event.origin is not None:
            self._record(replace(event, number=self.next_number()))

    def _acknowledge(self, event: Event) -> bool:
        """Apply an acknowledgement; False while its message is missing or in delivery."""
        queue = self.queues.get(event.queue)
        if queue is None or event.origin is None:
            return True
        node, number = event.origin
        message = queue.messages.get(number) if node == self.node else queue.by_origin.get(event.origin)
        if message is None or message.number in queue.delivering:
            return False
        queue.remove(message, event.reason)
        return True

    def retry_pending(self) -> float | None:
        """Apply pending acknowledgements again; return the seconds until the next try, or None."""
        now_s = self.clock.now_s()
        for item in [waiting for waiting in self.pending if waiting.next_s <= now_s]:
            item.tries += 1
            item.next_s = now_s + RETRY_S
            if self._acknowledge(item.event) or item.tries > RETRIES:
                self.pending.remove(item)
        return max(0.0, min(item.next_s for item in self.pending) - now_s) if self.pending else None
