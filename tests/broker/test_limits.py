"""A target behind whose doors clients could not work is read on real brokers before clients are fenced."""

import re
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR
from tests.broker.driving import Operator
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]

LIMIT = "DR-LIMIT-001"


def full_at_paris(xml: str) -> str:
    """Give the broker at Paris less disk, or less store, than it takes already."""
    if re.search(r"<name>paris|brokerName=\"paris", xml) is None:
        return xml
    small = re.sub(r"<max-disk-usage>\d+<", "<max-disk-usage>1<", xml)
    small = re.sub(r"<storeUsage limit=\"[^\"]*\"", '<storeUsage limit="1 kb"', small)
    assert small != xml
    return small


@pytest.mark.parametrize(
    ("topology", "text"),
    [(MIRROR, "over its max-disk-usage of 1 %: no client can send"), (BROKERSYNC, "% of its storeUsage: all who send")],
)
def test_a_full_disk_refuses_the_move_and_a_failover_that_meets_it_says_what_to_do(
    tmp_path: Path, topology: str, text: str
) -> None:
    with Lab.up(tmp_path / "lab", topology=topology, edit=full_at_paris) as lab:
        operator = Operator(lab, tmp_path / "state")
        refused = operator.run("swapover", "--to", "paris", "--yes")
        lab.kill("london")
        ended = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)
        checked = operator.run("check")

    assert refused.code == 10, refused.document
    assert text in refused.texts(LIMIT)[0]
    assert text in ended.texts(LIMIT)[0]
    if topology == MIRROR:
        assert ended.code == 21, ended.document
        assert "DR-PROBE-003" in ended.ids
        assert (checked.code, text in checked.document["summary"]) == (2, True)


def test_no_move_begins_before_the_target_has_measured_its_disk(tmp_path: Path) -> None:
    """A broker says that none of its disk is taken until its first scan."""

    def seldom(xml: str) -> str:
        return re.sub(r"<disk-scan-period>\d+<", "<disk-scan-period>600000<", xml)

    with Lab.up(tmp_path / "lab", topology=MIRROR, edit=seldom) as lab:
        refused = Operator(lab, tmp_path / "state").run("swapover", "--to", "paris", "--yes")

    assert (refused.code, "has not measured its disk" in refused.texts(LIMIT)[0]) == (10, True)
