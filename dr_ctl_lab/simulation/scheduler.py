"""Tasks that take turns in simulated time: one runs, the others wait.

Each task has a thread, but runs only while it has the turn; a wait passes the turn on. The next task is the one with
the earliest time; of equal times, the one that was added first. Where all tasks wait, time jumps. So a run is the same
each time, on any machine.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from dr_ctl.core.errors import DrCtlError

T = TypeVar("T")

MAX_TURNS: Final = 200_000
"""The largest number of turns without a change of time."""
MAX_WAIT_S: Final = 24 * 3600.0
"""The longest wait of the first task: the others may never end."""


class Standstill(RuntimeError):
    """The first task waits for an event that will never happen."""


class _Ended(BaseException):
    """Ends a waiting task at the end of the simulation."""


class Task(Generic[T]):
    """A task: its work, and its result or error."""

    def __init__(self, name: str, work: Callable[[], T] | None = None) -> None:
        self.name = name
        self.work = work
        self.turn = 0
        self.woken = False
        self.has_ended = False
        self.is_reported = False
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.waiting: list[Ticket] = []
        self.turn_lock: threading.Lock | None = None
        self.thread: int | None = None

    def run(self) -> None:
        assert self.work is not None
        try:
            self.results.append(self.work())
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self.error = error
        self.work = None
        self.has_ended = True


Ticket = tuple[Task[object], int]
"""One wait of a task, by the number of its turn; it is void after that wait."""


class Scheduler:
    """Schedules all tasks; the thread that creates it is the first task."""

    def __init__(self, begins_s: float) -> None:
        self.now_s = begins_s
        self.turns = 0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Task[object], int]] = []
        self._first: Task[object] = Task("the first task")
        self._first.turn_lock, self._first.thread = _acquired_lock(), threading.get_ident()
        self._running = self._first
        self._began_waiting_s = begins_s
        self._moment = begins_s, 0
        self._tasks: list[Task[object]] = []
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._has_ended = False
        self._standstill: Standstill | None = None
        self._interrupts: list[Callable[[], None]] = []

    def start(self, work: Callable[[], T], name: str) -> Task[T]:
        task: Task[T] = Task(name, work)
        self._tasks = [task for task in self._tasks if not (task.has_ended and _needs_no_report(task))]
        self._tasks.append(task)  # type: ignore[arg-type] # of any kind
        self._push(self.now_s, task)  # type: ignore[arg-type]
        return task

    def ticket(self) -> Ticket:
        """The ticket of the running task's next wait."""
        return self._running, self._running.turn

    def wake(self, ticket: Ticket) -> None:
        """Let a task continue now, if that wait is not over."""
        task, turn = ticket
        if task.turn == turn:
            task.woken = True
            self._push(self.now_s, task)

    def wait(self, seconds: float | None = None) -> bool:
        """Let the running task wait until it is woken, for at most `seconds`; say whether it was."""
        task = self._running
        if threading.get_ident() != task.thread:
            raise RuntimeError(f"{threading.current_thread().name} is no task of the simulation, and waits in it")
        if self._has_ended and task is not self._first:
            raise _Ended
        task.woken = False
        if task is self._first:
            self._began_waiting_s = self.now_s
        if seconds is not None:
            self._push(self.now_s + max(0.0, seconds), task)
        self._yield_turn(task)
        while task is self._first and self._interrupts:
            task.turn -= 1  # its wait continues, unless the handler raises
            try:
                self._interrupts.pop(0)()
            except BaseException:
                task.turn += 1
                raise
            self._yield_turn(task)
        return task.woken

    def _yield_turn(self, task: Task[object]) -> None:
        chosen = self._choose()
        if chosen is not task:
            self._give_turn_to(chosen)
            self._wait_for_turn(task)
        if self._has_ended and task is not self._first:
            raise _Ended
        if self._standstill is not None:
            raise self._standstill

    def interrupt(self, handler: Callable[[], None]) -> None:
        """Call a handler in the first task, even during its wait, as for a signal."""
        if self._running is self._first:
            handler()
        else:
            self._interrupts.append(handler)
            self._push(self.now_s, self._first)

    def join(self, task: Task[T], seconds: float | None = None) -> bool:
        """Wait for the end of a task, for at most `seconds`; say whether it has ended."""
        until = None if seconds is None else self.now_s + seconds
        while not task.has_ended:
            if until is not None and self.now_s >= until:
                return False
            task.waiting.append(self.ticket())
            self.wait(None if until is None else until - self.now_s)
        return True

    def result(self, task: Task[T]) -> T:
        self.join(task)
        task.is_reported = True
        if task.error is not None:
            raise task.error
        return task.results[0]

    def end(self) -> None:
        """End all waiting tasks. Raise the first unexpected error that `result` did not report."""
        self._has_ended = True
        for task in self._tasks:
            if not task.has_ended and task.turn_lock is None:
                task.has_ended = True  # it never started
            elif not task.has_ended:
                self._running = task
                _release(task)
                self._wait_for_turn(self._first)
        for worker in self._workers:
            worker.end()
        for task in self._tasks:
            if task.error is not None and not _needs_no_report(task):
                raise task.error

    def _push(self, at_s: float, task: Task[object]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), task, task.turn))

    def _choose(self) -> Task[object]:
        """The next task. The first task where none is due, or at a standstill."""
        while self._due and not self._has_ended:
            at_s, _, task, turn = heapq.heappop(self._due)
            if turn != task.turn or task.has_ended:
                continue  # that wait is over
            self.now_s = max(self.now_s, at_s)
            task.turn += 1
            self._count_turn()
            return task if self._standstill is None else self._first
        if not self._has_ended:
            self._stop("no task is due")
        return self._first

    def _count_turn(self) -> None:
        self.turns += 1
        at_s, turns = self._moment
        self._moment = (at_s, turns + 1) if at_s == self.now_s else (self.now_s, 0)
        if turns > MAX_TURNS:
            self._stop("time does not pass")
        elif self._running is not self._first and self.now_s - self._began_waiting_s > MAX_WAIT_S:
            self._stop("the first task waits for too long")

    def _stop(self, reason: str) -> None:
        waiting = ", ".join(task.name for task in self._tasks if not task.has_ended)
        self._standstill = Standstill(f"{reason}; beside the first task there are: {waiting or 'none'}")

    def _give_turn_to(self, task: Task[object]) -> None:
        self._running = task
        if task.turn_lock is None:
            worker = self._idle.pop() if self._idle else self._new_worker()
            worker.task, task.turn_lock, task.thread = task, worker.turn_lock, worker.ident
        _release(task)

    def _new_worker(self) -> _Worker:
        worker = _Worker(self._done)
        self._workers.append(worker)
        return worker

    def _wait_for_turn(self, task: Task[object]) -> None:
        """Wait for the turn. An exception of a signal's handler is raised once the task has it."""
        assert task.turn_lock is not None
        raised: BaseException | None = None
        while True:
            try:
                task.turn_lock.acquire()
            except BaseException as error:  # noqa: BLE001
                raised = error
                if self._running is task:
                    task.turn_lock.acquire(blocking=False)
                    break
                self._push(self.now_s, task)
            else:
                break
        if raised is not None:
            raise raised

    def _done(self, worker: _Worker) -> None:
        """Wake the tasks that wait for an ended one, and pass the turn on."""
        task = worker.task
        assert task is not None
        for waiter in task.waiting:
            self.wake(waiter)
        task.waiting.clear()
        worker.task = None
        self._idle.append(worker)
        self._give_turn_to(self._choose())


class _Thread(threading.Thread):
    is_simulated = True


class _Worker:
    """A thread that runs one task after the other."""

    def __init__(self, done: Callable[[_Worker], None]) -> None:
        self.task: Task[object] | None = None
        self.turn_lock = _acquired_lock()
        self._done = done
        self._thread = _Thread(target=self._run, name="simulated", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def end(self) -> None:
        self.task = None
        self.turn_lock.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.turn_lock.acquire()
            if self.task is None:
                return
            self._thread.name = self.task.name
            self.task.run()
            self._done(self)


def _acquired_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _release(task: Task[object]) -> None:
    assert task.turn_lock is not None
    task.turn_lock.release()


def _needs_no_report(task: Task[object]) -> bool:
    """Say whether its error is expected, or was reported."""
    return task.is_reported or task.error is None or isinstance(task.error, OSError | DrCtlError)
