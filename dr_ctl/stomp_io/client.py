"""Tests from a client's side: a probe of a listener (connected, denied, closed, or silent), a message that goes in and
comes out, and a canary the whole way.

`Connection` is a STOMP session for one thread: messages go through the protocol of stomp.py, bytes become frames of
STOMP 1.2 in whatever pieces they come, and every wait is bounded. stomp.py's own sessions bound no wait: the end of a
TLS session waits for the peer's part for ever.
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

# Without this the import looks this machine's own name up, which blocks where the name server is gone.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")

from stomp.protocol import Protocol12
from stomp.transport import BaseTransport
from stomp.utils import Frame, convert_frame, pack, parse_frame

__all__ = ["HEART_BEAT", "Connection", "ConnectionLost", "Frame", "FrameReader", "NotStomp", "SaidError", "said"]

HEART_BEAT = b"\n"
LARGEST_HEAD = 256 * 1024
SEND_TIMEOUT_S = 2.0


class NotStomp(ValueError):
    """The bytes received are no STOMP frame."""


class FrameReader:
    """Cuts a stream of bytes into frames; heart-beats between them are dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes, return the frames that are whole now. Raises NotStomp for bytes that cannot be a frame."""
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
    """The position of the closing NUL of the frame that begins at `at`, or None while more bytes must come."""
    if at >= len(data):
        return None
    if not data[at : at + 1].isalpha():
        raise NotStomp(f"not a STOMP frame: {data[at : at + 20]!r}")
    bare = data.find(b"\n\n", at)
    # Search the head only: the body may be long.
    with_return = data.find(b"\n\r\n", at, bare if bare >= 0 else len(data))
    head_end = with_return if with_return >= 0 else bare
    if head_end < 0:
        if len(data) - at > LARGEST_HEAD or data.find(b"\0", at) >= 0:
            raise NotStomp("headers without an end")
        return None
    body = head_end + (3 if head_end == with_return else 2)
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
    """The connection is gone; messages sent without a receipt are in doubt."""


class SaidError(ConnectionLost):
    """The broker answered ERROR with a reason: the request had no effect."""


class _Writer(BaseTransport):  # type: ignore[misc] # stomp.py has no types
    """Passes the frames that stomp.py's protocol writes to a `Connection`."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def send(self, encoded_frame: bytes) -> None:
        self._put(encoded_frame)


class Connection:
    """An open session. Every method, and `stomp`, raises ConnectionLost once the broker is gone or said ERROR."""

    def __init__(self, address: Address, stream: Stream, reader: FrameReader, waiting: list[Frame]) -> None:
        self.address = address
        self._stream = stream
        self._reader = reader
        self._waiting = waiting
        self._heard = self._said = boottime_s()
        # Without a content-length: brokers then make a text message of a body.
        self.stomp = Protocol12(_Writer(self._put), auto_content_length=False)

    def receive(self, timeout_s: float) -> list[Frame]:
        """Return the frames that have come, at the latest after the time; an empty list is not an end."""
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
        self._heard = boottime_s()
        try:
            frames = self._reader.feed(data)
        except NotStomp as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        for frame in frames:
            if frame.cmd == "ERROR":
                raise SaidError(f"{self.address}: {said(frame)}")
        return frames

    def beat(self, *, every_s: float, silent_s: float) -> None:
        """Keep the session: send something every `every_s`, end it when the broker was silent for `silent_s`."""
        now = boottime_s()
        if now - self._heard > silent_s:
            raise ConnectionLost(f"{self.address}: silent for {now - self._heard:.1f} s")
        if now - self._said > every_s:
            self._put(HEART_BEAT)

    def close(self, *, politely: bool = True) -> None:
        """End the session; never raises. A DISCONNECT (`politely`) lets the broker tidy up at once."""
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
        self._said = boottime_s()


def said(frame: Frame) -> str:
    text = frame.headers.get("message") or (frame.body or b"").decode(errors="replace")
    return " ".join(text.split())[:300] or "ERROR without a word"


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
    """Knock once and wait for the answer; the connection is there exactly when it is Connected. Never raises."""
    until = boottime_s() + timeout_s
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
                login_result = LoginDenied(said(first))
            case [first, *_]:
                login_result = Silent(f"{address}: a {first.cmd} frame instead of CONNECTED")
    stream.close()
    return login_result, None


def _first_frames(stream: Stream, reader: FrameReader, until: float) -> list[Frame] | None:
    """Return the frames up to the first whole one, and any that came with it; None if none came in time."""
    while (data := stream.receive(until - boottime_s())) is not None:
        if not data:
            raise ConnectionResetError("closed before a CONNECTED frame")
        if frames := reader.feed(data):
            return frames
    return None


def _hello(address: Address, login: Login | None, headers: Mapping[str, str]) -> bytes:
    who = {} if login is None else {"login": login.user, "passcode": login.password}
    fields = {"accept-version": "1.2", "host": address.host, **who, **headers}
    hello: bytes = pack(convert_frame(Frame("CONNECT", fields)))  # headers of CONNECT are not escaped
    return hello


def try_login(address: Address, login: Login | None, tls: TlsFiles | None, *, timeout_s: float) -> LoginResult:
    """Make one attempt to log in. A closed port answers in about a millisecond; no retry is made."""
    login_result, connection = probe(address, login, tls, timeout_s=timeout_s)
    if connection is not None:
        connection.close()
    return login_result


def round_trip(account: StompAccount, *, queue: str, body: str, timeout_s: float) -> RoundTrip:
    """Send one non-durable message to `queue`, receive that very message and acknowledge it.

    Other messages of the queue are neither seen nor held: the subscription selects by the probe's own id.
    """
    token = uuid.uuid4().hex

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        # Subscribed first: the message then never lies in the queue without somebody there to take it.
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

    return _at_the_listener(account, timeout_s, work)


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
            left = self._until - boottime_s()
            if left <= 0:
                raise TimeoutError(missing)
            self._frames += self._connection.receive(left)


def receipt(name: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.cmd == "RECEIPT" and frame.headers.get("receipt-id") == name


def put(account: StompAccount, *, queue: str, token: str, count: int, timeout_s: float) -> RoundTrip:
    """Send `count` durable messages that bear `token`; passed once the broker has confirmed each."""

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        for number in range(count):
            headers = {**_QUEUE, PROBE_HEADER: token, "persistent": "true", "receipt": f"put-{number}"}
            stomp.send(queue, f"dr-ctl rehearsal {number}", headers=headers)
        for number in range(count):
            inbox.wait(receipt(f"put-{number}"), f"message {number + 1} of {count} was not confirmed")

    return _at_the_listener(account, timeout_s, work)


def take(account: StompAccount, *, queue: str, token: str | None, count: int, timeout_s: float) -> RoundTrip:
    """Take messages that bear `token`, or any token; passed once the broker has confirmed each acknowledgement."""

    def work(stomp: Protocol12, inbox: Inbox) -> None:
        which = f"{PROBE_HEADER} = '{token}'" if token is not None else f"{PROBE_HEADER} IS NOT NULL"
        selecting = {**_QUEUE, "selector": which, "receipt": "subscribed"}
        stomp.subscribe(queue, "rehearsal", "client-individual", selecting)
        for number in range(count):
            message = inbox.wait(
                lambda frame: frame.cmd == "MESSAGE" and token in (None, frame.headers.get(PROBE_HEADER)),
                f"message {number + 1} of {count} did not come",
            )
            stomp.ack(message.headers["ack"], receipt=f"taken-{number}")
        for number in range(count):
            inbox.wait(receipt(f"taken-{number}"), f"acknowledgement {number + 1} of {count} was not confirmed")

    return _at_the_listener(account, timeout_s, work)


def _at_the_listener(account: StompAccount, timeout_s: float, work: Callable[[Protocol12, Inbox], None]) -> RoundTrip:
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
