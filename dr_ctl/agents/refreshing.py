"""Keeps the stored estimate fresh beside the monitor: in a process of its own, which takes its memory with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.rpo.worker import command

if TYPE_CHECKING:
    from dr_ctl.rpo.worker import Request

EVERY_S: Final = 300.0
SHARE: Final = 20
"""A long estimate is made so much more seldom that it takes no more than a twentieth of the time."""
_END_S: Final = 3.0


class Refresher:
    """Starts an estimate when it is time, and looks whether it has ended. Never waits for it."""

    def __init__(self, request: Request, *, every_s: float = EVERY_S) -> None:
        self._request, self._every_s = request, every_s
        self._folder = tempfile.TemporaryDirectory(prefix="dr-ctl-estimate-")
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._next = time.monotonic()
        self._told: str | None = None

    def look(self) -> str | None:
        """Start or end what is due. Returns a new reason why there is no estimate, each once."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._next:
                self._start(now)
            return None
        if self._process.poll() is None:
            return None
        self._process = None
        self._next = now + max(self._every_s, SHARE * (now - self._began))
        why = self._why_not()
        is_new, self._told = why != self._told, why
        return why if is_new else None

    def close(self) -> None:
        process, self._process = self._process, None
        # The worker leads a group of its own, so that its JVM ends with it.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if process is None or process.poll() is not None:
                break
            try:
                os.killpg(process.pid, signum)
                process.wait(_END_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._folder.cleanup()

    @property
    def _answer(self) -> Path:
        return Path(self._folder.name) / "answer.json"

    def _start(self, now: float) -> None:
        request = Path(self._folder.name) / "request.json"
        request.write_text(self._request.to_json(), encoding="utf-8")
        self._began = now
        with self._answer.open("wb") as out:
            self._process = subprocess.Popen(
                command(request),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _why_not(self) -> str | None:
        try:
            told: dict[str, Any] = json.loads(self._answer.read_text(encoding="utf-8"))
        except ValueError:
            return "the estimate ended without an answer"
        if "error" in told:
            return f"no estimate: {told['error']}"
        return None
