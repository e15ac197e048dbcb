"""The estimate in a process of its own, so that it can run beside other work and be killed.

    python -m dr_ctl.rpo.worker REQUEST.json

prints one JSON document to standard output: `{"data": …, "verdict": …, "findings": […]}`, or `{"error": …,
"remedy": …}` with the exit code of the error. SIGTERM ends it and the JVM that it started; so does SIGKILL, through
the pipe that the JVM holds on to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dr_ctl.core.errors import DrCtlError, UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.rpo.estimate import estimate
from dr_ctl.rpo.result import LossClass, LossLimit, Objectives
from dr_ctl.rpo.stored import store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `estimate`, as a document; with `store` the answer is kept beside the history too."""

    history: str
    site: str | None = None
    since: str | None = None
    until: str | None = None
    horizon_s: float = 300
    objectives: Objectives | None = None
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    store: bool = False
    may_take_time: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Raises UsageError where the document is not one."""
        try:
            told = json.loads(text)
            if told.get("objectives") is not None:
                told["objectives"] = _objectives(told["objectives"])
            fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in told.items()}
            return cls(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"this is no request for an estimate: {error}") from error


def _objectives(told: Mapping[str, Any]) -> Objectives:
    classes = [LossClass(tuple(each["queues"]), LossLimit(**each["loss"])) for each in told.get("classes", ())]
    return Objectives(LossLimit(**told.get("loss", {})), tuple(classes))


def command(request: Path) -> list[str]:
    """Say how to start the worker on a request that was written to a file."""
    return [sys.executable, "-m", "dr_ctl.rpo.worker", str(request)]


def answer(request: Request) -> dict[str, Any]:
    given = estimate(
        Path(request.history),
        site=request.site,
        since=_moment(request.since),
        until=_moment(request.until),
        horizon_s=request.horizon_s,
        objectives=request.objectives,
        include=request.include,
        exclude=request.exclude,
        master=request.master,
        conf=request.conf,
        may_take_time=request.may_take_time,
    )
    if request.store:
        store(Path(request.history), given, datetime.now(UTC))
    return {
        "data": given.as_json(),
        "verdict": None if given.verdict is None else given.verdict.value,
        "findings": [finding.as_json() for finding in given.findings],
    }


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def main(arguments: Sequence[str]) -> int:
    """Do what the module says. Becomes the leader of a process group: what it starts ends with it."""
    if len(arguments) != 1:
        raise SystemExit(ExitCode.USAGE)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, _end)
    try:
        document, code = answer(Request.from_json(Path(arguments[0]).read_text())), ExitCode.OK
    except DrCtlError as error:
        document, code = {"error": str(error), "remedy": error.remedy}, error.exit_code
    sys.stdout.write(json.dumps(document) + "\n")
    return code


def _end(_signum: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGTERM)  # the JVM, also while it is being started
    raise SystemExit(ExitCode.TERMINATED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
