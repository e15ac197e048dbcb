"""What status, the history and a failover's price say of a pair that the plugin joins, and what of one not read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dr_ctl.topologies.continuity.view import Flow, SiteView
from tests.topologies.continuity.views import broker, flow, queue, seen

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def shipped(view: SiteView, messages: int, acks: int) -> SiteView:
    """The same broker after its bridges have had so many confirmed."""

    def later(each: Flow) -> Flow:
        return replace(
            each,
            mirror_bridge=replace(each.mirror_bridge, acked=messages),
            acks_bridge=replace(each.acks_bridge, acked=acks),
        )

    return replace(view, flows=tuple(later(each) for each in view.flows))


def test_the_four_figures_of_the_plugins_own_design() -> None:
    london = broker("london", flow("orders", to_ship=30, acks=10, unapplied=5, oldest_ms=1500))
    link = shipped(london, 60, 40).link.linked(london, 2.0)
    told = link.as_json()
    assert (told["loss_risk"], told["duplicate_risk"], told["recovery_point_s"]) == (30, 10, 1.5)
    assert (told["rate"], told["recovery_time_s"]) == (50.0, 0.9)
    assert "30 message(s) to ship, the oldest 1.50 s old, 10 acknowledgement(s)" in link.lines[0]


@pytest.mark.parametrize("before", [None, broker("london", flow("orders", to_ship=30), start="1")])
def test_without_two_looks_at_one_start_there_is_no_rate(before: SiteView | None) -> None:
    told = broker("london", flow("orders", to_ship=30)).link.linked(before, 2.0).as_json()
    assert (told["rate"], told["recovery_time_s"], told["recovery_point_s"]) == (None, None, None)


def test_the_history_keeps_each_outflow_by_itself() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2, oldest_ms=70), depths={"orders": 9})
    paris = broker("paris", flow("orders", unapplied=4, staged=11), depths={"orders": 1})
    told = {row.kind: row for row in seen(london, paris).rows(AT) if row.site == "london"}
    assert (told["staged"].name, told["staged"].depth, told["staged"].start) == ("orders", 12, london.start)
    assert (told["mirror"].name, told["mirror"].depth, told["mirror"].oldest_ms) == ("orders", 3, 70)
    assert (told["acks"].name, told["acks"].depth, told["acks"].pending) == ("orders", 2, 4)
    assert told["mirror"].link is told["acks"].link is True
    assert (told["queue"].name, told["queue"].depth) == ("orders", 9)


def test_what_the_peer_did_not_say_has_no_figure() -> None:
    cut = flow("orders", out_mirror=queue("orders.out.mirror", 3))
    told = {row.kind: row for row in broker("london", cut).link.rows(None, AT)}
    assert told["acks"].pending is None
    assert told["mirror"].link is False


def test_a_closed_site_says_itself_what_it_takes_with_it() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2), flow("bulk", to_ship=1), active=False)
    paris = broker("paris", flow("orders", unapplied=4), flow("bulk"))
    known, alone = london.link.stake(paris), london.link.stake(None)
    assert (known.lost, known.duplicates, known.queues) == (4, 6, {"orders": (3, 6), "bulk": (1, 0)})
    assert (alone.lost, alone.duplicates) == (4, None)
    assert replace(london, service=None).link.stake(paris).lost is None


def test_a_plugin_that_has_not_started_is_shown_with_no_figure_at_all() -> None:
    silent = replace(broker("london"), service=None, flows=())
    link = silent.link.linked(silent, 2.0)
    told = link.as_json()
    figures = ("outflow", "pending_acks", "rate", "drain_s", "loss_risk", "duplicate_risk", "recovery_point_s")
    assert [told[name] for name in (*figures, "recovery_time_s")] == [None] * 8
    assert link.lines == ("the continuity plugin has not started: what its bridges hold was not read",)
    assert (silent.link.residue, silent.link.stake(None).lost) == (None, None)


def test_a_closed_site_tells_of_lost_acknowledgements_by_what_lies_at_the_other() -> None:
    london = broker("london", flow("orders", to_ship=3), depths={"orders": 10}, active=False)
    paris = broker("paris", flow("orders", staged=20))
    assert london.link.stake(paris).duplicates == 13


def site(name: str, *flows: Flow) -> SiteView:
    told = broker(name, *flows, active=False)
    theirs = [queue for each in flows for queue in (each.out_mirror, each.out_acks, each.in_mirror, each.in_acks)]
    return replace(told, queues=(*told.queues, *theirs))


def test_what_a_broker_counts_below_zero_is_not_known_wherever_a_sum_is_made_of_it() -> None:
    closed, paris = (site(*told) for told in (
        ("london", flow("orders", to_ship=5), flow("audit", to_ship=-5)), ("paris", flow("orders"), flow("audit"))
    ))  # fmt: skip
    linked, stake = closed.link.linked(None, 1.0), closed.link.stake(paris)
    assert (closed.link.to_ship, linked.outflow, stake.lost, stake.queues, closed.link.residue) == (None,) * 5
    assert "an unknown number of message(s) to ship, 0 acknowledgement(s) to ship" in linked.lines[0]
    rows = [(row.kind, row.name, row.depth) for row in closed.link.rows(paris, AT) if row.kind == "mirror"]
    assert rows == [("mirror", "orders", 5)]


def test_acknowledgements_that_are_miscounted_are_not_known() -> None:
    orders, audit = flow("orders"), flow("audit")
    paris = site("paris", replace(orders, in_acks=replace(orders.in_acks, depth=-1)), audit)
    london = site("london", orders, audit)
    assert (paris.link.unapplied, london.link.stake(paris).duplicates) == (None, None)
    pending = {row.name: row.pending for row in london.link.rows(paris, AT) if row.kind == "acks"}
    assert pending == {"orders": None, "audit": 0}
