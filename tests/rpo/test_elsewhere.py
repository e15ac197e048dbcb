"""The same code on a standalone cluster of two workers and through Spark Connect: the same figures."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.rpo.history.files import write
from tests.rpo.simulator import LOADS, history
from tests.rpo.test_reconcile import as_lines, lives

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

ROOT = Path(__file__).parents[2]
WITHIN_S = 180.0
CLIENT = os.environ.get("DR_CTL_CONNECT")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(folder: Path, name: str, *words: str, ready: str) -> Iterator[None]:
    """A part of Spark as a process, until its log says that it is ready; ended with the block."""
    import pyspark  # noqa: PLC0415

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    environment["SPARK_LOCAL_DIRS"] = str(folder)
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
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
    with running(folder, "master", "bin/spark-class", *master, ready="I have been elected leader"):  # noqa: SIM117
        with (
            running(
                folder,
                "one",
                "bin/spark-class",
                *worker,
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / "one"),
                address,
                ready="Successfully registered",
            ),
            running(
                folder,
                "two",
                "bin/spark-class",
                *worker,
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / "two"),
                address,
                ready="Successfully registered",
            ),
        ):
            yield address


@contextmanager
def connect(folder: Path) -> Iterator[str]:
    if CLIENT is None:
        pytest.skip("DR_CTL_CONNECT names no folder with what a client of Spark Connect needs; `make chaos` makes one")
    port = free_port()
    words = [
        "bin/spark-submit",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master",
        "local[2]",
        "--name",
        "connect",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf",
        "spark.ui.enabled=false",
    ]
    with running(folder, "connect", *words, ready="Spark Connect server started"):
        yield f"sc://127.0.0.1:{port}"


def asked(master: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.rpo.elsewhere", master, str(folder / "history"), str(folder / "l.jsonl")]
    more = {"PYTHONPATH": CLIENT} if CLIENT is not None and master.startswith("sc://") else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600, env={**os.environ, **more}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


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


@pytest.mark.parametrize("somewhere", [standalone, connect], ids=["two workers", "connect"])
def test_the_figures_are_the_same_elsewhere(tmp_path: Path, somewhere: Any) -> None:
    write(history(LOADS[3], 5, hours=2.5, pair="orders-1", every_s=20.0)[0], tmp_path / "history")
    as_lines([event for book in lives(1)[:2] for event in book], tmp_path / "l.jsonl")
    here = asked("local[2]", tmp_path)
    (tmp_path / "spark").mkdir()

    with somewhere(tmp_path / "spark") as address:
        there = asked(address, tmp_path)

    assert here["estimate"]["total"]["loss"]["p99"] > 0
    assert here["ids"]["lost"]
    same(here, there)
