"""An estimate as it is asked for, and made in a process of its own beside other work. Loads no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dr_ctl.core.errors import UsageError
from dr_ctl.rpo.estimate.result import Objectives
from dr_ctl.settings.model import Place

_END_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to a history (a folder or a URL), by an estimate or a backtest. `near`: the folder on this machine
    where its last estimate is kept too; None where the history is one. `site` defaults to the one serving at
    the end; with `store` the answer is kept beside the history too, and the summaries that it was made from; without
    `settled` those that are there are not read. `tested` has every second look left out too; `horizons_s` are those
    over which changes are gathered, `horizon_s` is the one to tell."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    history: str
    near: str | None = None
    site: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    horizon_s: float = 300
    objectives: Objectives | None = None
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    store: bool = False
    settled: bool = True
    tested: bool = False
    horizons_s: tuple[float, ...] = (300,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", str(self.history))

    @property
    def place(self) -> Place:
        return Place(self.history, Path(self.near or self.history))

    def to_json(self) -> str:
        return TypeAdapter(Request).dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Raises UsageError where the document is not one."""
        try:
            return TypeAdapter(Request).validate_json(text)
        except ValidationError as error:
            raise UsageError(f"this is no request for an estimate: {error}") from error


def command() -> list[str]:
    """Say how to start the worker."""
    return [sys.executable, "-m", "dr_ctl.rpo.estimate.worker"]


class Estimating:
    """The worker, started on a request; memory goes with the process when it ends. One that `stays` takes further
    requests, each after the answer to the one before, in the session that it has."""

    def __init__(self, request: Request, *, stays: bool = False) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes to it
        self._process = subprocess.Popen(
            command(), stdin=subprocess.PIPE, stdout=self._out, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._stays, self._asked = stays, 0
        self.ask(request)

    def ask(self, request: Request) -> None:
        # Values in `conf` may be a secret of the store of the history: they stand in no file and on no command line.
        stdin = self._process.stdin
        assert stdin is not None
        self._asked += 1
        with suppress(OSError):  # a worker that has ended has answered nothing, and that is told
            stdin.write(f"{request.to_json()}\n".encode())
            stdin.flush()
            if not self._stays:
                stdin.close()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def runs(self) -> bool:
        """Whether an answer may still come."""
        return self.lives and len(self._lines()) < self._asked

    def _lines(self) -> list[str]:
        """What it said, as far as whole lines."""
        return (
            os.pread(self._out.fileno(), os.fstat(self._out.fileno()).st_size, 0)
            .decode("utf-8", "replace")
            .split("\n")[:-1]
        )

    def answer(self) -> dict[str, Any]:
        """The answer to the last request, as the worker's own description says; an error too where it said nothing."""
        lines = self._lines()
        try:
            told: dict[str, Any] = json.loads(lines[self._asked - 1])
        except (IndexError, ValueError):
            return {"error": "the estimate ended without an answer", "remedy": "Run `dr-ctl --verbose rpo estimate`."}
        return told

    def end(self) -> None:
        """Kill it if it runs. The worker leads a group of its own, so that its JVM ends with it."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(OSError):
            stdin.close()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if not self.lives:
                break
            try:
                os.killpg(self._process.pid, signum)
                self._process.wait(_END_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._out.close()
