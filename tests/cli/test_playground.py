"""`lab up --on twin`: simulated brokers that stand between commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault, UsageError
from dr_ctl_lab.lab.daemons import wait_gone
from dr_ctl_lab.playground import LOG, Playground
from dr_ctl_lab.twin.kinds import KINDS, MIRROR
from tests.cli.conftest import Shell
from tests.twin.subject import until

pytestmark = pytest.mark.wire


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """Where a lab may be; what stands there in the end is ended."""
    directory = tmp_path / "lab"
    yield directory
    if Playground.is_at(directory):
        Playground.open(directory).down()


def test_commands_find_the_sites_that_an_earlier_one_started(dr_ctl: Shell, lab: Path) -> None:
    on = ("--dir", str(lab))
    assert dr_ctl("lab", "up", "--on", "twin", "--sites", "north,south", "--queue", "jobs", *on).code == 0

    loaded = dr_ctl("lab", "load", "--rate", "200", "--for", "500ms", "--json", *on)
    moved = dr_ctl("--config", str(lab / "dr-ctl.yaml"), "swapover", "--to", "south", "--yes")
    cut = dr_ctl("lab", "cut", "--from", "south", "--mode", "hang", *on)
    dr_ctl("lab", "kill", "north", *on)
    seen = dr_ctl("lab", "status", "--json", *on)

    assert (loaded.code, loaded.document["data"]["lost"], moved.code, cut.code) == (0, 0, 0, 0), moved.err
    assert {each["name"]: (each["running"], each["serves"]) for each in seen.document["data"]["sites"]} == {
        "north": (False, []),
        "south": (True, ["jobs"]),
    }
    modes = {each["source"]: (each["mode"], each["connected"]) for each in seen.document["data"]["links"]}
    assert modes == {"north": ("open", False), "south": ("hang", False)}
    assert (dr_ctl("lab", "down", *on).code, lab.exists()) == (0, False)


@pytest.mark.deep
@pytest.mark.parametrize("topology", list(KINDS))
def test_clients_work_on_every_kind(topology: str, lab: Path) -> None:
    pairs = 1 if KINDS.named(topology).one_pair else 2
    twin = Playground.up(
        lab, sites=("london", "paris"), queues=("orders.in", "orders.out"), delay_ms=5, topology=topology, pairs=pairs
    )

    with twin.load(200) as load:
        load.wait_for(100)
        verdict = load.stop()

    assert verdict.clean, verdict.told
    assert [site.name for site in twin.status().sites if site.serves] == ["london"] * pairs


def test_one_whose_process_was_killed_is_said_to_be_gone_and_its_rest_is_removed(lab: Path) -> None:
    twin = Playground.up(lab, sites=("london", "paris"), queues=("jobs",), delay_ms=0, topology=MIRROR, pairs=1)
    process = twin._standing.process
    os.kill(process.pid, signal.SIGKILL)
    wait_gone(process, 5)

    with pytest.raises(EnvironmentFault, match="does not answer") as raised:
        twin.status()
    Playground.open(lab).down()

    assert f"lab down --dir {lab}" in raised.value.remedy
    assert not lab.exists()


def test_one_that_is_stopped_keeps_nobody_waiting(lab: Path) -> None:
    twin = Playground.up(lab, sites=("london", "paris"), queues=("jobs",), delay_ms=0, topology=MIRROR, pairs=1)
    process = twin._standing.process
    os.kill(process.pid, signal.SIGSTOP)
    until(process.frozen)  # a process on another core runs on for a moment, and would be asked

    with pytest.raises(EnvironmentFault, match="is stopped") as raised:
        twin.status()

    assert raised.value.remedy == f"`kill -CONT {process.pid}` lets it go on."


@pytest.mark.parametrize(
    ("topology", "why"),
    [("artemis-smoke", "no twin is made of artemis-smoke"), ("classic-shared-store", "such a twin has one pair")],
)
def test_one_that_there_is_not_is_refused_before_anything_is_made(topology: str, why: str, lab: Path) -> None:
    with pytest.raises(UsageError, match=why):
        Playground.up(lab, sites=("a", "b"), queues=("jobs",), delay_ms=0, topology=topology, pairs=2)

    assert not lab.exists()


def test_one_that_does_not_come_up_says_why_and_leaves_nothing(lab: Path) -> None:
    with pytest.raises(EnvironmentFault, match="the twin did not come up") as raised:
        Playground.up(lab, sites=("a", "b"), queues=("jobs",), delay_ms="soon", topology=MIRROR, pairs=1)  # type: ignore[arg-type]

    assert "TypeError" in str(raised.value)
    assert not lab.exists()


def test_a_directory_with_something_in_it_is_left_alone(lab: Path) -> None:
    lab.mkdir()
    (lab / LOG).write_text("mine")

    with pytest.raises(UsageError, match="is not empty"):
        Playground.up(lab, sites=("a", "b"), queues=("jobs",), delay_ms=0, topology=MIRROR, pairs=1)

    assert (lab / LOG).read_text() == "mine"
