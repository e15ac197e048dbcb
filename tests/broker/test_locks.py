"""A lock coordinator on the clients' acceptors, one lock over both sites, on real brokers: moves drive it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, execute, until
from tests.broker.groups import name_in
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]
RATE = 20.0
LOCKS = "DR-DOOR-008"


def statuses(lab: Lab) -> Sequence[str]:
    listed = [execute(lab, site, "", "listLockCoordinatorsAsJSON()") for site in ("london", "paris")]
    return [json.loads(str(rows))[0]["status"] for rows in listed]


def test_a_lock_over_both_sites_is_driven_there_and_back_and_says_what_it_did_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()

    def locked(xml: str) -> str:
        boots = "" if name_in(xml) == "london" else ' auto-start="false"'
        coordinator = f"""<lock-coordinators><lock-coordinator name="site-lock"{boots}>
          <class-name>org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager</class-name>
          <lock-id>the-service</lock-id><check-period>500</check-period>
          <properties><property key="locks-folder" value="{folder}"/></properties>
          </lock-coordinator></lock-coordinators><acceptors>"""
        xml = xml.replace('<acceptor name="clients">', '<acceptor name="clients" lock-coordinator="site-lock">')
        return xml.replace("<acceptors>", coordinator, 1)

    with Lab.up(tmp_path / "lab", edit=locked) as lab:
        operator, seen = Operator(lab, tmp_path / "state"), []
        with lab.load(RATE) as traffic:
            traffic.wait_for(RATE)
            looked, ended = operator.run("validate"), []
            for site in ("paris", "london"):
                ended.append(operator.run("swapover", "--to", site, "--yes"))
                seen.append(statuses(lab))
                traffic.wait_for(traffic.counts().sent + RATE)
            verdict = traffic.stop()
        for words in (("fence", "london"), ("unfence", "london")):
            ended.append(operator.run(*words, "--yes"))
            seen.append(statuses(lab))
        execute(lab, "paris", "", "startLockCoordinator(java.lang.String)", "site-lock")
        lab.kill("london")
        until(lambda: lab.admin("paris").clients_open(), why="the lock is not got by paris")
        lost = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)

    assert [row["severity"] for row in looked.rows(LOCKS)] == ["info", "info"]
    assert [each.code for each in ended] == [0] * 4, [each.document for each in ended]
    assert seen == [["Stopped", "Locked"], ["Locked", "Stopped"], ["Stopped", "Stopped"], ["Locked", "Stopped"]]
    assert (verdict.drained, verdict.lost, verdict.duplicates) == (True, (), ())
    assert lost.code == 0, lost.document
    assert "paris was opened before this run: done by the lock (site-lock)" in str(lost.texts(LOCKS))
