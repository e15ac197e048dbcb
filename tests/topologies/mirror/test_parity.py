"""Parity: both sites hold the same, queue by queue; a difference blocks unless under way, excepted or accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common import queues
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.parity import Difference
from tests.topologies.mirror.views import broker, outflow, queue, with_queue

ALL = Queues()


def differing(name: str = "orders.in", source: int = 5, target: int = 3, **kind: Any) -> list[Difference]:
    return parity.differences(
        broker("london", queue(name, source, **kind)), broker("paris", queue(name, target, site="paris", **kind)), ALL
    )


@pytest.mark.parametrize(
    ("london", "paris", "found"),
    [
        # One that is absent is as good as an empty one.
        ({"orders.in": 4}, {}, [("orders.in", 4, 0, True)]),
        ({"orders.in": 4}, {"orders.in": 0}, [("orders.in", 4, 0, False)]),
        ({"orders.in": 0}, {}, []),
        ({}, {"orders.in": 2}, [("orders.in", 0, 2, True)]),
        ({"orders.in": 7, "orders.audit": 7}, {"orders.in": 7, "orders.audit": 7}, []),
        ({"c": 1, "a": 2, "b": 3}, {"b": 3, "a": 9}, [("a", 2, 9, False), ("c", 1, 0, True)]),
    ],
)
def test_every_difference_is_told_by_name(london: dict[str, int], paris: dict[str, int], found: list[Any]) -> None:
    here, there = (
        broker(site, *(queue(name, depth, site=site) for name, depth in queues.items()))
        for site, queues in (("london", london), ("paris", paris))
    )
    told = parity.differences(here, there, ALL)
    assert [(each.queue, each.source, each.target, each.absent) for each in told] == found
    assert all(each.told("london", "paris").startswith(f"{each.queue}: {each.source} at london") for each in told)


@pytest.mark.parametrize(
    ("name", "kind", "blocks"),
    [
        *((name, {}, [True]) for name in ("orders.in", "dlq")),
        # Of these the content may differ: that is told, and does not block.
        *((name, {}, [False]) for name in ("DLQ", "ExpiryQueue")),
        ("dead", {"address": "DLQ"}, [False]),
        *(
            ("odd", kind, [False])
            for kind in ({"ring": True}, {"last_value": True}, {"durable": False}, {"temporary": True})
        ),
        # Queues of broker and tool are not compared.
        *((name, {}, []) for name in ("dr-ctl.probe.paris", "$sys.mqtt.retain.plant.1.state")),
    ],
)
def test_kinds_whose_content_may_differ_do_not_block(name: str, kind: Any, blocks: list[bool]) -> None:
    assert [found.blocks for found in differing(name, **kind)] == blocks


def test_a_dead_letter_address_of_either_site_is_excepted() -> None:
    london = broker("london", queue("own.dead", 4), queue("orders.in", dead_letter_address=None))
    paris = broker("paris", queue("orders.in", site="paris", dead_letter_address="own.dead"))
    assert [each.blocks for each in parity.differences(london, paris, ALL)] == [False]


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


def pair(depth: int, there: int, **peer: Any) -> tuple[Any, Any]:
    return broker("london", queue(depth=depth)), broker("paris", queue(depth=there, site="paris"), **peer)


@pytest.mark.parametrize(
    ("shipping", "back", "pending", "moved", "explained"),
    [
        (0, 0, 0, {}, False),
        (9, 0, 0, {}, False),
        (10, 0, 0, {}, True),
        (0, 10, 0, {}, True),
        (4, 3, 3, {}, True),
        (4, 3, 2, {}, False),
        (0, 0, 0, {"orders.in": 9}, False),
        (0, 0, 0, {"orders.in": 10}, True),
        (0, 0, 0, {"orders.out": 1000}, False),
    ],
)
def test_while_clients_work_a_difference_is_explained_by_what_is_on_its_way_in_either_direction(
    shipping: int, back: int, pending: int, moved: dict[str, int], explained: bool
) -> None:
    london, paris = pair(30, 20, pending_acks=pending)
    london, paris = (
        with_queue(london, outflow("london", depth=shipping)),
        with_queue(paris, outflow("paris", depth=back)),
    )
    assert parity.under_way(london, paris) == shipping + back + pending
    assert (parity.unexplained(london, paris, ALL, moved) == []) is explained


@pytest.mark.parametrize("blind", [0, 1])
def test_an_outflow_that_cannot_be_seen_explains_nothing(blind: int) -> None:
    views = [*pair(5, 4)]
    views[blind] = replace(views[blind], config=replace(views[blind].config, link="mistyped"))
    assert parity.under_way(*views) is None
    assert len(parity.unexplained(*views, ALL, {"orders.in": 1000})) == 1


def test_a_site_without_a_link_has_nothing_under_way_and_an_excepted_kind_is_never_unexplained() -> None:
    unlinked = pair(5, 4, links=())
    assert parity.under_way(*unlinked) == 0
    assert parity.unexplained(*unlinked, ALL, {"orders.in": 1}) == []
    assert parity.unexplained(broker("london", queue("latest", 30, ring=True)), broker("paris"), ALL, {}) == []


TEN = broker("london", queue(added=10))


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        # What came and went, the larger of both sites.
        ([broker("london", queue(added=10, removed=4)), broker("paris", queue(site="paris", added=9))],
         [broker("london", queue(added=13, removed=6)), broker("paris", queue(site="paris", added=10))],
         {"orders.in": 5}),
        ([broker("london", queue(depth=500))], [broker("london", queue(depth=500))], {"orders.in": 0}),
        ([TEN], [broker("london", queue(added=900), start="1795259999999")], {}),  # counters began anew
        ([broker("london")], [broker("london", queue(added=900))], {}),  # it was not there before
    ],
)  # fmt: skip
def test_what_moved_between_two_looks(before: list[Any], after: list[Any], moved: dict[str, int]) -> None:
    assert queues.moved(before, after) == moved


@pytest.mark.parametrize(
    ("accepted", "left"), [({}, 1), ({"orders.in": 2}, 0), ({"orders.in": 1}, 1), ({"orders.in": 3}, 1), ({"o": 2}, 1)]
)
@pytest.mark.parametrize("counts", [(5, 3), (3, 5)])
def test_a_difference_is_accepted_at_exactly_its_size(accepted: dict[str, int], left: int, counts: Any) -> None:
    told = parity.not_accepted(differing("orders.in", *counts), accepted)
    assert [each.queue for each in told] == ["orders.in"] * left
    assert parity.not_accepted(differing("DLQ"), {}) == []  # an excepted kind needs none
