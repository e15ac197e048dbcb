"""STOMP ports: their addresses and logins, connections to them, and the results of a login. Every wait is bounded; no
repr shows a secret.

stomp.py's own attempts are not used: a refusal takes 0.2 s instead of 1 ms, and a name look-up has no time limit.
"""

import errno
import os
import socket
import ssl
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from dr_ctl.core.system import Stream, boottime_s, in_background, system
from dr_ctl.core.tls import TlsFiles

CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """A STOMP port; `tls` says whether it speaks TLS from the first byte."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'stomp+ssl' if self.tls else 'stomp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; the password is never printed."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StompAccount:
    """The address at which clients, probes and agents of one broker connect, and their login."""

    address: Address
    login: Login
    tls: TlsFiles | None = None


def parse_address(text: str) -> Address:
    """Read `stomp://host:port` or `stomp+ssl://host:port`, as the settings have it (`StompAddress`)."""
    parts = urlsplit(text)
    assert parts.hostname is not None
    assert parts.port is not None
    return Address(parts.hostname, parts.port, tls=parts.scheme == "stomp+ssl")


Endpoint = tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]


def endpoints(address: Address, *, timeout_s: float) -> list[Endpoint]:
    """Look the name up, within the time; raises OSError for a name without an address, TimeoutError without an answer.

    The system's look-up has no time limit, so a look-up that needs a name server runs in the background and is
    abandoned when the time is over: with a lost site its name server is often lost too.
    """
    try:
        return _look_up(address, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not a number
    looking_up = in_background(partial(_look_up, address, 0), f"look up {address.host}")
    if not looking_up.wait(timeout_s):
        raise TimeoutError(f"the name {address.host} was not resolved within {timeout_s:g} s")
    return looking_up.result()


def _look_up(address: Address, flags: int) -> list[Endpoint]:
    rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _, _, _, where in rows]


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted the login."""

    server: str
    version: str


@dataclass(frozen=True, slots=True)
class Failure:
    because: str


class Closed(Failure):
    """The connection was refused."""


class LoginDenied(Failure):
    """A broker refused the login."""


class Silent(Failure):
    """The state is unknown: no answer in time, a reset, no route, or not STOMP."""


LoginResult = Connected | Closed | LoginDenied | Silent


@dataclass(frozen=True, slots=True)
class Passed:
    """The message came back and its acknowledgement was confirmed, so the queue is clean."""

    took_s: float


class NotPassed(Failure):
    """The message did not come back, and may be left in the queue."""


RoundTrip = Passed | NotPassed


def connected(address: Address, tls: TlsFiles | None, *, within_s: float) -> Stream:
    """Connect; raises OSError: ConnectionRefusedError if all end points refuse, TimeoutError if none answers."""
    if (wires := system().wires) is not None:
        return wires.connect(address.host, address.port, within_s)
    context = None if not address.tls else tls.context() if tls else ssl.create_default_context()
    until = boottime_s() + within_s
    sock = _dialled(endpoints(address, timeout_s=within_s), until)
    if context is None:
        return Sock(sock)
    secure = context.wrap_socket(sock, server_hostname=address.host, do_handshake_on_connect=False)
    try:
        secure.settimeout(max(0.001, until - boottime_s()))
        secure.do_handshake()  # within that time in total
    except BaseException as error:
        secure.close()
        if isinstance(error, TimeoutError):
            raise TimeoutError("no TLS within the time") from error
        raise
    return Sock(secure)


def takes_connections(address: Address, *, timeout_s: float) -> bool:
    """Say whether a connection is accepted there; no byte is sent."""
    try:
        connected(replace(address, tls=False), None, within_s=timeout_s).close()
    except OSError:
        return False
    return True


_AMQP: Final = b"AMQP"
_VERSION: Final = b"\x00\x01\x00\x00"


def speaks_amqp(address: Address, *, timeout_s: float) -> bool:
    """Say whether a broker answers in AMQP, which a proxy does not do; False proves nothing."""
    try:
        stream = connected(replace(address, tls=False), None, within_s=timeout_s)
    except OSError:
        return False
    try:
        stream.send(_AMQP + _VERSION, timeout_s)
        return (stream.receive(timeout_s) or b"").startswith(_AMQP)
    except OSError:
        return False
    finally:
        stream.close()


class Sock:
    """Implements `Stream` on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, data: bytes, within_s: float) -> None:
        self._sock.settimeout(within_s)
        self._sock.sendall(data)

    def receive(self, within_s: float) -> bytes | None:
        self._sock.settimeout(max(0.0, within_s))
        try:
            return self._sock.recv(CHUNK)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return None

    def close(self) -> None:
        self._sock.close()


def _dialled(where: list[Endpoint], until: float) -> socket.socket:
    refused: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "the name has no address")
    for family, place in where:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(max(0.001, until - boottime_s()))
            sock.connect(place)
            if sock.getsockname() != sock.getpeername():
                return sock
            # A connection to a closed port of the ephemeral range can be connected to itself.
            refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except ConnectionRefusedError as error:
            refused = error
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise refused
