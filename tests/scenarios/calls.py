"""Changing requests as short texts, and texts without the parts that differ from run to run."""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import dr_ctl
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.names import keys_of


def call(request: Request) -> str:
    """The operation of a request, its object and its arguments."""
    keys = {key: value.strip('"') for key, value in keys_of(request.bean).items()}
    named = ("queue", "bridge", "destinationName", "connectorName", "name")
    target = next((keys[key] for key in named if key in keys), "broker")
    arguments = [_argument(argument) for argument in request.arguments]
    document = next((argument for argument in reversed(arguments) if argument.startswith("dr-ctl.")), None)
    return " ".join([request.verb, document] if document is not None else [request.verb, target, *arguments])


def _argument(value: Any) -> str:
    """The text of an argument; of a document only its name, because the content differs from run to run."""
    text = str(value)
    try:
        document = json.loads(text)
    except ValueError:
        return text
    return str(document["name"]) if isinstance(document, dict) and "name" in document else text


class Normal:
    """Makes texts of one scenario comparable: a run has the same name in all of them."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._runs: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        text = text.replace(sys.executable, "python")
        text = text.replace(self._home + "/", "").replace(self._home, ".").replace(_ROOT, "")
        text = _RUN.sub(self._run, text)
        for pattern, words in _DIFFER:
            text = pattern.sub(words, text)
        return text

    def _run(self, match: re.Match[str]) -> str:
        return self._runs.setdefault(match[0], f"RUN{len(self._runs) + 1}-{match[1]}")


_ROOT: Final = f"{Path(dr_ctl.__file__).parents[1]}/"
_RUN: Final = re.compile(r"\d{8}T\d{6}Z-([a-z]+(?:-[a-z]+)*)-[0-9a-f]{4}")
_DIFFER: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z| UTC)?"), "TIME"),
    (re.compile(r"\b\d+\.\d+ (?=(?:ms|s|min)\b)"), "N "),
    (re.compile(r"\b\d+ ms\b"), "N ms"),
    (re.compile(r"\b(?:(?:N|\d+) (?:h|min|s|ms) )+ago\b"), "N s ago"),  # as fast or slow as the machine
    (re.compile(r"\bin the \d+ s until\b"), "in the N s until"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"(?<=process )\d+"), "PID"),
    (re.compile(r'(?<="pid": )[1-9]\d*'), "PID"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"(?<=_ssl\.c:)\d+"), "LINE"),
)
