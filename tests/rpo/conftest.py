"""One Spark session for all tests of the estimate: starting it is most of their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from dr_ctl.rpo.spark.session import session  # noqa: PLC0415 - the fast tests do without it

    with session(master="local[2]") as started:
        yield started
