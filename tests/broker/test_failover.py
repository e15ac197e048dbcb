"""A site is lost, the other serves, the lost one returns: what is not met in the stories."""

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, on_queue, send, until
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]
FAILOVER = ("failover", "--to", "paris", "--yes", *ACCEPTED)


def lost_with_three(lab: Lab, operator: Operator) -> None:
    """London is lost with three messages, which Paris has too and serves."""
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    lab.kill("london")
    assert operator.run(*FAILOVER).code == 0


def lying(lab: Lab) -> list[int]:
    return [lab.admin(site).depth("orders.in") for site in ("london", "paris")]


def test_a_restarted_survivor_serves_on_and_a_site_that_is_back_open_is_closed(lab: Lab, operator: Operator) -> None:
    lost_with_three(lab, operator)
    lab.kill("paris")
    lab.start("paris")
    assert operator.run(*FAILOVER).code == 0
    owed = operator.run("status").document["debts"]

    lab.start("london")
    lab.open_clients("london")
    ended = operator.run("reinstate", "london", "--yes")

    assert {(debt["kind"], debt["site"]) for debt in owed} == {("fence", "london"), ("quarantine", "london")}
    assert ended.code == 0, ended.document
    assert "DR-RETURN-002" in ended.told
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert ended.document["debts"] == []
    assert operator.run("reinstate", "london", "--yes").document["summary"].startswith("london is taken in already")
    assert lying(lab) == [3, 3]


def test_what_nothing_explains_is_taken_out_and_kept(lab: Lab, operator: Operator) -> None:
    lost_with_three(lab, operator)
    lab.start("london")
    send(lab, "london", "orders.in", 2)
    on_queue(lab, "london", "$ACTIVEMQ_ARTEMIS_MIRROR_paris", "removeAllMessages()")  # they will never be shipped

    ended = operator.run("reinstate", "london", "--yes")
    status = operator.run("status")

    name = "dr-ctl.quarantine.london.orders.in"
    assert ended.code == 0, ended.document
    reconciled = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-reconcile")][-1]["evidence"]
    assert reconciled["quarantined"] == {name: 2}
    assert len(reconciled["left_over_ids"]["orders.in"]["london"]) == 2
    assert lying(lab) == [3, 3]
    assert lab.admin("london").depth(name) == 2
    assert name not in lab.admin("paris").depths()
    assert "DR-RECONCILE-002" in ended.told
    assert "DR-RECONCILE-003" in status.told
