"""Processes: an output that is closed or full, a terminal typed at early, a twin between commands."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab.daemons import wait_ended
from dr_ctl_lab.playground import Playground
from dr_ctl_lab.twin.kinds import MIRROR
from tests.cli.conftest import Shell
from tests.cli.sites import Site, Sites
from tests.cli.terminal import at_terminal
from tests.twin.subject import until

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
    return bool(site.settable["listeners"]["clients"])


def test_a_run_whose_progress_nobody_reads_any_more_ends_as_it_would_have(dr_ctl: Shell, sites: Sites) -> None:
    with started(*MOVE, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        read_and_leave(run.stderr, 9)
        assert run.stdout is not None
        document = json.loads(run.stdout.read())

    assert (run.wait(WITHIN_S), document["outcome"]) == (0, "ok")
    assert is_open(sites.paris)
    assert dr_ctl("runs", "list", "--json").document["data"]["runs"][0]["outcome"] == "ok"


def test_the_first_signal_undoes_a_run_although_it_ended_the_reader_too(dr_ctl: Shell, sites: Sites) -> None:
    at_drain: list[int] = []

    def stop(operation: str) -> None:
        if operation == "stop()" and not at_drain:
            at_drain.append(run.pid)
            read_and_leave(run.stdout, 1)
            os.kill(run.pid, signal.SIGINT)

    sites.london.after_change = stop
    with started(*MOVE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        assert run.wait(WITHIN_S) == 130

    assert at_drain
    assert is_open(sites.london)
    assert not is_open(sites.paris)


@pytest.mark.usefixtures("dr_ctl", "sites")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(MOVE, 0, "paris serves; nothing is under way", marks=pytest.mark.deep),
        ((*MOVE, "--json"), 0, "paris serves; nothing is under way"),
        ((*MOVE, "--json", "--dry-run"), 1, '"outcome": "ok"'),
        (("status", "--json"), 1, "london serves"),
        (("--version",), 1, "nothing was shown"),
        pytest.param(("swapover", "--help"), 1, "nothing was shown", marks=pytest.mark.deep),
    ],
)
def test_a_full_disk_under_the_output_leaves_only_a_run_its_exit_code(
    words: tuple[str, ...], code: int, said: str
) -> None:
    with Path("/dev/full").open("w") as full, started(*words, "--quiet", stdout=full, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        beside = run.stderr.read()

    assert run.wait(WITHIN_S) == code, beside
    assert "Traceback" not in beside
    assert said in beside
    assert "standard output cannot be written (No space left on device)" in beside


def test_the_command_in_the_refusal_beside_a_move_that_waits_ends_it(dr_ctl: Shell, sites: Sites) -> None:
    with started(*MOVE, "--at", "10m", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as waiting:
        assert waiting.stderr is not None
        assert any("waiting for" in line for line in waiting.stderr)
        refused = dr_ctl(*MOVE)
        [command] = re.findall(r"until then `(kill \d+)` ends it", refused.err + refused.out)
        subprocess.run(shlex.split(command), check=True)
        waiting.stderr.read()

    assert (refused.code, waiting.wait(WITHIN_S)) == (13, 143)
    assert dr_ctl(*MOVE).code == 0


def test_streams_that_are_closed_from_the_beginning_change_nothing(dr_ctl: Shell, sites: Sites) -> None:
    words = f"exec {sys.executable} -m dr_ctl {' '.join(MOVE)} >&- 2>&-"

    assert subprocess.run(["/bin/sh", "-c", words], check=False, timeout=WITHIN_S).returncode == 0
    assert is_open(sites.paris)


@pytest.mark.parametrize(
    ("words", "lines"),
    [("status", 0), pytest.param("status --watch", 1, marks=pytest.mark.deep), ("monitor --for 500ms --json", 1)],
)
def test_what_read_only_keeps_its_code_where_its_reader_leaves(
    dr_ctl: Shell, sites: Sites, words: str, lines: int
) -> None:
    with started(*words.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as looking:
        read_and_leave(looking.stdout, lines)
        assert looking.stderr is not None
        beside, code = looking.stderr.read(), looking.wait(WITHIN_S)

    assert (code, beside if words == "status" else "") == (0, "")
    assert bool(list(dr_ctl.folder.glob("history/date=*/site=*/*.parquet"))) is ("monitor" in words)


@pytest.mark.usefixtures("dr_ctl")
def test_a_name_that_was_typed_before_the_question_is_no_yes(sites: Sites) -> None:
    with at_terminal("swapover", "--to", "paris") as terminal:
        terminal.type("paris\n")
        terminal.until("to go on: ")
        terminal.type("\n")

        assert terminal.ended() == 14

    assert sites.changes == []


@pytest.mark.usefixtures("dr_ctl")
def test_a_step_is_no_answer_to_the_one_before_and_no_line_is_cut(sites: Sites) -> None:
    with at_terminal("swapover", "--to", "paris", "--step", columns=48) as terminal:
        terminal.until("to go on: ")
        terminal.type("paris\ny\ny\ny\ny\ny\ny\n")
        shown = terminal.until("[s]top here: ")
        for _ in range(3):
            terminal.type("y\n")
            shown += terminal.until("[s]top here: ")
        terminal.type("s\n")

        assert terminal.ended() == 130, terminal.drawn
    assert max(map(len, shown.splitlines())) <= 48, shown

    assert sites.changes == []


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "lab"
    yield directory
    if Playground.is_at(directory):
        Playground.open(directory).down()


def up(lab: Path, **more: Any) -> Playground:
    given = {"sites": ("london", "paris"), "queues": ("jobs",), "delay_ms": 0, "topology": MIRROR, "pairs": 1}
    return Playground.up(lab, **{**given, **more})


def test_commands_find_the_sites_that_an_earlier_one_started(dr_ctl: Shell, lab: Path) -> None:
    on = ("--dir", str(lab))
    assert dr_ctl("lab", "up", "--on", "twin", "--sites", "north,south", "--queue", "jobs", *on).code == 0

    loaded = dr_ctl("lab", "load", "--rate", "200", "--for", "500ms", "--json", *on)
    moved = dr_ctl("--config", str(lab / "dr-ctl.yaml"), "swapover", "--to", "south", "--yes")
    cut = dr_ctl("lab", "cut", "--from", "south", "--mode", "hang", *on)
    dr_ctl("lab", "kill", "north", *on)
    snapshot = dr_ctl("lab", "status", "--json", *on)

    assert (loaded.code, loaded.document["data"]["lost"], moved.code, cut.code) == (0, 0, 0, 0), moved.err
    assert {item["name"]: (item["running"], item["serves"]) for item in snapshot.document["data"]["sites"]} == {
        "north": (False, []),
        "south": (True, ["jobs"]),
    }
    modes = {item["source"]: (item["mode"], item["connected"]) for item in snapshot.document["data"]["links"]}
    assert modes == {"north": ("open", False), "south": ("hang", False)}
    assert (dr_ctl("lab", "down", *on).code, lab.exists()) == (0, False)


def test_one_whose_process_was_killed_is_said_to_be_gone_and_its_rest_is_removed(lab: Path) -> None:
    twin = up(lab)
    process = twin._state.process
    os.kill(process.pid, signal.SIGKILL)
    wait_ended(process, 5)

    with pytest.raises(EnvironmentFault, match="does not answer") as raised:
        twin.status()
    Playground.open(lab).down()

    assert f"lab down --dir {lab}" in raised.value.remedy
    assert not lab.exists()


def test_one_that_is_stopped_keeps_nobody_waiting(lab: Path) -> None:
    twin = up(lab)
    process = twin._state.process
    os.kill(process.pid, signal.SIGSTOP)
    until(process.frozen)  # a process on another core runs on for a moment, and would be asked

    with pytest.raises(EnvironmentFault, match="is stopped") as raised:
        twin.status()

    assert raised.value.remedy == f"`kill -CONT {process.pid}` lets it go on."


def test_one_that_does_not_come_up_says_why_and_leaves_nothing(lab: Path) -> None:
    with pytest.raises(EnvironmentFault, match="the twin did not come up") as raised:
        up(lab, delay_ms="soon")

    assert "TypeError" in str(raised.value)
    assert not lab.exists()
