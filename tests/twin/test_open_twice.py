"""A run dies right after it opened its target, and the site that it left lets clients in again: commands close it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from tests.conftest import Command
from tests.twin.matrix import OPERATIONS
from tests.twin.subject import until
from tests.twin.test_crashes import Died


def opened(twin: PlayedTwin) -> list[str]:
    return [site for site in twin.sites if twin.host(site).broker.acceptors["clients"].started]


@pytest.fixture(params=["swapover", "failover"])
def both_open(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> PlayedTwin:
    """London is open again beside Paris, which an interrupted run has opened."""
    operation = OPERATIONS[request.param]
    operation.before(twin, dr_ctl)
    post = Sender._post

    def mortal(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        told = post(sender, calls)
        if any(call.goal is Goal.OPEN and call.site == "paris" for call in calls):
            raise Died
        return told

    with monkeypatch.context() as patch:
        patch.setattr(Sender, "_post", mortal)
        with pytest.raises(Died):
            dr_ctl(*operation.words, "--yes")
    twin.heal()
    twin.start("london")
    with twin.still():
        twin.host("london").broker.let_clients_in()
    until(lambda: opened(twin) == ["london", "paris"])
    return twin


@pytest.mark.parametrize("words", [["resume"], ["fence", "london"]], ids=["resume", "fence"])
def test_what_is_open_again_is_closed_by_what_status_names(
    both_open: PlayedTwin, dr_ctl: Command, words: list[str]
) -> None:
    status = dr_ctl("status").document

    ended = dr_ctl(*words, "--yes")

    assert any(f"dr-ctl {words[0]}" in each["remedy"] for each in status["findings"]), status["findings"]
    assert ended.code == 0, ended.document
    assert opened(both_open) == ["paris"]
    if words != ["resume"]:
        assert dr_ctl("resume", "--yes").code == 0
    assert opened(both_open) == ["paris"]
    assert dr_ctl("status").document["data"]["open_run"] is None
