"""The clock of a twin, which can run faster than real time."""

from dr_ctl.core.system import system


class Clock:
    """With `pace` 10 an hour of the twin takes six minutes of real time."""

    def __init__(self, *, pace: float = 1.0) -> None:
        self._pace = pace
        self._began_s, self._began_at_s = system().monotonic(), system().now().timestamp()

    def now_s(self) -> float:
        """Seconds that only grow, from an arbitrary start."""
        return self._began_s + (system().monotonic() - self._began_s) * self._pace

    def date_ms(self) -> int:
        """Milliseconds since 1970."""
        return round((self._began_at_s + self.now_s() - self._began_s) * 1000)

    def outside_s(self, seconds: float) -> float:
        """Convert seconds of the twin to seconds of real time."""
        return seconds / self._pace
