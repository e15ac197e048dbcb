"""The listeners of one broker: a port for each acceptor and one for the console, kept for as long as the twin lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dr_ctl.core.system import Condition
from dr_ctl_lab.twin.network import NetworkListeners, network
from dr_ctl_lab.twin.parts import Peer, Visitor
from dr_ctl_lab.twin.sockets import SocketListeners

if TYPE_CHECKING:
    from dr_ctl_lab.twin.clock import Clock
    from dr_ctl_lab.twin.console import Console


class Listeners(Protocol):
    """Every method is called with the twin's lock held, but `start` and `end`."""

    frozen: bool

    def reserve(self, name: str, welcome: Callable[[Peer, str], Visitor | None]) -> int:
        """Take a free port for a listener, which refuses until opened; `welcome` says who serves a connection there."""

    def reserve_console(self, console: Console) -> int: ...

    def start(self) -> None: ...

    def end(self) -> None:
        """Close everything; the ports are free afterwards."""

    def open(self, name: str) -> None: ...

    def close(self, name: str) -> None:
        """Refuse from now on, and cut those that nobody else cuts."""

    def swallow(self) -> None:
        """From now on connections are neither accepted nor refused: the packets go nowhere."""

    def thaw(self) -> None:
        """The end of a freeze, and of `swallow`."""


def listeners(changed: Condition, clock: Clock, name: str) -> Listeners:
    """Behind the sockets of this machine, unless the system that this process runs on has a network of its own."""
    wires = network()
    return NetworkListeners(wires, changed, clock, name) if wires is not None else SocketListeners(changed, name)
