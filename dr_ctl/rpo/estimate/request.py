"""An estimate as it is asked for, and made in a process of its own beside other work. The last one of each site is kept
beside the history, where it is found at once, with its age. This module loads no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dr_ctl.core.document import HIDDEN, document, key
from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.runs import write
from dr_ctl.rpo.estimate.result import EstimateAnswer, Objectives
from dr_ctl.settings.model import HistoryLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to a history (a folder or a URL), by an estimate or a backtest. `near` is the folder on this machine
    where its last estimate is kept too, None if the history is one. `site` defaults to the one serving at the end. With
    `store` the answer is kept beside the history too, and the summaries that it was made from; without `from_summaries`
    those that are there are not read. With `is_backtest` every second reading is left out too. Changes are gathered
    over `horizons_s`; `horizon_s` is the one to tell."""

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
    from_summaries: bool = True
    is_backtest: bool = False
    horizons_s: tuple[float, ...] = (300,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "history", str(self.history))

    @property
    def location(self) -> HistoryLocation:
        return HistoryLocation(self.history, Path(self.near or self.history))

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
    return [sys.executable, "-m", "dr_ctl.rpo.estimate.worker"]


class Estimating:
    """The worker, started on a request; memory goes with the process when it ends. A worker that `stays` takes further
    requests, each after the answer to the one before, in the session that it has."""

    def __init__(self, request: Request, *, stays: bool = False) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes to it
        self._process = subprocess.Popen(
            command(), stdin=subprocess.PIPE, stdout=self._out, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._process.stdin is not None
        self._stdin, self._stays, self._asked = self._process.stdin, stays, 0
        self.ask(request)

    def ask(self, request: Request) -> None:
        # Values in `conf` may be secrets of the history's store, so no file and no command line holds them.
        self._asked += 1
        with suppress(OSError):  # a worker that has ended has answered nothing, and that is told
            self._stdin.write(f"{request.to_json()}\n".encode())
            self._stdin.flush()
            if not self._stays:
                self._stdin.close()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def runs(self) -> bool:
        return self.lives and len(self._lines()) < self._asked

    def _lines(self) -> list[str]:
        said = os.pread(self._out.fileno(), os.fstat(self._out.fileno()).st_size, 0)
        return said.decode("utf-8", "replace").split("\n")[:-1]

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last request, as the worker's own description says; it is an error too if the worker
        said nothing."""
        lines = self._lines()
        try:
            reply: dict[str, Any] = json.loads(lines[self._asked - 1])
        except (IndexError, ValueError):
            return {"error": "the estimate ended without an answer", "remedy": "Run `dr-ctl --verbose rpo estimate`."}
        return reply

    def end(self) -> None:
        """Kill it if it runs. The worker leads a group of its own, so that its JVM ends with it."""
        with suppress(OSError):
            self._stdin.close()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if not self.lives:
                break
            try:
                os.killpg(self._process.pid, signum)
                self._process.wait(3)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._out.close()


FRESH_S: Final = 900.0
"""A monitor makes an estimate every five minutes. A run takes one as young as this, and an older one is told."""
_NAME: Final = "_estimate-{site}.json"
"""The name begins as those that readers of the history pass over."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AgedEstimate:
    """A stored estimate, and how old it is: the data of `rpo estimate` as the version made it that stored it, with the
    `stale_s` of then."""

    made_at: datetime
    age_s: float = field(compare=False, metadata=key(digits=3))
    data: Mapping[str, Any] = field(metadata=key(flat=True))
    findings: tuple[dict[str, Json], ...] = field(default=(), metadata=HIDDEN)

    def as_of(self, now: datetime) -> AgedEstimate:
        return replace(self, age_s=max(0.0, (now - self.made_at).total_seconds()))


def stored_at(history: Path | str, site: str) -> Path:
    return Path(history) / _NAME.format(site=site)


def store(history: HistoryLocation, answer: EstimateAnswer, now: datetime) -> None:
    """Keep an estimate, whole or not at all, on this machine and where the history is; an answer without one leaves
    what is there. Raises EnvironmentFault."""
    if answer.estimate is None:
        return
    made = {"made_at": stamp(now), "data": answer.data, "findings": document(answer.findings)}
    try:
        history.near.mkdir(parents=True, exist_ok=True)
        write(stored_at(history.near, answer.estimate.site), made)
        if history.folder is None:
            from dr_ctl.rpo.history.files import Store  # noqa: PLC0415 - as below

            text = json.dumps(made).encode()
            Store.of(history.where).write(_NAME.format(site=answer.estimate.site), lambda sink: sink.write(text))
    except OSError as error:
        raise EnvironmentFault(f"the estimate cannot be stored: {error}") from error


def stored(history: HistoryLocation, site: str) -> tuple[AgedEstimate | None, list[Finding]]:
    """Read the estimate that is kept of a site: on this machine, and where the history is if the first is missing or
    old. The finding names a file that cannot be read."""
    path = stored_at(history.near, site)
    near = _kept(partial(path.read_text, encoding="utf-8"), path, site)
    if history.folder is not None or (near[0] is not None and near[0].age_s < FRESH_S):
        return near
    from dr_ctl.rpo.history.files import read  # noqa: PLC0415 - what reads Parquet takes a tenth of a second

    text, _ = read(history, lambda files: files.text(_NAME.format(site=site)))
    remote = _kept(lambda: text, history.shown, site)
    return max(near, remote, key=lambda kept: kept[0].made_at if kept[0] is not None else _NEVER)


def _kept(text_of: Callable[[], str | None], where: Path | str, site: str) -> tuple[AgedEstimate | None, list[Finding]]:
    """Return the estimate that a file keeps, or None without a file. The finding says that the file cannot be read, is
    of another site, or lacks what a reader shows."""
    try:
        if (text := text_of()) is None:
            return None, []
        kept = json.loads(text)
        made_at = datetime.fromisoformat(kept["made_at"])
        estimate = AgedEstimate(made_at, 0.0, dict(kept["data"]), tuple(kept["findings"])).as_of(system().now())
        shown = [estimate.data["total"][key].keys() for key in ("loss", "age_s")]
        is_whole = estimate.data["site"] == site and all({"now", "p99"} <= keys for keys in shown)
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, [found("DR-RPO-017", where=where, error=error)]
    if not is_whole:
        return None, [found("DR-RPO-017", where=where, error=f"it is no estimate of {site}")]
    return estimate, []
