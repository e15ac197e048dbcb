"""Keeps the stored estimate fresh beside the monitor: in a process of its own, which takes its memory with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from dr_ctl.core.clock import growing_s
from dr_ctl.rpo.estimate.request import Estimating, Request

EVERY_S: Final = 300.0
SHARE: Final = 20
"""A long estimate is made so much more seldom that it takes no more than a twentieth of the time."""


class Refresher:
    """Starts an estimate when it is time, and looks whether it has ended. Never waits for it."""

    def __init__(self, request: Request, *, every_s: float = EVERY_S) -> None:
        self._request, self._every_s = request, every_s
        self._folder = tempfile.TemporaryDirectory(prefix="dr-ctl-estimate-")
        self._estimating: Estimating | None = None
        self._began = 0.0
        self._next = growing_s()
        self._said: str | None = None

    def look(self) -> str | None:
        """Start or end what is due. Returns a new reason why there is no estimate, each once."""
        now = growing_s()
        if self._estimating is None:
            if now >= self._next:
                self._began = now
                self._estimating = Estimating(self._request, Path(self._folder.name) / "request.json")
            return None
        if self._estimating.runs:
            return None
        answer, self._estimating = self._estimating.answer(), None
        self._next = now + max(self._every_s, SHARE * (now - self._began))
        why = str(answer["error"]) if "error" in answer else None
        is_new, self._said = why != self._said, why
        return f"no estimate: {why}" if why is not None and is_new else None

    def close(self) -> None:
        if self._estimating is not None:
            self._estimating.end()
        self._folder.cleanup()
