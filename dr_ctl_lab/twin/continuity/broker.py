"""A simulated broker with the continuity plugin. It ships messages and acknowledgements of clients to the peer;
messages from the peer are staged until the site delivers.

Defects of the plugin are imitated. An acknowledgement that overtakes its message is lost; those of several flows at
once may be lost. A duplicate in staging is refused and stays. A connection that ends with unacknowledged messages
deletes a copy at the peer.
"""

import random
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final
from uuid import uuid4

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker, is_new
from dr_ctl_lab.twin.continuity.flow import (
    COMMANDS,
    ID,
    IN_MIRROR,
    NO_FLOW,
    ORIGIN,
    Flow,
    acknowledged,
    acknowledgement,
)
from dr_ctl_lab.twin.continuity.service import Service
from dr_ctl_lab.twin.messages import Message, Queue, Reason

STAGING_MS: Final = 500


@dataclass(kw_only=True, eq=False)
class ContinuityBroker(BridgedBroker, ArtemisBroker):
    """`ack_loss`: the share of acknowledgements that is lost while several flows have some. `active_on_start`: it
    activates itself when an inactive peer connects. `full`: addresses that accept no staged message; `when_full` is
    their policy."""

    version: ClassVar[str] = "2.11.0"
    bare_message_ids: ClassVar[bool] = True

    flows: dict[str, Flow] = field(default_factory=dict)
    staging_ms: int = STAGING_MS
    ack_loss: float = 0.0
    active_on_start: bool = False
    full: set[str] = field(default_factory=set)
    when_full: str = "FAIL"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = random.Random(self.name)  # noqa: S311 - it decides what goes wrong, nothing is kept secret by it
        self._known_ids: dict[str, OrderedDict[str, None]] = {}  # survives a death
        self.service = Service(self, self._own_queue(f"{COMMANDS}.out", "multicast"), self._own_queue(f"{COMMANDS}.in"))

    # the link to the peer

    @property
    def shipping_bridges(self) -> Iterator[Bridge]:
        """The bridges to the peer. Messages first, so that within one step no acknowledgement overtakes its message."""
        yield self.service.bridge
        for flow in self.flows.values():
            yield flow.mirror_bridge
        for flow in self.flows.values():
            yield flow.acks_bridge

    @property
    def is_settled(self) -> bool:
        plugin_queues = [
            queue for flow in self.flows.values() for queue in (flow.out_mirror, flow.out_acks, flow.in_acks)
        ]
        return not any(queue.messages for queue in (*plugin_queues, self.service.out, self.service.into))

    @property
    def settable(self) -> Mapping[str, Any]:
        bridges = [bridge for flow in self.flows.values() for bridge in flow.bridges]
        return {
            "activated": self.service.activated,
            "delivering": self.service.delivering,
            "bridges": {bridge.name: bridge.started for bridge in (*bridges, self.service.bridge)},
        }

    @property
    def serves(self) -> bool:
        return self.service.delivering and super().serves

    def let_clients_in(self) -> None:
        self.service.activate()

    def keep_clients_out(self) -> None:
        self.service.deactivate()

    def waiting(self, queue: str) -> int:
        flow = self.flows.get(queue)
        staged = len(flow.staging.messages) - len(flow.target_bridge.refused) if flow is not None else 0
        return super().waiting(queue) + staged

    def on_start(self) -> None:
        for flow in self.flows.values():
            self._start(flow)
        self.service.start()

    def on_death(self) -> None:
        for flow in self.flows.values():
            for bridge in flow.bridges:
                bridge.on_death()
        self.service.on_death()
        super().on_death()

    # flows

    def create_queue(self, options: Mapping[str, Any], *, auto_created: bool = False, here_only: bool = False) -> Queue:
        queue = super().create_queue(options, auto_created=auto_created, here_only=here_only)
        if _has_flow(queue):
            flow = Flow(queue, self._own_queue, self.clock)
            self.flows[queue.name] = flow
            if self.alive:
                self._start(flow)
        return queue

    def destroy_queue(self, name: str, *, with_consumers: bool = False, here_only: bool = False) -> None:
        """Destroy a queue; the plugin's queues of its flow stay, and so does the peer's queue."""
        super().destroy_queue(name, with_consumers=with_consumers, here_only=here_only)
        if (flow := self.flows.pop(name, None)) is not None:
            for bridge in flow.bridges:
                bridge.stop()

    def on_queue_created(self, queue: Queue) -> None:
        if self.alive and _has_flow(queue):
            self.service.send_command("add-queue", address=queue.address, queue=queue.name)

    def on_queue_destroyed(self, queue: Queue) -> None:
        """Do nothing: the peer keeps its queue."""

    def on_address_created(self, name: str) -> None:
        """Do nothing: the plugin ignores addresses without queues."""

    def _own_queue(self, name: str, routing: str = "anycast") -> Queue:
        if name in self.queues:
            return self.queues[name]
        self.addresses.setdefault(name, set()).add(routing.upper())
        queue = Queue(name, name, self.next_number(), {}, routing=routing, user="admin")
        self.queues[name] = queue
        return queue

    def _start(self, flow: Flow) -> None:
        for bridge in flow.shipping_bridges:
            bridge.started = True
        if self.service.delivering:
            flow.target_bridge.started = True
        flow.receiver.listen()
        self.changed.notify_all()

    def _flow_at(self, address: str) -> list[Flow]:
        return [flow for flow in self.flows.values() if flow.queue.address == address]

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Give every message of clients an id; drop one with a known id as a duplicate."""
        if self._flow_at(message.address):
            if ID not in message.headers:
                message.headers = {**message.headers, ID: str(uuid4())}
            seen = self._known_ids.setdefault(message.address, OrderedDict())
            if not is_new(seen, message.headers[ID]):
                return []
        return super().route(message, only=only)

    def on_routed(self, message: Message, queues: Sequence[Queue], *, direct: bool) -> None:
        del queues
        self.changed.notify_all()
        # Diverts do not see a message put directly into a queue; messages of this site are not shipped again.
        if direct or message.headers.get(ORIGIN) == self.site:
            return
        for flow in self._flow_at(message.address):
            copied = {"_AMQ_ORIG_ADDRESS": message.address, "_AMQ_ORIG_QUEUE": flow.divert, ORIGIN: self.site}
            self._put(
                flow.out_mirror,
                replace(
                    message,
                    number=self.next_number(),
                    address=flow.out_mirror.address,
                    headers={**message.headers, **copied},
                    longs={**message.longs, "_AMQ_ORIG_MESSAGE_ID": message.number},
                    not_before_ms=None,
                    failed=0,
                ),
            )

    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        del reason
        if (flow := self.flows.get(queue.name)) is not None:
            self._send_acknowledgement(flow, message)

    def on_consumer_lost(self, queue: Queue, held: Sequence[Message]) -> None:
        """Send an acknowledgement of the first message: it stays here, but the peer deletes its copy."""
        if (flow := self.flows.get(queue.name)) is not None:
            self._send_acknowledgement(flow, held[0])

    def _send_acknowledgement(self, flow: Flow, message: Message) -> None:
        body = acknowledgement(message, flow.queue.name, self.now_ms())
        self.write(flow.out_acks, body, {"CONTINUITY_ORIGIN": self.site})

    def write(self, queue: Queue, body: bytes, headers: Mapping[str, str]) -> None:
        """Put a message of the plugin into one of its queues."""
        message = Message(self.next_number(), queue.address, body, text=False, headers=headers, anycast=False)
        message.timestamp_ms = self.now_ms()
        self._put(queue, message)

    def _put(self, queue: Queue, message: Message) -> None:
        queue.add(message)
        queue.dispatch()
        self.changed.notify_all()

    # messages from the peer

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Store a message from a bridge of the peer. Repetitions are dropped, except on the commands' bridge, which
        sends no ids."""
        queue = self.queues.get(address)
        is_repeated = self.arrived_before(address, node, shipped.number)
        if queue is None or (is_repeated and address != self.service.into.name):
            return
        message = replace(shipped, number=self.next_number(), address=address, anycast=True, failed=0)
        if address.endswith(IN_MIRROR):
            message.not_before_ms = message.timestamp_ms + self.staging_ms
            scheduled_ms = message.longs.get("_AMQ_SCHED_DELIVERY", 0)
            later = {
                "continuity-original-sched-delivery-time": scheduled_ms,
                "_AMQ_SCHED_DELIVERY": message.not_before_ms,
            }
            message.longs = {**message.longs, **later}
        self._put(queue, message)

    def work(self, now_s: float) -> list[float]:
        """Do the plugin's periodic work; return the times, of the clock of `now_s`, when more is due."""
        due = []
        for flow in list(self.flows.values()):
            next_ms = flow.staging.release_due(self.now_ms())
            if next_ms is not None:
                due.append(now_s + max(0, next_ms - self.now_ms()) / 1000)
        due += self.service.work(now_s)
        self._apply_acks()
        for flow in self.flows.values():
            self._deliver(flow, now_s)
        return due

    def _apply_acks(self) -> None:
        arrived = {name: flow.receiver.receive() for name, flow in self.flows.items() if flow.receiver.inbox}
        for name, messages in arrived.items():
            for message in messages:
                # Flows share a date formatter, so that parsing of other flows' acknowledgements can fail.
                if not (len(arrived) > 1 and self.chance.random() < self.ack_loss):
                    self._apply(self.flows[name], acknowledged(message.body))

    def _apply(self, flow: Flow, ident: str) -> None:
        staged = flow.staging
        for message in [message for message in staged.messages.values() if message.headers.get(ID) == ident]:
            if message.number not in staged.delivering:
                staged.remove(message, Reason.KILLED)
        for message in [message for message in flow.queue.available() if message.headers.get(ID) == ident]:
            self.remove(flow.queue, message, Reason.KILLED)

    def _deliver(self, flow: Flow, now_s: float) -> None:
        """Deliver staged messages to the clients' queue, which refuses duplicates."""
        bridge = flow.target_bridge
        if bridge.started:
            bridge.connect()
        flow.staging.dispatch()
        while bridge.outbound and bridge.address not in self.full:
            message = bridge.hand_over(now_s)
            if not self.route(replace(message, number=self.next_number(), address=bridge.address, not_before_ms=None)):
                bridge.refuse()
        bridge.confirm(now_s)


def _has_flow(queue: Queue) -> bool:
    return queue.durable and not queue.temporary and not NO_FLOW.fullmatch(queue.address)
