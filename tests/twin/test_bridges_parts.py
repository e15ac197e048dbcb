"""Some queues of a twin of diverts and bridges are moved or taken in; what becomes of those that nobody named."""

from __future__ import annotations

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command
from tests.twin.test_bridges import IN, OUT, at

BOTH_SITES = ("london", "paris")


@pytest.fixture
def topology() -> str:
    return BRIDGES


def open_at(twin: PlayedTwin, queue: str) -> list[str]:
    with twin.still():
        return [site for site in BOTH_SITES if at(twin, site).serves_queue(queue)]


def test_a_failback_of_some_queues_leaves_the_others_open_where_they_are(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert dr_ctl("swapover", "--to", "paris", "--queues", OUT, "--yes").code == ExitCode.OK

    ended = dr_ctl("failback", "--to", "london", "--queues", OUT, "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["london"])


@pytest.mark.parametrize("split", [False, True])
def test_one_queue_that_is_closed_while_its_site_serves_others_is_opened_by_a_release(
    twin: PlayedTwin, dr_ctl: Command, split: bool
) -> None:
    if split:
        assert dr_ctl("swapover", "--to", "paris", "--queues", OUT, "--yes").code == ExitCode.OK
    assert dr_ctl("fence", "london", "--queues", IN, "--yes").code == ExitCode.OK
    assert open_at(twin, IN) == []

    ended = dr_ctl("release", "london", "--queues", IN, "--yes")

    assert ended.code == ExitCode.OK, ended.document
    assert (open_at(twin, IN), open_at(twin, OUT)) == (["london"], ["paris" if split else "london"])


@pytest.mark.parametrize("command", [["swapover", "--to", "paris"], ["swapover", "--to", "paris", "--queues", IN]])
def test_a_queue_whose_divert_is_gone_where_it_is_served_opens_at_no_second_site(
    twin: PlayedTwin, dr_ctl: Command, command: list[str]
) -> None:
    with twin.still():
        del at(twin, "london").diverts[f"divert.{IN}"]

    ended = dr_ctl(*command, "--yes")

    assert (ended.code, ended.document["run"]) == (ExitCode.PRECHECK_FAILED, None), ended.document
    assert [each["id"] for each in ended.document["findings"] if "no divert copies orders.in to paris" in each["text"]]
    with twin.still():
        assert not at(twin, "paris").serves_queue(IN)
