"""Keeps the stored estimate fresh beside the monitor: in a process of its own, which keeps its session of Spark between
two estimates, or ends with each and takes its memory with it."""

import os
from typing import Final

from dr_ctl.core.system import growing_s
from dr_ctl.rpo.estimate.request import Estimating, Request

EVERY_S: Final = 300.0
SHARE: Final = 20
"""A long estimate is made so much more seldom that it takes no more than a twentieth of the time."""
LEAST_MEMORY: Final = 4 << 30
"""A machine with less has no room for a session of Spark that waits."""


def stays_by_default() -> bool:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= LEAST_MEMORY


class Refresher:
    """Asks for an estimate when it is time, and looks whether it has come. Never waits for it."""

    def __init__(self, request: Request, *, stays: bool, every_s: float = EVERY_S) -> None:
        """`stays`: the process waits for the next estimate."""
        self._request, self._stays, self._every_s = request, stays, every_s
        self._estimating: Estimating | None = None
        self._is_asked = False
        self._began = 0.0
        self._next = growing_s()
        self._said: str | None = None

    def look(self) -> str | None:
        """Ask for what is due. Returns a new reason why there is no estimate, each once."""
        now = growing_s()
        if not self._is_asked:
            if now >= self._next:
                self._began, self._is_asked = now, True
                if self._stays and self._estimating is not None and self._estimating.lives:
                    self._estimating.ask(self._request)
                else:
                    self.close()
                    self._estimating = Estimating(self._request, stays=self._stays)
            return None
        if self._estimating is None or self._estimating.runs:
            return None
        answer, self._is_asked = self._estimating.answer(), False
        self._next = now + max(self._every_s, SHARE * (now - self._began))
        why = str(answer["error"]) if "error" in answer else None
        is_new, self._said = why != self._said, why
        return f"no estimate: {why}" if why is not None and is_new else None

    def close(self) -> None:
        if self._estimating is not None:
            self._estimating.end()
            self._estimating = None
