"""The estimate in a process of its own, so that it can run beside other work and be killed.

    python -m dr_ctl.rpo.estimate.worker

reads requests from standard input, a JSON document a line, and prints one document a line for each: `{"data": …,
"verdict": …, "findings": […]}`, or `{"error": …, "remedy": …}`. The worker keeps its session of Spark until a request
fails. Its input ends it, with the exit code of the last error. SIGTERM ends it and the JVM that it started, and SIGKILL
does too, through the pipe that the JVM holds on to.
"""

import json
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from dr_ctl.core.document import document
from dr_ctl.core.errors import DrCtlError
from dr_ctl.core.machine import without
from dr_ctl.core.model import ExitCode
from dr_ctl.rpo.estimate.request import Request


def main() -> int:
    """Do what the module says, as the leader of a process group: children end with it."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, _end)
    try:
        return _answer()
    except ModuleNotFoundError as error:  # of a host that only moves
        if (fault := without(error)) is None:
            raise
        _say({"error": str(fault), "remedy": fault.remedy})
        return fault.exit_code


def _answer() -> int:
    from dr_ctl.rpo.estimate.estimate import estimate  # noqa: PLC0415 - pyspark may be missing
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415

    lines, code = iter(sys.stdin), ExitCode.OK
    while True:
        try:
            with reading() as make:
                for line in lines:
                    made = estimate(Request.from_json(line), make)
                    _say({"data": made.data, "verdict": document(made.verdict), "findings": document(made.findings)})
                    code = ExitCode.OK
                return code
        except DrCtlError as error:
            _say({"error": str(error), "remedy": error.remedy})
            code = error.exit_code


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def _end(_signum: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGTERM)  # the JVM, also while it is being started
    raise SystemExit(ExitCode.TERMINATED)


if __name__ == "__main__":
    raise SystemExit(main())
