"""One JSON document on every path that needs no broker, with all its keys and the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dr_ctl.application.result import Result
from dr_ctl.core.model import ExitCode, Finding, Severity

KEYS = {"schema", "command", "outcome", "exit_code", "run", "summary", "findings", "debts", "data"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "artemis-mirror.yaml"

TABLE = [
    (["runbook", "list"], 0, "runbook list"),
    (["runbook", "lint"], 0, "runbook lint"),
    (["runbook", "show", "swapover"], 0, "runbook show"),
    (["runbook", "show", "nothing"], 2, "runbook show"),
    (["runs", "list"], 0, "runs list"),
    (["runs", "show"], 2, "runs show"),
    (["resume", "--yes"], 10, "resume"),
    (["abort", "--yes"], 10, "abort"),
    (["rpo", "estimate"], 22, "rpo estimate"),
    (["swapover"], 2, "swapover"),
    (["swapover", "--to", "nowhere"], 2, "swapover"),
    (["swapover", "--to", "paris", "--timeout", "60"], 2, "swapover"),
    (["swapover", "--to", "paris", "--accept-difference", "x"], 2, "swapover"),
    (["plan", "teleport", "--to", "paris"], 2, "plan"),
    (["no-such-command"], 2, ""),
    (["--config", "missing.yaml", "status"], 2, "status"),
]


@pytest.mark.parametrize(("words", "code", "command"), TABLE, ids=[" ".join(row[0]) for row in TABLE])
def test_every_path_ends_with_one_document(words: list[str], code: int, command: str, tmp_path: Path) -> None:
    settings = tmp_path / "dr-ctl.yaml"
    settings.write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    environment = {**os.environ, "DR_CTL_CONFIG": str(settings), "DR_CTL_STATE_DIR": str(tmp_path / "state")}

    for told in ([*words, "--json"], ["--json", *words]):
        done = subprocess.run(
            [sys.executable, "-m", "dr_ctl", *told],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        document = json.loads(done.stdout)

        assert (done.returncode, document["exit_code"]) == (code, code), document
        assert document.keys() == KEYS
        assert document["command"] == command
        assert document["schema"] == "dr-ctl/1"
        if code:
            assert document["findings"]
            assert all(finding["remedy"] for finding in document["findings"])


@pytest.mark.parametrize(
    ("severity", "code"),
    [(Severity.INFO, ExitCode.OK), (Severity.WARNING, ExitCode.WARNINGS), (Severity.ERROR, ExitCode.WARNINGS)],
)
def test_an_error_among_the_findings_is_no_less_than_a_warning(severity: Severity, code: ExitCode) -> None:
    ended = Result(ExitCode.OK, "both sites let clients in", (Finding("DR-X-001", severity, "text", ""),))

    assert ended.with_warn_exit().code is code
