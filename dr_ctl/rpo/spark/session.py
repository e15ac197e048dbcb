"""Spark sessions that start and end with the work: in a JVM of their own, on a cluster, through Spark Connect, or in
the one that `spark-submit` made."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.lacking import no_java
from dr_ctl.core.printable import address

APP: Final = "dr-ctl"
SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Noting the Python line of every column costs more calls to the JVM than making the column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
LOCAL_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # The driver of a local session does the work. What is sorted beyond that goes to disk.
    "spark.driver.memory": "4g",
}
IDLE_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Where Java has work of seconds, and Python the rest, the first compiler alone is faster; for long work it loses."""
BUSY_JAVA: Final = ("-XX:+UseParallelGC",)
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
_OF_PYTHON: Final = re.compile(r"[A-Za-z][\w.]*(?:Error|Exception|Fault): ")
STOP_LIMIT_S: Final = 10.0
_REMEDY: Final = "Look at `spark` in the settings file: master, conf, and that both sides see the history."


def is_submitted() -> bool:
    """Whether `spark-submit` started this process and holds a JVM for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session(
    *, master: str = "local[*]", conf: Mapping[str, str] | None = None, is_busy: bool = True
) -> Iterator[SparkSession]:
    """Give a session and end it, its JVM included, whatever happens inside. Only one session at a time in a process.
    `is_busy`: Java itself has long work to do, and not Python in its tasks.

    Errors of Spark itself, at the start or in the work, are raised as EnvironmentFault.
    """
    given = dict(conf or {})
    started: AbstractContextManager[SparkSession]
    if is_submitted():
        started = _submitted(given)
    elif master.startswith("sc://"):
        started = _connected(master, given)
    else:
        started = _launched(master, given, is_busy=is_busy)
    with started as spark:
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            why = _cause(error).replace(master, address(master))
            raise EnvironmentFault(f"Spark did not finish the work: {why}", remedy=_REMEDY) from error


@contextmanager
def _submitted(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session of `spark-submit`: its master and its settings count, and its JVM ends with it."""
    builder = SparkSession.builder.appName(APP)
    for key, value in {**SESSION_CONF, **conf}.items():
        builder = builder.config(key, value)
    yield builder.getOrCreate()


@contextmanager
def _connected(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    try:
        builder = SparkSession.builder.remote(master).appName(APP)
        for key, value in {**SESSION_CONF, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except (PySparkException, ImportError) as error:
        raise EnvironmentFault(
            f"no Spark Connect session at {address(master)}: {_first_line(error).replace(master, address(master))}",
            remedy="Check the address; the client side needs `pyspark[connect]` installed beside dr-ctl.",
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _launched(master: str, conf: Mapping[str, str], *, is_busy: bool) -> Iterator[SparkSession]:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise no_java("Spark needs it", " Or point JAVA_HOME at one, or name a Spark Connect address.")
    # Tasks run in the Python that has what they need: this one.
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    folder = Path(tempfile.mkdtemp(prefix="dr-ctl-spark-"))
    try:
        with _jvm(_settings(master, conf, folder, is_busy=is_busy), folder) as spark:
            yield spark
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the JVM removes parts of it at the same time


def _settings(master: str, conf: Mapping[str, str], folder: Path, *, is_busy: bool) -> SparkConf:
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    java = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={folder}",
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={folder / 'crash.log'}",
        *(BUSY_JAVA if is_busy else IDLE_JAVA),
        conf.get("spark.driver.extraJavaOptions", ""),
    ]
    is_local = master.startswith("local")
    settings = {
        "spark.app.name": APP,
        "spark.master": master,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        **SESSION_CONF,
        **(LOCAL_CONF if is_local else {}),
        **conf,
        "spark.driver.extraJavaOptions": " ".join(java).strip(),
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


@contextmanager
def _jvm(settings: SparkConf, folder: Path) -> Iterator[SparkSession]:
    said = folder / "jvm.log"
    with said.open("wb") as log:
        try:
            start: Callable[..., Any] = launch_gateway
            gateway = start(settings, {"stdout": log, "stderr": log})
        except PySparkException as error:
            raise _did_not_start(said, error) from error
    interrupt = _interrupt_handler()
    try:
        try:
            spark = SparkSession(SparkContext(conf=settings, gateway=gateway))
        except (PySparkException, Py4JError) as error:
            raise _did_not_start(said, error) from error
        finally:
            # SparkContext takes SIGINT for itself; give SIGINT back to the earlier handler.
            if interrupt is not None:
                signal.signal(signal.SIGINT, interrupt)
        try:
            yield spark
        finally:
            with suppress(PySparkException, Py4JError, OSError):  # a JVM that is gone needs no end
                spark.stop()
    finally:
        _end(gateway)


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


def _end(gateway: Any) -> None:
    """End the JVM for certain, so that another session can be started."""
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # the JVM ends when this pipe does
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None  # noqa: SLF001 - no public way to forget a JVM that is gone
    SparkContext._jvm = None  # noqa: SLF001


def _cause(error: Exception) -> str:
    """What a worker said last, where the error came from a worker; else what Spark says first."""
    said = [line for line in str(error).splitlines() if _OF_PYTHON.match(line)]
    return said[-1] if said else _first_line(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
