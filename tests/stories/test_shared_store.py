"""The story where both sites share a store, on real brokers under the ledger: there is one store, so nothing is lost
with a site, and what was in delivery comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.lab.kinds import SHARED_STORE
from dr_ctl.lab.lab import Lab
from tests.broker.driving import Operator, end_all

pytestmark = pytest.mark.broker

RATE, WORK_MS = 60, 20.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE) as up:
        yield up
    end_all()


def test_a_service_moves_there_and_back_loses_a_site_and_takes_it_in_again(lab: Lab, tmp_path: Path) -> None:
    operator = Operator(lab, tmp_path / "state")
    with lab.load(RATE, consumers=1, work_ms=WORK_MS) as traffic:
        traffic.wait_for(RATE)
        there = operator.run("swapover", "--to", "paris", "--yes")
        lab.start("london")
        traffic.wait_for(traffic.counts().sent + RATE)
        back = operator.run("swapover", "--to", "london", "--yes")
        lab.start("paris")
        traffic.wait_for(traffic.counts().sent + RATE)
        moved = traffic.ledger.verdict(drained=False)

        lab.kill("london")
        taken_over = operator.run("failover", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + RATE)
        lab.start("london")
        returned = operator.run("failback", "--to", "london", "--yes")
        traffic.wait_for(traffic.counts().sent + RATE)
        verdict = traffic.stop(drain_s=60)
    print(verdict.as_json(), [each.document["data"]["outage_s"] for each in (there, back, returned)])

    assert [each.code for each in (there, back, taken_over, returned)] == [0] * 4, [
        each.told for each in (there, back, taken_over, returned)
    ]
    assert (moved.consumed_twice, moved.processed_twice, moved.unexpected) == ((), (), ())
    assert taken_over.document["data"]["bounds"]["lost"]["at_most"] == 0
    assert verdict.lost == ()
    assert verdict.drained
    assert operator.run("status").document["debts"] == []
    assert operator.run("runs", "verify").code == 0
