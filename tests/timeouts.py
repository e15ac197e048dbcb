"""The time limits of a test's commands, in this process and in runbooks; the defaults unless the test changes them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.cli.session import Session
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.runbook import files, shipped

PATIENCE = Timeouts()


def impatient(monkeypatch: pytest.MonkeyPatch, kind: type[Any] | None = None, **shorter: Any) -> Timeouts:
    """Shorten time limits of the following commands; `kind` is the class of a topology's own ones. Calls add up."""
    if kind is None:
        brief = replace(PATIENCE, **shorter)
    else:
        others = [limits for limits in PATIENCE.of_topologies if not isinstance(limits, kind)]
        brief = replace(PATIENCE, of_topologies=(replace(PATIENCE.of(kind), **shorter), *others))
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", brief)
    return brief


def time_now() -> Session:
    """The session of the next command, with these time limits."""
    return Session(timeouts=PATIENCE)


def runbooks(folder: Path, old: str, new: str) -> str:
    """The runbooks of dr-ctl with one text replaced, in a new folder; return its path, for the settings."""
    folder.mkdir()
    for path in files(shipped()):
        (folder / path.name).write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    return str(folder)
