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
    """Do not wait for the disk, which is most of the time of writing a history."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)


# Histories of tests are small: tasks and compilation take most of the time.
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
    """The number of hours that each estimate by Spark has summed up."""
    from dr_ctl.rpo.pipeline import make as module  # noqa: PLC0415 - the fast tests do without it

    hours_class, counts = module.Hours, list[int]()

    def counted(*arguments: Any) -> Any:
        counts.append(len(arguments[4]))
        return hours_class(*arguments)

    monkeypatch.setattr(module, "Hours", counted)
    return counts
