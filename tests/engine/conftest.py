"""Fixtures of the engine's tests: a desk, and the path of a journal."""

from pathlib import Path

import pytest

from tests.engine.desk import Desk


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"
