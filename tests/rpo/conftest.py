"""One Spark session for all tests of the estimate: starting it is most of their time."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from dr_ctl.rpo.estimate.estimate import LoadHistory


@pytest.fixture(autouse=True)
def disk_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pulls the plug of this machine; to wait for its disk is most of the time of a history that is written."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)


# Histories of tests are small: what costs time is each task, and to compile what runs once.
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from dr_ctl.rpo.pipeline.session import session  # noqa: PLC0415 - the fast tests do without it

    with session(master="local[2]", conf=CONF, is_busy=False) as started:
        yield started


@pytest.fixture
def make(spark: SparkSession) -> LoadHistory:
    from dr_ctl.rpo.pipeline.make import made  # noqa: PLC0415 - the fast tests do without it

    return partial(made, spark)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many hours each estimate by Spark has summed up."""
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without it

    whole, found = module.Hours, list[int]()

    def counted(*given: Any) -> Any:
        found.append(len(given[4]))
        return whole(*given)

    monkeypatch.setattr(module, "Hours", counted)
    return found
