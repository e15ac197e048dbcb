"""The estimate in a process of its own, so that it can run beside other work and be killed.

    python -m dr_ctl.rpo.estimate.worker REQUEST.json

prints one JSON document to standard output: `{"data": …, "verdict": …, "findings": […]}`, or `{"error": …,
"remedy": …}` with the exit code of the error. SIGTERM ends it and the JVM that it started, and SIGKILL does too,
through the pipe that the JVM holds on to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.model import ExitCode
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def answer(request: Request) -> dict[str, Any]:
    given = estimate(request)
    return {
        "data": given.as_json(),
        "verdict": None if given.verdict is None else given.verdict.value,
        "findings": [finding.as_json() for finding in given.findings],
    }


def main(arguments: Sequence[str]) -> int:
    """Do what the module says. Becomes the leader of a process group: children end with it."""
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
