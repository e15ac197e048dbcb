"""Clients of every protocol at a mirrored pair: what they send and take, and a move with their messages at rest."""

from __future__ import annotations

from typing import Any

import pytest

from dr_ctl_lab.lab.clients.client import Speaks
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.mark.parametrize("speaks", Speaks)
def test_clients_of_a_protocol_send_and_take_and_the_ledger_judges(lab: Lab, speaks: Speaks) -> None:
    with lab.load(100, protocols=[speaks], odd=lab.target().odd) as traffic:
        traffic.wait_for(60, within_s=60)
        verdict = traffic.stop()

    assert verdict.clean, verdict.told
    assert (verdict.in_doubt, verdict.redelivered, verdict.unexpected) == (0, (), ())


@pytest.mark.parametrize("speaks", Speaks)
def test_messages_at_rest_move_there_and_back_compared_one_by_one(lab: Lab, operator: Operator, speaks: Speaks) -> None:
    """A copy keeps its origin over a restart of its broker: an AMQP message's annotations do not."""
    odd = [each for each in lab.target().odd if each.name != "DELAYED"]  # where one waits, counts decide
    with lab.load(100, protocols=[speaks], odd=odd, consumers=0) as traffic:
        traffic.wait_for(60, within_s=60)
        traffic.pause_producing()
        until(lambda: traffic.counts().sent == traffic.counts().attempted)
    there = operator.run("swapover", "--to", "paris", "--yes")
    lab.stop("london")
    lab.start("london")
    lab.wait_mirrored()

    back = operator.run("swapover", "--to", "london", "--yes")

    lying = sum(lab.admin("london").depth(queue) for queue in lab.queues)
    assert (there.code, back.code) == (0, 0), (there.told, back.told)
    assert lying >= 60
    assert compared(operator) == lying
    assert not [each for each in back.document["findings"] if each["id"].startswith("DR-PARITY")]


def compared(operator: Operator) -> int:
    """How many messages the last run compared by their ids."""
    told: list[dict[str, Any]] = [entry["evidence"] for entry in operator.journal() if entry["kind"] == "step"]
    [by_pair] = [each for each in told if "orders-1" in each]
    return int(by_pair["orders-1"]["ids_compared"])
