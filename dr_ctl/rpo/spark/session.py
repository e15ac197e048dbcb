"""Starting Spark, trimmed for one short piece of work, and ending it without a trace.

A local session runs in a JVM of its own on the loopback interface, with everything it writes under one private
directory that is removed with it. Masters elsewhere and Spark Connect addresses are used as they are.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.rpo.spark import archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

APP: Final = "dr-ctl"
SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    # A site may be called 01, and a day stays a word.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Constraints would only repeat filters that are there already.
    "spark.sql.constraintPropagation.enabled": "false",
    # Noting the Python line of every column costs more calls to the JVM than making the column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
LOCAL_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SHORT_WORK_CONF: Final = {
    # Planning again after every stage costs more than it saves on little data.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
COMPILES: Final = "spark.sql.codegen.wholeStage"
TINY_WORK_CONF: Final = {
    # For a few thousand rows, compiling generated classes takes several times as long as interpreting the plan.
    COMPILES: "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A Spark job for a file listing costs too much where the files are small and near.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
SHORT_WORK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For work of seconds the first compiler alone is faster; for long work it loses."""
WHOLE_HEAP: Final = "-Xms1g"
"""Spark's own default, at once: a heap that grows costs seconds of collecting."""
LONG_WORK_JAVA: Final = ("-XX:+UseParallelGC",)
LONG_WORK_CONF: Final = {"spark.driver.memory": "4g"}
"""Of a local session, whose driver does the work. What is sorted beyond that goes to disk."""
LOG4J: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""
SHORT_WORK_ROWS: Final = 2_000_000
"""From here on what the second compiler costs is less than what it saves: two thirds of the time of a row."""
TINY_WORK_ROWS: Final = 100_000
STOP_LIMIT_S: Final = 10.0
DUMP_LIMIT_S: Final = 120.0


class Unfinished(EnvironmentFault):
    """A session was there, and the work in it was not done."""


@contextmanager
def session(
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    is_short: bool = True,
    may_take_time: bool = False,
) -> Iterator[SparkSession]:
    """Give a session and end it, its JVM included, whatever happens inside. Only one session at a time in a process.

    `may_take_time`: make a missing archive of Spark's classes at the end, in some seconds.

    Errors of Spark itself, at the start or in the work, are raised as EnvironmentFault.
    """
    given = dict(conf or {})
    started = (
        _connected(master, given)
        if master.startswith("sc://")
        else _launched(master, given, is_short=is_short, may_take_time=may_take_time)
    )
    with started as spark:
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            raise Unfinished(
                f"Spark did not finish the work: {_first_line(error)}",
                remedy="Look at `spark` in the settings file: master, conf, and that both sides see the history.",
            ) from error


@contextmanager
def _connected(address: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    try:
        builder = SparkSession.builder.remote(address).appName(APP)
        for key, value in {**SESSION_CONF, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except (PySparkException, ImportError) as error:
        raise EnvironmentFault(
            f"no Spark Connect session at {address}: {_first_line(error)}",
            remedy="Check the address; the client side needs `pyspark[connect]` installed beside dr-ctl.",
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _launched(master: str, conf: Mapping[str, str], *, is_short: bool, may_take_time: bool) -> Iterator[SparkSession]:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise EnvironmentFault(
            "Spark needs Java, and there is no `java` on the PATH",
            remedy="Install a Java runtime, 17 or later, or point JAVA_HOME at one; or name a Spark Connect address.",
        )
    # Tasks run in the Python that has what they need: this one.
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    folder = Path(tempfile.mkdtemp(prefix="dr-ctl-spark-"))
    compiles = conf.get(COMPILES, "true") == "true"
    kept = archive.place(pyspark.__version__, Path(pyspark.__file__).parent, compiles=compiles)
    made = archive.fresh(kept) if kept is not None and may_take_time and not kept.exists() else None
    ended_well = False

    def jvm(sharing: Sequence[str]) -> AbstractContextManager[SparkSession]:
        settings = _settings(master, conf, folder, sharing, is_short=is_short)
        limit_s = DUMP_LIMIT_S if made is not None else STOP_LIMIT_S
        # A cluster wants to know that it is over, and an archive is written at an orderly end.
        return _jvm(settings, folder, limit_s, is_orderly=made is not None or not master.startswith("local"))

    try:
        with ExitStack() as started:
            sharing = _sharing(kept, made)
            try:
                spark = started.enter_context(jvm(sharing))
            except EnvironmentFault:
                if kept is None or made is not None or not sharing:
                    raise
                # A JVM that maps half an archive dies, so the archive is deleted and made again later.
                kept.unlink(missing_ok=True)
                spark = started.enter_context(jvm(()))
            yield spark
        ended_well = True
    finally:
        if kept is not None and made is not None:
            archive.settle(made, kept, is_whole=ended_well)
        shutil.rmtree(folder, ignore_errors=True)  # the JVM removes parts of it at the same time


def _sharing(kept: Path | None, made: Path | None) -> list[str]:
    """Map the archive, or make one; the JVM's warnings about one that it cannot use are of no interest."""
    if made is not None:
        return [f'"-XX:ArchiveClassesAtExit={made}"', "-Xlog:disable"]
    if kept is not None and kept.exists():
        return [f'"-XX:SharedArchiveFile={kept}"', "-Xshare:auto", "-Xlog:disable"]
    return []


def _settings(
    master: str, conf: Mapping[str, str], folder: Path, sharing: Sequence[str], *, is_short: bool
) -> SparkConf:
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    java = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={folder}",
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={folder / 'crash.log'}",
        *(SHORT_WORK_JAVA if is_short else LONG_WORK_JAVA),
        *([WHOLE_HEAP] if is_short and "spark.driver.memory" not in conf else []),
        *sharing,
        conf.get("spark.driver.extraJavaOptions", ""),
    ]
    settings = {
        "spark.app.name": APP,
        "spark.master": master,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        **SESSION_CONF,
        **(LOCAL_CONF if master.startswith("local") else {}),
        **(SHORT_WORK_CONF if is_short else LONG_WORK_CONF if master.startswith("local") else {}),
        **conf,
        "spark.driver.extraJavaOptions": " ".join(java).strip(),
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


@contextmanager
def _jvm(settings: SparkConf, folder: Path, stop_limit_s: float, *, is_orderly: bool) -> Iterator[SparkSession]:
    """`is_orderly`: end the JVM in its own way, which takes a second; without, kill the JVM after the work."""
    said = folder / "jvm.log"
    with said.open("wb") as log:
        try:
            start: Callable[..., Any] = launch_gateway
            gateway = start(settings, {"stdout": log, "stderr": log})
        except PySparkException as error:
            raise _did_not_start(said, error) from error
    interrupt = _interrupt_handler()
    spark: SparkSession | None = None
    try:
        try:
            spark = SparkSession(SparkContext(conf=settings, gateway=gateway))
        except (PySparkException, Py4JError) as error:
            raise _did_not_start(said, error) from error
        finally:
            # SparkContext takes SIGINT for itself; give SIGINT back to the earlier handler.
            if interrupt is not None:
                signal.signal(signal.SIGINT, interrupt)
        yield spark
        if is_orderly:
            spark.stop()
    finally:
        _end(gateway, stop_limit_s)


def _did_not_start(said: Path, error: Exception) -> EnvironmentFault:
    words = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    cause = next((line for line in words if "rror" in line or "xception" in line), _first_line(error))
    return EnvironmentFault(
        f"Spark did not start: {cause[:300]}",
        remedy="Check `java -version` (17 or later) and `spark` in the settings file: master and conf.",
    )


def _interrupt_handler() -> Any:
    in_main_thread = threading.current_thread() is threading.main_thread()
    return signal.getsignal(signal.SIGINT) if in_main_thread else None


def _end(gateway: Any, limit_s: float) -> None:
    """End the JVM for certain and leave no trace of it in this process, so that another session can be started."""
    was_disabled = logging.root.manager.disable
    # Whatever still tells the JVM that an object is not needed any more complains when it is gone.
    logging.disable(logging.ERROR)
    try:
        _ended(gateway, limit_s)
    finally:
        logging.disable(was_disabled)


def _ended(gateway: Any, limit_s: float) -> None:
    process: subprocess.Popen[bytes] = gateway.proc
    context = SparkContext._active_spark_context  # noqa: SLF001 - no public way to forget a session whose JVM is gone
    if context is not None:
        # Drop the context without asking its JVM. The accumulator server of Python's tasks would complain.
        setattr(context._accumulatorServer, "handle_error", _no_complaint)  # noqa: B010, SLF001
        gateway._gateway_client.is_connected = False  # noqa: SLF001
        process.kill()
        context._jsc = None  # noqa: SLF001
        context.stop()
        SparkSession._instantiatedSession = None  # noqa: SLF001
        SparkSession._activeSession = None  # noqa: SLF001
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # the JVM ends when this pipe does
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001


def _no_complaint(*_: object) -> None:
    """Say nothing."""


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
