"""What a message is called at both sites, from rows as the brokers browse them."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.topologies.bridges.delayed import _latest_s
from dr_ctl.topologies.bridges.messages import _message

# Rows of Artemis 2.56.0, of messages of every protocol that its bridges carry: where each was sent, and of its copy.
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("browsed.json").read_text(encoding="utf-8"))
HEADER = "order_id"


@pytest.mark.parametrize("one", RECORDED, ids=[f"{each['client']}: {each['message']}" for each in RECORDED])
def test_a_copy_of_any_protocol_has_the_name_of_its_message(one: dict[str, Any]) -> None:
    born, copy = _message(one["born"], "london"), _message(one["copy"], "paris")

    assert copy.copied == ("london", int(one["born"]["messageID"]))
    assert born.copied is None
    assert born.origins & copy.origins
    assert not born.forwarded
    assert not copy.forwarded
    # What its consumers write down is the same at both sites: the producer's id, or else that name.
    given = one["message"] if one["message"] != "without properties" else f"london:{one['born']['messageID']}"
    assert born.id(HEADER) == copy.id(HEADER) == given


def test_what_a_client_of_amqp_wrote_where_a_broker_writes_is_its_own() -> None:
    told = {"messageAnnotations.x-opt-ORIG-MESSAGE-ID": 7, "applicationProperties._AMQ_ORIG_MESSAGE_ID": 8}
    row = {"messageID": "5", "protocol": "AMQP", "StringProperties": {}, "LongProperties": told}
    assert _message(row, "london").origins == {("london", 5)}


def test_an_id_that_is_a_number_is_written_down_as_one_writes_it() -> None:
    row = {"messageID": "5", "protocol": "AMQP", "IntProperties": {"applicationProperties.order_id": 47}}
    assert _message(row, "london").id(HEADER) == "47"


def test_a_message_of_another_protocol_has_no_name() -> None:
    assert not _message({"messageID": "5", "protocol": "HORNETQ"}, "london").named


@pytest.mark.parametrize(
    ("row", "due_s"),
    [
        ({"_AMQ_SCHED_DELIVERY": 101_500}, 1.5),
        ({"x-opt-delivery-time": 160_000, "x-opt-delivery-delay": 5}, 60.0),
        ({"x-opt-delivery-delay": 60_000, "timestamp": 0}, 60.0),
        ({"timestamp": 0}, inf),
    ],
)
def test_a_delayed_message_is_due_no_later_than_its_broker_shows(row: dict[str, int], due_s: float) -> None:
    assert _latest_s(row, 100_000) == due_s
