"""What two real brokers that diverts and bridges join tell before a move: refused with the reason, or announced."""

from __future__ import annotations

import re

import pytest

from dr_ctl_lab.lab.artemis.bridges import BRIDGE, ORIGIN, TEXT
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, execute, send_as_client, until
from tests.topologies.bridges.real import QUEUES, admin, assert_clean, longest_gap, now, shipped

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)
HISTORY = 20_000
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def found(ended: Ended, ident: str) -> list[dict[str, str]]:
    return [each for each in ended.document["findings"] if each["id"] == ident]


def test_a_refused_login_stops_all_bridges_and_is_told_before_anything_is_closed(
    bridges_lab: Lab, operator: Operator
) -> None:
    admin(bridges_lab, "london").refuse_a_bridge("FOO")
    until(lambda: not admin(bridges_lab, "london").link_attached("paris"), why="all bridges are gone")

    ended = operator.run(*SWAPOVER)

    assert (ended.code, ended.document["run"]) == (10, None), ended.told
    assert found(ended, "DR-BRIDGE-002"), ended.told
    assert {site.name: site.serves for site in bridges_lab.status().sites} == {"london": QUEUES, "paris": ()}


def test_a_right_that_is_missing_at_the_peer_names_the_bridge(bridges_lab: Lab, operator: Operator) -> None:
    """The peer takes the bridges' right to send to one address: the first message for it stops all of them."""
    kinds = ",".join([TEXT] * 11)
    execute(bridges_lab, "paris", "", f"addSecuritySettings({kinds})", "BAR", *["amq"] * 10)
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        until(lambda: not admin(bridges_lab, "london").link_attached("paris"), why="all bridges are gone")
        ended = operator.run(*SWAPOVER)
        verdict = load.stop()

    assert (ended.code, ended.document["run"]) == (10, None), ended.told
    assert found(ended, "DR-BRIDGE-002"), ended.told
    (named,) = found(ended, "DR-BRIDGE-008")
    assert f"role {BRIDGE} may not send to BAR" in named["text"]
    assert_clean(verdict)


def test_a_queue_that_is_missing_at_the_peer_is_told_before_anything_is_closed(
    bridges_lab: Lab, operator: Operator
) -> None:
    execute(bridges_lab, "paris", "", f"destroyQueue({TEXT})", "BAR")

    ended = operator.run(*SWAPOVER)
    alone = operator.run(*SWAPOVER, "--queues", "FOO")

    assert (ended.code, ended.document["run"]) == (10, None), ended.told
    assert "BAR" in found(ended, "DR-BRIDGE-011")[0]["text"]
    assert alone.code == 0, alone.told


def test_counters_that_a_failed_link_has_left_apart_keep_no_gate_shut(bridges_lab: Lab, operator: Operator) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        bridges_lab.kill("paris")
        load.wait_for(load.counts().sent + RATE)
        bridges_lab.start("paris")
        load.pause_producing()
        until(lambda: shipped(bridges_lab, "london"), why="what waited has arrived")
        apart = under_way(bridges_lab)
        load.resume_producing()
        ended = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    print(f"pending - acknowledged with nothing under way: {apart}")
    assert any(apart.values())
    assert ended.code == 0, ended.told
    assert_clean(verdict)


def under_way(lab: Lab) -> dict[str, int]:
    """What the counters of London's bridges say is under way."""
    read = ("Name", "MessagesPendingAcknowledgement", "MessagesAcknowledged")
    told = admin(lab, "london")._beans("component=bridges,name=*", *read)
    return {one["Name"]: one["MessagesPendingAcknowledgement"] - one["MessagesAcknowledged"] for one in told.values()}


def test_two_sites_without_a_gate_are_told_apart_by_their_clients(bridges_lab: Lab, operator: Operator) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        for name in QUEUES:
            admin(bridges_lab, "paris").open_queue(name)
        status = operator.run("status")
        refused = operator.run(*SWAPOVER)
        remedies = [each["remedy"] for each in found(refused, "DR-BRIDGE-012")]
        closed = [operator.run(*re.findall("`dr-ctl (.*?)`", each)[0].split(), "--yes") for each in remedies]
        moved = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    roles = {site: each["role"] for site, each in status.document["data"]["sites"].items()}
    assert roles == {"london": "serving", "paris": "standby"}
    assert (refused.code, refused.document["run"]) == (10, None), refused.told
    assert len(remedies) == len(QUEUES)
    assert [each.code for each in closed] == [0, 0, 0], [each.told for each in closed]
    assert moved.code == 0, moved.told
    assert_clean(verdict)


def test_messages_that_their_sender_says_are_of_the_other_site_are_told(bridges_lab: Lab, operator: Operator) -> None:
    """As a client does that forwards what it received with all its headers."""
    send_as_client(bridges_lab, "FOO", 2)
    send_as_client(bridges_lab, "FOO", 3, **{ORIGIN: "paris"})
    send_as_client(bridges_lab, "BAR", 4, **{ORIGIN: "london"})
    until(lambda: shipped(bridges_lab, "london"), why="what is copied has arrived")

    ended = operator.run("validate", "--for", "swapover", "--to", "paris")

    (told,) = found(ended, "DR-BRIDGE-015")
    assert (ended.code, told["severity"]) == (10, "error"), "they would stay behind"
    assert told["text"].endswith(": 3 of FOO")
    assert [bridges_lab.admin("paris").depth(name) for name in ("FOO", "BAR")] == [2, 4]


def test_history_at_the_peer_is_announced_and_passed_over(bridges_lab: Lab, operator: Operator) -> None:
    with bridges_lab.load(3000, queues=["FOO"], producers=2, consumers=2) as load:
        load.wait_for(HISTORY, within_s=120)
        assert load.stop(drain_s=120).clean
    until(lambda: shipped(bridges_lab, "london"), within_s=60, why="the copies are there")
    assert bridges_lab.admin("paris").depth("FOO") >= HISTORY
    told = operator.run("validate", "--for", "swapover", "--to", "paris"), operator.run("plan", *SWAPOVER[:3])
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        began = now()
        ended = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        load.wait_until(lambda counts: counts.awaited < 30, within_s=60)
        print(found(told[0], "DR-BRIDGE-014")[0]["text"])
        for name in QUEUES:
            print(f"longest receive gap of {name}: {longest_gap(bridges_lab, (name,), began):.2f} s")
        verdict = load.stop(drain_s=60)

    assert [each.code for each in told] == [0, 0]
    assert all("FOO" in found(each, "DR-BRIDGE-014")[0]["text"] for each in told)
    assert ended.code == 0, ended.told
    assert_clean(verdict)
