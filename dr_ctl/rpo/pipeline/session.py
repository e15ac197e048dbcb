"""Spark sessions that start and end with the work: in a JVM of their own, on a cluster, through Spark Connect, or in
the one that `spark-submit` made."""

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import pyspark
from platformdirs import user_cache_path
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dr_ctl.core.errors import EnvironmentFault, Stopped
from dr_ctl.core.machine import no_java
from dr_ctl.core.notation import address

APP: Final = "dr-ctl"
SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Larger batches for Python, smaller partitions for a listing without a job.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "500",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Recording the Python line of each column costs more calls to the JVM than making the column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
LOCAL_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    # Planning a query again at each stage costs more than it saves; small tables are broadcast by a hint.
    "spark.sql.adaptive.enabled": "false",
    # Files of a minute and of an hour side by side: tasks read as many bytes each, not as many files.
    "spark.sql.files.openCostInBytes": "65536",
    # The driver of a local session does the work. Larger sorts go to disk.
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "dr_ctl.rpo.pipeline.daemon",
}
IDLE_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For seconds of work in Java the first compiler alone is faster; for long work it is slower."""
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
OTHER_VERSION: Final = re.compile(r"a worker of Spark has dr-ctl \d.*")
STOP_LIMIT_S: Final = 60.0
"""The time that a JVM may take to end; the first one writes an archive of its classes."""
ARCHIVE: Final = "classes.jsa"
_LACKS: Final = re.compile(r'Class ([\w.]*[Ff]ile[Ss]ystem) not found|No FileSystem for scheme "?(\w+)')
_JARS: Final = (
    "Give Spark the jars of that store in `spark.conf`: of S3 those of org.apache.hadoop:hadoop-aws in the version of "
    "its own hadoop-client-api (`spark.jars.packages`, or `spark.jars`); docs/rpo.md says which."
)
_REMEDY: Final = "Look at `spark` in the settings file: master, conf, and that both sides see the history."


def is_submitted() -> bool:
    """Say whether `spark-submit` started this process and holds a JVM for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def master(named: str) -> str:
    return "the session of spark-submit" if is_submitted() else address(named)


@contextmanager
def session(
    *, master: str = "local[*]", conf: Mapping[str, str] | None = None, is_busy: bool = True
) -> Iterator[SparkSession]:
    """Yield a session, and end it with its JVM. A process has only one session at a time. With `is_busy` the long work
    is in Java, not in Python tasks.

    Errors of Spark itself, at the start or in the work, are raised as EnvironmentFault.
    """
    given = dict(conf or {})
    started: AbstractContextManager[SparkSession]
    if is_submitted():  # spark-submit's master and settings count, and the JVM ends with it
        builder = SparkSession.builder.appName(APP).config(map={**SESSION_CONF, **given})
        started = nullcontext(builder.getOrCreate())
    elif master.startswith("sc://"):
        started = _connected(master, given)
    else:
        started = _launched(master, given, is_busy=is_busy)
    with _signals_noted(), started as spark:
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            if lacks := _LACKS.search(str(error)):
                what = lacks[1] or f"a file system for {lacks[2]}"
                text = f"Spark lacks {what} to read that store"
                raise EnvironmentFault(text, remedy=_JARS) from error
            if other := OTHER_VERSION.search(str(error)):
                raise EnvironmentFault(other[0], remedy="Install the same dr-ctl on every worker.") from error
            why = _cause(error).replace(master, address(master))
            raise EnvironmentFault(f"Spark did not finish the work: {why}", remedy=_REMEDY) from error


@contextmanager
def _signals_noted() -> Iterator[None]:
    """Raise the exception of a signal's handler at the end: during a call py4j logs it as a fault of its own."""
    before = {sig: signal.getsignal(sig) for sig in (signal.SIGINT, signal.SIGTERM)} if _in_main_thread() else {}
    raised: list[Stopped] = []

    def noting(handler: Callable[..., Any]) -> Callable[..., None]:
        def handle(*caught: Any) -> None:
            try:
                handler(*caught)
            except Stopped as stop:
                raised.append(stop)
                raise

        return handle

    for number, handler in before.items():
        signal.signal(number, noting(handler) if callable(handler) else handler)
    quiet = logging.NullHandler()
    logging.getLogger().addHandler(quiet)
    try:
        yield
    except (EnvironmentFault, PySparkException, Py4JError):
        if raised:
            raise raised[0] from None
        raise
    finally:
        logging.getLogger().removeHandler(quiet)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _connected(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    try:
        spark = SparkSession.builder.remote(master).appName(APP).config(map={**SESSION_CONF, **conf}).getOrCreate()
    except (PySparkException, ImportError) as error:
        why = _first_line(error).replace(master, address(master))
        remedy = "Check the address; the client side needs `pyspark[connect]` installed beside dr-ctl."
        raise EnvironmentFault(f"no Spark Connect session at {address(master)}: {why}", remedy=remedy) from error
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
    archive = _archive() if master.startswith("local") else None
    settings = _settings(master, conf, folder, _sharing(archive, folder), is_busy=is_busy)
    try:
        with _jvm(settings, folder, is_killed=archive is not None and archive.exists()) as spark:
            yield spark
        _keep(folder / ARCHIVE, archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the JVM removes parts of it at the same time


def _archive() -> Path:
    """Return the path of the archive of classes of this Java and this Spark. Java accepts no archive of a Spark in
    another place."""
    java = Path(os.environ.get("JAVA_HOME", ""), "bin", "java")
    java = java if java.exists() else Path(shutil.which("java") or java)
    changed_ns = java.stat().st_mtime_ns if java.exists() else 0
    identity = f"{pyspark.__version__} {pyspark.__file__} {java.resolve()} {changed_ns}"
    return user_cache_path("dr-ctl") / f"spark-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def _sharing(archive: Path | None, folder: Path) -> Sequence[str]:
    """Have Java take its classes from the archive, or write one when it ends."""
    if archive is None:
        return ()
    how = f"SharedArchiveFile={archive}" if archive.exists() else f"ArchiveClassesAtExit={folder / ARCHIVE}"
    return "-XX:+IgnoreUnrecognizedVMOptions", f"-XX:{how}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def _keep(written: Path, archive: Path | None) -> None:
    """Move an archive to where the next session looks for it, atomically; a failure costs only the archive."""
    if archive is not None and written.exists():
        with suppress(OSError):
            archive.parent.mkdir(parents=True, exist_ok=True)
            beside = archive.with_suffix(f".{os.getpid()}")
            shutil.move(written, beside)
            beside.replace(archive)


def _settings(
    master: str, conf: Mapping[str, str], folder: Path, sharing: Sequence[str], *, is_busy: bool
) -> SparkConf:
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    java = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={folder}",
        "-XX:-UsePerfData",
        f"-XX:ErrorFile={folder / 'crash.log'}",
        *(BUSY_JAVA if is_busy else IDLE_JAVA),
        *sharing,
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
        # Starting a task takes longer than short work.
        **({"spark.sql.shuffle.partitions": "4"} if is_local and not is_busy else {}),
        **conf,
        "spark.driver.extraJavaOptions": " ".join(java).strip(),
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


@contextmanager
def _jvm(settings: SparkConf, folder: Path, *, is_killed: bool) -> Iterator[SparkSession]:
    """Start a JVM. With `is_killed` it is killed at the end: it has nothing to save, and an orderly end takes a
    second."""
    log_path = folder / "jvm.log"
    with log_path.open("wb") as log:
        try:
            start: Callable[..., Any] = launch_gateway
            gateway = start(settings, {"stdout": log, "stderr": log})
        except PySparkException as error:
            raise _did_not_start(log_path, error) from error
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        try:
            spark = SparkSession(SparkContext(conf=settings, gateway=gateway))
        except (PySparkException, Py4JError) as error:
            raise _did_not_start(log_path, error) from error
        finally:
            # SparkContext takes SIGINT for itself; give SIGINT back to the earlier handler.
            if _in_main_thread():
                signal.signal(signal.SIGINT, interrupt)
        try:
            yield spark
        finally:
            if is_killed:
                server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001 - it prints that the JVM has gone
                server.handle_error = lambda *_: None
                gateway.proc.kill()
                gateway.proc.wait()
            with suppress(PySparkException, Py4JError, OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a JVM that is gone needs no end
                spark.stop()
    finally:
        _end(gateway)


def _did_not_start(log_path: Path, error: Exception) -> EnvironmentFault:
    words = [line.strip() for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
    cause = next((line for line in words if "rror" in line or "xception" in line), _first_line(error))
    remedy = "Check `java -version` (17 or later) and `spark` in the settings file: master and conf."
    return EnvironmentFault(f"Spark did not start: {cause[:300]}", remedy=remedy)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


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
    # Spark has no public way to forget a JVM that has ended; after a kill its own `stop` never returns.
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


def _cause(error: Exception) -> str:
    """Return the last error line of a Python worker, else the first line of Spark's error."""
    lines = [line for line in str(error).splitlines() if _OF_PYTHON.match(line)]
    return lines[-1] if lines else _first_line(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
