"""A simulated broker whose site is joined to the other by an AMQP mirror: a single link and a single outflow."""

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
MOST_REMEMBERED: Final = 1000  # origins, so that what is shipped again after a broken link is not added again
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
    def even(self) -> bool:
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
        """For good where a start would open the listener: by their rights."""
        super().keep_clients_out()
        if self.acceptors[self.clients_listener].opens_at_boot:
            self.security.keep_out(APPS, ALL)

    # its life

    def inherit(self, other: Broker) -> None:
        super().inherit(other)
        if isinstance(other, MirrorBroker):
            self.outflow.events.extend(event for event in other.outflow.events if event.durable)
            self._shipped_here.update(other._shipped_here)  # noqa: SLF001 - of the same class

    def booted(self) -> None:
        self.link.started = self.link.captures = self.link.configured and self.link.auto_start
        if self.link.captures:
            self._announce()

    def fell(self) -> None:
        self._take_down_link()
        self.peer_connected = self.link.knows_peer = False
        self.outflow.restart()

    def _announce(self) -> None:
        """A link that is installed tells the peer every address and queue again."""
        for address in self.addresses:
            self._capture(Event("addAddress", self.next_number(), address=address))
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
            self._capture(event)

    def _capture(self, event: Event) -> None:
        if self.link.captures and not event.address.startswith(UNFILTERED):
            self.outflow.add(event)
            self.changed.notify_all()

    # the link

    def start_link(self) -> None:
        if not self.link.captures:
            self.link.captures = True
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

    def told_of_queue(self, queue: Queue) -> None:
        self._announce_queue(queue)

    def told_of_address(self, name: str) -> None:
        self._capture(Event("addAddress", self.next_number(), address=name))

    def told_of_end(self, queue: Queue) -> None:
        if not (queue.internal or queue.temporary):
            self._capture(Event("deleteQueue", self.next_number(), queue.name, queue.address))

    def routed(self, message: Message, queues: Sequence[Queue], *, aside: bool) -> None:
        del aside
        names = tuple(queue.name for queue in queues if not (queue.internal or queue.temporary))
        # Messages from the peer are not shipped back.
        if names and message.origin is None:
            self._capture(
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

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """The peer is told by the message's origin."""
        if queue.internal or queue.temporary:
            return
        origin = message.origin or (self.node, message.number)
        number = self.next_number()
        self._capture(
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
            case "deleteQueue" if event.queue in self.queues and not self.queues[event.queue].takers:
                self.destroy_queue(event.queue, here_only=True)

    def _arrived(self, event: Event) -> None:
        shipped = event.message
        if shipped is None or event.origin in self._shipped_here:
            return
        origin = event.origin or ("", 0)
        self._shipped_here[origin] = None
        if len(self._shipped_here) > MOST_REMEMBERED:
            self._shipped_here.popitem(last=False)
        message = replace(shipped, number=self.next_number(), origin=origin, not_before_ms=None, failed=0)
        self.route(message, only=event.queues)

    def _echo(self, event: Event) -> None:
        """Send an event back to the peer, as a link that was never attached since its start does: it does not know its
        peer by name. Repeated events are not echoed."""
        if not self.link.knows_peer and event.origin is not None:
            self._capture(replace(event, number=self.next_number()))

    def _acknowledge(self, event: Event) -> bool:
        """Apply an acknowledgement; False while its message is not there, or is in a consumer's hands."""
        queue = self.queues.get(event.queue)
        if queue is None or event.origin is None:
            return True
        node, number = event.origin
        message = queue.messages.get(number) if node == self.node else queue.by_origin.get(event.origin)
        # In a consumer's hands it cannot be taken away.
        if message is None or message.number in queue.delivering:
            return False
        queue.remove(message, event.reason)
        return True

    def retry_pending(self) -> float | None:
        """Try what was not found again; seconds until the next try, None where nothing waits."""
        now = self.clock.now_s()
        for item in [one for one in self.pending if one.next_s <= now]:
            item.tries += 1
            item.next_s = now + RETRY_S
            if self._acknowledge(item.event) or item.tries > RETRIES:
                self.pending.remove(item)
        return max(0.0, min(message.next_s for message in self.pending) - now) if self.pending else None
