"""Two real brokers that diverts and bridges join, for the tests that need some."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all
from tests.topologies.bridges.real import up


@pytest.fixture
def bridges_lab(tmp_path: Path) -> Iterator[Lab]:
    """London serves all queues, and nothing was ever sent."""
    with up(tmp_path / "lab") as lab:
        yield lab


@pytest.fixture
def operator(bridges_lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    yield Operator(bridges_lab, tmp_path / "state")
    end_all()
