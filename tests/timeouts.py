"""How long the commands of a test wait, in this process and by their runbooks: as long as in the field, unless the test
says less."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.cli.session import Session
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.runbook import files, shipped

PATIENCE = Timeouts()


def impatient(monkeypatch: pytest.MonkeyPatch, of: type[Any] | None = None, **less: Any) -> Timeouts:
    """Let the commands that follow wait for less; `of` is the class of a topology's own waits. What an earlier call
    made shorter stays so."""
    if of is None:
        brief = replace(PATIENCE, **less)
    else:
        others = [name for name in PATIENCE.own if not isinstance(name, of)]
        brief = replace(PATIENCE, own=(replace(PATIENCE.of(of), **less), *others))
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", brief)
    return brief


def time_now() -> Session:
    """What the next command begins with."""
    return Session(timeouts=PATIENCE)


def runbooks(folder: Path, old: str, new: str) -> str:
    """The runbooks that came with dr-ctl, with one text in the place of another: what the settings name."""
    folder.mkdir()
    for path in files(shipped()):
        (folder / path.name).write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    return str(folder)
