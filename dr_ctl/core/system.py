"""The services that a process takes from its system: time, waits, background work, connections to other machines.

All of them are behind one port, so that a simulation can replace the system and tests never sleep. No other module
sleeps, waits or starts a thread, except servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from dr_ctl.core.document import stamp
from dr_ctl.core.errors import DrCtlError

if TYPE_CHECKING:
    from pathlib import Path

    from requests.adapters import BaseAdapter

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
__all__ = ("boottime_s", "stamp")


class Event(Protocol):
    """A flag that threads can wait for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, at most for this time; return whether it is."""


class Mutex(AbstractContextManager[bool], Protocol):
    """A lock that one thread at a time may hold."""

    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


class Condition(AbstractContextManager[bool], Protocol):
    """A reentrant lock; a thread that waits releases the lock until something has changed."""

    def wait(self, timeout: float | None = None) -> bool: ...
    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class BackgroundTask(Protocol[T_co]):
    """Work that goes on in the background."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the work, at most for this time; return whether it has ended."""

    def result(self) -> T_co:
        """Wait for the end of the work; returns its value, or raises its error."""


class Stream(Protocol):
    """A connection that carries bytes. Every failure is an OSError."""

    def send(self, data: bytes, within_s: float) -> None: ...

    def receive(self, within_s: float) -> bytes | None:
        """Return the next bytes: empty at the end of the stream, None if none arrived in time."""

    def close(self) -> None: ...


class NetworkAccess(Protocol):
    """Connections to other machines, and programs, of a simulation."""

    def adapter(self) -> BaseAdapter:
        """Return the adapter that carries HTTP requests."""

    def connect(self, host: str, port: int, within_s: float) -> Stream:
        """Raises OSError: ConnectionRefusedError where nobody listens there."""

    def program(self, words: Sequence[str], folder: Path) -> Callable[[], int] | None:
        """Return a function that replaces a command and returns its exit code; None to run the command."""


class System(Protocol):
    """Time, waits and background work. Sockets and programs are this machine's own while `wires` is None."""

    wires: NetworkAccess | None

    def now(self) -> datetime:
        """Return the wall-clock time, in UTC: for people and file names, never for order."""

    def monotonic(self) -> float:
        """Return seconds that only grow, also while the machine sleeps: for every duration and deadline."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def event(self) -> Event: ...
    def mutex(self) -> Mutex: ...
    def condition(self) -> Condition: ...

    def start(self, work: Callable[[], T], name: str) -> BackgroundTask[T]:
        """Start work in the background; the end of the process does not wait for the work."""


# This clock goes on while the machine sleeps, if the system has such a clock, because a lock expires meanwhile.
_GROWING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ThisMachine:
    """Implements `System` by threads, and the machine's own clocks."""

    wires: NetworkAccess | None = None

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_GROWING)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Event:
        return threading.Event()

    def mutex(self) -> Mutex:
        return threading.Lock()

    def condition(self) -> Condition:
        return threading.Condition()

    def start(self, work: Callable[[], T], name: str) -> BackgroundTask[T]:
        return _Threaded(work, name)


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self.error: BaseException | None = None

    def do(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets the error
            self.error = error

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._results[0]


class _Threaded(Generic[T]):
    """Work in a thread of its own: a daemon, because a name look-up that hangs keeps no command from its end."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._job = _Job(work)
        self._asked = False
        # The thread refers only to the job, so that this object is deleted once no caller can ask for the result.
        self._thread = threading.Thread(target=self._job.do, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        self._thread.join()
        self._asked = True
        return self._job.result()

    def __del__(self) -> None:
        # A defect in work whose result nobody asked for is still reported.
        error = self._job.error
        if not self._asked and error is not None and not isinstance(error, OSError | DrCtlError):
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))


_system: System = ThisMachine()


def system() -> System:
    return _system


@contextmanager
def running_on(other: System) -> Iterator[None]:
    """Let the whole process run on another system for the block."""
    global _system  # noqa: PLW0603 - a process has one system
    before, _system = _system, other
    try:
        yield
    finally:
        _system = before


def in_background(work: Callable[[], T], name: str) -> BackgroundTask[T]:
    return _system.start(work, name)


def in_parallel(works: Iterable[Callable[[], T]], name: str, *, most: int) -> list[T]:
    """Do all works in parallel, at most `most` at a time; raise the first error after all have ended."""
    waiting = [_Job(work) for work in works]
    todo = iter(waiting)

    def lane() -> None:
        for job in todo:  # the lanes share the iterator
            job.do()
            if job.error is not None and not isinstance(job.error, Exception):
                raise job.error  # a second signal waits for nothing

    others = [in_background(lane, name) for _ in range(min(most, len(waiting)) - 1)]
    lane()
    for other in others:
        other.result()
    return [job.result() for job in waiting]


def all_ended(works: Sequence[BackgroundTask[Any]], within_s: float) -> bool:
    """Wait until all works have ended, at most for this time; return whether they have."""
    until = _system.monotonic() + within_s
    return all(work.wait(max(0.0, until - _system.monotonic())) for work in works)


def boottime_s() -> float:
    """Return seconds that only grow, also while the machine sleeps, as a lock's time does."""
    return system().monotonic()
