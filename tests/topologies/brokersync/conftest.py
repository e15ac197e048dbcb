"""Two real brokers that BrokerSync joins, for the tests that need some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.kinds import BROKERSYNC
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all


@pytest.fixture
def sync_lab(tmp_path: Path) -> Iterator[Lab]:
    """London serves, and nothing was ever sent."""
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC) as lab:
        yield lab


@pytest.fixture
def operator(sync_lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    yield Operator(sync_lab, tmp_path / "state")
    end_all()
