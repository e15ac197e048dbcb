"""The time of a twin: everything in it that waits or ages asks this, so that it can pass faster than outside."""

from dr_ctl.core.system import system


class Clock:
    """`pace` 10: an hour of the twin takes six minutes outside."""

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
        """How long so many of its seconds are outside."""
        return seconds / self._pace
