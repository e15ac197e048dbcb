"""A mirror in one direction only, from london to paris: nothing that only the way back needs refuses the way there."""

from __future__ import annotations

import pytest

from dr_ctl.cli.app import run
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from tests.broker.driving import Ended, until
from tests.conftest import Command
from tests.patience import time_now

NOT_CONFIGURED = "DR-LINK-009"
Q = "orders.in"


def at(twin: PlayedTwin, site: str) -> MirrorBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, MirrorBroker)
    return broker


@pytest.fixture
def one_way(twin: PlayedTwin) -> PlayedTwin:
    """Paris has no broker connection, and waits with what london shipped to it."""
    with twin.still():
        link = at(twin, "paris").link
        link.configured = link.started = link.captures = link.connected = link.attached = False
        at(twin, "paris").outflow.events.clear()
        london = at(twin, "london")
        for number in range(3):
            london.route(Message(london.next_number(), Q, f"{number}".encode(), text=True, headers={}))
    until(lambda: twin.depth("paris", Q) == 3)
    return twin


def severities(ended: Ended) -> dict[str, str]:
    return {each["id"]: each["severity"] for each in ended.document["findings"]}


def serving(ended: Ended) -> str:
    return str(ended.document["data"]["pairs"][0]["serving"])


def remedy(ended: Ended, finding: str) -> str:
    return next(str(each["remedy"]) for each in ended.document["findings"] if each["id"] == finding)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What `status` says at a terminal."""
    capsys.readouterr()
    run(["status"], time_now())
    return capsys.readouterr().out


def test_the_serving_site_is_lost_and_the_other_serves(
    one_way: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = dr_ctl("validate", "--for", "failover")
    one_way.kill("london")
    known = shown(capsys)
    ended = dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")
    later = shown(capsys)

    assert (
        "refused without --accept-loss unknown --accept-duplicates unknown"
        in ready.document["data"]["operations"]["failover"]["verdict"]
    )
    assert (ended.code, serving(ended)) == (0, "paris"), ended.told
    assert severities(ended)[NOT_CONFIGURED] == "warning"
    assert "broker.xml of paris" in remedy(ended, NOT_CONFIGURED)
    for each in (known, later):
        assert "no link to london: not configured" in each
        assert "None" not in each


def test_a_planned_move_goes_and_says_what_a_return_needs(one_way: PlayedTwin, dr_ctl: Command) -> None:
    ready = dr_ctl("validate", "--to", "paris")
    ended = dr_ctl("swapover", "--to", "paris", "--yes")
    back = dr_ctl("swapover", "--to", "london", "--yes")

    assert ready.code == 0, ready.told
    assert ready.document["data"]["operations"]["swapover"]["verdict"] == "ready"
    assert "DR-LINK-001" not in severities(ready)
    assert "there is no link from paris to london: not configured" in ready.told
    assert (ended.code, serving(ended)) == (0, "paris"), ended.told
    assert severities(ended)[NOT_CONFIGURED] == "warning"
    assert (back.code, severities(back)[NOT_CONFIGURED]) == (10, "error"), back.told


def test_step_by_step_too(one_way: PlayedTwin, dr_ctl: Command) -> None:
    fenced = dr_ctl("fence", "london", "--yes")
    drained = dr_ctl("drain", "--to", "paris", "--yes")
    opened = dr_ctl("activate", "paris", "--yes")

    assert [each.code for each in (fenced, drained, opened)] == [0, 0, 0], opened.told
    assert serving(opened) == "paris"


def test_both_closed_opens_neither_by_a_count_that_no_link_could_tell(one_way: PlayedTwin, dr_ctl: Command) -> None:
    """What clients did at paris is not at london, and nothing would ever ship it."""
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == 0
    assert dr_ctl("fence", "paris", "--yes").code == 0

    stale = dr_ctl("unfence", "london", "--yes")
    activated = dr_ctl("activate", "london", "--yes")
    [word] = [each for each in remedy(stale, "DR-UNFENCE-001").split("`") if each.startswith("dr-ctl failover")]
    opened = dr_ctl(*word.split()[1:], "--yes")

    assert (stale.code, activated.code) == (10, 10), activated.told
    assert "paris has no link to london" in stale.told
    assert word in remedy(activated, "DR-RECEIPT-002") or "DR-LINK-009" in severities(activated)
    assert (opened.code, serving(opened)) == (0, "london"), opened.told


def test_a_site_without_a_link_that_was_never_lost_is_owed_nothing(one_way: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl("reinstate", "paris", "--yes")

    assert (ended.code, "taken in already" in ended.told) == (0, True), ended.told


def test_a_return_is_refused_with_what_it_needs(one_way: PlayedTwin, dr_ctl: Command) -> None:
    one_way.kill("london")
    assert (
        dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes").code
        == 0
    )
    one_way.start("london")

    ended = dr_ctl("failback", "--to", "london", "--yes")

    assert (ended.code, severities(ended)[NOT_CONFIGURED]) == (10, "error"), ended.told
    assert dr_ctl("link", "restart", "paris", "--yes").code == 10


def test_a_link_that_is_stopped_refuses_no_failover(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.still():
        at(twin, "paris").stop_link()
        at(twin, "paris").link.captures = False
    twin.kill("london")

    ended = dr_ctl("failover", "--to", "paris", "--accept-loss", "unknown", "--accept-duplicates", "unknown", "--yes")

    assert (ended.code, severities(ended)["DR-LINK-003"]) == (0, "warning"), ended.told
