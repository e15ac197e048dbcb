"""`status`, `validate` and `plan`: what they say of a pair that answers, in part or whole, and of one that does not."""

from __future__ import annotations

import signal
import subprocess
import sys
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.application.looking import looking
from dr_ctl.core.errors import Stopped
from dr_ctl.core.patience import Patience
from dr_ctl.topologies import registry
from dr_ctl_lab.played import PlayedTwin
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.twin.subject import Client


def stop_link(twin: PlayedTwin, site: str = "london") -> None:
    with twin.still():
        twin.host(site).broker.stop_link()


def test_both_sites_are_asked_before_what_tells_of_them_is_loaded() -> None:
    late = ("dr_ctl.application.status", "dr_ctl.engine.planner", "dr_ctl.rpo.estimate.result", "stomp", "rich")
    code = f"import sys, dr_ctl.cli.show; print([each for each in {late} if each in sys.modules])"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.strip() == "[]"


class Frozen:
    """A topology whose brokers answer nothing until nobody asks any more."""

    def __init__(self) -> None:
        self._closed = Event()
        self.gave_up = False

    def look(self, *, over_s: float) -> None:
        assert over_s > 0
        self.gave_up = self._closed.wait(20)

    def close(self) -> None:
        self._closed.set()


def test_who_gives_up_waits_for_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, runs = Frozen(), SimpleNamespace(documents=None)
    caller: Any = SimpleNamespace(installation=lambda: None, clock=None, patience=Patience(), runs=lambda: runs)
    monkeypatch.setattr(registry, "opened", lambda *_: frozen)

    with pytest.raises(Stopped), looking(caller):
        raise Stopped(signal.SIGINT)

    assert frozen.gave_up


LOOKS = [["status"], ["validate"], ["plan", "swapover", "--to", "paris"]]


def test_what_speaks_against_a_move_is_told_whole_with_its_remedies(dr_ctl: Shell, installation: Installation) -> None:
    installation.paris.let_in()
    client = Client(installation.twin.site("paris"), {"client-id": "early-bird"})
    client.subscribe("orders.in")
    installation.paris.broker.acceptors["clients"].started = False  # and it is still in
    stop_link(installation.twin, "paris")

    ended = dr_ctl("validate", "--for", "swapover", "--json")
    client.connection.close(politely=False)

    verdict = ended.document["data"]["operations"]["swapover"]["verdict"]
    assert (ended.code, verdict) == (10, "not ready: paris/orders-1: link london is not started")
    assert ended.ids == ["DR-LINK-003", "DR-STANDBY-001", "DR-MON-002"]
    assert all(finding["remedy"] for finding in ended.document["findings"])


def test_a_plan_names_every_call_however_many(dr_ctl: Shell, installation: Installation) -> None:
    for number in range(20):
        installation.london.queue(f"q{number}")
        installation.paris.queue(f"q{number}")

    text, told = (dr_ctl("plan", "swapover", "--to", "paris", *more) for more in ([], ["--json"]))

    lines = [line.strip() for line in text.out.splitlines()]
    assert [f"pause q{number} at london" in lines for number in range(20)] == [True] * 20
    assert " more" not in text.out
    steps: list[dict[str, Any]] = told.document["data"]["plan"]["steps"]
    assert len(next(step for step in steps if step["verb"] == "quiesce")["calls"]) == 23
    assert told.document["data"]["plan"]["point_of_no_return"] == 9


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_looking_changes_nothing_anywhere(dr_ctl: Shell, installation: Installation, words: list[str]) -> None:
    before = installation.settable

    assert dr_ctl(*words).code == 0
    assert (installation.changes, installation.settable, dr_ctl.state.exists()) == ([], before, False)
