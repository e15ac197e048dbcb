"""One pair with the real plugin for the tests that leave it as it was: london serves, nothing is owed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all
from tests.topologies.continuity.plugin import up


@pytest.fixture(scope="session")
def plugin_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with up(tmp_path_factory.mktemp("plugin") / "lab") as lab:
        yield lab


@pytest.fixture
def operator(plugin_lab: Lab, tmp_path: Path) -> Iterator[Operator]:
    yield Operator(plugin_lab, tmp_path / "state")
    end_all()
