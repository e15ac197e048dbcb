"""The services of a run to a driver that applies a step: the journal records every call first, and the outage counts
against `--max-outage`.

The first SIGINT or SIGTERM asks for a safe end, the second ends at once. SIGHUP never stops a run.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.system import system
from dr_ctl.engine.journal import Journal, fenced_at
from dr_ctl.engine.operations import FENCE
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Outcome, StepContext
from dr_ctl.telemetry.events import EventSink, WaitProgress

STOPPED: Final = "stopped by a signal"  # the outcome of a step that a signal ended


class StopAtOnce(BaseException):
    """The second signal, or a person, ends the run here. No handler of Exception catches this."""

    def __init__(self, signum: int, why: str = "by a second signal") -> None:
        super().__init__(signum)
        self.signum = signum
        self.why = why


class StopRequest:
    def __init__(self) -> None:
        self._requested = system().event()
        self._question_open = False
        self._disarmed = False
        self.signum: int | None = None

    def ask(self, signum: int) -> None:
        """Record the first signal. Raises `StopAtOnce` on the second, `Stopped` if it ends a question."""
        if self._disarmed:
            self.signum = self.signum or signum
            return
        if self.signum is not None:
            raise StopAtOnce(signum)
        self.signum = signum
        self._requested.set()
        if self._question_open:
            raise Stopped(signum)

    def disarm(self) -> None:
        """Only record signals from here on: the run has ended, and its result is being written."""
        self._disarmed = True

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let a signal end the question of this block, instead of waiting for the answer."""
        self._question_open = True
        try:
            yield
        finally:
            self._question_open = False

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Let a signal end the work of this block, an earlier signal too: raises `Stopped`."""
        with self.interruptible():
            if self.signum is not None:
                raise Stopped(self.signum)
            yield

    def asked(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until a stop is requested; return whether one was."""
        return self._requested.wait(seconds)


def stop_request() -> StopRequest:
    """Handle the signals of this process by a new request."""
    request = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _frame: request.ask(signum))
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    return request


@contextmanager
def restored_handlers() -> Iterator[None]:
    """Restore the signal handlers at the end of the block."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
    before = [(number, signal.getsignal(number)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


_RATE_WINDOW_S: Final = 2.0
_SHOW_EVERY_S: Final = 0.2
_SLICE_S: Final = 0.5
_ALL_SAMPLES_S: Final = 60.0
_SAMPLE_EVERY_S: Final = 1.0


class OutageTooLong(Exception):
    """Clients have been out for longer than permitted, and the run can still be undone."""


class Outage:
    """The time that a run has kept clients out, from the first call of its fence, and the limit of that time. A resumed
    run counts on from its predecessor's fence; where the limit is over by then, it has the whole limit again, because
    it could only undo otherwise. The start of a lost site's outage is not known: nobody recorded the loss."""

    def __init__(self, journal: Journal, limit_s: float | None, *, start_known: bool) -> None:
        self.limit_s, self._start_known = limit_s, start_known
        self._since: float | None = None
        self._counted_from: float | None = None
        if start_known and (fenced := fenced_at(journal.entries())) is not None:
            now, out_s = system().monotonic(), (system().now() - fenced).total_seconds()
            self._since = now - out_s
            self._counted_from = now if limit_s is not None and out_s >= limit_s else self._since

    def begins(self) -> None:
        if self._start_known and self._since is None:
            self._since = self._counted_from = system().monotonic()

    def ends(self) -> None:
        self._since = None

    def so_far_s(self) -> float | None:
        """Return the seconds of the outage, None while clients are served."""
        return system().monotonic() - self._since if self._since is not None else None

    def left_s(self) -> float | None:
        """Return the seconds left until the limit, None without a limit, and before the outage begins."""
        if self.limit_s is None or self._since is None or self._counted_from is None:
            return None
        return self.limit_s - (system().monotonic() - self._counted_from)


class JournalledStep(StepContext):
    read_only = False

    def __init__(
        self,
        journal: Journal,
        step: PlannedStep,
        stop: StopRequest | None,
        listener: EventSink,
        outage: Outage,
        findings: list[Finding],
    ) -> None:
        """`stop` is None while a signal must wait: past the point of no return, and during an undo."""
        super().__init__(listener)
        self._journal, self._step, self._stop, self._outage = journal, step, stop, outage
        self._findings = findings
        self._trail: list[tuple[float, int]] = []
        self._shown = self._sampled = float("-inf")
        self._began = system().monotonic()
        self.let_in_at: datetime | None = None

    def change(self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Outcome]]) -> list[Outcome]:
        if not calls:
            return []
        if self._stop is not None and self._stop.asked():
            raise Stopped(self._stop.signum or 0)
        intents = self._journal.intents(self._step, calls)
        if self._step.verb == FENCE:
            self._outage.begins()
        outcomes = list(send(calls))
        rows = [(outcome.word, {"text": outcome.text, **outcome.evidence}) for outcome in outcomes]
        self._journal.results(self._step, [(seq, *row) for seq, row in zip(intents, rows, strict=True)])
        return outcomes

    def sample(self, evidence: Mapping[str, Json]) -> None:
        """Write every sample for a minute, then one a second: a wait may last for hours."""
        now = self.monotonic()
        if now - self._began > _ALL_SAMPLES_S and now - self._sampled < _SAMPLE_EVERY_S:
            return
        self._sampled = now
        self._journal.sample(self._step, evidence)

    def report_waiting(self, subject: str, depth: int | None, why_not_moving: str | None) -> None:
        now = self.monotonic()
        if depth is not None:
            self._trail = [(at, was) for at, was in self._trail if now - at <= _RATE_WINDOW_S] + [(now, depth)]
        if now - self._shown < _SHOW_EVERY_S:
            return
        self._shown = now
        rate = left = None
        if depth is not None and (since := self._trail[0])[0] < now:
            rate = (since[1] - depth) / (now - since[0])
            left = depth / rate if rate > 0 else None
        self._listener(WaitProgress(subject, depth, rate, left, why_not_moving, self._outage.so_far_s()))

    def outage_over(self) -> None:
        if self.let_in_at is None:
            self.let_in_at = system().now()
            self._outage.ends()

    def report(self, finding: Finding, out_s: float = 0.0) -> None:
        self._findings.append(finding)
        if out_s:
            self._journal.out_again(self._step, out_s)

    def wait(self, seconds: float) -> None:
        if self._stop is None:
            system().sleep(seconds)
            return
        left_s = self._outage.left_s()
        if left_s is not None and left_s <= 0:
            raise OutageTooLong
        if self._stop.wait(seconds if left_s is None else min(seconds, left_s)):
            raise Stopped(self._stop.signum or 0)

    def counting(self, subject: str, within_s: float) -> Callable[[float], None]:
        """Return a function for several waits of `within_s` in total; each shows the time left."""
        until = self.monotonic() + within_s

        def wait(seconds: float) -> None:
            now = self.monotonic()
            if now - self._shown >= _SHOW_EVERY_S:
                self._shown = now
                self._listener(WaitProgress(subject, None, None, max(until - now, 0), None, self._outage.so_far_s()))
            self.wait(seconds)

        return wait

    def hold(self, seconds: float, subject: str) -> None:
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            self._listener(WaitProgress(subject, None, None, left, None, self._outage.so_far_s()))
            self.wait(min(left, _SLICE_S))
