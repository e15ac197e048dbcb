"""Tests as a client: a test login (connected, denied, closed, or silent), a message that is sent and received, and the
messages of a rehearsal.

`Connection` is a STOMP 1.2 session for one thread, with the protocol of stomp.py, and every wait is bounded. stomp.py's
own sessions are not used: the end of a TLS session waits for the peer without a limit.
"""

import os
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import Stream, boottime_s
from dr_ctl.core.tls import TlsFiles
from dr_ctl.stomp_io.address import (
    Address,
    Closed,
    Connected,
    Login,
    LoginDenied,
    LoginResult,
    NotPassed,
    Passed,
    RoundTrip,
    Silent,
    StompAccount,
    connected,
)

# Without this the import looks up this machine's own name, which blocks without a name server.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")

from stomp.protocol import Protocol12
from stomp.transport import BaseTransport
from stomp.utils import Frame, convert_frame, pack, parse_frame

__all__ = ["HEART_BEAT", "Connection", "ConnectionLost", "Frame", "FrameReader", "NotStomp", "RequestRefused"]

HEART_BEAT = b"\n"
LARGEST_HEAD = 256 * 1024
SEND_TIMEOUT_S = 2.0


class NotStomp(ValueError):
    """The bytes received are no STOMP frame."""


class FrameReader:
    """Splits a stream of bytes into frames, and drops heart-beats."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes, and return the frames that are complete now. Raises NotStomp for bytes that are no frame."""
        unread, at, frames = self._rest + data, 0, []
        while (end := _end(unread, at := _begin(unread, at))) is not None:
            frame = parse_frame(unread[at:end])
            if frame is None:
                raise NotStomp("a frame without a command")
            frames.append(frame)
            at = end + 1
        self._rest = unread[at:]
        return frames


def _begin(data: bytes, at: int) -> int:
    while data[at : at + 1] in (b"\r", b"\n"):
        at += 1
    return at


def _end(data: bytes, at: int) -> int | None:
    """Return the position of the NUL that ends the frame which begins at `at`, or None while bytes are missing."""
    if at >= len(data):
        return None
    if not data[at : at + 1].isalpha():
        raise NotStomp(f"not a STOMP frame: {data[at : at + 20]!r}")
    lf_end = data.find(b"\n\n", at)
    # Search the head only: the body may be long.
    crlf_end = data.find(b"\n\r\n", at, lf_end if lf_end >= 0 else len(data))
    head_end = crlf_end if crlf_end >= 0 else lf_end
    if head_end < 0:
        if len(data) - at > LARGEST_HEAD or data.find(b"\0", at) >= 0:
            raise NotStomp("headers without an end")
        return None
    body = head_end + (3 if head_end == crlf_end else 2)
    length = _content_length(data[at:head_end])
    if length is None:
        end = data.find(b"\0", body)
        return end if end >= 0 else None
    return body + length if len(data) > body + length else None


def _content_length(head: bytes) -> int | None:
    at = head.find(b"\ncontent-length:")
    if at < 0:
        return None
    value = head[at + 1 :].split(b"\n", 1)[0].split(b":", 1)[1].strip()
    if not value.isdigit():
        raise NotStomp(f"content-length {value!r}")
    return int(value)


class ConnectionLost(BrokerError):
    """The connection is lost; whether messages without a receipt arrived is unknown."""


class RequestRefused(ConnectionLost):
    """The broker answered ERROR with a reason: the request had no effect."""


class _Writer(BaseTransport):  # type: ignore[misc] # stomp.py has no types
    """Passes the frames that stomp.py's protocol writes to a `Connection`."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def send(self, encoded_frame: bytes) -> None:
        self._put(encoded_frame)


class Connection:
    """An open session. Every method, and `stomp`, raises ConnectionLost after its end or an ERROR."""

    def __init__(self, address: Address, stream: Stream, reader: FrameReader, waiting: list[Frame]) -> None:
        self.address = address
        self._stream = stream
        self._reader = reader
        self._waiting = waiting
        self._received_s = self._sent_s = boottime_s()
        # Brokers make a text message of a body without a content-length.
        self.stomp = Protocol12(_Writer(self._put), auto_content_length=False)

    def receive(self, timeout_s: float) -> list[Frame]:
        """Wait for frames for at most this time; an empty list is not the end."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        try:
            data = self._stream.receive(timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        if data is None:
            return []
        if not data:
            raise ConnectionLost(f"{self.address}: closed by the broker")
        self._received_s = boottime_s()
        try:
            frames = self._reader.feed(data)
        except NotStomp as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        for frame in frames:
            if frame.cmd == "ERROR":
                raise RequestRefused(f"{self.address}: {error_text(frame)}")
        return frames

    def beat(self, *, every_s: float, silent_s: float) -> None:
        """Send a heart-beat if nothing was sent for `every_s`; raise if nothing was received for `silent_s`."""
        now = boottime_s()
        if now - self._received_s > silent_s:
            raise ConnectionLost(f"{self.address}: silent for {now - self._received_s:.1f} s")
        if now - self._sent_s > every_s:
            self._put(HEART_BEAT)

    def close(self, *, politely: bool = True) -> None:
        """End the session; never raises. With `politely` a DISCONNECT lets the broker release it at once."""
        try:
            if politely:
                self._put(b"DISCONNECT\n\n\0", 0.2)
        except ConnectionLost:
            pass  # the session has ended already
        finally:
            self._stream.close()

    def _put(self, data: bytes, timeout_s: float = SEND_TIMEOUT_S) -> None:
        try:
            self._stream.send(data, timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        self._sent_s = boottime_s()


def error_text(frame: Frame) -> str:
    text = frame.headers.get("message") or (frame.body or b"").decode(errors="replace")
    return " ".join(text.split())[:300] or "ERROR without a reason"


PROBE_HEADER = "dr_ctl_probe"
_QUEUE: Final[Mapping[str, str]] = {"destination-type": "ANYCAST", "subscription-type": "ANYCAST"}


def probe(
    address: Address,
    login: Login | None,
    tls: TlsFiles | None,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
) -> tuple[LoginResult, Connection | None]:
    """Log in once; return a connection if the result is `Connected`. Never raises."""
    until = boottime_s() + timeout_s
    try:
        stream = connected(address, tls, within_s=timeout_s)
    except ConnectionRefusedError as error:
        return Closed(f"{address}: {error.strerror or error}"), None
    except OSError as error:
        return Silent(f"{address}: {error.strerror or error}"), None
    reader = FrameReader()
    try:
        stream.send(_connect_frame(address, login, headers or {}), timeout_s)
        frames = _first_frames(stream, reader, until)
    except OSError as error:
        login_result: LoginResult = Silent(f"{address}: {error.strerror or error}")
    except NotStomp as error:
        login_result = Silent(str(error))
    else:
        match frames:
            case None:
                login_result = Silent(f"{address}: no CONNECTED frame within {timeout_s:g} s")
            case [first, *others] if first.cmd == "CONNECTED":
                login_result = Connected(first.headers.get("server", ""), first.headers.get("version", "1.0"))
                return login_result, Connection(address, stream, reader, others)
            case [first, *_] if first.cmd == "ERROR":
                login_result = LoginDenied(error_text(first))
            case [first, *_]:
                login_result = Silent(f"{address}: a {first.cmd} frame instead of CONNECTED")
    stream.close()
    return login_result, None


def _first_frames(stream: Stream, reader: FrameReader, until: float) -> list[Frame] | None:
    """Return the first frame, and any that arrived with it; None if none arrived in time."""
    while (data := stream.receive(until - boottime_s())) is not None:
        if not data:
            raise ConnectionResetError("closed before a CONNECTED frame")
        if frames := reader.feed(data):
            return frames
    return None


def _connect_frame(address: Address, login: Login | None, headers: Mapping[str, str]) -> bytes:
    credentials = {} if login is None else {"login": login.user, "passcode": login.password}
    fields = {"accept-version": "1.2", "host": address.host, **credentials, **headers}
    frame: bytes = pack(convert_frame(Frame("CONNECT", fields)))  # headers of CONNECT are not escaped
    return frame


def try_login(address: Address, login: Login | None, tls: TlsFiles | None, *, timeout_s: float) -> LoginResult:
    """Log in once, without a retry. A closed port answers in about a millisecond."""
    login_result, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is not None:
        connection.close()
    return login_result


def round_trip(account: StompAccount, *, queue: str, body: str, timeout_s: float) -> RoundTrip:
    """Send one non-durable message to `queue`, receive it and acknowledge it; a selector excludes other messages."""
    token = uuid.uuid4().hex

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        # Subscribe first, so that the message never stays in the queue.
        selecting = {"subscription-type": "ANYCAST", "selector": f"{PROBE_HEADER} = '{token}'", "receipt": "subscribed"}
        stomp.subscribe(queue, "probe", "client-individual", selecting)
        stomp.send(queue, body, headers={"destination-type": "ANYCAST", PROBE_HEADER: token, "receipt": "sent"})
        inbox.wait(receipt("subscribed"), "the subscription was not confirmed")
        inbox.wait(receipt("sent"), "the message was not confirmed")
        message = inbox.wait(
            lambda frame: frame.cmd == "MESSAGE" and frame.headers.get(PROBE_HEADER) == token,
            "the message did not come back",
        )
        stomp.ack(message.headers["ack"], receipt="acked")
        inbox.wait(receipt("acked"), "the acknowledgement was not confirmed")

    return _with_session(account, timeout_s, work)


class Inbox:
    """Frames in the order of arrival."""

    def __init__(self, connection: Connection, until: float) -> None:
        self._connection = connection
        self._until = until
        self._frames: list[Frame] = []

    def wait(self, is_wanted: Callable[[Frame], bool], timeout_text: str) -> Frame:
        while True:
            for frame in self._frames:
                if is_wanted(frame):
                    self._frames.remove(frame)
                    return frame
            left = self._until - boottime_s()
            if left <= 0:
                raise TimeoutError(timeout_text)
            self._frames += self._connection.receive(left)


def receipt(name: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.cmd == "RECEIPT" and frame.headers.get("receipt-id") == name


def put(account: StompAccount, *, queue: str, token: str, count: int, timeout_s: float) -> RoundTrip:
    """Send `count` durable messages with this `token`; passed once the broker has confirmed each."""

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        for number in range(count):
            headers = {**_QUEUE, PROBE_HEADER: token, "persistent": "true", "receipt": f"put-{number}"}
            stomp.send(queue, f"dr-ctl rehearsal {number}", headers=headers)
        for number in range(count):
            inbox.wait(receipt(f"put-{number}"), f"message {number + 1} of {count} was not confirmed")

    return _with_session(account, timeout_s, work)


def take(account: StompAccount, *, queue: str, token: str | None, count: int, timeout_s: float) -> RoundTrip:
    """Take messages with this `token`, or any; passed once the broker has confirmed each acknowledgement."""

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        selector = f"{PROBE_HEADER} = '{token}'" if token is not None else f"{PROBE_HEADER} IS NOT NULL"
        selecting = {**_QUEUE, "selector": selector, "receipt": "subscribed"}
        stomp.subscribe(queue, "rehearsal", "client-individual", selecting)
        for number in range(count):
            message = inbox.wait(
                lambda frame: frame.cmd == "MESSAGE" and token in (None, frame.headers.get(PROBE_HEADER)),
                f"message {number + 1} of {count} did not come",
            )
            stomp.ack(message.headers["ack"], receipt=f"taken-{number}")
        for number in range(count):
            inbox.wait(receipt(f"taken-{number}"), f"acknowledgement {number + 1} of {count} was not confirmed")

    return _with_session(account, timeout_s, work)


def _with_session(account: StompAccount, timeout_s: float, work: Callable[[Protocol12, Inbox], None]) -> RoundTrip:
    began = boottime_s()
    login_result, connection = probe(account.address, account.login, account.tls, timeout_s=timeout_s)
    if connection is None:
        return NotPassed(getattr(login_result, "because", "no connection"))
    try:
        work(connection.stomp, Inbox(connection, began + timeout_s))
    except ConnectionLost as error:
        return NotPassed(str(error))
    except TimeoutError as error:
        return NotPassed(f"{account.address}: {error} within {timeout_s:g} s")
    finally:
        connection.close()
    return Passed(boottime_s() - began)
