"""Simulated time for tests: a real wait, or a real socket, fails the test."""

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
    """Simulated time without real sleeps and connections; the list gets those that were tried."""
    tried: list[str] = []
    with pytest.MonkeyPatch.context() as patch, simulated():
        for owner, name in ((time, "sleep"), (socket.socket, "connect"), (socket.socket, "connect_ex")):
            patch.setattr(owner, name, _refused(getattr(owner, name), name, tried))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _: None)  # files of tests need not survive a power cut
        yield tried


def interrupt(signum: int = signal.SIGINT, *, times: int = 1) -> None:
    """Send signals to this process, in simulated or real time."""
    simulation = system()
    for _ in range(times):
        if isinstance(simulation, Simulation):
            simulation.interrupt(signum)
        else:
            os.kill(os.getpid(), signum)


def _refused(real: Callable[..., Any], name: str, tried: list[str]) -> Callable[..., Any]:
    first = threading.get_ident()

    def refused(*arguments: Any, **options: Any) -> Any:
        thread, caller = threading.current_thread(), str(sys._getframe(1).f_globals["__name__"])
        is_simulated = thread.ident == first or hasattr(thread, "is_simulated")
        if not is_simulated or caller in ("subprocess", "multiprocessing.process"):
            return real(*arguments, **options)  # by the test runner, or for a real process
        tried.append(f"{thread.name}: {name}")
        raise AssertionError(f"a real {name} in simulated time")

    return refused
