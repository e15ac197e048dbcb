"""What goes where: results to standard output, progress to standard error, one document where JSON is asked for."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation

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


def test_a_runs_document_stands_alone_on_standard_output(dr_ctl: Shell, installation: Installation) -> None:
    ended = dr_ctl(*MOVE, "--json")

    assert json.loads(ended.out)["outcome"] == "ok"
    assert ended.out.count("\n") == 1
    assert "[11/11] probe:" in ended.err
