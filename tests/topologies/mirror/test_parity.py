"""Parity: both sites hold the same, queue by queue; a difference blocks unless under way, excepted or accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common import queues
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.parity import Difference
from tests.topologies.mirror.views import at_both, broker, outflow, queue, with_queue

ALL = Queues()


def differing(name: str = "orders.in", source: int = 5, target: int = 3, **kind: Any) -> list[Difference]:
    return parity.differences(
        broker("london", queue(name, source, **kind)), broker("paris", queue(name, target, site="paris", **kind)), ALL
    )


def test_sites_that_hold_the_same_do_not_differ() -> None:
    assert parity.differences(*at_both("orders.in", "orders.audit", depth=7), ALL) == []


@pytest.mark.parametrize("there", [(), (queue("orders.in", 0, site="paris"),)], ids=["absent", "empty"])
@pytest.mark.parametrize("depth", [0, 4])
def test_a_queue_that_is_absent_is_as_good_as_an_empty_one(there: tuple[Any, ...], depth: int) -> None:
    london, paris = broker("london", queue("orders.in", depth)), broker("paris", *there)

    found = parity.differences(london, paris, ALL)

    assert [(each.source, each.target) for each in found] == ([(4, 0)] if depth else [])
    assert all(each.absent is not bool(there) for each in found)


def test_a_queue_that_is_absent_at_the_source_counts_as_well() -> None:
    found = parity.differences(broker("london"), broker("paris", queue("orders.in", 2, site="paris")), ALL)

    assert found == [Difference("orders.in", 0, 2, blocks=True, absent=True)]
    assert found[0].told("london", "paris") == "orders.in: 0 at london, 2 at paris"


def test_every_difference_is_told_by_name() -> None:
    london = broker("london", queue("c", 1), queue("a", 2), queue("b", 3))
    paris = broker("paris", queue("b", 3, site="paris"), queue("a", 9, site="paris"))

    found = parity.differences(london, paris, ALL)

    assert [(each.queue, each.size) for each in found] == [("a", 7), ("c", 1)]


@pytest.mark.parametrize(
    ("name", "kind", "blocks"),
    [
        ("orders.in", {}, True),
        ("DLQ", {}, False),
        ("ExpiryQueue", {}, False),
        ("dead", {"address": "DLQ"}, False),
        ("latest", {"ring": True}, False),
        ("prices", {"last_value": True}, False),
        ("brief", {"durable": False}, False),
        ("reply-1", {"temporary": True}, False),
        ("dlq", {}, True),
    ],
)
def test_kinds_whose_content_may_differ_are_told_and_do_not_block(
    name: str, kind: dict[str, Any], blocks: bool
) -> None:
    [found] = differing(name, **kind)

    assert found.blocks is blocks


def test_a_dead_letter_address_of_either_site_is_excepted() -> None:
    london = broker("london", queue("own.dead", 4), queue("orders.in", dead_letter_address=None))
    paris = broker("paris", queue("orders.in", site="paris", dead_letter_address="own.dead"))

    assert [each.blocks for each in parity.differences(london, paris, ALL)] == [False]


@pytest.mark.parametrize("name", ["dr-ctl.probe.paris", "$sys.mqtt.retain.plant.1.state"])
def test_queues_of_broker_and_tool_are_not_compared(name: str) -> None:
    assert differing(name) == []


@pytest.mark.parametrize(
    ("queues", "names"),
    [
        (Queues(), ["logs", "orders", "orders.in", "orders.out"]),
        (Queues(include=("orders.#",)), ["orders", "orders.in", "orders.out"]),
        (Queues(include=("orders.*",)), ["orders.in", "orders.out"]),
        (Queues(exclude=("orders.in", "logs")), ["orders", "orders.out"]),
        (Queues(include=("orders.in",), exclude=("#",)), []),
    ],
)
def test_the_settings_narrow_what_is_compared(queues: Queues, names: list[str]) -> None:
    london = broker("london", *(queue(name, 1) for name in ("orders", "orders.in", "orders.out", "logs")))

    assert [each.queue for each in parity.differences(london, broker("paris"), queues)] == names


class TestUnderWay:
    """While clients work, a difference is explained by what is on its way in either direction."""

    @pytest.mark.parametrize(
        ("shipping", "back", "pending", "explained"),
        [(0, 0, 0, False), (9, 0, 0, False), (10, 0, 0, True), (0, 10, 0, True), (4, 3, 3, True), (4, 3, 2, False)],
    )
    def test_only_what_is_larger_is_unexplained(self, shipping: int, back: int, pending: int, explained: bool) -> None:
        london = with_queue(broker("london", queue(depth=30)), outflow("london", depth=shipping))
        paris = with_queue(
            broker("paris", queue(depth=20, site="paris"), pending_acks=pending), outflow("paris", depth=back)
        )

        assert (parity.unexplained(london, paris, ALL, {}) == []) is explained

    @pytest.mark.parametrize(("moved", "explained"), [({"orders.in": 9}, False), ({"orders.in": 10}, True)])
    def test_what_moved_between_two_looks_explains_as_much(self, moved: dict[str, int], explained: bool) -> None:
        london, paris = broker("london", queue(depth=30)), broker("paris", queue(depth=20, site="paris"))

        assert (parity.unexplained(london, paris, ALL, moved) == []) is explained

    def test_movement_of_another_queue_explains_nothing(self) -> None:
        london, paris = broker("london", queue(depth=30)), broker("paris", queue(depth=20, site="paris"))

        assert len(parity.unexplained(london, paris, ALL, {"orders.out": 1000})) == 1

    @pytest.mark.parametrize("blind", ["london", "paris"])
    def test_an_outflow_that_cannot_be_seen_explains_nothing(self, blind: str) -> None:
        views = {"london": broker("london", queue(depth=5)), "paris": broker("paris", queue(depth=4, site="paris"))}
        views[blind] = replace(views[blind], config=replace(views[blind].config, link="mistyped"))

        assert parity.under_way(views["london"], views["paris"]) is None
        assert len(parity.unexplained(views["london"], views["paris"], ALL, {"orders.in": 1000})) == 1

    def test_a_site_without_a_link_has_nothing_under_way(self) -> None:
        london, paris = broker("london", queue(depth=5)), broker("paris", queue(depth=4, site="paris"), links=())

        assert parity.under_way(london, paris) == 0
        assert parity.unexplained(london, paris, ALL, {"orders.in": 1}) == []

    def test_an_excepted_kind_is_never_unexplained(self) -> None:
        london = broker("london", queue("latest", 30, ring=True))

        assert parity.unexplained(london, broker("paris"), ALL, {}) == []


class TestMoved:
    def test_it_is_what_came_and_went_the_larger_of_both_sites(self) -> None:
        before = [broker("london", queue(added=10, removed=4)), broker("paris", queue(site="paris", added=9))]
        after = [broker("london", queue(added=13, removed=6)), broker("paris", queue(site="paris", added=10))]

        assert queues.moved(before, after) == {"orders.in": 5}

    def test_a_queue_that_stood_still_did_not_move(self) -> None:
        both = [broker("london", queue(depth=500))]

        assert queues.moved(both, both) == {"orders.in": 0}

    def test_counters_that_began_anew_tell_nothing(self) -> None:
        before = [broker("london", queue(added=10))]
        after = [broker("london", queue(added=900), start="1795259999999")]

        assert queues.moved(before, after) == {}

    def test_a_queue_that_was_not_there_before_tells_nothing(self) -> None:
        assert queues.moved([broker("london")], [broker("london", queue(added=900))]) == {}


@pytest.mark.parametrize(
    ("accepted", "left"),
    [
        ({}, ["orders.in"]),
        ({"orders.in": 2}, []),
        ({"orders.in": 1}, ["orders.in"]),
        ({"orders.in": 3}, ["orders.in"]),
        ({"orders": 2}, ["orders.in"]),
    ],
)
@pytest.mark.parametrize("counts", [(5, 3), (3, 5)])
def test_a_difference_is_accepted_at_exactly_its_size(
    accepted: dict[str, int], left: list[str], counts: tuple[int, int]
) -> None:
    assert [each.queue for each in parity.not_accepted(differing("orders.in", *counts), accepted)] == left


def test_an_excepted_kind_needs_no_acceptance() -> None:
    assert parity.not_accepted(differing("DLQ"), {}) == []
