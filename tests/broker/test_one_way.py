"""A mirror in one direction, on real brokers: the other site has no broker connection, and serves all the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100


@pytest.fixture
def one_way(tmp_path: Path) -> Iterator[Lab]:
    with Lab.up(tmp_path / "lab") as lab:
        lab.stop("paris")
        broker_xml = lab.instance("paris") / "etc" / "broker.xml"
        text = re.sub(r"<broker-connections>.*</broker-connections>", "", broker_xml.read_text(), flags=re.DOTALL)
        broker_xml.write_text(text)
        lab.start("paris")
        yield lab


def test_a_planned_move_loses_nothing_and_the_serving_site_may_be_lost(one_way: Lab, tmp_path: Path) -> None:
    operator = Operator(one_way, tmp_path / "state")
    with one_way.load(RATE) as traffic:
        traffic.wait_for(5 * RATE)
        moved = operator.run("swapover", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + RATE)
        verdict = traffic.stop()
    back = operator.run("swapover", "--to", "london", "--yes")

    assert moved.code == 0, moved.told
    assert (verdict.drained, verdict.lost, verdict.duplicates) == (True, (), ())
    assert back.code == 10, back.told
    assert "there is no link from paris to london: not configured" in back.told

    one_way.close_clients("paris")
    one_way.open_clients("london")
    with one_way.load(RATE) as traffic:
        traffic.wait_for(RATE)
        ready = operator.run("validate", "--for", "failover").document["data"]["operations"]["failover"]["verdict"]
        one_way.kill("london")
        ended = operator.run("failover", "--to", "paris", *ACCEPTED, "--yes")
        served = traffic.wait_for(traffic.counts().sent + RATE)
    again = operator.run("failover", "--to", "paris", "--yes")

    assert "refused without --accept-loss unknown --accept-duplicates unknown" in ready
    assert ended.code == 0, ended.told
    assert "there is no link from paris to london: not configured" in ended.told
    assert served.sent
    assert again.code == 0, again.told
