"""The loop that serves the sockets of one simulated broker."""

import contextlib
import socket
import threading

import pytest

from dr_ctl_lab.twin import sockets as module
from dr_ctl_lab.twin.parts import Visitor
from dr_ctl_lab.twin.sockets import SocketDoors

pytestmark = pytest.mark.wire

SOUNDS = 100_000  # far more than wait in a socket's buffer


class Loud:
    """One that has much to say at once: each time the loop is told to look again."""

    def __init__(self, doors: SocketDoors, over: threading.Event) -> None:
        self.doors, self.over = doors, over

    def read(self, data: bytes) -> None:
        for _ in range(SOUNDS):
            self.doors._sound()
        self.over.set()

    def tick(self) -> None: ...

    def due_s(self) -> float:
        return 0.0


def test_the_loop_never_waits_for_itself() -> None:
    doors, over = SocketDoors(threading.Condition(), "london"), threading.Event()

    def welcome(*_: object) -> Visitor:
        return Loud(doors, over)

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
    doors = SocketDoors(threading.Condition(), "london")
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
