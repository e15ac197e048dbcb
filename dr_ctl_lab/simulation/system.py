"""A simulated system: time, synchronisation and network."""

import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Generic, TypeVar

from dr_ctl.core.system import BackgroundTask, Condition, Event, Mutex, NetworkAccess, running_on
from dr_ctl_lab.simulation.scheduler import Scheduler, Task, Ticket
from dr_ctl_lab.simulation.wires import SimulatedWires

T = TypeVar("T")

BEGINS: Final = datetime(2027, 3, 14, 10, 0, tzinfo=UTC)
UP_S: Final = 86_400.0  # of the machine at the start


class Simulation:
    """Implements `System`. Only threads that it has started may use it."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(UP_S)
        self.wires: NetworkAccess | None = SimulatedWires()

    def now(self) -> datetime:
        return BEGINS + timedelta(seconds=self._scheduler.now_s - UP_S)

    def monotonic(self) -> float:
        return self._scheduler.now_s

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(seconds)

    def event(self) -> Event:
        return _Event(self._scheduler)

    def mutex(self) -> Mutex:
        return _Mutex(self._scheduler)

    def condition(self) -> Condition:
        return _Condition(self._scheduler)

    def start(self, work: Callable[[], T], name: str) -> BackgroundTask[T]:
        return _Work(self._scheduler, self._scheduler.start(work, name))

    def interrupt(self, signum: int) -> None:
        """Send a signal to this process: the first task handles it in its present or next wait."""
        handler = signal.getsignal(signum)
        if callable(handler):
            self._scheduler.interrupt(lambda: handler(signum, None))

    def end(self) -> None:
        self._scheduler.end()


@contextmanager
def simulated() -> Iterator[Simulation]:
    """Run this process in simulated time during the block; its end ends all waiting tasks."""
    simulation = Simulation()
    with running_on(simulation):
        try:
            yield simulation
        finally:
            simulation.end()


class _Work(Generic[T]):
    """Implements `Work`."""

    def __init__(self, scheduler: Scheduler, task: Task[T]) -> None:
        self._scheduler, self._task = scheduler, task

    def wait(self, seconds: float | None = None) -> bool:
        return self._scheduler.join(self._task, seconds)

    def result(self) -> T:
        return self._scheduler.result(self._task)


class _Condition:
    """Implements `Condition`. It needs no lock: no other task runs until this one waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Ticket] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing: there is no lock."""

    def wait(self, timeout: float | None = None) -> bool:
        ticket = self._scheduler.ticket()
        self._waiting.append(ticket)
        woken = self._scheduler.wait(timeout)
        if not woken:
            self._waiting.remove(ticket)
        return woken

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else self._scheduler.now_s + timeout
        while not predicate():
            remaining = None if until is None else until - self._scheduler.now_s
            if remaining is not None and remaining <= 0:
                return False
            self.wait(remaining)
        return True

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            self._scheduler.wake(ticket)


class _Event:
    """Implements `Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._changed = _Condition(scheduler)
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._changed.wait_for(lambda: self._is_set, timeout)


class _Mutex:
    """Implements `Mutex`; waiting tasks get it in order."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False
        self._waiting: deque[Ticket] = deque()

    def acquire(self, blocking: bool = True) -> bool:  # as the library's own
        if self._is_held and not blocking:
            return False
        if self._is_held:
            self._waiting.append(self._scheduler.ticket())
            self._scheduler.wait()  # `release` hands it over
        self._is_held = True
        return True

    def release(self) -> None:
        if self._waiting:
            self._scheduler.wake(self._waiting.popleft())
        else:
            self._is_held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
