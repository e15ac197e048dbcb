"""A twin whose producers write to both sites, for the tests that need one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import FANOUT
from tests.conftest import Command
from tests.patience import impatient


@pytest.fixture(autouse=True)
def simulated(system_of_test: None) -> None:
    """Every test here."""


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedTwin]:
    """London serves, and nothing was ever sent."""
    impatient(monkeypatch, differs_s=0.3)
    with PlayedTwin.up(tmp_path / "twin", topology=FANOUT) as twin:
        yield twin


@pytest.fixture
def dr_ctl(twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line on the twin."""
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    return inside
