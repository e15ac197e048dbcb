"""A knock at a clients' port, and what the answer is: let in, refused by a word, closed, or silent.

`Knock` is a single attempt that never blocks, so that several ports can be tried side by side; a successful knock
becomes a `Connection`. stomp.py's own attempts bound no wait: with one to be made, a port that refuses answers after
0.2 s instead of 1 ms (it sleeps before it gives up), and a name look-up lasts for as long as the system likes. Not for
use by two threads at once.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from typing import TYPE_CHECKING

from dr_ctl.core.clock import growing_s
from dr_ctl.stomp_io.address import endpoints
from dr_ctl.stomp_io.answers import Closed, Connected, Greeting, Refused, Silent
from dr_ctl.stomp_io.connection import CHUNK, Connection, ConnectionLost, said
from dr_ctl.stomp_io.frames import Frame, FrameReader, NotStomp

# Only after `frames`, which sets what keeps stomp.py from looking this machine's name up.
from stomp.utils import convert_frame, pack  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dr_ctl.stomp_io.address import Address, Endpoint, Login, TlsFiles


class Knock:
    """A single attempt to be greeted at an address. `advance` goes on with it and never blocks."""

    def __init__(
        self,
        address: Address,
        login: Login | None,
        tls: TlsFiles | None,
        *,
        where: list[Endpoint],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Start connecting to the first of `where`, the address's end points; the others are tried when it refuses."""
        self.address = address
        self.greeting: Greeting | None = None
        self._tls = tls.context() if address.tls and tls else ssl.create_default_context() if address.tls else None
        self._hello = _hello(address, login, headers or {})
        self._where = list(where)
        self._reader = FrameReader()
        self._more: list[Frame] = []
        self._sock: socket.socket | None = None
        self._stage = self._connecting
        self._wants_write = True
        self._next_endpoint("the name has no address")

    def fileno(self) -> int:
        return -1 if self._sock is None else self._sock.fileno()

    @property
    def wants_write(self) -> bool:
        return self._wants_write

    def advance(self) -> Greeting | None:
        """Go on as far as possible now; returns None while no answer has come."""
        while self.greeting is None:
            try:
                if not self._stage():
                    return None
            except (ssl.SSLWantReadError, BlockingIOError):
                self._wants_write = False
                return None
            except ssl.SSLWantWriteError:
                self._wants_write = True
                return None
            except NotStomp as error:
                self._end(Silent(str(error)))
            except OSError as error:
                self._failed(error)
        return self.greeting

    def give_up(self, because: str) -> Silent:
        silent = Silent(because)
        self._end(silent)
        return silent

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def connection(self) -> Connection:
        """Hand the socket of a knock that was answered over."""
        if self._sock is None or not isinstance(self.greeting, Connected):
            raise ConnectionLost(f"{self.address} did not greet")
        sock, self._sock = self._sock, None
        return Connection(self.address, sock, self._reader, self._more)

    def _next_endpoint(self, because: str) -> None:
        self.close()
        if not self._where:
            self._end(Closed(because))
            return
        family, where = self._where.pop(0)
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stage, self._wants_write = self._connecting, True
        code = self._sock.connect_ex(where)
        if code not in {0, errno.EINPROGRESS}:
            self._failed(OSError(code, os.strerror(code)))

    def _failed(self, error: OSError) -> None:
        because = f"{self.address}: {error.strerror or error}"
        if isinstance(error, ConnectionRefusedError) and self._stage == self._connecting:
            self._next_endpoint(because)
        else:
            self._end(Silent(because))

    def _end(self, greeting: Greeting) -> None:
        self.greeting = greeting
        if not isinstance(greeting, Connected):
            self.close()

    def _socket(self) -> socket.socket:
        if self._sock is None:
            raise ConnectionResetError("closed")
        return self._sock

    def _connecting(self) -> bool:
        sock = self._socket()
        if not _ready({sock.fileno(): select.POLLOUT}, 0):
            return False
        if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        if sock.getsockname() == sock.getpeername():
            # Knocking often at a closed port of the ephemeral range can meet one's own socket.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        if self._tls is not None:
            self._sock = self._tls.wrap_socket(sock, server_hostname=self.address.host, do_handshake_on_connect=False)
            self._stage = self._shaking_hands
        else:
            self._stage = self._greeting
        return True

    def _shaking_hands(self) -> bool:
        sock = self._socket()
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        self._stage = self._greeting
        return True

    def _greeting(self) -> bool:
        self._socket().sendall(self._hello)  # some hundred bytes into an empty buffer: never short
        self._stage, self._wants_write = self._listening, False
        return True

    def _listening(self) -> bool:
        data = self._socket().recv(CHUNK)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "closed before a greeting")
        frames = self._reader.feed(data)
        if not frames:
            return True
        first, *self._more = frames
        if first.cmd == "CONNECTED":
            self._end(Connected(first.headers.get("server", ""), first.headers.get("version", "1.0")))
        elif first.cmd == "ERROR":
            self._end(Refused(said(first)))
        else:
            self._end(Silent(f"{self.address}: a {first.cmd} frame instead of a greeting"))
        return True


def knock(
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
        where = endpoints(address, timeout_s=timeout_s)
        attempt = Knock(address, login, tls, where=where, headers=headers)
    except OSError as error:  # ssl.SSLError is one too
        return Silent(f"{address}: {error.strerror or error}"), None
    while (greeting := attempt.advance()) is None:
        left = until - growing_s()
        if left <= 0:
            return attempt.give_up(f"{address}: no greeting within {timeout_s:g} s"), None
        wait_for([attempt], left)
    return greeting, attempt.connection() if isinstance(greeting, Connected) else None


def wait_for(knocks: list[Knock], timeout_s: float) -> None:
    """Wait until one of the knocks can advance, at most `timeout_s`."""
    events = {one.fileno(): select.POLLOUT if one.wants_write else select.POLLIN for one in knocks if one.fileno() >= 0}
    _ready(events, max(0.0, timeout_s))


def _ready(events: Mapping[int, int], timeout_s: float) -> bool:
    poll = select.poll()
    for descriptor, event in events.items():
        poll.register(descriptor, event)
    return bool(poll.poll(timeout_s * 1000))


def _hello(address: Address, login: Login | None, headers: Mapping[str, str]) -> bytes:
    who = {} if login is None else {"login": login.user, "passcode": login.password}
    fields = {"accept-version": "1.2", "host": address.host, **who, **headers}
    hello: bytes = pack(convert_frame(Frame("CONNECT", fields)))  # headers of CONNECT are not escaped
    return hello
