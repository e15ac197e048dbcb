"""Two real brokers that mirror each other, as the page configures them, with a user that may do what it has to."""

from pathlib import Path

import pytest

from dr_ctl_lab.lab.kinds import MIRROR
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all
from tests.topologies.absent import tells_of
from tests.topologies.pages import ACCEPTORS, RIGHTS, at_lab, blocks, in_the_place_of, installed, walked, with_user
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]


def pasted(generated: str, page: dict[str, str], lab: Path) -> str:
    """The lab's broker.xml with the page's elements in the place of its own."""
    with_user(generated, lab, page)
    ports = {"61613": "clients", "61617": "mirror"}
    listeners = at_lab(page[ACCEPTORS], generated, ports, london='name="paris" user=' in generated)
    xml = in_the_place_of(r"<acceptors>.*</broker-connections>", listeners, generated)
    rights = page[RIGHTS] + page["the rights of dr-ctl"]
    return in_the_place_of(r'<security-setting match="#">.*?</security-setting>', rights, xml)


@pytest.mark.parametrize("boots", ["closed", "open"])
def test_the_page_can_be_pasted(tmp_path: Path, boots: str) -> None:
    """With acceptors that boot closed, and with those that do not under a lasting fence."""
    page, begin, lasting = blocks("artemis-mirror.md"), "activate london --yes", {}
    if boots == "open":
        begin, lasting = "fence paris --yes", {"lasting_fence": {"roles": ["apps"]}}
        page[ACCEPTORS] = page[ACCEPTORS].replace(";autoStart=false", "")

    with installed(tmp_path, MIRROR, lambda xml: pasted(xml, page, tmp_path / "lab"), **lasting) as (_, operator):
        moved = "validate --to paris", "swapover --to paris --yes", "rehearse --on canary --yes"
        walked(operator, begin, *moved, "fence paris --yes", "unfence paris --yes")


def test_each_line_of_the_page_that_is_absent_is_told(tmp_path: Path) -> None:
    page = blocks("artemis-mirror.md")
    with installed(tmp_path, MIRROR, lambda xml: pasted(xml, page, tmp_path / "lab")) as (lab, operator):
        assert operator.run("activate", "london", "--yes").code == 0
        tells_of(operator, lab, MIRROR)


def test_a_version_that_shows_no_outflow_is_named_and_nothing_is_moved(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", version="2.31.2") as lab:
        operator = Operator(lab, tmp_path / "state")
        status, moved = operator.run("status"), operator.run("swapover", "--to", "paris", "--yes")
        lost = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)
        served = [site.clients_open for site in lab.status().sites]
    end_all()

    assert {finding["id"] for finding in status.document["findings"]} >= {"DR-SITE-003"}, status.told
    assert "Artemis 2.31.2" in status.texts("DR-SITE-003")[0]
    assert (moved.code, lost.code, served) == (10, 10, [True, False]), (moved.told, lost.told)
