"""Messages at the site that is left which the other site does not have: none is left behind in silence, and a message
that is at both sites refuses no move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.kinds import BRIDGES
from dr_ctl_lab.twin.messages import Message, Reason
from tests.conftest import Command
from tests.twin.test_bridges import IN, at
from tests.twin.test_bridges_parts import open_at


@pytest.fixture
def topology() -> str:
    return BRIDGES


def send(
    twin: PlayedTwin, site: str, count: int, *, queue: str = IN, priority: int = 4, anycast: bool = True, **headers: str
) -> None:
    with twin.still():
        broker = at(twin, site)
        for number in range(count):
            given = {"n": str(number), **headers}
            number_ = broker.next_number()
            broker.route(Message(number_, queue, b"m", text=True, headers=given, priority=priority, anycast=anycast))
    twin.wait_mirrored()


def lose(twin: PlayedTwin, *, at_site: str = "paris", which: slice = slice(None), priority: int | None = None) -> None:
    """Somebody purges copies at the waiting site."""
    with twin.still():
        broker = at(twin, at_site)
        queue = broker.queues[IN]
        found = [each for each in queue.messages.values() if priority is None or each.priority == priority]
        for message in found[which]:
            broker.remove(queue, message, Reason.KILLED)


def all_of_a_sender_that_writes_its_own_site(twin: PlayedTwin, dr_ctl: Command) -> int:
    send(twin, "london", 10, ARTEMIS_MESSAGE_ORIGIN="london")
    lose(twin)
    return 10


def all_that_came_from_the_other_site_once(twin: PlayedTwin, dr_ctl: Command) -> int:
    """As after the return to a site that was built anew."""
    assert dr_ctl("swapover", "--to", "paris", "--yes").code == ExitCode.OK
    send(twin, "paris", 10)
    assert dr_ctl("swapover", "--to", "london", "--yes").code == ExitCode.OK
    lose(twin)
    return 10


def the_oldest(twin: PlayedTwin, dr_ctl: Command) -> int:
    """As what a bridge had in hand when the peer refused it."""
    del dr_ctl
    send(twin, "london", 10)
    lose(twin, which=slice(5))
    return 5


def all_but_an_urgent_one(twin: PlayedTwin, dr_ctl: Command) -> int:
    del dr_ctl
    send(twin, "london", 5)
    send(twin, "london", 1, priority=9)
    lose(twin, priority=4)
    return 5


@pytest.mark.parametrize(
    "lost",
    [
        all_of_a_sender_that_writes_its_own_site,
        all_that_came_from_the_other_site_once,
        the_oldest,
        all_but_an_urgent_one,
    ],
)
def test_what_the_waiting_site_lacks_refuses_the_move(
    twin: PlayedTwin, dr_ctl: Command, lost: Callable[[PlayedTwin, Command], int]
) -> None:
    count = lost(twin, dr_ctl)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, open_at(twin, IN)) == (ExitCode.REVERTED, ["london"]), ended.document
    assert f"{count} message(s) of {IN} lie at london and not at paris" in ended.document["summary"]


def test_a_queue_that_only_the_serving_site_has_refuses_the_move_before_anything_is_closed(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    """As a durable subscription that was made at one site."""
    with twin.still():
        audit = {"name": "audit", "address": IN, "routing-type": "MULTICAST", "durable": True}
        at(twin, "london").create_queue(audit)
    send(twin, "london", 7, anycast=False)
    assert twin.depth("london", "audit") == 7

    ended = dr_ctl("swapover", "--to", "paris", "--queues", IN, "--yes")

    assert (ended.code, open_at(twin, IN)) == (ExitCode.PRECHECK_FAILED, ["london"]), ended.document
    assert "7 message(s) of audit lie at london, and paris has no such queue" in ended.document["summary"]


def an_urgent_one_before_a_long_history(twin: PlayedTwin) -> None:
    send(twin, "london", 2500)
    with twin.still():
        work_off(at(twin, "london"), IN)
    twin.wait_mirrored()
    send(twin, "london", 1, priority=9)


def some_that_an_ordinary_divert_brings(twin: PlayedTwin) -> None:
    with twin.still():
        london = at(twin, "london")
        london.create_queue({"name": "src", "routing-type": "ANYCAST"})
        london.create_divert({"name": "app.src", "address": "src", "forwarding-address": IN, "exclusive": True})
    send(twin, "london", 5, queue="src")


def some_that_were_processed_where_they_lack(twin: PlayedTwin) -> None:
    """Paris processed them when it served; London's consumers have not passed over them yet."""
    send(twin, "london", 5)
    with twin.still():
        london, paris = at(twin, "london"), at(twin, "paris")
        for message in list(paris.queues[IN].messages.values()):
            paris.ids.add(IN, paris.identity(message), here=True)
            paris.remove(paris.queues[IN], message, Reason.NORMAL)
        assert london.queues[IN].messages


@pytest.mark.parametrize(
    "lying",
    [
        an_urgent_one_before_a_long_history,
        some_that_an_ordinary_divert_brings,
        some_that_were_processed_where_they_lack,
    ],
)
def test_what_is_at_both_sites_or_processed_refuses_no_move(
    twin: PlayedTwin, dr_ctl: Command, lying: Callable[[PlayedTwin], None]
) -> None:
    lying(twin)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, open_at(twin, IN)) == (ExitCode.OK, ["paris"]), ended.document
    assert "DR-BRIDGE-016" not in [each["id"] for each in ended.document["findings"]]
