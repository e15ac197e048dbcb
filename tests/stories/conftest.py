"""The command line that stories are told with."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.rpo.estimate import request as estimates
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, Stage, end_all
from tests.conftest import Command

# A session of Spark takes longer than the rest of a move: of one story the estimate is made by it, of others by nobody.
ESTIMATED = ("artemis-mirror",)


class Inside(Operator):
    """The command line in this process, so that it is not started anew for each command."""

    command: Command

    def run(self, *words: str) -> Ended:
        return self.command(*words)


@pytest.fixture
def operator(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operator]:
    path = os.environ["PATH"]
    operator = Inside(stage, tmp_path / "state")
    operator.command = request.getfixturevalue("inside")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setenv("DR_CTL_CONFIG", str(stage.settings_path))
    patch.setenv("DR_CTL_STATE_DIR", str(operator.state))
    if isinstance(stage, Lab):
        patch.setenv("PATH", path)  # the brokers need Java
        if load(stage.settings_path).settings.topology not in ESTIMATED:
            patch.setattr(estimates, "command", lambda: [sys.executable, "-c", ""])
    yield operator
    end_all()
