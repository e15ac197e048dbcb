"""A client's STOMP session at one acceptor: frames in, frames out, subscriptions that take from queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dr_ctl_lab.twin.broker import ANYCAST, Broker
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.frames import Frame, frame
from dr_ctl_lab.twin.line import TTL_S, Line
from dr_ctl_lab.twin.messages import ORIGIN_NODE, ORIGIN_NUMBER, Message, Queue
from dr_ctl_lab.twin.parts import Peer

WINDOW: Final = 10240
LEAST_BEAT_S: Final = 0.5
_OURS: Final = frozenset({"destination", "persistent", "priority", "destination-type", "content-length", "expires"})


@dataclass(eq=False)
class Subscription:
    """Takes from one queue up to its window; messages are given back or acknowledged by number."""

    session: ArtemisSession
    ident: str
    queue: Queue
    mode: str
    window: int | None
    selector: str
    number: int
    since_ms: int
    in_hand: dict[int, Message] = field(default_factory=dict)
    delivered: int = 0
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self._selects = compiled(self.selector)

    @property
    def ready(self) -> bool:
        return self.window is None or self.window > 0

    def wants(self, message: Message) -> bool:
        return self._selects(message.headers.get)

    def name_of(self, message: Message) -> str:
        """The id of a message for this consumer."""
        number = str(message.number)
        return number if self.session.broker.bare_message_ids else f"{self.number},{number}"

    def take(self, queue: Queue, message: Message) -> None:
        self.delivered += 1
        self.session.deliver(self, message)
        if self.mode == "auto":
            self.session.broker.remove(queue, message)
            self.acknowledged += 1
            return
        self.in_hand[message.number] = message
        if self.window is not None:
            self.window -= message.size

    def done(self, message: Message) -> None:
        del self.in_hand[message.number]
        self.acknowledged += 1
        if self.window is not None:
            self.window += message.size
        if self.queue.name in self.session.broker.queues and message.number in self.queue.messages:
            self.session.broker.remove(self.queue, message)
        self.queue.dispatch()

    def leave(self, *, cut: bool) -> None:
        """Give back what is in hand; `cut`: the whole connection ends with it."""
        if self in self.queue.takers:
            self.queue.takers.remove(self)
        if cut and self.in_hand:
            self.session.broker.cut_off(self.queue, list(self.in_hand.values()))
        # Back to the head in their order: the last first.
        for message in reversed(list(self.in_hand.values())):
            if message.number in self.queue.messages:
                self.session.broker.give_back(self.queue, message, failed=True)
        self.in_hand.clear()
        self.queue.dispatch()


class ArtemisSession(Line):
    def __init__(self, peer: Peer, acceptor: str, broker: Broker) -> None:
        super().__init__(peer, acceptor, broker)
        self._connected = False
        self._subscriptions: dict[str, Subscription] = {}
        self._transactions: dict[str, list[Callable[[], object]]] = {}

    def holds(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def leave(self) -> None:
        subscriptions, self._subscriptions = list(self._subscriptions.values()), {}
        self._transactions.clear()
        for subscription in subscriptions:
            subscription.leave(cut=True)

    def _fell_silent(self) -> None:
        text = (
            f"AMQ229014: Did not receive data from {self.remote} within the {round(self._ttl_s * 1000)}ms connection "
        )
        self.refuse(f"{text}TTL. The connection will now be closed.")

    # frames

    def _take(self, got: Frame) -> None:
        commands = {
            "SEND": self._on_send,
            "SUBSCRIBE": self._on_subscribe,
            "UNSUBSCRIBE": self._on_unsubscribe,
            "ACK": self._on_ack,
            "NACK": self._on_ack,  # Artemis treats a NACK as an acknowledgement
            "BEGIN": self._on_begin,
            "COMMIT": self._on_end,
            "ABORT": self._on_end,
        }
        if got.command in ("CONNECT", "STOMP"):
            self._on_connect(got)
        elif not self._connected:
            return
        elif got.command == "DISCONNECT":
            self._receipt(got)
            self.broker.hang_up(self)
        elif got.command not in commands:
            self.refuse("AMQ339023 Invalid STOMP frame", body=b"AMQ339024: Invalid STOMP frame")
        else:
            # A consumer's receipt comes before its first message.
            commands[got.command](got)

    def _on_connect(self, got: Frame) -> None:
        if "1.2" not in got.headers.get("accept-version", "").split(","):
            version = got.headers.get("accept-version", "1.0")
            body = b"Supported protocol versions are v1.0 v1.1 v1.2"
            self.refuse(f"AMQ339002 Stomp versions not supported {version}", body=body)
            return
        user, password = got.headers.get("login"), got.headers.get("passcode")
        if user is None or self.broker.users.get(user) != password:
            text = f"Security Error occurred: User name [{user or 'null'}] or password is invalid"
            self.refuse(text, body=text.encode())
            return
        self._connected, self.user, self.client = True, user, got.headers.get("client-id", "")
        headers = [
            ("version", "1.2"),
            ("session", self.ident),
            ("server", f"ActiveMQ-Artemis/{self.broker.version} ActiveMQ Artemis Messaging Engine"),
        ]
        if (beats := got.headers.get("heart-beat")) is not None:
            theirs, wanted = (int(word) for word in beats.split(","))
            most = max(wanted, round(LEAST_BEAT_S * 1000)) if wanted else 0
            self._beat_s = most / 1000 if most else None
            self._ttl_s = max(2 * theirs / 1000, 2 * LEAST_BEAT_S) if theirs else TTL_S
            headers.append(("heart-beat", f"{most},{max(theirs, 500) if theirs else 30000}"))
        self._send(frame("CONNECTED", headers))

    def _on_send(self, got: Frame) -> None:
        broker, address = self.broker, got.headers.get("destination")
        if address is None:
            text = 'Cannot invoke "Object.hashCode()" because "key" is null'
            self.refuse(text, body=text.encode(), receipt=got.headers.get("receipt"))
            return
        kind, may = got.headers.get("destination-type"), partial(broker.security.may, self.user, address=address)
        if address not in broker.addresses and not may("createAddress"):
            text = f"AMQ229032: User: {self.user} does not have permission='CREATE_ADDRESS' on address {address}"
            self.refuse(text.replace(":", ""), body=text.encode(), receipt=got.headers.get("receipt"))
            return
        if not may("send"):
            self.refuse(f"AMQ339011 Error sending message to {address}", receipt=got.headers.get("receipt"))
            return
        if (why := broker.refuses_send(address)) is not None:
            self.refuse(why, receipt=got.headers.get("receipt"))
            return
        if kind == ANYCAST and not any(queue.address == address for queue in broker.queues.values()):
            options = {"name": address, "address": address, "routing-type": ANYCAST, "durable": True}
            broker.create_queue(options, auto_created=True)
        elif address not in broker.addresses:
            broker.add_address(address, "multicast")
        properties = {
            name: text
            for name, text in got.headers.items()
            if name not in ("persistent", "priority", "expires", ORIGIN_NODE, ORIGIN_NUMBER)
        }
        priority = got.headers.get("priority", "4")
        message = Message(
            number=broker.next_number(),
            address=address,
            body=got.body,
            text="content-length" not in got.headers,
            headers=properties,
            durable=got.headers.get("persistent") == "true",
            priority=min(int(priority), 9) if priority.isdecimal() else 4,
            timestamp_ms=broker.now_ms(),
            anycast=kind == ANYCAST,
        )
        # Stored first: a receipt is only given for what a death would leave.
        self._do(got, partial(broker.route, message))
        self._receipt(got)

    def _on_subscribe(self, got: Frame) -> None:
        address = got.headers.get("destination", "")
        ident = got.headers.get("id") or f"subscription/{address}"
        if ident in self._subscriptions:
            text = f"There already is a subscription for: {ident}. Either use unique subscription IDs or do not create "
            self.refuse(f"{text}multiple subscriptions for the same destination")
            return
        if not self.broker.security.may(self.user, "consume", address):
            self.refuse(f"AMQ339016 Error creating subscription {ident}")
            return
        selector = got.headers.get("selector", "")
        queue = self._queue_of(address, got.headers.get("subscription-type"))
        mode = got.headers.get("ack", "auto")
        window: int | None = int(got.headers.get("consumer-window-size") or (-1 if mode == "auto" else WINDOW))
        try:
            taker = Subscription(
                session=self,
                ident=ident,
                queue=queue,
                mode=mode,
                window=None if window == -1 else window,
                selector=selector,
                number=self.broker.next_number(),
                since_ms=self.broker.now_ms(),
            )
        except BadFilter:
            self.refuse(f'Invalid selector "{selector}"', body=selector.encode())
            return
        self._subscriptions[ident] = taker
        self._receipt(got)
        queue.takers.append(taker)
        queue.dispatch()

    def _queue_of(self, address: str, kind: str | None) -> Queue:
        for queue in self.broker.queues.values():
            if queue.address == address:
                return queue
        options = {"name": address, "address": address, "routing-type": kind or "MULTICAST", "durable": True}
        return self.broker.create_queue(options, auto_created=True)

    def _on_unsubscribe(self, got: Frame) -> None:
        ident = got.headers.get("id", "")
        taker = self._subscriptions.pop(ident, None)
        if taker is None:
            text = f"Cannot unsubscribe as no subscription exists for id: {ident}"
            self.refuse(text, receipt=got.headers.get("receipt"))
            return
        taker.leave(cut=False)
        self._receipt(got)

    def _on_ack(self, got: Frame) -> None:
        ident = got.headers.get("id", "")
        number = ident.rpartition(",")[2]
        for taker in self._subscriptions.values():
            message = taker.in_hand.get(int(number)) if number.isdecimal() else None
            if message is not None and taker.name_of(message) == ident:
                earlier = list(taker.in_hand.values()) if taker.mode == "client" else [message]
                # At once, whatever transaction the frame names.
                for item in earlier[: earlier.index(message) + 1]:
                    taker.done(item)
                self._receipt(got)
                return
        text = f"AMQ339025 failed to ack because no message with id {ident}"
        self.refuse(text, receipt=got.headers.get("receipt"))

    # transactions

    def _do(self, got: Frame, act: Callable[[], object]) -> None:
        """Do it now, or with the transaction that the frame names."""
        name = got.headers.get("transaction")
        if name is None:
            act()
        else:
            self._transactions.setdefault(name, []).append(act)

    def _on_begin(self, got: Frame) -> None:
        self._transactions[got.headers.get("transaction", "")] = []
        self._receipt(got)

    def _on_end(self, got: Frame) -> None:
        acts = self._transactions.pop(got.headers.get("transaction", ""), [])
        for act in acts if got.command == "COMMIT" else ():
            act()
        self._receipt(got)

    def deliver(self, taker: Subscription, message: Message) -> None:
        ident = taker.name_of(message)
        headers = [("subscription", taker.ident)]
        if not message.text:
            headers.append(("content-length", str(len(message.body))))
        headers += [
            ("message-id", ident),
            ("destination", message.address),
            ("expires", "0"),
            ("redelivered", str(message.failed > 0).lower()),
            ("priority", str(message.priority)),
            ("persistent", str(message.durable).lower()),
            ("timestamp", str(message.timestamp_ms)),
        ]
        if message.anycast:
            headers.append(("destination-type", ANYCAST))
        if message.origin is not None:
            headers += [(ORIGIN_NODE, message.origin[0]), (ORIGIN_NUMBER, str(message.origin[1]))]
        headers += [(name, text) for name, text in message.headers.items() if name not in _OURS]
        headers += [(name, str(number)) for name, number in message.longs.items()]
        if taker.mode != "auto":
            headers.append(("ack", ident))
        if message.text:
            headers.append(("content-length", str(len(message.body))))
        self._send(frame("MESSAGE", headers, message.body))
