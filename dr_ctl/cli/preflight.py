"""The estimate that a run makes beside its checks: a process of its own, killed when the run needs to go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome
from dr_ctl.settings.model import Installation

_POLL_S: Final = 0.05
_END_S: Final = 3.0


class Preflight:
    """Implements `Estimator`. No history, no Java, no Spark: each is a finding, never an obstacle."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self._installation, self._folder = installation, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._out: Any = None

    def begin(self) -> None:
        history = self._installation.path(self._installation.settings.history.path)
        if next(history.glob("date=*/site=*/*.parquet"), None) is None:
            return
        from dr_ctl.cli.forecast import request  # noqa: PLC0415 - a failover does without
        from dr_ctl.rpo.worker import command  # noqa: PLC0415

        path = self._folder / "estimate-request.json"
        path.write_text(request(self._installation).to_json(), encoding="utf-8")
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes to it
        self._process = subprocess.Popen(
            command(path), stdin=subprocess.DEVNULL, stdout=self._out, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        process = self._process
        if process is None:
            text = "no history: how much a failure would lose is not known"
            remedy = "Let `dr-ctl monitor` run; it writes what the estimate reads."
            return NotNeeded(text, findings=(Finding("DR-RPO-001", Severity.INFO, text, remedy),))
        until = time.monotonic() + within_s
        while process.poll() is None and time.monotonic() < until:
            wait(_POLL_S)
        if process.poll() is None:
            self.abandon()
            text = f"the estimate took longer than {within_s:g} s and was ended"
            return NotNeeded(
                text, findings=(Finding("DR-RPO-008", Severity.WARNING, text, "`dr-ctl rpo estimate` waits for it."),)
            )
        return self._told()

    def abandon(self) -> None:
        process = self._process
        if process is None:
            return
        self._out.close()
        if process.poll() is not None:
            return
        # The worker leads a group of its own, so that its JVM ends with it.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, signum)
                process.wait(_END_S)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
            return

    def _told(self) -> Outcome:
        self._out.seek(0)
        text = self._out.read().decode("utf-8", "replace")
        self._out.close()
        try:
            told: dict[str, Any] = json.loads(text)
        except ValueError:
            told = {"error": "the estimate ended without an answer", "remedy": "Run `dr-ctl rpo estimate --verbose`."}
        if "error" in told:
            finding = Finding(
                "DR-RPO-009", Severity.WARNING, f"no estimate: {told['error']}", str(told.get("remedy", ""))
            )
            return NotNeeded(finding.text, findings=(finding,))
        findings = tuple(
            Finding(each["id"], Severity(each["severity"]), each["text"], each["remedy"]) for each in told["findings"]
        )
        return Done(_summary(told), {"estimate": told["data"]}, findings)


def _summary(told: dict[str, Any]) -> str:
    total: dict[str, Any] | None = (told["data"] or {}).get("total")
    if total is None:
        return "no estimate from this history"
    now, p99 = total["loss"]["now"], total["loss"]["p99"]
    known: dict[str, Json] = {"now": now, "p99": p99}
    figures = ", ".join(f"{name} {'not known' if value is None else value}" for name, value in known.items())
    return f"loss if the site died: {figures} (messages); objectives: {told['verdict'] or 'none set'}"
