"""Behind open doors clients may still not be able to work: a full disk, an address at its limit, one that is paused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.limits import AddressSettings
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import at_rest, done, put, quick, serving

LIMIT = "DR-LIMIT-001"
ACCEPTED = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")


def artemis(twin: PlayedTwin, site: str) -> ArtemisBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, ArtemisBroker)
    return broker


def fill_disk(twin: PlayedTwin, site: str) -> None:
    artemis(twin, site).limits.disk_used = 0.95


def pause(twin: PlayedTwin, site: str) -> None:
    artemis(twin, site).pause_address("orders.in", on=True)


def block(twin: PlayedTwin, site: str) -> None:
    artemis(twin, site).limits.blocked.add("orders.in")


def fill_address(policy: str) -> Callable[[PlayedTwin, str], None]:
    def fill(twin: PlayedTwin, site: str) -> None:
        put(twin, "london", "orders.in", 3)
        twin.wait_mirrored()
        artemis(twin, site).limits.settings["orders.in"] = AddressSettings(1, policy)

    return fill


def fill_memory(twin: PlayedTwin, site: str) -> None:
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    limits = artemis(twin, site).limits
    limits.memory, limits.settings["orders.out"] = 1, AddressSettings(policy="FAIL")


def said(ended: Ended, severity: str) -> list[str]:
    found = [each for each in ended.document["findings"] if each["id"] == LIMIT]
    assert {each["severity"] for each in found} <= {severity}
    return [each["text"] for each in found]


def at_limit(policy: str, effect: str, queue: str = "orders.in", limit: str = "at their limit") -> str:
    return f"addresses with address-full-policy {policy}, {limit}: {effect}: {queue}"


FULL = "the broker's memory is at its global-max-size"
OBSTACLES: list[tuple[Callable[[PlayedTwin, str], None], str]] = [
    (fill_disk, "its disk is 95% full, over its max-disk-usage of 90 %: no client can send"),
    (pause, "addresses are paused: their clients get nothing: orders.in"),
    (block, "addresses are blocked by management: their senders wait: orders.in"),
    (fill_address("FAIL"), at_limit("FAIL", "what is sent there is refused")),
    (fill_address("BLOCK"), at_limit("BLOCK", "their senders wait")),
    (fill_address("DROP"), at_limit("DROP", "what is sent there is dropped")),
    (fill_memory, at_limit("FAIL", "what is sent there is refused", "orders.out", FULL)),
]


@pytest.mark.parametrize(
    ("obstruct", "text"), OBSTACLES, ids=["disk", "paused", "blocked", "fail", "block", "drop", "memory"]
)
def test_a_planned_move_is_refused_where_clients_could_not_work_at_the_target(
    twin: PlayedTwin, dr_ctl: Command, obstruct: Callable[[PlayedTwin, str], None], text: str
) -> None:
    obstruct(twin, "paris")
    before = at_rest(twin)

    looked = dr_ctl("validate", "--for", "swapover", "--to", "paris")
    refused = dr_ctl("swapover", "--to", "paris", "--yes")
    status, checked = dr_ctl("status"), dr_ctl("check")

    assert (looked.code, refused.code) == (10, 10), refused.document
    for ended, severity in ((looked, "error"), (refused, "error"), (status, "warning")):
        assert said(ended, severity) == [f"paris/orders-1: {text}"], ended.document
    assert checked.code == 1
    assert f"paris/orders-1: {text}" in checked.document["summary"]
    assert at_rest(twin) == before


@pytest.mark.parametrize("policy", ["PAGE", "FAIL"])
def test_an_address_that_pages_or_has_room_keeps_nobody_out(twin: PlayedTwin, dr_ctl: Command, policy: str) -> None:
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    most = 1 if policy == "PAGE" else 1_000_000
    artemis(twin, "paris").limits.settings["orders.in"] = AddressSettings(most, policy)

    moved = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert said(moved, "none") == []


@pytest.mark.parametrize("topology", [BRIDGES, CONTINUITY])
def test_the_disk_is_read_on_each_topology_of_artemis(twin: PlayedTwin, dr_ctl: Command) -> None:
    pause(twin, "paris")
    if twin.kind.topology == BRIDGES:  # this one's version tells no disk
        fill_disk(twin, "paris")

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    assert refused.code == 10, refused.document
    assert "addresses are paused" in " ".join(said(refused, "error"))
    assert ("its disk is 95% full" in " ".join(said(refused, "error"))) == (twin.kind.topology == BRIDGES)


@pytest.mark.parametrize("topology", [BROKERSYNC, FANOUT])
@pytest.mark.parametrize("limit", ["Store", "Memory", "Temp"])
def test_the_limits_of_a_classic_broker_are_read(twin: PlayedTwin, dr_ctl: Command, limit: str) -> None:
    broker = twin.host("paris").broker
    assert isinstance(broker, ClassicBroker)
    broker.usage[limit] = 100

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    assert refused.code == 10, refused.document
    [text] = said(refused, "error")
    assert text.startswith(f"paris/orders-1: it uses 100 % of its {limit.lower()}Usage: all who send")


def test_a_move_away_from_a_site_that_takes_nothing_is_not_refused(twin: PlayedTwin, dr_ctl: Command) -> None:
    fill_disk(twin, "london")

    status, checked = dr_ctl("status"), dr_ctl("check")
    moved = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert len(said(status, "error")) == 1
    assert (checked.code, "no client can send" in checked.document["summary"]) == (2, True)
    assert len(said(moved, "warning")) == 1
    assert serving(twin) == ("paris",)


def test_a_failover_is_warned_and_its_end_says_what_to_do(twin: PlayedTwin, dr_ctl: Command) -> None:
    fill_disk(twin, "paris")
    twin.kill("london")

    ended = dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED)
    again, checked = dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED), dr_ctl("check")

    assert ended.code == 21, ended.document
    assert len(said(ended, "warning")) == 1
    [probe] = [each for each in ended.document["findings"] if each["id"] == "DR-PROBE-003"]
    assert probe["severity"] == "error"
    assert "Make room on that disk" in probe["remedy"]
    assert "`dr-ctl status`" in probe["remedy"]
    assert (again.code, len(said(again, "warning"))) == (0, 1), again.document
    assert (checked.code, "no client can send" in checked.document["summary"]) == (2, True)


def test_a_disk_that_fills_while_the_link_ships_ends_the_move_before_the_other_site_is_opened(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = at_rest(twin)
    host, post = twin.host("london"), artemis(twin, "london").close_door

    def close(*doors: Any) -> None:
        fill_disk(twin, "paris")
        post(*doors)

    monkeypatch.setattr(host.broker, "close_door", close)
    with quick(monkeypatch):
        ended = dr_ctl("swapover", "--to", "paris", "--yes", "--timeout", "2s")

    assert ended.code == 24, ended.document
    assert "its disk is 95% full" in ended.document["summary"]
    assert (at_rest(twin), serving(twin)) == (before, ("london",))
