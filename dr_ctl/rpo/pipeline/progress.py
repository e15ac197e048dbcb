"""What Spark is at, for a person who waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from dr_ctl.core.system import beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
_EVERY_S: Final = 0.5


def unheard(_text: str) -> None:
    """Nobody waits."""


@contextmanager
def counted(spark: SparkSession, say: Say, what: str, hours: int) -> Iterator[None]:
    """Say how many of so many hours are done, by the tasks of the stage that runs, until the block is over."""
    over = threading.Event()

    def count() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(_EVERY_S):
            stages = [each for each in map(tracker.getStageInfo, tracker.getActiveStageIds()) if each is not None]
            if stages:
                done, tasks = sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
                say(f"{what}: {done * hours // max(1, tasks)} of {hours} hour(s)")

    say(f"{what}: 0 of {hours} hour(s)")
    counting = beside(count, "progress of Spark") if say is not unheard and _is_near(spark) else None
    try:
        yield
    finally:
        over.set()
        if counting is not None:
            counting.result()


def _is_near(spark: SparkSession) -> bool:
    """Whether its scheduler is in a JVM of this process: a client of Spark Connect has none."""
    try:
        return spark.sparkContext is not None
    except PySparkException:
        return False
