"""What goes where: results to standard output, progress to standard error; one document where JSON is asked for, on
every path, with the exit code of its process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dr_ctl.application.result import Result
from dr_ctl.core.model import ExitCode, Finding, Severity
from tests.cli.conftest import Shell
from tests.cli.installation import Installation

RUNBOOKS = ["runbook", "list"]
TO_JSON = [
    ["--json", *RUNBOOKS],
    ["--output", "json", *RUNBOOKS],
    [*RUNBOOKS, "--output", "json"],
    [*RUNBOOKS, "--output=json"],
    ["--output", "text", *RUNBOOKS, "--json"],
    ["--output", "text", *RUNBOOKS, "--output", "json"],
    ["--json", "--quiet", *RUNBOOKS],
]
TO_TEXT = [RUNBOOKS, ["--output", "text", *RUNBOOKS], ["--json", *RUNBOOKS, "--output", "text"]]


def test_json_is_asked_for_before_the_command_and_after_it_and_text_is_the_default(dr_ctl: Shell) -> None:
    told, text = dr_ctl(*RUNBOOKS, "--json"), dr_ctl(*RUNBOOKS)

    assert text.out.startswith("failback ")
    assert (told.code, text.code, told.out.count("\n")) == (0, 0, 1)
    for words, shown in [(each, told) for each in TO_JSON] + [(each, text) for each in TO_TEXT]:
        assert dr_ctl(*words) == shown, words


@pytest.mark.parametrize(
    ("words", "code", "command"),
    [
        ("runbook show swapover", 0, "runbook show"),
        ("runbook show nothing", 2, "runbook show"),
        ("runs list", 0, "runs list"),
        ("runs show", 2, "runs show"),
        ("resume --yes", 10, "resume"),
        ("abort --yes", 10, "abort"),
        ("rpo estimate", 22, "rpo estimate"),
        ("swapover", 2, "swapover"),
        ("plan teleport --to paris", 2, "plan"),
        ("no-such-command", 2, ""),
        ("", 2, ""),
        ("--config missing.yaml status", 2, "status"),
    ],
)
def test_every_path_ends_with_one_document(dr_ctl: Shell, nobody: str, words: str, code: int, command: str) -> None:
    for typed in ([*words.split(), "--json"], ["--json", *words.split()], ["--output=json", *words.split()]):
        ended = dr_ctl(*typed)

        document = ended.document
        assert (ended.code, document["exit_code"], document["command"], ended.err) == (code, code, command, "")
        assert not code or document["findings"]
        assert all(finding["remedy"] for finding in document["findings"])


def test_a_process_ends_with_the_exit_code_of_its_document(dr_ctl: Shell, nobody: str) -> None:
    words = [sys.executable, "-m", "dr_ctl", "resume", "--yes", "--json"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, json.loads(done.stdout)["exit_code"], done.stderr) == (10, 10, "")


@pytest.mark.parametrize(
    ("severity", "code"),
    [(Severity.INFO, ExitCode.OK), (Severity.WARNING, ExitCode.WARNINGS), (Severity.ERROR, ExitCode.WARNINGS)],
)
def test_an_error_among_the_findings_is_no_less_than_a_warning(severity: Severity, code: ExitCode) -> None:
    ended = Result(ExitCode.OK, "both sites let clients in", (Finding("DR-X-001", severity, "text", ""),))

    assert ended.with_warn_exit().code is code


def test_a_runs_document_stands_alone_on_standard_output(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert json.loads(ended.out)["outcome"] == "ok"
    assert ended.out.count("\n") == 1
    assert "[11/11] probe:" in ended.err
