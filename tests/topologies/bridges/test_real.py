"""Two real brokers that diverts and bridges join: what only they can show. The ledger of message ids judges."""

from __future__ import annotations

import json
import re

import pytest

from dr_ctl_lab.lab.artemis.bridges import ORIGIN, TEXT
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, execute, send_as_client, until
from tests.topologies.bridges.real import QUEUES, admin, assert_clean, ids, shipped

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def found(ended: Ended, ident: str) -> list[dict[str, str]]:
    return [each for each in ended.document["findings"] if each["id"] == ident]


def made(lab: Lab, queue: str) -> None:
    """A queue at both sites that London serves."""
    for site in ("london", "paris"):
        admin(lab, site).create_queue(queue)
    admin(lab, "london").open_queue(queue)


def roles(lab: Lab, site: str, queue: str) -> set[str]:
    """The roles that may send there."""
    told = json.loads(execute(lab, site, "", f"getRolesAsJSON({TEXT})", queue))
    return {row["name"] for row in told if row["send"]}


def test_one_queue_of_three_moves_there_and_back_and_a_trim_beside_clients_takes_what_is_done(
    bridges_lab: Lab, operator: Operator
) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(5 * RATE, within_s=60)
        before = bridges_lab.admin("paris").depths()
        trimmed = operator.run("trim", "paris", "--yes")
        removed = [each for each in operator.journal() if (each["step"] or "").endswith("-trim")][-1]["evidence"]
        for target in ("paris", "london"):
            ended = operator.run("swapover", "--to", target, "--queues", "FOO", "--yes")
            assert ended.code == 0, ended.told
            load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()
    until(lambda: shipped(bridges_lab, "london", "paris"), why="all ids are applied")

    assert trimmed.code == 0, trimmed.told
    # All that lay there when it began, but for what clients had in hand.
    assert sum(removed["removed"].values()) > sum(before[name] for name in QUEUES) - RATE
    assert_clean(verdict)
    assert ids(bridges_lab, "london") == ids(bridges_lab, "paris")


def test_rights_that_management_gave_are_there_after_a_move_and_the_way_back(
    bridges_lab: Lab, operator: Operator
) -> None:
    """No file names the auditor, so that only what was noted can give the role its right back."""
    made(bridges_lab, "RT")
    rights = ("RT", "amq,app,bridge,auditor", "amq,app", *["amq"] * 8)
    execute(bridges_lab, "london", "", f"addSecuritySettings({','.join([TEXT] * 11)})", *rights)
    before = roles(bridges_lab, "london", "RT")

    there = operator.run(*SWAPOVER, "--queues", "RT")
    moved = roles(bridges_lab, "london", "RT"), roles(bridges_lab, "paris", "RT")
    back = operator.run("swapover", "--to", "london", "--queues", "RT", "--yes")

    assert (there.code, back.code) == (0, 0), (there.told, back.told)
    assert ("app" in moved[0], "app" in moved[1]) == (False, True)
    assert roles(bridges_lab, "london", "RT") == before == {"amq", "app", "bridge", "auditor"}


def test_a_queue_that_an_ordinary_divert_feeds_is_moved_and_what_claims_another_origin_is_told(
    bridges_lab: Lab, operator: Operator
) -> None:
    """As a client does that forwards what it received with all its headers."""
    made(bridges_lab, "FED")
    source = {"name": "SRC", "address": "SRC", "routing-type": "ANYCAST", "durable": True}
    execute(bridges_lab, "london", "", f"createQueue({TEXT},boolean)", json.dumps(source), True)
    divert = {"name": "app.SRC", "address": "SRC", "forwarding-address": "FED", "exclusive": True}
    execute(bridges_lab, "london", "", f"createDivert({TEXT})", json.dumps({**divert, "routing-type": "ANYCAST"}))
    for queue, count, origin in (("SRC", 5, {}), ("FOO", 2, {}), ("FOO", 3, {ORIGIN: "paris"})):
        send_as_client(bridges_lab, queue, count, **origin)
    send_as_client(bridges_lab, "BAR", 4, **{ORIGIN: "london"})
    until(lambda: shipped(bridges_lab, "london"), why="what is copied has arrived")

    told = operator.run("validate", "--for", "swapover", "--to", "paris")
    moved = operator.run(*SWAPOVER, "--queues", "FED")

    [foreign] = found(told, "DR-BRIDGE-015")
    assert (told.code, foreign["severity"]) == (10, "error"), "they would stay behind"
    assert foreign["text"].endswith(": 3 of FOO")
    assert [bridges_lab.admin("paris").depth(name) for name in ("FOO", "BAR", "FED")] == [2, 4, 5]
    assert moved.code == 0, moved.told


def test_counters_that_a_failed_link_has_left_apart_keep_no_gate_shut(bridges_lab: Lab, operator: Operator) -> None:
    read = ("MessagesPendingAcknowledgement", "MessagesAcknowledged")
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        bridges_lab.kill("paris")
        load.wait_for(load.counts().sent + RATE)
        bridges_lab.start("paris")
        load.pause_producing()
        until(lambda: shipped(bridges_lab, "london"), why="what waited has arrived")
        told = admin(bridges_lab, "london")._beans("component=bridges,name=*", *read)
        load.resume_producing()
        ended = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    assert any(one[read[0]] - one[read[1]] for one in told.values()), "nothing is under way, and they do not say so"
    assert ended.code == 0, ended.told
    assert_clean(verdict)


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

    served = {site: each["role"] for site, each in status.document["data"]["sites"].items()}
    assert served == {"london": "serving", "paris": "standby"}
    assert (refused.code, refused.document["run"]) == (10, None), refused.told
    assert [each.code for each in closed] == [0] * len(QUEUES), [each.told for each in closed]
    assert moved.code == 0, moved.told
    assert_clean(verdict)
