"""Messages of AMQP clients at real brokers that diverts and bridges join: what no buffer takes, and what is delayed."""

from __future__ import annotations

import pytest

from dr_ctl_lab.lab.clients.client import Speaks, Traits
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, send_speaking, until
from tests.topologies.bridges.real import admin, shipped

pytestmark = [pytest.mark.broker, pytest.mark.deep]

BUFFER = "mirror.paris.FOO"
SWAPOVER = ("swapover", "--to", "paris", "--yes", "--queues", "FOO")


def depths(lab: Lab) -> tuple[int, int]:
    return lab.admin("london").depth("FOO"), lab.admin("paris").depth("FOO")


def buffered(lab: Lab, kind: str) -> None:
    """Give London's buffer that routing type, as an operator does; its broker reads the file again by itself."""
    file = lab.instance("london") / "etc" / "broker.xml"
    buffer = f'<queue name="{BUFFER}"/>'
    other = {"anycast": "multicast", "multicast": "anycast"}[kind]
    configured = file.read_text()
    assert f"<{other}>{buffer}</{other}>" in configured
    file.write_text(configured.replace(f"<{other}>{buffer}</{other}>", f"<{kind}>{buffer}</{kind}>"))
    london = admin(lab, "london")
    address = f'{london._broker},component=addresses,address="mirror.FOO"'
    until(lambda: london._read(address, "RoutingTypes") == [kind.upper()], why="the broker reads its file again")


def severities(ended: Ended, kind: str) -> list[str]:
    return [each["severity"] for each in ended.document["findings"] if each["id"] == kind]


def test_what_finds_no_buffer_is_told_before_a_move_and_named_by_it(bridges_lab: Lab, operator: Operator) -> None:
    """A multicast buffer takes nothing that JMS over AMQP marks for a queue; every second message is marked."""
    buffered(bridges_lab, "multicast")
    warned = operator.run("validate", "--to", "paris")
    send_speaking(bridges_lab, Speaks.AMQP, "london", "FOO", 6)
    until(lambda: depths(bridges_lab) == (6, 3), why="half of them are copied")

    refused = operator.run(*SWAPOVER)
    buffered(bridges_lab, "anycast")
    send_speaking(bridges_lab, Speaks.AMQP, "london", "FOO", 6)
    until(lambda: depths(bridges_lab) == (12, 9), why="all of them are copied")
    lacking = operator.run(*SWAPOVER)
    moved = operator.run(*SWAPOVER, "--accept-difference", "FOO=3")

    assert severities(warned, "DR-BRIDGE-019") == ["warning"], warned.told
    assert (refused.code, severities(refused, "DR-BRIDGE-019")) == (10, ["error"]), refused.told
    assert "3 message(s) for FOO found no queue at mirror.FOO" in refused.told
    assert (lacking.code, severities(lacking, "DR-PARITY-004")) == (20, ["error"]), lacking.told
    assert "3 message(s) of FOO lie at london and not at paris" in lacking.told
    assert (moved.code, severities(moved, "DR-BRIDGE-019")) == (0, ["warning"]), moved.told


def test_a_delayed_message_refuses_a_move_before_anything_is_closed_and_comes_later_where_so_many_may(
    bridges_lab: Lab, operator: Operator
) -> None:
    send_speaking(bridges_lab, Speaks.AMQP, "london", "FOO", 4)
    send_speaking(bridges_lab, Speaks.STOMP, "london", "FOO", 1, Traits(delay_ms=60_000))
    send_speaking(bridges_lab, Speaks.AMQP, "london", "FOO", 1, Traits(delay_ms=60_000))
    send_speaking(bridges_lab, Speaks.AMQP, "london", "FOO", 2, Traits(delay_ms=8_000))
    until(lambda: depths(bridges_lab) == (8, 4), why="what is due is copied")

    refused = operator.run(*SWAPOVER)
    moved = operator.run(*SWAPOVER, "--accept-difference", "FOO=2")

    assert (refused.code, severities(refused, "DR-BRIDGE-020")) == (10, ["error"]), refused.told
    assert "2 delayed message(s) of FOO are not shipped within 20 s" in refused.told
    assert moved.code == 0, moved.told
    # What is due soon was waited for.
    assert bridges_lab.admin("london").depth(BUFFER) == 2
    until(lambda: shipped(bridges_lab, "london"), within_s=90, why="they are due")
    until(lambda: depths(bridges_lab) == (8, 8))
    back = operator.run("swapover", "--to", "london", "--yes", "--queues", "FOO")
    assert back.code == 0, back.told
