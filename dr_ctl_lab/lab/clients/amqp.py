"""A client of AMQP 1.0, with Qpid Proton.

Brokers do not confirm single acknowledgements: due ones are committed in a transaction. Every second message is marked
as JMS clients over AMQP mark theirs.
"""

import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

from proton import Delivery, Link, Message, Sender, _reactor, byte, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption, Selector, Transaction

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import ConnectionLost, RequestRefused
from dr_ctl_lab.lab.clients.client import (
    ID_HEADER,
    LOGIN_S,
    PART,
    SILENT_S,
    WINDOW_BYTES,
    Confirmed,
    Outgoing,
    Received,
    address_of,
    ident_in,
    is_subscription,
)

BYTES_PER_MESSAGE: Final = 400
URGENT: Final = 8
_QUEUE: Final = byte(0)  # a destination, of JMS
_TEXT: Final = byte(5)  # a kind of message, of JMS
_TURN_S: Final = 0.01

# Without a cache, each container reads all certificates of this machine twice, for TLS that is not used: 0.1 s of
# processor time for each connection.
_reactor.SSLConfig = cache(_reactor.SSLConfig)  # type: ignore[misc,assignment]


class AmqpClient(MessagingHandler, TransactionHandler):
    """Implements `Client`."""

    def __init__(self, address: Address, login: Login) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._address = address
        self._error: ConnectionLost | None = None
        self._open = False
        self._sent = 0
        self._senders: dict[str, Sender] = {}
        self._queues: dict[str, str] = {}  # by the name of a link
        self._outbox: deque[tuple[Sender, Message, str | None]] = deque()
        self._opening: dict[str, str] = {}  # by the name of a link: the name to confirm
        self._waiting: dict[Delivery, str | None] = {}
        self._acks: list[tuple[Delivery, str | None]] = []
        self._committing: list[tuple[Delivery, str | None]] = []
        self._transaction: Transaction | None = None
        self._inbox: deque[Received | Confirmed] = deque()
        self._container = Container()
        self._container.start()
        self._connection = self._container.connect(
            url=f"amqp://{address.host}:{address.port}",
            handler=self,
            reconnect=False,
            heartbeat=SILENT_S,
            user=login.user,
            password=login.password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        )
        until = time.monotonic() + LOGIN_S
        while not self._open:
            if time.monotonic() > until:
                self._error = ConnectionLost(f"{address}: no answer to the login")
            self._process(_TURN_S)

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        for queue in queues:
            options: list[LinkOption] = [Selector(selector)] if selector else []
            link = self._container.create_receiver(self._connection, queue, handler=self, options=options)
            self._queues[link.name] = queue
            if confirm is not None:
                self._opening[link.name] = confirm
            link.flow(max(1, window_bytes // BYTES_PER_MESSAGE))
        self._declare()

    def send(self, message: Outgoing, *, confirm: str | None) -> None:
        address = address_of(message.queue)
        if address not in self._senders:
            options: list[LinkOption] = [_Topic()] if is_subscription(message.queue) else []
            sender = self._container.create_sender(self._connection, address, handler=self, options=options)
            self._senders[address] = sender
        self._sent += 1
        self._outbox.append((self._senders[address], self._proton_message(message), confirm))
        self._send_outbox()

    def ack(self, received: Received, *, confirm: str | None) -> None:
        self._acks.append((received.token, confirm))
        self._commit()

    def receive(self, timeout_s: float) -> Sequence[Received | Confirmed]:
        if not self._inbox:
            self._process(timeout_s)
        received, self._inbox = [*self._inbox], deque()
        return received

    def beat(self) -> None:
        """Do nothing: `receive` sends heart-beats."""

    def close(self, *, politely: bool = True) -> None:
        try:
            if politely and self._error is None:
                self._connection.close()
                self._inbox.clear()  # they are not needed, and `_process` would not wait while there are some
                self._process(_TURN_S)
        except ConnectionLost:
            pass  # closed already
        finally:
            if (transport := self._connection.transport) is not None:
                transport.close_tail()
                transport.close_head()
            self._container.timeout = 0
            self._container.process()
            self._container.stop_events()

    def _process(self, timeout_s: float) -> None:
        """Wait for a message or a confirmation. Of two calls of `process` one waits and one dispatches, in either
        order."""
        now, until = time.monotonic(), time.monotonic() + timeout_s
        while not self._inbox and now <= until:
            self._container.timeout = until - now
            self._container.process()
            if self._error is not None:
                raise self._error
            now = time.monotonic()

    def _send_outbox(self) -> None:
        while self._outbox and self._outbox[0][0].credit > 0:
            sender, message, confirm = self._outbox.popleft()
            self._waiting[cast("Delivery", sender.send(message))] = confirm

    def _declare(self) -> None:
        self._container.declare_transaction(self._connection, handler=self, settle_before_discharge=True)

    def _commit(self) -> None:
        if self._transaction is None or not self._acks:
            return
        transaction, self._transaction = self._transaction, None
        self._committing, self._acks = self._acks, []
        for delivery, _ in self._committing:
            transaction.accept(delivery)
        transaction.commit()

    def _proton_message(self, message: Outgoing) -> Message:
        traits = message.traits
        annotations = {symbol("x-opt-delivery-delay"): traits.delay_ms} if traits.delay_ms else {}
        if self._sent % 2 and not is_subscription(message.queue):
            annotations |= {symbol("x-opt-jms-dest"): _QUEUE, symbol("x-opt-jms-msg-type"): _TEXT}
        properties = {ID_HEADER: message.ident} if message.ident else {}
        made = Message(
            durable=True,
            body=message.body,
            properties={**properties, **({PART: traits.part} if traits.part else {}), **message.headers},
            annotations=annotations or None,
        )
        if traits.group:
            made.group_id = traits.group
        if traits.urgent:
            made.priority = URGENT
        if traits.ttl_ms:
            made.ttl = traits.ttl_ms / 1000
        return made

    # called by Proton

    def on_connection_opened(self, event: Any) -> None:
        del event
        self._open = True

    def on_sendable(self, event: Any) -> None:
        del event
        self._send_outbox()

    def on_link_opened(self, event: Any) -> None:
        if (confirm := self._opening.pop(event.link.name, None)) is not None:
            self._inbox.append(Confirmed(confirm))

    def on_message(self, event: Any) -> None:
        body, properties = event.message.body, event.message.properties or {}
        text = bytes(body).decode(errors="replace") if isinstance(body, bytes | memoryview) else str(body)
        ident = properties.get(ID_HEADER) or ident_in(text) or str(event.message.id)
        self._inbox.append(Received(self._queues[event.receiver.name], str(ident), event.delivery))

    def on_accepted(self, event: Any) -> None:
        if (confirm := self._waiting.get(event.delivery)) is not None:
            self._inbox.append(Confirmed(confirm))

    def on_rejected(self, event: Any) -> None:
        self._error = RequestRefused(f"{self._address}: a message was refused: {event.delivery.remote.condition}")

    def on_released(self, event: Any) -> None:
        self.on_rejected(event)

    def on_settled(self, event: Any) -> None:
        self._waiting.pop(event.delivery, None)
        event.delivery.settle()

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        self._commit()

    def on_transaction_committed(self, event: Any) -> None:
        del event
        for delivery, confirm in self._committing:
            delivery.link.flow(1)
            if confirm is not None:
                self._inbox.append(Confirmed(confirm))
        self._declare()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._error = ConnectionLost(f"{self._address}: a commit failed: {event.delivery.remote.condition}")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.on_transaction_commit_failed(event)

    def on_link_error(self, event: Any) -> None:
        self._error = RequestRefused(f"{self._address}: {event.link.remote_condition}")

    def on_session_error(self, event: Any) -> None:
        self._error = RequestRefused(f"{self._address}: {event.session.remote_condition}")

    def on_connection_error(self, event: Any) -> None:
        self._error = ConnectionLost(f"{self._address}: {event.connection.remote_condition}")

    def on_connection_closed(self, event: Any) -> None:
        del event
        self._error = self._error or ConnectionLost(f"{self._address}: closed by the broker")

    def on_transport_error(self, event: Any) -> None:
        refused = event.transport.condition is not None and "unauthorized" in str(event.transport.condition)
        self._error = (RequestRefused if refused else ConnectionLost)(f"{self._address}: {event.transport.condition}")

    def on_disconnected(self, event: Any) -> None:
        del event
        self._error = self._error or ConnectionLost(f"{self._address}: the connection broke")


class _Topic(LinkOption):
    """Send to all subscribers."""

    def apply(self, link: Link) -> None:
        link.target.capabilities.put_object(symbol("topic"))
