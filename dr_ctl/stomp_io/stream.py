"""Connections to a STOMP port, TLS from the first byte where it speaks that. Every wait is bounded.

stomp.py's own attempts bound no wait: with one to be made, a port that refuses answers after 0.2 s instead of 1 ms (it
sleeps before it gives up), and a name look-up lasts for as long as the system likes.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dr_ctl.core.system import growing_s, system
from dr_ctl.stomp_io.address import endpoints

if TYPE_CHECKING:
    from dr_ctl.core.system import Stream
    from dr_ctl.stomp_io.address import Address, Endpoint, TlsFiles

CHUNK: Final = 64 * 1024


def connected(address: Address, tls: TlsFiles | None, *, within_s: float) -> Stream:
    """Connect to the first end point that takes a connection. Raises OSError: ConnectionRefusedError where all refuse,
    TimeoutError where none answers in time; ssl.SSLError is one too."""
    if (wires := system().wires) is not None:
        return wires.connect(address.host, address.port, within_s)
    context = None if not address.tls else tls.context() if tls else ssl.create_default_context()
    until = growing_s() + within_s
    sock = _dialled(endpoints(address, timeout_s=within_s), until)
    if context is None:
        return Sock(sock)
    secure = context.wrap_socket(sock, server_hostname=address.host, do_handshake_on_connect=False)
    try:
        _shake_hands(secure, until)
    except BaseException:
        secure.close()
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
    """Say whether a broker answers there as one that speaks AMQP: unlike a proxy, which takes a connection all the
    same. False says nothing of what is there."""
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
            sock.settimeout(max(0.001, until - growing_s()))
            sock.connect(place)
            if sock.getsockname() != sock.getpeername():
                return sock
            # Knocking often at a closed port of the ephemeral range can meet one's own socket.
            refused = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except ConnectionRefusedError as error:
            refused = error
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise refused


def _shake_hands(sock: ssl.SSLSocket, until: float) -> None:
    """Within the time, however many packets it takes."""
    sock.setblocking(False)
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            _wait_for(sock, select.POLLIN, until)
        except ssl.SSLWantWriteError:
            _wait_for(sock, select.POLLOUT, until)
        else:
            return


def _wait_for(sock: socket.socket, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(sock, event)
    if not poll.poll(max(0.0, until - growing_s()) * 1000):
        raise TimeoutError("no TLS within the time")
