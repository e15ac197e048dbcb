"""Copies of what the other site has processed are removed from a waiting site, and no other one."""

from __future__ import annotations

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.kinds import BRIDGES
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
