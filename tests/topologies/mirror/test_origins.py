"""Who lies in a queue and what an outflow still holds, from rows as the broker browses them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.mirror.look import look
from dr_ctl.topologies.mirror.origins import RESIDUE_UP_TO, Browsed, browsed, residue
from tests.topologies.mirror.pair import PAIR, Management, broker_of
from tests.topologies.mirror.views import broker, outflow, with_queue

LONDON = broker("london", outflow("london"))


def message(number: int, born: str | None = None, there: int = 0) -> dict[str, Any]:
    texts = {"order_id": "x", "receipt": "x"} | ({"x-opt-amq-bkr-id": born} if born else {})
    longs = {"x-opt-amq-mr-id": there} if born else None
    return {
        "messageID": str(number),
        "protocol": "CORE",
        "text": "7",
        "StringProperties": texts,
        "LongProperties": longs,
    }


def event(queue: str, text: str, *, born: str | None = None) -> dict[str, Any]:
    texts = {"messageAnnotations.x-opt-amq-mr-qu": queue, "messageAnnotations.x-opt-amq-mr-adr": queue}
    texts |= {"messageAnnotations.x-opt-amq-bkr-id": born} if born else {}
    return {"messageID": "999", "text": text, "StringProperties": texts, "LongProperties": None}


def holding(*rows: dict[str, Any], acks: int, counted: int | None = None) -> tuple[Management, Any]:
    london = broker_of("london")
    london.instead["browse"] = {"value": list(rows), "status": 200}
    london.outflow["MessageCount"], london.acks = len(rows) if counted is None else counted, acks
    view = look(london.reader(), pair=PAIR, site="london", config=LONDON.config, broker=london.broker)
    return london, view


def test_an_outflow_is_told_message_by_message() -> None:
    rows = (
        message(7),
        event("orders.in", "7"),  # it lies there too: sent and acknowledged before either was shipped
        event("orders.in", "5"),
        event("orders.in", "3", born="node-paris"),
        event("orders.out", "6"),
        event("orders.new", '{"name": "orders.new"}'),
    )
    london, view = holding(*rows, acks=5)

    told = residue(london.reader(), view)

    assert (told.messages, told.acks) == (1, 4)
    assert told.acked == {
        "orders.in": frozenset({(view.node, 5), ("node-paris", 3)}),
        "orders.out": frozenset({(view.node, 6)}),
    }
    assert told.done == {**told.acked, "orders.in": told.acked["orders.in"] | {(view.node, 7)}}


STARTED = event("orders.in", '{"name": "orders.in"}')


@pytest.mark.parametrize(
    "rows",
    [
        [event("orders.in", "5"), event("orders.out", "6"), STARTED, event("orders.in", "7")],
        # Of two starts what was done between them was before the last.
        [STARTED, event("orders.in", "5"), event("orders.out", "6"), STARTED, event("orders.in", "7")],
    ],
)
def test_what_was_acknowledged_behind_the_announcement_of_a_start_is_of_that_start(rows: list[Any]) -> None:
    london, view = holding(*rows, acks=len(rows))
    told = residue(london.reader(), view)
    assert told.since == {"orders.in": frozenset({(view.node, 7)})}
    done = {"orders.in": frozenset({(view.node, 5), (view.node, 7)}), "orders.out": frozenset({(view.node, 6)})}
    assert told.done == done


@pytest.mark.parametrize("counted", [2, RESIDUE_UP_TO + 1], ids=["moved meanwhile", "too deep"])
def test_what_was_not_read_as_a_whole_is_not_known_by_id(counted: int) -> None:
    london, view = holding(event("orders.in", "5"), acks=1, counted=counted)
    assert residue(london.reader(), view) == Residue(counted - 1, 1)


def test_a_message_without_an_identity_is_an_error() -> None:
    london, view = holding({"StringProperties": {}, "LongProperties": None}, acks=0)
    with pytest.raises(BadValue, match="an event of the outflow is not as expected"):
        residue(london.reader(), view)


def test_messages_are_the_same_at_both_sites_and_have_their_own_numbers() -> None:
    london, view = holding(message(7), message(8, "node-paris", 3), acks=0)
    queue = view.business["orders.in"]
    [found] = browsed(london.reader(), view, [queue], limit=10)
    assert found == Browsed({(view.node, 7): 7, ("node-paris", 3): 8})
    assert found.ids == frozenset({(view.node, 7), ("node-paris", 3)})


# Rows as a browse of Artemis 2.56.0 gave them, of messages of every protocol: where each was born, of its copy at the
# other site, and of that copy after a restart of its broker (none where it was not durable). 2.40.0 gives the same.
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("browsed.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", RECORDED, ids=[f"{each['client']}: {each['message']}" for each in RECORDED])
def test_a_copy_of_any_protocol_is_known_by_its_origin(one: dict[str, Any]) -> None:
    born = Browsed({origin_of(one["copy"]): int(one["born"]["messageID"])})
    at = next(iter(born.numbers))[0]
    assert read(one["born"], at) == born
    other = "node-paris" if at == "node-london" else "node-london"
    for copy in filter(None, (one["copy"], one["after a restart"])):
        assert read(copy, other) == Browsed({origin: int(copy["messageID"]) for origin in born.numbers})


def origin_of(copy: dict[str, Any]) -> tuple[str, int]:
    """What the broker wrote into a copy, by eye."""
    prefix = "extraProperties." if copy["protocol"] == "AMQP" else ""
    return copy["StringProperties"][f"{prefix}x-opt-amq-bkr-id"], copy["LongProperties"][f"{prefix}x-opt-amq-mr-id"]


def read(row: dict[str, Any], node: str) -> Browsed:
    london, view = holding(row, acks=0)
    [found] = browsed(london.reader(), replace(view, node=node), [view.business["orders.in"]], limit=10)
    return found


def test_every_protocol_and_kind_of_message_was_recorded() -> None:
    assert {each["client"].partition(" ")[0] for each in RECORDED} == {"CORE", "OPENWIRE", "STOMP", "AMQP", "MQTT"}
    assert {each["client"] for each in RECORDED if each["born"]["largeMessage"]} >= {
        "CORE",
        "STOMP",
        "AMQP",
        "OPENWIRE",
    }


@pytest.mark.parametrize(
    "row",
    [
        {**message(8, "node-paris", 3), "protocol": "HORNETQ"},
        {name: each for name, each in message(8, "node-paris", 3).items() if name != "protocol"},
        {**message(8, "node-paris", 3), "LongProperties": None},
        {**message(8), "LongProperties": {"x-opt-amq-mr-id": 3}},
    ],
    ids=["another protocol", "no protocol", "no number", "no node"],
)
def test_a_message_that_does_not_show_its_origin_is_counted_and_not_named(row: dict[str, Any]) -> None:
    assert read(row, "node-london") == Browsed({}, unnamed=1)
    # Of an outflow with such a message nothing is known by id: it may be one that is acknowledged there too.
    london, view = holding(row, event("orders.in", "5"), acks=1)
    assert residue(london.reader(), view) == Residue(1, 1)


def test_an_outflow_is_given_the_time_to_be_counted_and_an_empty_one_has_no_residue() -> None:
    london, view = holding(acks=0)
    assert residue(london.reader(), view) == Residue(0, 0, acked={}, done={})
    reader: Any = Mock(wraps=london.reader())
    residue(reader, with_queue(view, outflow("london", depth=1_000_000)))
    assert reader.look.call_args_list[0].kwargs["timeout_s"] > 40
