"""The same code on a standalone cluster of two workers, under `spark-submit` and through Spark Connect: the same
figures, from a folder and from an object store."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.rpo.history.files import Store
from dr_ctl.rpo.history.newest import role_periods
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.history.upkeep import Upkeep
from dr_ctl.rpo.pipeline.sql import version
from dr_ctl.settings.model import HistoryLocation
from tests.rpo.elsewhere import MORE, OTHER
from tests.rpo.files import bounds_of, write
from tests.rpo.object_store import KEYS, s3_server, s3a
from tests.rpo.simulator import EPOCH, LOADS, history
from tests.rpo.test_reconcile import as_lines, lives
from tests.stomp_io.listeners import closed_port

pytestmark = [pytest.mark.spark, pytest.mark.deep]

ROOT = Path(__file__).parents[2]
WITHIN_S = 180.0
CLIENT = os.environ.get("DR_CTL_CONNECT")


@contextmanager
def running(folder: Path, name: str, *words: str, ready: str, **more: str) -> Iterator[None]:
    """A part of Spark as a process, until its log says that it is ready; ended with the block."""
    import pyspark  # noqa: PLC0415

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    environment |= {"SPARK_LOCAL_DIRS": str(folder), **more}
    with log.open("wb") as out:
        process = subprocess.Popen([str(home / words[0]), *words[1:]], stdout=out, stderr=out, env=environment)
    try:
        until = time.monotonic() + WITHIN_S
        while ready not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.1)  # a log file cannot be waited for
        yield
    finally:
        process.terminate()
        process.wait(WITHIN_S)


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    port = str(closed_port().port)
    address = f"spark://127.0.0.1:{port}"
    of = "org.apache.spark.deploy"
    master = f"{of}.master.Master --host 127.0.0.1 --port {port} --webui-port 0".split()
    worker = f"{of}.worker.Worker --host 127.0.0.1 --cores 1 --memory 1g --webui-port 0 --work-dir".split()
    with ExitStack() as parts:
        start = partial(running, folder)
        parts.enter_context(start("master", "bin/spark-class", *master, ready="I have been elected leader"))
        for name in ("one", "two"):
            words = [*worker, str(folder / name), address]
            parts.enter_context(start(name, "bin/spark-class", *words, ready="Successfully registered"))
        yield address


@contextmanager
def connect(folder: Path) -> Iterator[str]:
    if CLIENT is None:
        pytest.skip("DR_CTL_CONNECT names no folder with what a client of Spark Connect needs; `make chaos` makes one")
    port = closed_port().port
    server = "bin/spark-submit --class org.apache.spark.sql.connect.service.SparkConnectServer --master local[2]"
    binding = "--conf spark.connect.grpc.binding.address=127.0.0.1 --conf spark.connect.grpc.binding.port"
    words = f"{server} --name connect --conf spark.ui.enabled=false {binding}={port}".split()
    with running(folder, "connect", *words, ready="Spark Connect server started", PYSPARK_PYTHON=sys.executable):
        yield f"sc://127.0.0.1:{port}"


def asked(master: str, folder: Path, history: str | None = None, *first: str, **environment: str) -> dict[str, Any]:
    """What a process says that asks there; `first` are the words that start it."""
    told = [master, history or str(folder / "history"), str(folder / "near"), str(folder / "l.jsonl")]
    command = [*(first or (sys.executable, "-m", "tests.rpo.elsewhere")), *told]
    more = {"PYTHONPATH": CLIENT} if CLIENT is not None and master.startswith("sc://") else {}
    environment = {**os.environ, **more, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def same(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            same(left, right, f"{where}[{place}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, abs=1e-9), where
    else:
        assert one == other, where


def rows() -> list[Row]:
    return history(LOADS[3], 5, hours=2.5, pair="orders-1", every_s=20.0)[0]


@pytest.fixture
def life(tmp_path: Path) -> Path:
    write(rows(), tmp_path / "history")
    as_lines([event for book in lives(1)[:2] for event in book], tmp_path / "l.jsonl")
    (tmp_path / "spark").mkdir()
    return tmp_path


@pytest.mark.parametrize("somewhere", [standalone, connect], ids=["two workers", "connect"])
def test_the_figures_are_the_same_elsewhere(life: Path, somewhere: Any) -> None:
    on_one_host = asked("local[2]", life)

    with somewhere(life / "spark") as address:
        on_executors = asked(address, life)

    assert on_one_host["estimate"]["total"]["loss"]["p99"] > 0
    assert on_one_host["ids"]["lost"]
    same(on_one_host, on_executors)


def test_two_workers_read_a_history_in_s3_and_keep_its_summaries_there(
    life: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    on_one_host = asked("local[2]", life)
    shutil.copytree(life / "history", life / "near", dirs_exist_ok=True)
    old = [replace(row, site="paris", ts=row.ts - timedelta(days=day)) for row in rows()[:9] for day in (20, 21, 22)]
    write(old, life / "near")

    def without_spark(place: HistoryLocation) -> Any:
        return bounds_of(place, now=EPOCH + timedelta(hours=3)), role_periods(place, ["london"])

    with s3_server() as (url, _), standalone(life / "spark") as address:
        upkeep = Upkeep(HistoryLocation(url, life / "near"), keep_s=86_400)
        while upkeep.step(datetime.now(UTC)):
            pass
        on_executors = asked(address, life, url, **{MORE: json.dumps(s3a())})
        days = {name.partition("/")[0] for name in Store.of(url).listed() if name.startswith("date=")}
        for near in ("near", "nothing here"):
            assert without_spark(HistoryLocation(url, life / near)) == without_spark(
                HistoryLocation.at(life / "history")
            )

    assert upkeep.trouble is None
    assert days == {"date=2026-02-08", "date=2026-02-09", "date=2026-03-01"}
    same(on_one_host, on_executors)


def test_a_session_of_spark_submit_is_used(life: Path) -> None:
    import pyspark  # noqa: PLC0415

    on_one_host = asked("local[2]", life)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    words = (submit, "--master", "local[2]", "--conf", "spark.ui.enabled=false", str(ROOT / "tests/rpo/elsewhere.py"))

    on_executors = asked("local[2]", life, None, *words, PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT))

    same(on_one_host, on_executors)


def test_workers_with_another_dr_ctl_are_refused_with_both_versions(life: Path) -> None:
    shutil.copytree(ROOT / "dr_ctl", life / "other" / "dr_ctl", ignore=shutil.ignore_patterns("__pycache__"))
    with (life / "other/dr_ctl/rpo/core/cut.py").open("a") as code:
        code.write("# as another version says it\n")

    with standalone(life / "spark") as address:
        told = asked(address, life, **{OTHER: str(life / "other")})["refused"]

    one, other = re.findall(r"0\.\S+ \(code [0-9a-f]{12}\)", told)
    assert told.startswith("a worker of Spark has dr-ctl")
    assert other == version()
    assert one != other
