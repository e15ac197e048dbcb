"""The agent of all pairs: beside a lost site that is owed its return nothing is deleted."""

from __future__ import annotations

import pytest

from dr_ctl.engine.debts import Debt, DebtKind
from dr_ctl.topologies.brokersync.sync.keeper import PairsKeeper
from dr_ctl.topologies.brokersync.sync.pair import Pair
from tests.topologies.brokersync.sync.fakes import Sites


@pytest.mark.parametrize(("primary", "standby"), [("paris", "london"), ("london", "paris")])
@pytest.mark.parametrize("kind", DebtKind)
def test_nothing_is_deleted_beside_a_site_that_was_lost_and_is_not_taken_in(
    primary: str, standby: str, kind: DebtKind
) -> None:
    sites, owed = Sites(), [Debt(kind, "london", "paris", "2026-11-23T00:00:00Z")]
    pair = Pair("orders-1", sites.primary, sites.standby, sites.clock, {})
    keeper = PairsKeeper([pair], primary, standby, lambda: owed)
    sites.send(10)
    sites.consume(4)

    for _ in range(50):
        kept = keeper.step(lambda: None)
    held = len(sites.copies)
    owed.clear()
    for _ in range(500):
        keeper.step(lambda: None)
        sites.clock.at += 0.01

    assert held == 10
    assert [each.id for each in kept.findings] == ["DR-AGENT-005"]
    assert sites.copies == sites.held
