"""The stored estimate beside the monitor: when one is started, what is said of one that fails, and its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dr_ctl.agents.refreshing import SHARE, Refresher
from dr_ctl.rpo.estimate import request
from dr_ctl.rpo.estimate.request import Request

REQUEST = Request(history=Path("h"), store=True)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Path]]:
    """Put a script in the place of the worker; gives the requests that it was started with."""
    started: list[Path] = []

    def instead(script: str) -> list[Path]:
        def command(request: Path) -> list[str]:
            started.append(request)
            assert Request.from_json(request.read_text()) == REQUEST
            return [sys.executable, "-c", script]

        monkeypatch.setattr(request, "command", command)
        return started

    return instead


def ended(refresher: Refresher) -> str | None:
    """Look until the process that runs has ended."""
    until = time.monotonic() + 20
    assert refresher.look() is None
    process = refresher._estimating._process
    assert process is not None
    process.wait(until - time.monotonic())
    return refresher.look()


def test_it_starts_at_once_and_then_after_its_time(worker: Callable[[str], list[Path]]) -> None:
    started = worker("print('{}')")
    refresher = Refresher(REQUEST, every_s=1000)

    assert ended(refresher) is None
    for _ in range(3):
        assert refresher.look() is None

    assert len(started) == 1
    refresher.close()


def test_a_long_one_is_made_more_seldom(worker: Callable[[str], list[Path]]) -> None:
    worker("print('{}')")
    refresher = Refresher(REQUEST, every_s=0.0)

    began = time.monotonic()
    ended(refresher)
    took = time.monotonic() - began

    assert 0 < refresher._next - time.monotonic() <= SHARE * took
    refresher.close()


def test_a_reason_is_told_once(worker: Callable[[str], list[Path]]) -> None:
    worker("""print('{"error": "no java", "remedy": ""}')""")
    refresher = Refresher(REQUEST, every_s=0.0)

    first = ended(refresher)
    refresher._next = 0.0
    second = ended(refresher)
    worker("pass")
    refresher._next = 0.0
    third = ended(refresher)

    assert (first, second, third) == ("no estimate: no java", None, "no estimate: the estimate ended without an answer")
    refresher.close()


def test_the_end_of_the_monitor_ends_it(worker: Callable[[str], list[Path]]) -> None:
    worker("import os, time\nos.setpgid(0, 0) if os.getpgrp() != os.getpid() else None\ntime.sleep(600)")
    refresher = Refresher(REQUEST)
    refresher.look()
    process = refresher._estimating._process
    assert process is not None

    refresher.close()

    assert process.poll() is not None
    assert not Path(refresher._folder.name).exists()
