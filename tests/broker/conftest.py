"""One pair of real brokers for a session's tests, reset before each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, reset


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("pair") / "lab") as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    reset(shared_lab)
    return shared_lab


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Operator:
    return Operator(lab, tmp_path / "state")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    end_all()
