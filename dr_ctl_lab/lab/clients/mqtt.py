"""A client that speaks MQTT 3.1.1, by Eclipse Paho.

It publishes to a topic that the brokers of a lab forward into a queue, and takes messages of subscriptions that several
share. MQTT confirms no acknowledgement: a request that the broker can only answer behind it does that here.
"""

import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from dr_ctl.stomp_io.address import Address, Login
from dr_ctl.stomp_io.client import ConnectionLost, SaidError
from dr_ctl_lab.lab.clients.client import (
    FORWARDED,
    LOGIN_S,
    SILENT_S,
    WINDOW_BYTES,
    Came,
    Confirmed,
    Outgoing,
    address_of,
    ident_in,
    is_subscription,
    name_of,
)

_NOTHING: Final = "dr-ctl/none"
_AT_LEAST_ONCE: Final = 1


class MqttClient:
    """Implements `Client`. Its session is kept: one that ends with its connection takes the subscription along, and
    what lies there."""

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
        self._came: deque[Came | Confirmed] = deque()
        self._queues: dict[str, str] = {}
        self._greet()

    def subscribe(
        self, queues: Sequence[str], *, confirm: str | None = None, window_bytes: int = WINDOW_BYTES, selector: str = ""
    ) -> None:
        del window_bytes, selector
        for queue in queues:
            published, group = _topic(address_of(queue)), name_of(queue).partition(".")[0]
            self._queues[published] = queue
            self._named(self._mqtt.subscribe(f"$share/{group}/{published}", _AT_LEAST_ONCE), confirm)

    def send(self, message: Outgoing, *, confirm: str | None) -> None:
        shared = is_subscription(message.queue)
        topic = _topic(address_of(message.queue) if shared else FORWARDED + message.queue)
        publish = self._mqtt.publish(topic, message.body, _AT_LEAST_ONCE)
        self._named((publish.rc, publish.mid), confirm)

    def ack(self, came: Came, *, confirm: str | None) -> None:
        self._checked(self._mqtt.ack(came.token, _AT_LEAST_ONCE))
        if confirm is not None:
            self._named(self._mqtt.unsubscribe(_NOTHING), confirm)

    def receive(self, timeout_s: float) -> Sequence[Came | Confirmed]:
        if not self._came:
            self._checked(self._mqtt.loop(timeout_s))
        came, self._came = [*self._came], deque()
        return came

    def beat(self) -> None:
        """Each turn of its loop does."""

    def close(self, *, politely: bool = True) -> None:
        if politely:
            self._mqtt.disconnect()
        elif (sock := self._mqtt.socket()) is not None:
            sock.close()

    def _greet(self) -> None:
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
            raise SaidError(f"{self._address}: not let in")

    def _named(self, value: tuple[Any, int | None], confirm: str | None) -> None:
        self._checked(value[0])
        if confirm is not None and value[1] is not None:
            self._waiting[value[1]] = confirm

    def _checked(self, code: Any) -> None:
        if code != paho.MQTT_ERR_SUCCESS:
            raise ConnectionLost(f"{self._address}: {paho.error_string(code)}")

    def _on_connect(self, *told: Any) -> None:
        self._answered = not told[3].is_failure

    def _on_answer(self, _client: Any, _data: Any, mid: int, *told: Any) -> None:
        del told
        if (name := self._waiting.pop(mid, None)) is not None:
            self._came.append(Confirmed(name))

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        queue = self._queues[message.topic]
        self._came.append(Came(queue, ident_in(message.payload.decode(errors="replace")), message.mid))


def _topic(address: str) -> str:
    return address.replace(".", "/")
