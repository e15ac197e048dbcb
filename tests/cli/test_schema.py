"""`dr-ctl schema`: the schemas are those that the documents of all tests here are held to (`tests/documents.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dr_ctl.application.documents.schema import data_types, schema_of
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.test_help import commands
from tests.documents import hold

ROOT = Path(__file__).parents[2]


def test_every_command_has_a_schema_and_no_other_has() -> None:
    assert set(data_types()) == commands()


def test_each_is_a_schema_and_names_its_command() -> None:
    for command in data_types():
        schema = schema_of(command)

        Draft202012Validator.check_schema(schema)
        assert command in schema["title"]


def test_as_text_it_is_the_schema_and_nothing_else(dr_ctl: Shell) -> None:
    ended = dr_ctl("schema", "runs", "list")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == schema_of("runs list")
    assert dr_ctl("schema", "runs", "list", "--json").document["data"]["schema"] == schema_of("runs list")


def test_without_a_command_it_is_the_settings_schema(dr_ctl: Shell) -> None:
    kept = json.loads((ROOT / "docs" / "settings.schema.json").read_text(encoding="utf-8"))

    assert json.loads(dr_ctl("schema").out) == kept


def test_a_word_that_is_no_command_is_a_usage_error_that_names_the_commands(dr_ctl: Shell) -> None:
    ended = dr_ctl("schema", "runs", "--json")

    assert ended.code == 2
    assert "runs list" in ended.document["findings"][0]["remedy"]


def wrong_type(document: dict[str, Any]) -> None:
    document["data"]["open_run"] = 3


def key_missing(document: dict[str, Any]) -> None:
    del document["data"]["sites"]


def key_added(document: dict[str, Any]) -> None:
    document["data"]["links"][0]["speed"] = 1


def no_such_outcome(document: dict[str, Any]) -> None:
    document["outcome"] = "fine"


@pytest.mark.parametrize("spoil", [wrong_type, key_missing, key_added, no_such_outcome])
def test_a_document_that_is_not_as_its_schema_says_is_noticed(
    dr_ctl: Shell, installation: Installation, spoil: Any
) -> None:
    document = dr_ctl("status", "--json").document
    hold(document)

    spoil(document)

    with pytest.raises(AssertionError):
        hold(document)
