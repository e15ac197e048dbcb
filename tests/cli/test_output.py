"""What goes where: results to standard output, progress to standard error, one document where JSON is asked for."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.twin.subject import until

RUNBOOKS = ["runbook", "list"]
MOVE = ["swapover", "--to", "paris", "--yes"]
TO_JSON = [
    ["--json", *RUNBOOKS],
    [*RUNBOOKS, "--json"],
    ["--output", "json", *RUNBOOKS],
    [*RUNBOOKS, "--output", "json"],
    [*RUNBOOKS, "--output=json"],
    ["--output", "text", *RUNBOOKS, "--json"],
    ["--output", "text", *RUNBOOKS, "--output", "json"],
    ["--json", "--quiet", *RUNBOOKS],
]
TO_TEXT = [RUNBOOKS, ["--output", "text", *RUNBOOKS], ["--json", *RUNBOOKS, "--output", "text"]]


@pytest.mark.parametrize("words", TO_JSON, ids=" ".join)
def test_json_is_asked_for_before_the_command_and_after_it(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    assert ended.document == dr_ctl(*RUNBOOKS, "--json").document


@pytest.mark.parametrize("words", TO_TEXT, ids=" ".join)
def test_text_is_the_default_and_after_the_command_wins(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert ended.code == 0
    assert ended.out.startswith("failback ")
    assert ended.out == dr_ctl(*RUNBOOKS).out


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "swapover"],
        ["swapover", "--json"],
        ["--output=json", "swapover"],
        ["swapover", "--output", "json"],
        ["no-such-command", "--json"],
        ["--json"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_documents_too(dr_ctl: Shell, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.document["outcome"], ended.err) == (2, "usage", "")
    assert ended.document["findings"][0]["remedy"]


def test_a_runs_progress_is_beside_its_result(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl(*MOVE)

    assert ended.code == 0
    assert ended.out.splitlines()[-1].startswith(
        "moved from london to paris; verified: paris serves; nothing is under way"
    )
    assert "[5/11] quiesce:" in ended.err
    assert "(Ctrl-C undoes)" in ended.err
    assert "(do not stop)" in ended.err.partition("point-of-no-return")[2]
    assert "/11]" not in ended.out


def test_a_runs_document_stands_alone_on_standard_output(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl(*MOVE, "--json")

    assert json.loads(ended.out)["outcome"] == "ok"
    assert ended.out.count("\n") == 1
    assert "[11/11] probe:" in ended.err


@pytest.mark.parametrize("words", [["--quiet", *MOVE], [*MOVE, "--quiet"]], ids=" ".join)
def test_quiet_leaves_the_result(dr_ctl: Shell, installation: Installation, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert (ended.code, ended.err) == (0, "")
    assert "paris serves" in ended.out


@pytest.mark.parametrize("words", [MOVE, ["--no-color", *MOVE]], ids=" ".join)
def test_no_colour_reaches_what_is_not_a_terminal(dr_ctl: Shell, installation: Installation, words: list[str]) -> None:
    ended = dr_ctl(*words)

    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err


def test_findings_are_told_with_their_remedy(dr_ctl: Shell, installation: Installation) -> None:
    installation.twin.cut("paris")
    until(lambda: not installation.paris.broker.attached)

    ended = dr_ctl("validate")

    assert ended.code == 10
    assert " ! DR-LINK-004  paris/orders-1: link london is started but not attached\n" in ended.out
    assert "      -> `dr-ctl link restart paris`; if that does not help, look at what" in ended.out


def test_what_failed_says_so_with_word_and_number(dr_ctl: Shell) -> None:
    ended = dr_ctl("resume", "--colour", "red")

    assert ended.code == 2
    assert ended.out.splitlines() == [
        "!! DR-USAGE  No such option: --colour (Possible options: --no-color)",
        "      -> See `dr-ctl resume --help`.",
        "usage (2)",
    ]
