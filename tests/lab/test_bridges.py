"""What the brokers of a lab are told whose sites are joined by diverts and bridges."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.artemis.bridges import IDS, configured
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.make import Make
from dr_ctl_lab.lab.settings_file import write
from tests.lab.test_configuration import LAB, LONDON, PARIS, STOCK

PORTS = {"http": 20001, "clients": 20002, "bridge": 20003, "agents": 20004}
OTHERS = {"bridge": "bridge-pw", "agent": "agent-pw"}
HERE, THERE = (replace(site, ports=PORTS, others=OTHERS) for site in (LONDON, PARIS))
ODD = 'it\'s a "quoted" queue'


def made(*queues: str) -> ET.Element:
    return ET.fromstring(configured(STOCK, Make(HERE, THERE, 20021, queues)))


def text(found: ET.Element, name: str) -> str | None:
    return found.findtext(name)


def test_bridges_and_agents_have_doors_of_their_own_and_the_clients_boots_closed() -> None:
    doors = {one.get("name"): one.text or "" for one in made().iter("acceptor")}

    assert doors == {
        "clients": "tcp://127.0.0.1:20002?protocols=STOMP,AMQP,CORE,OPENWIRE;autoStart=false",
        "bridge": "tcp://127.0.0.1:20003?protocols=CORE",
        "agents": "tcp://127.0.0.1:20004?protocols=STOMP",
    }


def test_what_a_divert_takes_lands_where_the_bridge_to_the_peer_takes_it_up() -> None:
    xml = made("A")

    diverts = [
        (one.get("name"), text(one, "address"), text(one, "forwarding-address"), text(one, "exclusive"))
        for one in xml.iter("divert")
    ]
    assert diverts == [("divert.A", "A", "mirror.A", "false"), (f"divert.{IDS}", IDS, f"mirror.{IDS}", "true")]
    buffers = {
        one.get("name"): [queue.get("name") for queue in one.iter("queue")]
        for one in xml.iter("address")
        if (one.get("name") or "").startswith("mirror.")
    }
    assert buffers == {"mirror.A": ["mirror.paris.A"], f"mirror.{IDS}": [f"mirror.paris.{IDS}"]}
    bridges = [(text(one, "queue-name"), text(one, "forwarding-address")) for one in xml.iter("bridge")]
    assert bridges == [("mirror.paris.A", "A"), (f"mirror.paris.{IDS}", IDS)]


def test_what_came_from_the_peer_is_not_sent_back() -> None:
    xml = made("A")

    for divert in xml.iter("filter"):
        assert divert.get("string") == "ARTEMIS_MESSAGE_ORIGIN = 'london' OR ARTEMIS_MESSAGE_ORIGIN IS NULL"
    marked = [(one.get("key"), one.get("value")) for one in xml.iter("property")]
    assert marked == [("ARTEMIS_MESSAGE_ORIGIN", "london")] * 2


def test_bridges_go_through_the_proxy_and_never_give_up() -> None:
    xml = made("A")

    assert {one.get("name"): one.text for one in xml.iter("connector")} == {"paris": "tcp://127.0.0.1:20021"}
    for bridge in xml.iter("bridge"):
        assert [one.text for one in bridge.iter("connector-ref")] == ["paris"]
        assert (text(bridge, "user"), text(bridge, "password")) == ("bridge", "bridge-pw")
        assert text(bridge, "reconnect-attempts") == text(bridge, "initial-connect-attempts") == "-1"
        assert text(bridge, "use-duplicate-detection") == "true"


def test_a_bridge_may_only_send_and_clients_do_not_see_ids_that_arrived() -> None:
    stock = STOCK.replace(
        'type="consume" roles="amq"/>', 'type="consume" roles="amq"/><permission type="send" roles="amq"/>'
    )
    xml = ET.fromstring(configured(stock, Make(HERE, THERE, 20021, ["A"])))

    told = {
        (setting.get("match"), one.get("type")): one.get("roles")
        for setting in xml.iter("security-setting")
        for one in setting.iter("permission")
    }
    assert told == {
        ("#", "deleteAddress"): "amq",
        ("#", "consume"): "amq,app",
        ("#", "send"): "bridge,amq,app",
        (IDS, "send"): "amq,app,bridge",
        (IDS, "consume"): "amq,agent",
        (IDS, "browse"): "amq",
        ("activemq.management.#", "manage"): "amq",
    }


def test_only_plain_names_stand_in_the_xml() -> None:
    assert [one.get("name") for one in made("A", ODD).iter("divert")] == ["divert.A", f"divert.{IDS}"]


def test_the_settings_that_it_writes_are_those_of_its_topology(tmp_path: Path) -> None:
    path = write(tmp_path, replace(LAB, sites=(HERE, THERE), topology=BRIDGES))

    settings = load(path).settings

    assert settings.topology == BRIDGES
    [broker] = settings.sites["london"].brokers
    assert broker.model_dump()["lasting_fence"] == {"roles": ("app",)}
    assert (tmp_path / "secrets" / "london.agent").read_text() == "agent-pw\n"
    assert "agent-pw" not in path.read_text()
