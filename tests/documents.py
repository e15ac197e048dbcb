"""Checks JSON documents against the schemas of `dr-ctl schema`; unknown keys are errors here, not for readers."""

import copy
import json
import re
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from dr_ctl.application.documents import Debt, Envelope, Nothing, schema_of

_NONE = re.compile(r"\bNone\b")
_TRACEBACK = re.compile(r"^Traceback \(most.*\n(?: .*\n)*", re.MULTILINE)


def hold(document: dict[str, Any], command: str | None = None) -> None:
    """Fail where a document violates the schema of its command, or of `command`."""
    problems = list(_validator(document["command"] if command is None else command).iter_errors(document))
    assert not problems, [(problem.json_path, problem.message) for problem in problems]
    no_none(json.dumps(document, ensure_ascii=False))


def no_none(text: str) -> None:
    """Fail where a text, apart from tracebacks, has `None`: unknown values are written in words."""
    match = _NONE.search(_TRACEBACK.sub("", text))
    assert match is None, text[max(0, match.start() - 100) : match.end() + 100] if match else ""


@cache
def _validator(command: str) -> Draft202012Validator:
    """The validator of a command's documents; without a known command, of an envelope without data."""
    schema = schema_of(command) if command else TypeAdapter[Any](Envelope[str, Debt, Nothing]).json_schema()
    return Draft202012Validator(closed(schema))


def closed(schema: Any) -> Any:
    """A copy of a schema that forbids unknown keys."""
    closed_schema = copy.deepcopy(schema)
    _close(closed_schema)
    return closed_schema


def _close(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _close(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for item in schema.values():
            _close(item)
