"""Two real brokers that mirror each other, as the page configures them, with a user that may do what it has to."""

import re
from pathlib import Path
from typing import Final

import pytest

from dr_ctl_lab.lab.kinds import MIRROR
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, until
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


# What is taken out of a file of the page, and the finding that says so, with a word of what to do.
ABSENT: Final = {
    "the acceptor of the link": ("broker.xml", r'<acceptor name="mirror">.*?</acceptor>', "DR-DOOR-001", ""),
    "autoStart": ("broker.xml", ";autoStart=false", "DR-DOOR-007", "autoStart=false"),
    "the link": ("broker.xml", "<broker-connections>.*</broker-connections>", "DR-LINK-009", ""),
    "the rights of the link": ("broker.xml", ',mirror(?=")', "DR-LINK-004", ""),
    "default-access": ("management.xml", r",dr-ctl(?=.*</default-access>)", "DR-SITE-001", "management.xml"),
    "match": ("management.xml", r"(?<=\"\*\" roles=\"amq),dr-ctl", "DR-SITE-001", "management.xml"),
    "the console": ("artemis.profile", ",dr-ctl", "DR-SITE-001", "password"),
    "the role": ("artemis-roles.properties", "dr-ctl = dr-ctl", "DR-SITE-001", "password"),
}


def test_each_line_of_the_page_that_is_absent_is_told(tmp_path: Path) -> None:
    page, rows = blocks("artemis-mirror.md"), {}
    with installed(tmp_path, MIRROR, lambda xml: pasted(xml, page, tmp_path / "lab")) as (lab, operator):
        assert operator.run("activate", "london", "--yes").code == 0
        for absent, (name, line, ident, word) in ABSENT.items():
            file = lab.instance("paris") / "etc" / name
            whole = file.read_text("utf-8")
            file.write_text(re.sub(line, "", whole, flags=re.DOTALL), "utf-8")
            lab.stop("paris")
            lab.start("paris")
            until(lambda: operator.run("validate", "--to", "paris").rows(ident), why=f"{absent}: {ident}")  # noqa: B023
            rows[absent] = operator.run("validate", "--to", "paris").rows(ident)[0]["remedy"]
            assert word in rows[absent], rows[absent]
            file.write_text(whole, "utf-8")

    assert rows.keys() == ABSENT.keys()


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
