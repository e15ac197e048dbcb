"""A queue of the plugin that its broker counts below zero: what it holds is not known, wherever a sum is made of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from dr_ctl.topologies.continuity.view import Flow, SiteView
from tests.topologies.continuity.views import broker, flow

AT = datetime(2026, 11, 23, tzinfo=UTC)


def site(name: str, *flows: Flow) -> SiteView:
    told = broker(name, *flows, active=False)
    theirs = [queue for each in flows for queue in (each.out_mirror, each.out_acks, each.in_mirror, each.in_acks)]
    return replace(told, queues=(*told.queues, *theirs))


CLOSED = site("london", flow("orders", to_ship=5), flow("audit", to_ship=-5))
PARIS = site("paris", flow("orders"), flow("audit"))


def test_what_is_to_ship_is_not_known() -> None:
    assert CLOSED.link.to_ship is None
    linked = CLOSED.link.linked(None, 1.0)
    assert linked.outflow is None
    assert "an unknown number of message(s) to ship, 0 acknowledgement(s) to ship" in linked.lines[0]


def test_no_price_is_told_of_it() -> None:
    stake = CLOSED.link.stake(PARIS)

    assert (stake.lost, stake.queues) == (None, None)
    assert CLOSED.link.residue is None


def test_the_history_keeps_no_row_of_it() -> None:
    rows = [(row.kind, row.name, row.depth) for row in CLOSED.link.rows(PARIS, AT) if row.kind == "mirror"]

    assert rows == [("mirror", "orders", 5)]


def test_acknowledgements_that_are_miscounted_are_not_known() -> None:
    queue = PARIS.flows[0].in_acks
    paris = replace(PARIS, flows=(replace(PARIS.flows[0], in_acks=replace(queue, depth=-1)), PARIS.flows[1]))
    london = site("london", flow("orders"), flow("audit"))

    assert paris.link.unapplied is None
    assert london.link.stake(paris).duplicates is None
    pending = {row.name: row.pending for row in london.link.rows(paris, AT) if row.kind == "acks"}
    assert pending == {"orders": None, "audit": 0}
