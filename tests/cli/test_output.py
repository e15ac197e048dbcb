"""What goes where, one document for JSON; findings by group."""

import json
import subprocess
import sys

import pytest

from dr_ctl.application.result import Group, Result
from dr_ctl.cli.grouped import groups_text, wrapped
from dr_ctl.core.model import ExitCode, Finding, Severity
from dr_ctl.engine.ports import Check
from tests.cli.conftest import Shell
from tests.cli.sites import Sites

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


def test_a_runs_document_stands_alone_on_standard_output(dr_ctl: Shell, sites: Sites) -> None:
    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--json")

    assert json.loads(ended.out)["outcome"] == "ok"
    assert ended.out.count("\n") == 1
    assert "[11/11] probe:" in ended.err


LONG = " ".join(f"word{number}" for number in range(60))
NAME = "orders." + "x" * 90
GROUPS = [
    Group("installation orders", [Finding("DR-X-001", Severity.WARNING, LONG, f"do {LONG}")]),
    Group("london/orders-1", [], [Check("the link is started", "london/orders-1", LONG)]),
    Group("paris"),
    Group("swapover to paris", [Finding("DR-X-002", Severity.ERROR, f"queue {NAME} differs", more=("and more",))]),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_lines_are_as_wide_as_the_terminal_and_no_word_is_lost(columns: int) -> None:
    text = groups_text(GROUPS, columns)

    assert all(len(line) <= columns or NAME in line for line in text.splitlines())
    assert text.split() == groups_text(GROUPS, None).split()


def test_where_there_is_no_terminal_a_finding_is_one_line_and_groups_without_anything_are_left_out() -> None:
    lines = groups_text(GROUPS, None).splitlines()

    assert f" ! DR-X-001  {LONG}" in lines
    assert f"!! DR-X-002  queue {NAME} differs" in lines
    heads = ["installation orders:", "london/orders-1:", "swapover to paris:"]
    assert [line for line in lines if line.endswith(":")] == heads
    assert lines[-2:] == ["1 check: 1 holds", "1 error, 1 warning"]


def test_control_characters_of_names_reach_no_terminal() -> None:
    assert wrapped("a\x1b[31m b", 80) == "a\\x1b[31m b"


def test_verbose_shows_the_cause_and_nothing_else_does(dr_ctl: Shell) -> None:
    plain, verbose = dr_ctl("runs", "show"), dr_ctl("--verbose", "runs", "show")

    assert (plain.code, verbose.code, plain.err) == (2, 2, "")
    assert plain.out == verbose.out
    assert "Traceback" in verbose.err
