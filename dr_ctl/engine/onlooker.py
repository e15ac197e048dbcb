"""A hand that changes nothing: for a command that waits and looks without a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dr_ctl.core.clock import Clock
from dr_ctl.core.model import Json
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.engine.plan import Call
from dr_ctl.telemetry.events import Listener, Notice, WaitProgress


class Onlooker:
    """Implements `StepContext` without a journal; every change is refused."""

    only_looks: ClassVar[bool] = True

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self._clock, self._listener = clock, listener

    def change(self, calls: Sequence[Call], send: Callable[[Sequence[Call]], Sequence[Outcome]]) -> list[Outcome]:
        del send
        return [Refused("this command only looks") for _ in calls]

    def sample(self, evidence: Mapping[str, Json]) -> None:
        """Do nothing: no report will be made."""

    def waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        self._listener(WaitProgress(about, depth, None, None, why_not_moving))

    def notice(self, text: str) -> None:
        self._listener(Notice(text))

    def let_in(self) -> None:
        """Do nothing: no client was let in."""

    def wait(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def monotonic(self) -> float:
        return self._clock.monotonic()
