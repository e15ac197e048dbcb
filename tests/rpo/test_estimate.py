"""The whole estimate, on files; and the process that makes it, ended by force."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from dr_ctl.core.errors import EnvironmentFault, Stopped, UsageError
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request, command
from dr_ctl.rpo.estimate.result import EstimateAnswer, LossClass, LossLimit, Objectives, Verdict
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from dr_ctl.rpo.pipeline import session
from tests.rpo import by_hand
from tests.rpo.fifo import at
from tests.rpo.files import FixedClock

WITHIN_S = 90.0


def history(site: str = "01", looks: int = 13, pair: str = "orders-1", offset: float = 0) -> list[Row]:
    """Ten messages arrive every ten seconds; from the seventh look on, nothing is shipped."""
    rows = []
    for n in range(looks):
        put, shipped = n * 10, min(n * 10, 60)
        told = {"ts": at(n * 10 + offset), "pair": pair}
        of_broker = {**told, "site": site, "depth": put - shipped, "added": put, "removed": shipped, "start": "1"}
        rows += [
            Row(**told, site=site, kind="site", name="serving"),
            Row(**told, site="02", kind="site", name="standby"),
            Row(**of_broker, kind="mirror", name="*", link=True),
            Row(**{**of_broker, "depth": put, "removed": 0}, kind="queue", name="audit.a"),
        ]
    return rows


def estimated(root: Path, *, now_s: float = 120, **more: Any) -> EstimateAnswer:
    return estimate(Request(history=root, **more), by_hand.made, clock=FixedClock(at(now_s)))


def test_an_estimate_from_files_to_verdict(tmp_path: Path) -> None:
    (first, *_) = write(history(), tmp_path)
    first.with_name("torn.parquet").write_bytes(b"PAR1")
    objectives = Objectives(LossLimit(messages=1000, age_s=30), (LossClass(("audit.#",), LossLimit(messages=70)),))

    answer = estimated(tmp_path, objectives=objectives)

    data = answer.data
    assert (data["site"], data["read_at"], data["stale_s"]) == ("01", "2026-03-01T12:02:00.000Z", 0.0)
    assert [data["total"][f"{each}_risk"] for each in ("loss", "duplicate")] == [60, None]
    assert data["window"] == {
        "from": "2026-03-01T12:00:00.000Z",
        "to": "2026-03-01T12:02:00.000Z",
        "samples": 13,
        "covered_s": 120.0,
    }
    # Seven intervals with ten on the way, then 20, 30, ... 60, and all of that as seconds too.
    loss = answer.estimate.total.loss
    assert (loss.now, loss.p50, loss.p95, loss.p99, loss.max) == (60, 10, 60, 60, 60)
    age = answer.estimate.total.age_s
    assert (age.now, age.p50, age.max) == (60.0, 10.0, 60.0)
    assert answer.estimate.total.duplicates.now is None
    assert answer.estimate.total.drain_s.now is None  # nothing was shipped while something was left
    assert [(flow.site, flow.pair, flow.name) for flow in answer.estimate.flows] == [("01", "orders-1", "*")]
    assert answer.estimate.flows[0].figures.loss == loss
    assert answer.estimate.classes[0].verdict is Verdict.UNKNOWN  # its limit holds, for two minutes
    assert answer.verdict is Verdict.MISSED  # by age, in total
    assert [finding.id for finding in answer.findings] == ["DR-RPO-002"]


def test_without_java_the_remedy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dr_ctl.rpo.pipeline.make import reading  # noqa: PLC0415 - Spark is imported by those who need it only

    write(history(), tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(EnvironmentFault, match="Spark needs it") as fault, reading() as make:
        estimate(Request(history=tmp_path), make)

    assert "JAVA_HOME" in fault.value.remedy


@pytest.mark.parametrize("text", ["", "[]", '{"site": "x"}', '{"history": "h", "more": 1}'])
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Request.from_json(text)


def started(tmp_path: Path, *requests: Request) -> subprocess.Popen[str]:
    """The worker, which is asked one after the other."""
    (tmp_path / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    worker = subprocess.Popen(command(), **pipes, text=True, env=environment)
    worker.stdin.write("".join(f"{each.to_json()}\n" for each in requests))
    worker.stdin.close()
    worker.stdin = None  # nothing is flushed to it any more
    return worker


def java_of(tmp_path: Path) -> list[int]:
    """Every process whose command line names the scratch directory: the JVM and what starts it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if str(tmp_path / "scratch").encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for(holds: Callable[[], bool], worker: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        select.select([worker.stdout] if worker.poll() is None else [], [], [], 0.02)


def test_a_signal_during_a_call_of_java_is_no_fault_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    def work() -> None:
        with session.session():
            with suppress(Stopped):  # as py4j does
                signal.raise_signal(signal.SIGINT)
            raise Py4JError("An error occurred while calling")

    monkeypatch.setattr(session, "_launched", lambda *_, **__: nullcontext())
    before = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(Stopped):
            work()
        assert signal.getsignal(signal.SIGINT) is stop
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.spark
@pytest.mark.deep
def test_a_worker_prints_one_document_for_each_request_and_nothing_else_and_begins_anew_after_an_error(
    tmp_path: Path,
) -> None:
    write(history(), tmp_path / "history")
    good = Request(history=tmp_path / "history", store=True)

    with started(tmp_path, replace(good, master="nonsense"), good, good) as worker:
        out, err = worker.communicate(timeout=WITHIN_S)

    assert (worker.returncode, err) == (0, "")
    no_master, first, again = map(json.loads, out.splitlines())
    assert "Spark did not start" in no_master["error"]
    assert set(first) == {"data", "verdict", "findings"}
    assert first["data"]["total"] == again["data"]["total"]
    assert first["data"]["total"]["loss"]["now"] == 60
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.spark
@pytest.mark.deep
def test_a_spark_whose_own_files_lie_elsewhere_reads_the_history_at_its_odd_place(tmp_path: Path) -> None:
    place = tmp_path / "a[1] {b}* ü%20? b\\c"
    write(history(), place)
    conf = {"spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1"}

    with started(tmp_path, Request(history=place, conf=conf, store=True)) as worker:
        out, _ = worker.communicate(timeout=WITHIN_S)

    assert json.loads(out)["data"]["total"]["loss"]["now"] == 60


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("ready", ["launching", "running"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_is_killed_leaves_no_java_behind(tmp_path: Path, how: signal.Signals, ready: str) -> None:
    write(history(), tmp_path / "history")

    def is_ready() -> bool:
        # The session makes its block manager's directory once it is up.
        return bool(java_of(tmp_path)) and (
            ready == "launching" or any((tmp_path / "scratch").glob("dr-ctl-spark-*/blockmgr-*"))
        )

    with started(tmp_path, Request(history=tmp_path / "history")) as worker:
        wait_for(is_ready, worker)
        worker.send_signal(how)
        code = worker.wait(WITHIN_S)
        wait_for(lambda: not java_of(tmp_path), worker)

    assert code == (143 if how is signal.SIGTERM else -signal.SIGKILL)
    if how is signal.SIGTERM:
        assert list((tmp_path / "scratch").glob("dr-ctl-spark-*")) == []


def test_of_what_a_worker_of_spark_said_the_cause_is_told() -> None:
    from dr_ctl.rpo.pipeline.session import _cause  # noqa: PLC0415 - Spark is imported by those who need it only

    said = "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File x\n  raise y\n"

    assert _cause(ValueError(f"{said}ModuleNotFoundError: No module named 'dr_ctl'\n\nat org.apache.spark")) == (
        "ModuleNotFoundError: No module named 'dr_ctl'"
    )
    assert _cause(ValueError("Job aborted\nat org.apache.spark")) == "Job aborted"
