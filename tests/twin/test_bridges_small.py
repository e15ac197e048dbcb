"""Queues that diverts and bridges copy: sentences, counts and waits that follow what was seen."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command, Ended
from tests.twin.test_bridges import IN, OUT, at, put
from tests.twin.test_trim import worked_off

ODD = "rest & retour"


@pytest.fixture
def topology() -> str:
    return BRIDGES


def stop(twin: PlayedTwin, queue: str) -> None:
    with twin.still():
        at(twin, "london").bridges[f"bridge.mirror.paris.{queue}"].stop()


def ids_of(ended: Ended) -> list[str]:
    return [each["id"] for each in ended.document["findings"]]


def test_a_swapover_that_starts_a_stopped_bridge_is_ready(twin: PlayedTwin, dr_ctl: Command) -> None:
    stop(twin, OUT)

    told = dr_ctl("validate", "--for", "swapover")

    assert (told.code, told.document["data"]["operations"]["swapover"]["verdict"]) == (0, "ready")
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == ExitCode.OK


def test_status_tells_a_stopped_bridge(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert ids_of(dr_ctl("status")) == []
    stop(twin, OUT)

    assert ids_of(dr_ctl("status")) == ["DR-BRIDGE-004"]


def test_status_tells_that_all_bridges_are_gone(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.still():
        at(twin, "london").bridges.clear()

    assert ids_of(dr_ctl("status")) == ["DR-BRIDGE-002"]


def test_a_site_whose_broker_was_restarted_is_unfenced(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")
    twin.start("london")
    twin.wait_mirrored()

    ended = dr_ctl("unfence", "london", "--yes")

    assert (ended.code, ended.document["summary"]) == (ExitCode.OK, "london serves again")


@pytest.mark.parametrize("queues", [(), ("--queues", IN)])
def test_a_fence_that_stands_already_is_no_contradiction_to_an_open_door(
    twin: PlayedTwin, dr_ctl: Command, queues: tuple[str, ...]
) -> None:
    assert dr_ctl("fence", "london", "--yes", *queues).code == ExitCode.OK

    again = dr_ctl("fence", "london", "--yes", *queues)

    assert again.code == ExitCode.OK, again.document


def test_trim_says_how_many_went(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, IN, 30)
    twin.wait_mirrored()
    worked_off(twin, IN, 20)

    ended = dr_ctl("trim", "paris", "--yes")

    assert ended.document["summary"].startswith("20 processed copies removed at paris; ")


def test_a_move_with_less_time_waits_no_longer_while_clients_work(twin: PlayedTwin, dr_ctl: Command) -> None:
    steps = dr_ctl("plan", "swapover", "--to", "paris", "--timeout", "15s").document["data"]["plan"]["steps"]

    assert {each["verb"]: each["limits"].get("within") for each in steps}["catch-up"] == 15


def test_a_command_that_names_a_queue_with_a_blank_is_quoted(
    tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PlayedTwin.up(tmp_path / "odd", topology=BRIDGES, queues=(ODD, OUT)) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        with twin.still():
            at(twin, "paris").security.remove(ODD)

        [remedy] = [each["remedy"] for each in inside("validate").document["findings"] if "fence" in each["remedy"]]
        typed = shlex.split(remedy.split("`")[1])[1:]

        assert typed == ["fence", "paris", "--queues", ODD]
        assert inside(*typed, "--yes").code == ExitCode.OK
        assert inside("swapover", "--to", "paris", "--queues", ODD, "--yes").code == ExitCode.OK
