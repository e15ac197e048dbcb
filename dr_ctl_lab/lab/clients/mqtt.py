"""A client of MQTT 3.1.1, with Eclipse Paho.

It publishes to topics that the brokers of a lab forward into queues, and consumes shared subscriptions. MQTT does not
confirm acknowledgements: the client sends another request, whose answer shows that the broker has read both.
"""

import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import ConnectionLost, RequestRefused
from dr_ctl_lab.lab.clients.client import (
    FORWARDED,
    LOGIN_S,
    SILENT_S,
    WINDOW_BYTES,
    Confirmed,
    Outgoing,
    Received,
    address_of,
    ident_in,
    is_subscription,
    name_of,
)

_NOTHING: Final = "dr-ctl/none"
_AT_LEAST_ONCE: Final = 1


class MqttClient:
    """Implements `Client`. The session outlives its connection; otherwise the subscription and its messages would be
    lost with it."""

    def __init__(self, address: Address, login: Login) -> None:
        self._address = address
        self._mqtt = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"lab-{uuid.uuid4().hex[:12]}",
            clean_session=False,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._mqtt.username_pw_set(login.user, login.password)
        self._mqtt.connect_timeout = LOGIN_S
        self._mqtt.on_connect = self._on_connect
        self._mqtt.on_publish = self._on_answer
        self._mqtt.on_subscribe = self._on_answer
        self._mqtt.on_unsubscribe = self._on_answer
        self._mqtt.on_message = self._on_message
        self._answered: bool | None = None
        self._waiting: dict[int, str] = {}
        self._inbox: deque[Received | Confirmed] = deque()
        self._queues: dict[str, str] = {}
        self._connect()

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        del window_bytes, selector
        for queue in queues:
            topic_name, group = _topic(address_of(queue)), name_of(queue).partition(".")[0]
            self._queues[topic_name] = queue
            self._expect_confirmation(self._mqtt.subscribe(f"$share/{group}/{topic_name}", _AT_LEAST_ONCE), confirm)

    def send(self, message: Outgoing, *, confirm: str | None) -> None:
        shared = is_subscription(message.queue)
        topic = _topic(address_of(message.queue) if shared else FORWARDED + message.queue)
        publish = self._mqtt.publish(topic, message.body, _AT_LEAST_ONCE)
        self._expect_confirmation((publish.rc, publish.mid), confirm)

    def ack(self, received: Received, *, confirm: str | None) -> None:
        self._checked(self._mqtt.ack(received.token, _AT_LEAST_ONCE))
        if confirm is not None:
            self._expect_confirmation(self._mqtt.unsubscribe(_NOTHING), confirm)

    def receive(self, timeout_s: float) -> Sequence[Received | Confirmed]:
        if not self._inbox:
            self._checked(self._mqtt.loop(timeout_s))
        received, self._inbox = [*self._inbox], deque()
        return received

    def beat(self) -> None:
        """Do nothing: `receive` sends heart-beats."""

    def close(self, *, politely: bool = True) -> None:
        if politely:
            self._mqtt.disconnect()
        elif (sock := self._mqtt.socket()) is not None:
            sock.close()

    def _connect(self) -> None:
        try:
            self._mqtt.connect(self._address.host, self._address.port, keepalive=round(SILENT_S))
        except OSError as error:
            raise ConnectionLost(f"{self._address}: {error}") from error
        until = time.monotonic() + LOGIN_S
        while self._answered is None:
            self._checked(self._mqtt.loop(0.01))
            if time.monotonic() > until:
                self.close(politely=False)
                raise ConnectionLost(f"{self._address}: no answer to the login")
        if not self._answered:
            raise RequestRefused(f"{self._address}: not let in")

    def _expect_confirmation(self, value: tuple[Any, int | None], confirm: str | None) -> None:
        self._checked(value[0])
        if confirm is not None and value[1] is not None:
            self._waiting[value[1]] = confirm

    def _checked(self, code: Any) -> None:
        if code != paho.MQTT_ERR_SUCCESS:
            raise ConnectionLost(f"{self._address}: {paho.error_string(code)}")

    def _on_connect(self, *arguments: Any) -> None:
        self._answered = not arguments[3].is_failure

    def _on_answer(self, _client: Any, _data: Any, mid: int, *arguments: Any) -> None:
        del arguments
        if (name := self._waiting.pop(mid, None)) is not None:
            self._inbox.append(Confirmed(name))

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        queue = self._queues[message.topic]
        self._inbox.append(Received(queue, ident_in(message.payload.decode(errors="replace")), message.mid))


def _topic(address: str) -> str:
    return address.replace(".", "/")
