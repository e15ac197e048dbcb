"""What a client sees: a probe of its listener (let in, refused by a word, closed, or silent), a message that goes in
and comes out, and a canary the whole way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final

from dr_ctl.core.system import Stream, growing_s
from dr_ctl.stomp_io.address import (
    Address,
    Closed,
    Connected,
    Failed,
    Greeting,
    Login,
    Passed,
    Refused,
    RoundTrip,
    Silent,
    TlsFiles,
    connected,
)
from dr_ctl.stomp_io.connection import Connection, ConnectionLost, Frame, FrameReader, NotStomp, said

# Only after `connection`, which sets what keeps stomp.py from looking this machine's name up.
from stomp.utils import convert_frame, pack  # isort: skip

PROBE_HEADER = "dr_ctl_probe"
_QUEUE: Final[Mapping[str, str]] = {"destination-type": "ANYCAST", "subscription-type": "ANYCAST"}


def probe(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> tuple[Greeting, Connection | None]:
    """Knock once and wait for the answer; the connection is there exactly when it is Connected. Never raises."""
    until = growing_s() + timeout_s
    try:
        stream = connected(address, tls, within_s=timeout_s)
    except ConnectionRefusedError as error:
        return Closed(f"{address}: {error.strerror or error}"), None
    except OSError as error:
        return Silent(f"{address}: {error.strerror or error}"), None
    reader = FrameReader()
    try:
        stream.send(_hello(address, login, headers or {}), timeout_s)
        frames = _first_frames(stream, reader, until)
    except OSError as error:
        greeting: Greeting = Silent(f"{address}: {error.strerror or error}")
    except NotStomp as error:
        greeting = Silent(str(error))
    else:
        if frames is None:
            greeting = Silent(f"{address}: no CONNECTED frame within {timeout_s:g} s")
        else:
            greeting = _greeting(address, frames[0])
            if isinstance(greeting, Connected):
                return greeting, Connection(address, stream, reader, frames[1:])
    stream.close()
    return greeting, None


def _first_frames(stream: Stream, reader: FrameReader, until: float) -> list[Frame] | None:
    """What came with the first whole frame; None where none came in time."""
    while (data := stream.receive(until - growing_s())) is not None:
        if not data:
            raise ConnectionResetError("closed before a CONNECTED frame")
        if frames := reader.feed(data):
            return frames
    return None


def _greeting(address: Address, frame: Frame) -> Greeting:
    if frame.cmd == "CONNECTED":
        return Connected(frame.headers.get("server", ""), frame.headers.get("version", "1.0"))
    if frame.cmd == "ERROR":
        return Refused(said(frame))
    return Silent(f"{address}: a {frame.cmd} frame instead of CONNECTED")


def _hello(address: Address, login: Login | None, headers: Mapping[str, str]) -> bytes:
    who = {} if login is None else {"login": login.user, "passcode": login.password}
    fields = {"accept-version": "1.2", "host": address.host, **who, **headers}
    hello: bytes = pack(convert_frame(Frame("CONNECT", fields)))  # headers of CONNECT are not escaped
    return hello


def greet(address: Address, login: Login | None, tls: TlsFiles | None, *, timeout_s: float) -> Greeting:
    """Make one attempt to be let in. A closed port answers in about a millisecond; no retry is made."""
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is not None:
        connection.close()
    return greeting


def round_trip(
    address: Address, login: Login | None, tls: TlsFiles | None, *, queue: str, body: str, timeout_s: float
) -> RoundTrip:
    """Send one non-durable message to `queue`, receive that very message and acknowledge it.

    Other messages of the queue are neither seen nor held: the subscription selects by the probe's own id.
    """
    began = growing_s()
    until = began + timeout_s
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is None:
        return Failed(getattr(greeting, "because", "no connection"))
    token = uuid.uuid4().hex
    try:
        _send_and_receive(connection, queue, body, token, until)
    except ConnectionLost as error:
        return Failed(str(error))
    except TimeoutError as error:
        return Failed(f"{address}: {error} within {timeout_s:g} s")
    finally:
        connection.close()
    return Passed(growing_s() - began)


def _send_and_receive(connection: Connection, queue: str, body: str, token: str, until: float) -> None:
    # Subscribed first: the message then never lies in the queue without somebody there to take it.
    connection.stomp.subscribe(
        queue,
        "probe",
        "client-individual",
        {"subscription-type": "ANYCAST", "selector": f"{PROBE_HEADER} = '{token}'", "receipt": "subscribed"},
    )
    connection.stomp.send(queue, body, headers={"destination-type": "ANYCAST", PROBE_HEADER: token, "receipt": "sent"})
    inbox = Inbox(connection, until)
    inbox.wait(receipt("subscribed"), "the subscription was not confirmed")
    inbox.wait(receipt("sent"), "the message was not confirmed")
    message = inbox.wait(
        lambda frame: frame.cmd == "MESSAGE" and frame.headers.get(PROBE_HEADER) == token,
        "the message did not come back",
    )
    connection.stomp.ack(message.headers["ack"], receipt="acked")
    inbox.wait(receipt("acked"), "the acknowledgement was not confirmed")


class Inbox:
    """Frames in the order of arrival; callers wait for the frame they want."""

    def __init__(self, connection: Connection, until: float) -> None:
        self._connection = connection
        self._until = until
        self._frames: list[Frame] = []

    def wait(self, wanted: Callable[[Frame], bool], missing: str) -> Frame:
        while True:
            for frame in self._frames:
                if wanted(frame):
                    self._frames.remove(frame)
                    return frame
            left = self._until - growing_s()
            if left <= 0:
                raise TimeoutError(missing)
            self._frames += self._connection.receive(left)


def receipt(name: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.cmd == "RECEIPT" and frame.headers.get("receipt-id") == name


def put(
    address: Address, login: Login | None, tls: TlsFiles | None, *, queue: str, token: str, count: int, timeout_s: float
) -> RoundTrip:
    """Send `count` durable messages that bear `token`; passed once the broker has confirmed each."""

    def work(connection: Connection, until: float) -> None:
        inbox = Inbox(connection, until)
        for number in range(count):
            headers = {**_QUEUE, PROBE_HEADER: token, "persistent": "true", "receipt": f"put-{number}"}
            connection.stomp.send(queue, f"dr-ctl rehearsal {number}", headers=headers)
        for number in range(count):
            inbox.wait(receipt(f"put-{number}"), f"message {number + 1} of {count} was not confirmed")

    return _at_the_listener(address, login, tls, timeout_s, work)


def take(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    *,
    queue: str,
    token: str | None,
    count: int,
    timeout_s: float,
) -> RoundTrip:
    """Receive and acknowledge `count` messages that bear `token`, without one that bear any; passed once the broker has
    confirmed each acknowledgement."""

    def work(connection: Connection, until: float) -> None:
        inbox = Inbox(connection, until)
        which = f"{PROBE_HEADER} = '{token}'" if token is not None else f"{PROBE_HEADER} IS NOT NULL"
        selecting = {**_QUEUE, "selector": which, "receipt": "subscribed"}
        connection.stomp.subscribe(queue, "rehearsal", "client-individual", selecting)
        for number in range(count):
            message = inbox.wait(
                lambda frame: frame.cmd == "MESSAGE" and token in (None, frame.headers.get(PROBE_HEADER)),
                f"message {number + 1} of {count} did not come",
            )
            connection.stomp.ack(message.headers["ack"], receipt=f"taken-{number}")
        for number in range(count):
            inbox.wait(receipt(f"taken-{number}"), f"acknowledgement {number + 1} of {count} was not confirmed")

    return _at_the_listener(address, login, tls, timeout_s, work)


def _at_the_listener(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    timeout_s: float,
    work: Callable[[Connection, float], None],
) -> RoundTrip:
    began = growing_s()
    greeting, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is None:
        return Failed(getattr(greeting, "because", "no connection"))
    try:
        work(connection, began + timeout_s)
    except ConnectionLost as error:
        return Failed(str(error))
    except TimeoutError as error:
        return Failed(f"{address}: {error} within {timeout_s:g} s")
    finally:
        connection.close()
    return Passed(growing_s() - began)
