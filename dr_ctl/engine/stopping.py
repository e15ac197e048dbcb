"""SIGINT and SIGTERM: the first asks for a safe end, the second ends at once. SIGHUP never stops a run."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from dr_ctl.core.errors import Stopped
from dr_ctl.core.system import system

STOPPED: Final = "stopped by a signal"
"""What a step says that a signal ended."""


class StopAtOnce(BaseException):
    """The second signal, or a person who said so. Not an Exception, so that no handler on the way catches this."""

    def __init__(self, signum: int, why: str = "by a second signal") -> None:
        super().__init__(signum)
        self.signum = signum
        self.why = why


class StopRequest:
    """Whether a stop was asked for, and by which signal."""

    def __init__(self) -> None:
        self._asked = system().event()
        self._question_open = False
        self._over = False
        self.signum: int | None = None

    def ask(self, signum: int) -> None:
        """Note the first signal; raise `StopAtOnce` on the second. Raises `Stopped` where a person is being asked: a
        signal is their answer."""
        if self._over:
            return
        if self.signum is not None:
            raise StopAtOnce(signum)
        self.signum = signum
        self._asked.set()
        if self._question_open:
            raise Stopped(signum)

    def over(self) -> None:
        """The run has ended, and how is being written down: from here on signals change nothing."""
        self._over = True

    @contextmanager
    def question(self) -> Iterator[None]:
        """Let a signal end the question that is asked in this block, instead of waiting for its answer."""
        self._question_open = True
        try:
            yield
        finally:
            self._question_open = False

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Let a signal end the work of this block, also one that came before the block: raises `Stopped`."""
        with self.question():
            if self.signum is not None:
                raise Stopped(self.signum)
            yield

    def asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Let time pass, less of it when a stop is asked for; says whether one was."""
        return self._asked.wait(seconds)


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Route the signals of this process to a request, for as long as the block runs."""
    request = StopRequest()

    def on_signal(signum: int, frame: FrameType | None) -> None:
        del frame
        request.ask(signum)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before[signal.SIGPIPE] = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
