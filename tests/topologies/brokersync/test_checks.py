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


ERROR, WARNING = Severity.ERROR, Severity.WARNING
MORE = {"queues": (queue("orders"), queue("left.out"))}
TWO = (Network("a", "b", "x"), Network("b", "b", "y"))
# What nothing shows to be consumed is not removed by a move: too few, or somebody holds.
FEW, HELD = ({"depth": 2, "consumed": {"orders": 6}}, {"depth": 2, "consumed": {"orders": 7}, "held": "a person"})
NINE, ALL = {"depth": 9}, {"accept_difference": {"orders": 7}}


@pytest.mark.parametrize(
    ("london", "paris", "ask", "found"),
    [
        ({}, {}, {}, {}),
        # Without pauses a move cuts what clients hold where that is asked for.
        ({"denied": frozenset({PAUSES})}, {}, {"cut_in_flight": True}, {"DR-POLICY-002": WARNING}),
        (MORE, {"networks": ()}, {}, {"DR-SYNC-002": WARNING, "DR-SYNC-003": WARNING}),
        # What the waiting site has too many of is no lack.
        ({"depth": 2, "consumed": {"orders": 7}}, NINE, {}, {}),
        (FEW, NINE, {}, {"DR-SYNC-004": ERROR}),
        (HELD, NINE, {}, {"DR-SYNC-004": ERROR}),
        (FEW, NINE, ALL, {"DR-SYNC-005": WARNING}),
        (HELD, NINE, ALL, {"DR-SYNC-005": WARNING}),
    ],
)
def test_what_is_told_of_a_move(london: Any, paris: Any, ask: Any, found: dict[str, Severity]) -> None:
    assert told(london, paris, **ask) == found


@pytest.mark.parametrize(
    ("london", "finding"),
    [
        ({"denied": frozenset({CLOSES})}, "DR-POLICY-001"),
        ({"denied": frozenset({REMOVES})}, "DR-POLICY-001"),
        ({"denied": frozenset({PAUSES})}, "DR-POLICY-002"),
        ({"managed": False}, "DR-POLICY-003"),
        ({"copying": {}}, "DR-SYNC-001"),
        ({"networks": ()}, "DR-SYNC-001"),
        ({"networks": TWO}, "DR-LINK-001"),
        ({"bridges": (connection("to-london", 1, "stomp"),)}, "DR-DOOR-003"),
        ({"depth": 5}, "DR-PARITY-001"),
    ],
)
def test_what_a_step_needs_and_lacks_refuses_the_move(london: dict[str, Any], finding: str) -> None:
    assert told(london)[finding] is ERROR
    # A difference that was accepted is moved with.
    accepted = told(london, accept_difference={"orders": 5})
    assert (finding in accepted) is (finding != "DR-PARITY-001")


def test_what_clients_consume_while_both_sites_are_looked_at_refuses_no_move() -> None:
    here = broker("london", serves=True, depth=2, consumed={"orders": 28})
    there = broker("paris", serves=False, depth=32)
    assert parity.unproven(here, there, Queues(), {"orders": 1})
    assert not parity.unproven(here, there, Queues(), {"orders": 2})
