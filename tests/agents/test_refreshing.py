"""The stored estimate beside the monitor, and how large the monitor gets."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dr_ctl.agents.refreshing import SHARE, Refresher
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.request import Request

REQUEST = Request(history=Path("h"), store=True)
ANSWERS = "import sys\nfor line in sys.stdin: print('{answer}', flush=True)"
WITHIN_S = 20.0


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Put a script in the place of the worker; gives the scripts that were started."""
    started: list[str] = []

    def instead(script: str) -> list[str]:
        def command() -> list[str]:
            started.append(script)
            return [sys.executable, "-c", script]

        monkeypatch.setattr(request, "command", command)
        return started

    return instead


def answered(refresher: Refresher) -> str | None:
    """Ask, and look until the answer has come."""
    assert refresher.look() is None
    assert refresher._estimating is not None
    until = time.monotonic() + WITHIN_S
    while refresher._estimating.runs:
        assert time.monotonic() < until
        time.sleep(0.01)  # a process that stays cannot be waited for
    return refresher.look()


@pytest.mark.parametrize(("stays", "processes"), [(False, 3), (True, 1)])
def test_a_process_that_stays_is_asked_again(
    worker: Callable[[str], list[str]], stays: bool, processes: int, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    started = worker(
        f"import sys\nfor line in sys.stdin:\n open({str(heard)!r}, 'a').write(line); print('{{}}', flush=True)"
    )
    refresher = Refresher(REQUEST, stays=stays, every_s=0.0)

    for _ in range(3):
        refresher._next = 0.0
        assert answered(refresher) is None
    refresher._next = time.monotonic() + 1000  # it is not asked before its time
    for _ in range(3):
        assert refresher.look() is None

    assert len(started) == processes
    assert [Request.from_json(line) for line in heard.read_text().splitlines()] == [REQUEST] * 3
    refresher.close()


def test_one_that_has_ended_is_started_again(worker: Callable[[str], list[str]]) -> None:
    started = worker("import sys; sys.stdin.readline(); print('{}')")
    refresher = Refresher(REQUEST, stays=True, every_s=0.0)

    for _ in range(2):
        refresher._next = 0.0
        assert answered(refresher) is None
        if refresher._estimating is not None:
            refresher._estimating._process.wait(WITHIN_S)

    assert len(started) == 2
    refresher.close()


def test_a_long_one_is_made_more_seldom(worker: Callable[[str], list[str]]) -> None:
    worker(ANSWERS.format(answer="{}"))
    refresher = Refresher(REQUEST, stays=True, every_s=0.0)

    began = time.monotonic()
    answered(refresher)
    took = time.monotonic() - began

    assert 0 < refresher._next - time.monotonic() <= SHARE * took
    refresher.close()


@pytest.mark.parametrize("stays", [False, True])
def test_a_reason_is_told_once(worker: Callable[[str], list[str]], stays: bool) -> None:
    why = json.dumps({"error": "no java", "remedy": ""})
    worker(ANSWERS.format(answer=why))
    refresher = Refresher(REQUEST, stays=stays, every_s=0.0)

    first = answered(refresher)
    refresher._next = 0.0
    second = answered(refresher)
    refresher.close()
    worker("pass")
    refresher._next = 0.0
    third = answered(refresher)

    assert (first, second, third) == ("no estimate: no java", None, "no estimate: the estimate ended without an answer")
    refresher.close()


def test_the_end_of_the_monitor_ends_it(worker: Callable[[str], list[str]]) -> None:
    worker("import os, time\nos.setpgid(0, 0) if os.getpgrp() != os.getpid() else None\ntime.sleep(600)")
    refresher = Refresher(REQUEST, stays=True)
    refresher.look()
    assert refresher._estimating is not None
    process = refresher._estimating._process

    refresher.close()

    assert process.poll() is not None


LIMIT_MIB = 143  # 150 MB


@pytest.mark.deep
def test_ten_thousand_queues_at_two_sites_stay_below_150_mb(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.memory", str(tmp_path / "history")]

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=300
    )

    assert int(done.stdout) < LIMIT_MIB
    assert len(list(tmp_path.glob("history/date=*/site=*/*.parquet"))) >= 4


def test_its_memory_is_given_back_by_the_allocator_of_the_system(tmp_path: Path) -> None:
    """Arrow reads which to take when it is loaded: nothing before the command may have loaded it."""
    missing = tmp_path / "none.yaml"
    code = (
        f"from dr_ctl.cli.app import run; run(['--config', {str(missing)!r}, 'monitor']);"
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split()[-1] == "system"
