"""Brokers that keep documents, in memory, and runs that reach for them at the same time, interleaved call by call."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.holding import Lease
from dr_ctl.engine.lease import LOCK, Forbidden, LockDocument, Look, look_at

PAIR = "orders-1"
CALL_S = 30.0


@dataclass
class Time:
    """One time for all: the runs' clocks and the brokers'."""

    s: float = 1000.0

    def monotonic(self) -> float:
        return self.s


@dataclass
class Shelf:
    """The documents of one broker. `skew_ms` is how far its clock is from the others'."""

    site: str
    time: Time
    skew_ms: int = 0
    silent: bool = False
    forbids: bool = False
    loses_answers: bool = False
    documents: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def now_ms(self) -> int:
        return int(self.time.s * 1000) + self.skew_ms

    def lock(self, epoch: int) -> LockDocument:
        return LockDocument.of_text(epoch, self.documents[LOCK, epoch])

    def epochs(self) -> list[int]:
        return sorted(number for kind, number in self.documents if kind == LOCK)


class Reach:
    """One run's way to a shelf; `before` is called before each request."""

    pair = PAIR

    def __init__(self, shelf: Shelf, before: Callable[[], None] = lambda: None, *, cut: bool = False) -> None:
        self.site, self._shelf, self._before, self._cut = shelf.site, shelf, before, cut
        self._told: tuple[float, int, list[tuple[str, int, str]]] | None = None

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        self._ask()
        told = [(number, text) for (each, number), text in self._shelf.documents.items() if each == kind]
        return self._shelf.now_ms, told

    def lately(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        """What `look` was told, and how long that is ago."""
        if self._told is None:
            return None
        at_s, now_ms, told = self._told
        return self._shelf.time.s - at_s, now_ms, [(number, text) for each, number, text in told if each == kind]

    def look(self) -> None:
        """Look at the broker for something else."""
        told = [(kind, number, text) for (kind, number), text in self._shelf.documents.items()]
        self._told = self._shelf.time.s, self._shelf.now_ms, told

    def create(self, kind: str, number: int, text: str) -> bool:
        self._ask()
        if self._shelf.forbids:
            raise Forbidden("not allowed")
        if (kind, number) in self._shelf.documents:
            return False
        self._shelf.documents[kind, number] = text
        if self._shelf.loses_answers:
            raise BrokerError("no answer")
        return True

    def update(self, kind: str, number: int, text: str) -> None:
        self._ask()
        if (kind, number) not in self._shelf.documents:
            raise BrokerError("it does not exist")
        self._shelf.documents[kind, number] = text

    def delete(self, kind: str, number: int) -> None:
        self._ask()
        if self._shelf.documents.pop((kind, number), None) is None:
            raise BrokerError("it does not exist")

    def _ask(self) -> None:
        self._before()
        if self._shelf.silent or self._cut:
            raise BrokerError(f"{self.site} is silent")


def who(name: str, **more: str) -> LockDocument:
    """The document of a run to be; each run has a STATE of its own unless told otherwise."""
    told = {"holder": "ada", "host": f"host-{name}", "state": f"state-{name}", "what": "swapover to paris", **more}
    return LockDocument(0, name, pid=4711, **told)  # type: ignore[arg-type]


def lease(
    name: str,
    shelves: Iterable[Shelf],
    before: Callable[[], None] = lambda: None,
    cut: frozenset[str] = frozenset(),
    **more: str,
) -> Lease:
    """A run's lock; it does not reach the sites of `cut`."""
    stores = [Reach(shelf, before, cut=shelf.site in cut) for shelf in shelves]
    return Lease(stores, who(name, **more), next(iter(shelves)).time)  # type: ignore[arg-type]


def look(shelf: Shelf) -> Look:
    return look_at(Reach(shelf))


def pair(time: Time | None = None) -> tuple[Shelf, Shelf]:
    time = time or Time()
    return Shelf("london", time), Shelf("paris", time, skew_ms=90_000)


def may_call(run: Lease, site: str) -> bool:
    return run.why_not(site, PAIR, CALL_S) is None


class Contender:
    """A thread that moves only when it is told to, up to its next request. Call it before each of these; what another
    thread asks for goes through."""

    def __init__(self) -> None:
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._over = False

    def __call__(self) -> None:
        if threading.current_thread() is self._thread:
            self._arrived.release()
            self._go.acquire()

    def does(self, act: Callable[[], None]) -> None:
        def run() -> None:
            self._go.acquire()
            try:
                act()
            finally:
                self._over = True
                self._arrived.release()

        self._thread = threading.Thread(target=run)

    def start(self) -> None:
        assert self._thread is not None
        self._thread.start()

    def step(self) -> bool:
        """Move once; says whether there is more to come."""
        if not self._over:
            self._go.release()
            self._arrived.acquire()
        return not self._over

    def end(self) -> None:
        assert self._thread is not None
        while self.step():
            pass
        self._thread.join()


def play(contenders: Sequence[Contender], order: Iterable[int]) -> None:
    """Move the contenders in this order, then each to its end."""
    for each in contenders:
        each.start()
    for number in order:
        contenders[number].step()
    for each in contenders:
        each.end()
