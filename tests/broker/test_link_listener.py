"""Listeners of real brokers that the settings speak of: who comes in by one that is declared free of clients, an AMQP
client at the acceptor of the mirror and the brokers of one site in a cluster; and a lock coordinator on the clients'
acceptors, one lock over both sites, which moves drive."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dr_ctl.stomp_io.address import Address
from dr_ctl.topologies.common.calls import CLUSTER_PREFIX
from dr_ctl_lab.lab.artemis.group import clustered, with_listener
from dr_ctl_lab.lab.clients.amqp import AmqpClient
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from tests.broker.driving import Operator, execute, state_of, until
from tests.broker.groups import name_in
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]
RATE = 40.0


def test_an_idle_amqp_client_on_the_mirrors_acceptor_is_told_and_refuses_a_move(lab: Lab, operator: Operator) -> None:
    before, site = state_of(lab), lab.site("london")

    with closing(AmqpClient(Address("127.0.0.1", site.ports["mirror"]), site.app)) as client:
        name = client._connection.container
        looked, refused = operator.run("validate"), operator.run("swapover", "--to", "paris", "--yes")
    until(lambda: "DR-DOOR-011" not in operator.run("validate").ids)

    assert (looked.code, refused.code) == (10, 10), refused.document
    text = refused.finding("DR-DOOR-011")["text"]
    assert all(words in text for words in (f"client {name}", "acceptor mirror")), text
    assert state_of(lab) == before


def test_brokers_of_one_site_in_a_cluster_move_there_and_back(tmp_path: Path) -> None:
    """Two pairs, each site's brokers joined by an acceptor of its own, by which they share out what clients send."""
    ports = dict(zip(("london", "london.orders-2", "paris", "paris.orders-2"), reserve_ports(4, tmp_path), strict=True))

    def joined(xml: str) -> str:
        name = name_in(xml)
        site, _, second = name.partition(".")
        return with_listener(clustered(xml, ports[name], [ports[site if second else f"{site}.orders-2"]]), ports[name])

    try:
        with Lab.up(tmp_path / "lab", pairs=2, edit=joined) as lab:
            operator = Operator(lab, tmp_path / "state")
            with lab.load(RATE) as traffic:
                traffic.wait_for(2 * RATE)
                looked, ended = operator.run("validate"), []
                admin = lab.admin("london")
                queues = f"{admin._broker},component=addresses,subcomponent=queues,*"
                read = admin._call({"type": "read", "mbean": queues, "attribute": ["Name", "MessagesAdded"]})
                shared = [row for row in read.values() if row["Name"].startswith(CLUSTER_PREFIX)]
                for site in ("paris", "london"):
                    ended.append(operator.run("swapover", "--to", site, "--yes"))
                    traffic.wait_for(traffic.counts().sent + 2 * RATE)
                verdict = traffic.stop()
    finally:
        release_ports(tmp_path)

    assert looked.code == 0, looked.document
    assert not {"DR-DOOR-005", "DR-DOOR-006", "DR-DOOR-011"} & {*looked.ids}
    assert [entry.code for entry in ended] == [0, 0], [entry.document for entry in ended]
    assert sum(row["MessagesAdded"] for row in shared) > 0
    assert (verdict.drained, verdict.lost, verdict.duplicates) == (True, (), ())


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
    assert [entry.code for entry in ended] == [0] * 4, [entry.document for entry in ended]
    assert seen == [["Stopped", "Locked"], ["Locked", "Stopped"], ["Stopped", "Stopped"], ["Locked", "Stopped"]]
    assert (verdict.drained, verdict.lost, verdict.duplicates) == (True, (), ())
    assert lost.code == 0, lost.document
    assert "paris was opened before this run, by the lock (site-lock)" in str(lost.texts(LOCKS))
