"""The same tests for a twin and, with the marker `broker`, for two real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.cli.twins import PlayedTwin
from dr_ctl.lab.lab import Lab
from tests.broker.driving import Operator, end_all, reset
from tests.twin.subject import Subject


@pytest.fixture(scope="session")
def real_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.up(tmp_path_factory.mktemp("contract") / "lab") as lab:
        yield lab


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[PlayedTwin]:
    with PlayedTwin.up(tmp_path / "twin") as twin:
        yield twin


@pytest.fixture(params=["twin", pytest.param("brokers", marks=pytest.mark.broker)])
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "twin":
        return Subject(request.getfixturevalue("twin"))
    lab: Lab = request.getfixturevalue("real_pair")
    reset(lab)
    return Subject(lab)


@pytest.fixture
def operator(twin: PlayedTwin, tmp_path: Path) -> Iterator[Operator]:
    yield Operator(twin, tmp_path / "state")  # type: ignore[arg-type]
    end_all()
