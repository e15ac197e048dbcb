"""The loop that serves the sockets of one simulated broker."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from dr_ctl_lab.twin import doors as module
from dr_ctl_lab.twin.doors import Doors, Visitor

SOUNDS = 100_000  # far more than wait in a socket's buffer


class Loud:
    """One that has much to say at once: each time the loop is told to look again."""

    def __init__(self, doors: Doors, sock: socket.socket, over: threading.Event) -> None:
        self.doors, self.sock, self.over = doors, sock, over

    def read(self) -> None:
        self.sock.recv(16)
        for _ in range(SOUNDS):
            self.doors.sound()
        self.over.set()

    def write(self) -> None: ...

    def tick(self) -> None: ...


def test_the_loop_never_waits_for_itself() -> None:
    doors, over = Doors(threading.RLock(), "london"), threading.Event()

    def welcome(sock: socket.socket, _: str) -> Visitor:
        return Loud(doors, sock, over)

    port = doors.reserve("clients", welcome)
    doors.open("clients")
    doors.start()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"ACK")
            assert over.wait(10)
    finally:
        doors.end()


def test_a_door_that_closes_leaves_its_port_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that looks for a free port just then would have the broker never open again."""
    doors = Doors(threading.RLock(), "london")
    port = doors.reserve("clients", lambda *_: None)
    bound, taken = module._bound, list[bool]()

    def taken_meanwhile(number: int) -> socket.socket:
        with socket.socket() as other, contextlib.suppress(OSError):
            other.bind(("127.0.0.1", number))
            taken.append(True)
        return bound(number)

    monkeypatch.setattr(module, "_bound", taken_meanwhile)
    doors.start()
    try:
        for _ in range(3):
            doors.open("clients")
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            doors.close("clients")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        doors.end()
    assert taken == []
