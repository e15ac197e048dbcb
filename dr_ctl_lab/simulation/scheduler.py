"""Tasks that take turns: one runs at a time, the others wait for their moment.

A task has a thread of its own, so that it may wait wherever it stands; but it runs only while it has the turn, and
gives the turn away where it waits. Whoever gives it away chooses who is next: by time, and at one time by order. Where
all wait, time jumps. So a run is the same each time, however busy the machine is.
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
"""So many turns at one moment, and time does not pass any more."""
MOST_ALONE_S: Final = 24 * 3600.0
"""So long the first task waits for the others at most: what else there is goes on for ever."""


class Standstill(RuntimeError):
    """Somebody waits for what will never happen."""


class _Ended(BaseException):
    """The simulation is over, and ends what still waits."""


class Task(Generic[T]):
    """Work in turns, and how it ended."""

    def __init__(self, name: str, work: Callable[[], T] | None = None) -> None:
        self.name = name
        self.work = work
        self.turn = 0
        self.woken = False
        self.is_over = False
        self.is_told = False
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.waiting: list[Ticket] = []
        self.go: threading.Lock | None = None
        self.thread: int | None = None

    def do(self) -> None:
        assert self.work is not None
        try:
            self.results.append(self.work())
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
            self.error = error
        self.work = None
        self.is_over = True


Ticket = tuple[Task[object], int]
"""A task as it waits once: good for nothing when it has gone on."""


class Scheduler:
    """The turns of all tasks, and their time. The task that makes it is the first."""

    def __init__(self, begins_s: float) -> None:
        self.now_s = begins_s
        self.turns = 0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Task[object], int]] = []
        self._first: Task[object] = Task("the first task")
        self._first.go, self._first.thread = _held(), threading.get_ident()
        self._running = self._first
        self._began_waiting_s = begins_s
        self._moment = begins_s, 0
        self._tasks: list[Task[object]] = []
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._is_over = False
        self._standstill: Standstill | None = None
        self._interrupts: list[Callable[[], None]] = []

    def start(self, work: Callable[[], T], name: str) -> Task[T]:
        task: Task[T] = Task(name, work)
        self._tasks = [task for task in self._tasks if not (task.is_over and _is_clear(task))]
        self._tasks.append(task)  # type: ignore[arg-type] # of any kind
        self._push(self.now_s, task)  # type: ignore[arg-type]
        return task

    def ticket(self) -> Ticket:
        """Of the task that runs, for the next time it waits."""
        return self._running, self._running.turn

    def wake(self, ticket: Ticket) -> None:
        """Let the task go on at this moment, if it still waits as it did."""
        task, turn = ticket
        if task.turn == turn:
            task.woken = True
            self._push(self.now_s, task)

    def wait(self, seconds: float | None = None) -> bool:
        """Let the task that runs wait until it is woken, for so long at most; says whether it was."""
        task = self._running
        if threading.get_ident() != task.thread:
            raise RuntimeError(f"{threading.current_thread().name} is no task of the simulation, and waits in it")
        if self._is_over and task is not self._first:
            raise _Ended
        task.woken = False
        if task is self._first:
            self._began_waiting_s = self.now_s
        if seconds is not None:
            self._push(self.now_s + max(0.0, seconds), task)
        self._give_turn_away(task)
        while task is self._first and self._interrupts:
            task.turn -= 1  # its wait is the same one, unless it is broken off
            try:
                self._interrupts.pop(0)()
            except BaseException:
                task.turn += 1
                raise
            self._give_turn_away(task)
        return task.woken

    def _give_turn_away(self, task: Task[object]) -> None:
        chosen = self._choose()
        if chosen is not task:
            self._pass_on(chosen)
            self._until_its_turn(task)
        if self._is_over and task is not self._first:
            raise _Ended
        if self._standstill is not None:
            raise self._standstill

    def interrupt(self, handler: Callable[[], None]) -> None:
        """Let the first task do this, in the middle of its wait if it waits, as a process does where a signal comes."""
        if self._running is self._first:
            handler()
        else:
            self._interrupts.append(handler)
            self._push(self.now_s, self._first)

    def join(self, task: Task[T], seconds: float | None = None) -> bool:
        """Wait for the end of a task, for so long at most; says whether it has ended."""
        until = None if seconds is None else self.now_s + seconds
        while not task.is_over:
            if until is not None and self.now_s >= until:
                return False
            task.waiting.append(self.ticket())
            self.wait(None if until is None else until - self.now_s)
        return True

    def result(self, task: Task[T]) -> T:
        self.join(task)
        task.is_told = True
        if task.error is not None:
            raise task.error
        return task.results[0]

    def end(self) -> None:
        """End all that still waits. Raises the first defect of a task that nobody asked for."""
        self._is_over = True
        for task in self._tasks:
            if not task.is_over and task.go is None:
                task.is_over = True  # it never began
            elif not task.is_over:
                self._running = task
                _release(task)
                self._until_its_turn(self._first)
        for worker in self._workers:
            worker.end()
        for task in self._tasks:
            if task.error is not None and not _is_clear(task):
                raise task.error

    def _push(self, at_s: float, task: Task[object]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), task, task.turn))

    def _choose(self) -> Task[object]:
        """Who is next. The first task where nobody is, or where time does not pass, or passes without an end."""
        while self._due and not self._is_over:
            at_s, _, task, turn = heapq.heappop(self._due)
            if turn != task.turn or task.is_over:
                continue  # it went on for another reason
            self.now_s = max(self.now_s, at_s)
            task.turn += 1
            self._counted()
            return task if self._standstill is None else self._first
        if not self._is_over:
            self._stop("nobody will ever go on")
        return self._first

    def _counted(self) -> None:
        self.turns += 1
        at_s, turns = self._moment
        self._moment = (at_s, turns + 1) if at_s == self.now_s else (self.now_s, 0)
        if turns > MAX_TURNS:
            self._stop("time does not pass")
        elif self._running is not self._first and self.now_s - self._began_waiting_s > MOST_ALONE_S:
            self._stop("what the first task waits for does not happen")

    def _stop(self, why: str) -> None:
        waiting = ", ".join(task.name for task in self._tasks if not task.is_over)
        self._standstill = Standstill(f"{why}; beside the first task there are: {waiting or 'none'}")

    def _pass_on(self, task: Task[object]) -> None:
        self._running = task
        if task.go is None:
            worker = self._idle.pop() if self._idle else self._hired()
            worker.task, task.go, task.thread = task, worker.go, worker.ident
        _release(task)

    def _hired(self) -> _Worker:
        worker = _Worker(self._done)
        self._workers.append(worker)
        return worker

    def _until_its_turn(self, task: Task[object]) -> None:
        """Wait for the turn. What a signal's handler raises meanwhile is raised once it has come."""
        assert task.go is not None
        raised: BaseException | None = None
        while True:
            try:
                task.go.acquire()
            except BaseException as error:  # noqa: BLE001
                raised = error
                if self._running is task:
                    task.go.acquire(blocking=False)
                    break
                self._push(self.now_s, task)
            else:
                break
        if raised is not None:
            raise raised

    def _done(self, worker: _Worker) -> None:
        """A task has ended: whoever waits for it goes on."""
        task = worker.task
        assert task is not None
        for waiter in task.waiting:
            self.wake(waiter)
        task.waiting.clear()
        worker.task = None
        self._idle.append(worker)
        self._pass_on(self._choose())


class _Thread(threading.Thread):
    is_simulated = True


class _Worker:
    """A thread that does one task after the other."""

    def __init__(self, done: Callable[[_Worker], None]) -> None:
        self.task: Task[object] | None = None
        self.go = _held()
        self._done = done
        self._thread = _Thread(target=self._run, name="simulated", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def end(self) -> None:
        self.task = None
        self.go.release()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            if self.task is None:
                return
            self._thread.name = self.task.name
            self.task.do()
            self._done(self)


def _held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _release(task: Task[object]) -> None:
    assert task.go is not None
    task.go.release()


def _is_clear(task: Task[object]) -> bool:
    """Say whether nobody has to hear of its end."""
    return task.is_told or task.error is None or isinstance(task.error, OSError | DrCtlError)
