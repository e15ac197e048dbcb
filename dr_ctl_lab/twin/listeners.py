"""The listeners of one broker: a port for each acceptor and for the console, reserved for the life of the twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dr_ctl.core.system import Condition
from dr_ctl_lab.twin.network import NetworkListeners, network
from dr_ctl_lab.twin.parts import ConnectionHandler, Peer
from dr_ctl_lab.twin.sockets import SocketListeners

if TYPE_CHECKING:
    from dr_ctl_lab.twin.clock import Clock
    from dr_ctl_lab.twin.console import Console


class Listeners(Protocol):
    """All methods but `start` and `end` are called with the twin's lock held."""

    frozen: bool

    def reserve(self, name: str, on_connect: Callable[[Peer, str], ConnectionHandler | None]) -> int:
        """Take a free port, which refuses until opened; `on_connect` returns the handler of a connection."""

    def reserve_console(self, console: Console) -> int: ...

    def start(self) -> None: ...

    def end(self) -> None:
        """Close everything; the ports are free afterwards."""

    def open(self, name: str) -> None: ...

    def close(self, name: str) -> None:
        """Refuse new connections, and cut those that belong to no session."""

    def swallow(self) -> None:
        """Drop packets: connections are neither accepted nor refused."""

    def thaw(self) -> None:
        """End a freeze or a swallow."""


def listeners(changed: Condition, clock: Clock, name: str) -> Listeners:
    """Real sockets, or the simulated network where this process runs on a simulated system."""
    wires = network()
    return NetworkListeners(wires, changed, clock, name) if wires is not None else SocketListeners(changed, name)
