"""Copies of what the other site has processed are removed from a waiting site, and no other one."""

from __future__ import annotations

import json

import pytest
import yaml

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.kinds import BRIDGES, CONTINUITY, MIRROR
from dr_ctl_lab.twin.messages import Message
from tests.conftest import Command
from tests.twin.matrix import put
from tests.twin.subject import until


@pytest.fixture
def topology() -> str:
    return BRIDGES


def worked_off(twin: PlayedTwin, queue: str, most: int | None = None) -> None:
    """What clients at London process of it; the ids of all that are applied at Paris when this returns."""
    london, paris = (twin.host(site).broker for site in ("london", "paris"))
    assert isinstance(london, BridgesBroker)
    assert isinstance(paris, BridgesBroker)
    with twin.still():
        work_off(london, queue, most=most)
    until(lambda: paris.ids.every() == london.ids.every())


def test_what_both_have_processed_goes_and_the_rest_stays(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 30)
    put(twin, "london", "orders.out", 3)
    twin.wait_mirrored()
    worked_off(twin, "orders.in", most=20)
    worked_off(twin, "orders.out")

    dry = dr_ctl("trim", "paris", "--dry-run")
    ended = dr_ctl("trim", "paris", "--yes")
    again = dr_ctl("trim", "paris", "--yes")

    assert dry.code == 0
    assert "23 processed copies could be removed at paris; nothing was changed" in dry.document["summary"]
    assert "orders.in, 30 at the most" in str(dry.document["data"]["plan"]["steps"])
    assert (ended.code, again.code) == (0, 0), ended.document["summary"]
    assert (twin.depth("paris", "orders.in"), twin.depth("paris", "orders.out")) == (10, 0)
    assert (twin.depth("london", "orders.in"), twin.depth("london", "orders.out")) == (10, 0)


def test_nothing_goes_while_ids_are_under_way(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 5)
    twin.wait_mirrored()
    paris = twin.host("paris").broker
    assert isinstance(paris, BridgesBroker)
    paris.processor.stop()
    with twin.still():
        london = twin.host("london").broker
        assert isinstance(london, BridgesBroker)
        work_off(london, "orders.in")

    shown = dr_ctl("trim", "paris", "--dry-run")
    ended = dr_ctl("trim", "paris", "--yes")

    assert (shown.code, ended.code, twin.depth("paris", "orders.in")) == (0, 0, 5), ended.document
    for each, word in ((shown, "could be removed"), (ended, "removed")):
        [stay] = [finding for finding in each.document["findings"] if finding["id"] == "DR-BRIDGE-017"]
        assert stay["text"] == (
            f"0 processed copies {word} at paris; in no store of both sites, and so left there: 5 of orders.in "
            "(5 in the store of london alone)"
        )
        assert stay["severity"] == "warning"
        assert stay["remedy"].startswith("5 id(s) of london wait to be applied at paris: see that the processor")


def test_nothing_goes_where_the_settings_name_no_id_store(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 5)
    twin.wait_mirrored()
    worked_off(twin, "orders.in")
    settings = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
    del settings["sites"]["london"]["brokers"][0]["ids"]
    twin.settings_path.write_text(json.dumps(settings), encoding="utf-8")

    assert dr_ctl("trim", "paris", "--dry-run").code == 10
    ended = dr_ctl("trim", "paris", "--yes")

    assert (ended.code, twin.depth("paris", "orders.in")) == (10, 5), ended.document
    assert "the settings name no id store of london" in ended.document["summary"]


def test_a_site_that_serves_is_not_trimmed(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 5)

    ended = dr_ctl("trim", "london", "--yes")

    assert (ended.code, ended.document["findings"][0]["id"]) == (10, "DR-ROLE-009")
    assert twin.depth("london", "orders.in") == 5


@pytest.mark.parametrize("topology", [MIRROR, CONTINUITY])
def test_where_no_history_is_kept_there_is_no_such_step_and_no_part_moves(twin: PlayedTwin, dr_ctl: Command) -> None:
    trimmed = dr_ctl("trim", "paris", "--yes")
    parts = [
        dr_ctl(*words, "--queues", "orders.in", "--yes")
        for words in (("swapover", "--to", "paris"), ("failback", "--to", "paris"), ("fence", "london"))
    ]

    assert (trimmed.code, [each.code for each in parts]) == (2, [2, 2, 2])
    assert all("all queues of a pair move together" in each.told for each in parts)


@pytest.mark.parametrize(
    ("headers", "longs"), [({"ARTEMIS_MESSAGE_ORIGIN": "london"}, {}), ({}, {"_AMQ_ORIG_MESSAGE_ID": 10**12}), ({}, {})]
)
def test_no_copy_goes_of_a_message_that_nobody_has_processed(
    twin: PlayedTwin, dr_ctl: Command, headers: dict[str, str], longs: dict[str, int]
) -> None:
    """Whatever its sender wrote into it, and whatever was sent before and after it was processed."""
    put(twin, "london", "orders.in", 3)
    with twin.still():
        london = twin.host("london").broker
        message = Message(london.next_number(), "orders.in", b"one", text=True, headers=headers)
        message.longs.update(longs)
        london.route(message)
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    worked_off(twin, "orders.in", most=3)

    ended = dr_ctl("trim", "paris", "--yes")

    assert (ended.code, twin.depth("paris", "orders.in")) == (0, 4), ended.document
    [stay] = [each["text"] for each in ended.document["findings"] if each["id"] == "DR-BRIDGE-017"]
    assert stay == "3 processed copies removed at paris; in no store of both sites, and so left there: 4 of orders.in"


def test_nothing_goes_from_a_copy_that_is_deleted_once_it_is_empty(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    worked_off(twin, "orders.in")
    with twin.still():
        twin.host("paris").broker.queues["orders.in"].options["auto-delete"] = True

    ended = dr_ctl("trim", "paris", "--yes")

    assert (ended.code, twin.depth("paris", "orders.in")) == (10, 3), ended.document
    assert "deleted by its broker once it is empty" in ended.document["summary"]


def test_a_message_of_an_old_transaction_that_is_committed_late_keeps_its_copy(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """Its message got its number when it was sent: lower than those that were sent, and processed, meanwhile."""
    london = twin.host("london").broker
    with twin.still():
        number = london.next_number()
    put(twin, "london", "orders.in", 5)
    twin.wait_mirrored()
    worked_off(twin, "orders.in")
    with twin.still():
        london.route(Message(number, "orders.in", b"late", text=True, headers={}))
    twin.wait_mirrored()

    ended = dr_ctl("trim", "paris", "--yes")

    assert (ended.code, twin.depth("paris", "orders.in")) == (0, 1), ended.document
