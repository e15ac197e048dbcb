"""What speaks against a move of a BrokerSync pair, before anything changes."""

from __future__ import annotations

from typing import Any

import pytest

from dr_ctl.core.model import Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.brokersync import parity
from dr_ctl.topologies.brokersync.procedure import open_
from dr_ctl.topologies.classic.broker import Network
from dr_ctl.topologies.classic.operations import CLOSES, PAUSES, REMOVES
from tests.topologies.brokersync.views import broker, connection, queue, seen


def told(london: dict[str, Any] | None = None, paris: dict[str, Any] | None = None, **ask: Any) -> dict[str, Severity]:
    here = broker("london", serves=True, **(london or {}))
    there = broker("paris", serves=False, **(paris or {}))
    move = Move(Ask("swapover", "paris", **ask), "london", {})
    found = open_.recipe(Queues(), Drain(), Patience()).why_not(seen(here, there), move)
    return {each.id: each.severity for each in found}


def test_nothing_speaks_against_a_pair_in_step() -> None:
    assert told() == {}


@pytest.mark.parametrize(
    ("london", "finding"),
    [
        ({"denied": frozenset({CLOSES})}, "DR-POLICY-001"),
        ({"denied": frozenset({REMOVES})}, "DR-POLICY-001"),
        ({"denied": frozenset({PAUSES})}, "DR-POLICY-002"),
        ({"managed": False}, "DR-POLICY-003"),
        ({"copying": {}}, "DR-SYNC-001"),
        ({"networks": ()}, "DR-SYNC-001"),
        ({"networks": (Network("a", "b", "x"), Network("b", "b", "y"))}, "DR-LINK-001"),
        ({"bridges": (connection("to-london", 1, "stomp"),)}, "DR-DOOR-003"),
        ({"depth": 5}, "DR-PARITY-001"),
    ],
)
def test_what_a_step_needs_and_lacks_refuses_the_move(london: dict[str, Any], finding: str) -> None:
    assert told(london)[finding] is Severity.ERROR


def test_without_pauses_a_move_cuts_what_clients_hold_where_that_is_asked_for() -> None:
    assert told({"denied": frozenset({PAUSES})}, cut_in_flight=True) == {"DR-POLICY-002": Severity.WARNING}


def test_a_difference_that_was_accepted_is_moved_with() -> None:
    assert "DR-PARITY-001" not in told({"depth": 5}, accept_difference={"orders": 5})


def test_a_queue_without_copies_and_a_site_that_copies_nothing_back_are_told() -> None:
    more = {"queues": (queue("orders"), queue("left.out"))}

    assert told(more, {"networks": ()}) == {"DR-SYNC-002": Severity.WARNING, "DR-SYNC-003": Severity.WARNING}


def test_what_the_waiting_site_has_too_many_of_is_no_lack() -> None:
    assert told({"depth": 2, "consumed": {"orders": 7}}, {"depth": 9}) == {}


@pytest.mark.parametrize("source", [{"consumed": {"orders": 6}}, {"consumed": {"orders": 7}, "held": "a person"}])
def test_what_nothing_shows_to_be_consumed_is_not_removed_by_a_move(source: dict[str, object]) -> None:
    assert told({"depth": 2, **source}, {"depth": 9}) == {"DR-SYNC-004": Severity.ERROR}
    assert told({"depth": 2, **source}, {"depth": 9}, accept_difference={"orders": 7}) == {
        "DR-SYNC-005": Severity.WARNING
    }


def test_what_clients_consume_while_both_sites_are_looked_at_refuses_no_move() -> None:
    here = broker("london", serves=True, depth=2, consumed={"orders": 28})
    there = broker("paris", serves=False, depth=32)

    assert parity.unproven(here, there, Queues(), {"orders": 1})
    assert not parity.unproven(here, there, Queues(), {"orders": 2})
