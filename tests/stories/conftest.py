"""The operator of the stories."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.driving import Operator, Stage, end_all
from tests.conftest import Operators


@pytest.fixture
def operator(stage: Stage, operators: Operators, tmp_path: Path) -> Iterator[Operator]:
    yield operators(stage, tmp_path / "state")
    end_all()
