"""Simulated time for tests: who waits for real in it, or asks a socket, fails."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from dr_ctl.core.system import system
from dr_ctl_lab.simulation.system import Simulation, simulated

WIRE: Final = "wire"
"""The marker of tests that run in real time behind sockets."""


@contextmanager
def nothing_real() -> Iterator[list[str]]:
    """Simulated time in which no task sleeps or connects for real; gives what one tried all the same."""
    tried: list[str] = []
    with pytest.MonkeyPatch.context() as patch, simulated():
        for of, name in ((time, "sleep"), (socket.socket, "connect"), (socket.socket, "connect_ex")):
            patch.setattr(of, name, _refused(getattr(of, name), name, tried))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _: None)  # what a test writes outlives no power cut
        yield tried


def interrupt(signum: int = signal.SIGINT, *, times: int = 1) -> None:
    """Signals to this process, in simulated time or in real."""
    simulation = system()
    for _ in range(times):
        if isinstance(simulation, Simulation):
            simulation.interrupt(signum)
        else:
            os.kill(os.getpid(), signum)


def _refused(real: Callable[..., Any], name: str, tried: list[str]) -> Callable[..., Any]:
    first = threading.get_ident()

    def refused(*arguments: Any, **more: Any) -> Any:
        thread, caller = threading.current_thread(), str(sys._getframe(1).f_globals["__name__"])
        of_a_task = thread.ident == first or hasattr(thread, "is_simulated")
        if not of_a_task or caller in ("subprocess", "multiprocessing.process"):
            return real(*arguments, **more)  # of what runs the tests, or of who waits for a real process
        tried.append(f"{thread.name}: {name}")
        raise AssertionError(f"a real {name} in simulated time")

    return refused
