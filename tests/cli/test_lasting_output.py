"""An output that is closed, full or gone decides no run: it ends as it would have, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation, Site

pytestmark = pytest.mark.wire

DR_CTL = (sys.executable, "-m", "dr_ctl")
MOVE = ("swapover", "--to", "paris", "--yes")
WITHIN_S = 60


def started(*words: str, **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([*DR_CTL, *words], text=True, stdin=subprocess.DEVNULL, **streams)


def read_and_leave(stream: IO[str] | None, lines: int) -> None:
    """Read so many lines, as `head` does, and close the pipe."""
    assert stream is not None
    for _ in range(lines):
        assert stream.readline()
    stream.close()


def is_open(site: Site) -> bool:
    return bool(site.settable["doors"]["clients"])


def test_a_run_whose_progress_nobody_reads_any_more_ends_as_it_would_have(
    dr_ctl: Shell, installation: Installation
) -> None:
    with started(*MOVE, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        read_and_leave(run.stderr, 9)
        assert run.stdout is not None
        document = json.loads(run.stdout.read())

    assert (run.wait(WITHIN_S), document["outcome"]) == (0, "ok")
    assert is_open(installation.paris)
    assert dr_ctl("runs", "list", "--json").document["data"]["runs"][0]["outcome"] == "ok"


def test_the_first_signal_undoes_a_run_although_it_ended_the_reader_too(
    dr_ctl: Shell, installation: Installation
) -> None:
    at_drain: list[int] = []

    def stop(operation: str) -> None:
        if operation == "stop()" and not at_drain:
            at_drain.append(run.pid)
            read_and_leave(run.stdout, 1)
            os.kill(run.pid, signal.SIGINT)

    installation.london.after_change = stop
    with started(*MOVE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        assert run.wait(WITHIN_S) == 130

    assert at_drain
    assert is_open(installation.london)
    assert not is_open(installation.paris)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_disk_under_standard_output_leaves_the_exit_code_and_the_result_goes_beside_it(
    dr_ctl: Shell, installation: Installation, form: tuple[str, ...]
) -> None:
    with (
        Path("/dev/full").open("w") as full,
        started(*MOVE, "--quiet", *form, stdout=full, stderr=subprocess.PIPE) as run,
    ):
        assert run.stderr is not None
        beside = run.stderr.read()

    assert run.wait(WITHIN_S) == 0
    assert "Traceback" not in beside
    assert "paris serves; nothing is under way" in beside


def test_streams_that_are_closed_from_the_beginning_change_nothing(dr_ctl: Shell, installation: Installation) -> None:
    words = f"exec {sys.executable} -m dr_ctl {' '.join(MOVE)} >&- 2>&-"

    assert subprocess.run(["/bin/sh", "-c", words], check=False, timeout=WITHIN_S).returncode == 0
    assert is_open(installation.paris)


def test_a_status_whose_reader_leaves_keeps_its_code_and_repeats_nothing(
    dr_ctl: Shell, installation: Installation
) -> None:
    with started("status", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as status:
        read_and_leave(status.stdout, 0)
        assert status.stderr is not None
        assert (status.stderr.read(), status.wait(WITHIN_S)) == ("", 0)


def test_a_watched_status_ends_once_nobody_reads_it(dr_ctl: Shell, installation: Installation) -> None:
    with started("status", "--watch", stdout=subprocess.PIPE) as watch:
        read_and_leave(watch.stdout, 1)

        assert watch.wait(WITHIN_S) == 0


def test_a_monitor_goes_on_after_the_reader_of_its_log_left(dr_ctl: Shell, installation: Installation) -> None:
    with started("monitor", "--for", "2s", "--json", stdout=subprocess.PIPE) as monitor:
        read_and_leave(monitor.stdout, 1)

        assert monitor.wait(WITHIN_S) == 0
    assert list(dr_ctl.folder.glob("history/date=*/site=*/*.parquet"))
