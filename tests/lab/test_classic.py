"""What brokers of a lab of ActiveMQ Classic are told."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl.settings.loader import load
from dr_ctl.settings.topologies.classic_brokersync import BrokerSyncBroker
from dr_ctl.stomp_io.dialect import ARTEMIS, CLASSIC
from dr_ctl_lab.lab.classic import brokersync, create, sharedstore
from dr_ctl_lab.lab.classic.policy import policy
from dr_ctl_lab.lab.kinds import BROKERSYNC, SHARED_STORE
from dr_ctl_lab.lab.make import Make
from dr_ctl_lab.lab.settings_file import document, write
from tests.lab.test_configuration import LAB, LONDON, PARIS

PORTS = {"http": 20001, "clients": 20002, "openwire": 20003, "sync": 20004}
OTHERS = {"agent": "agent-pw", "bridge": "bridge-pw"}
HERE, THERE = (replace(site, ports=PORTS, others=OTHERS) for site in (LONDON, PARIS))
CORE = "{http://activemq.apache.org/schema/core}"


def told(**options: Any) -> dict[str, Any]:
    return dict(brokersync.options(options))


def made(*queues: str, here: bool = True, **options: Any) -> ET.Element:
    site, peer = (HERE, THERE) if here else (THERE, HERE)
    make = Make(site, peer, 20021, queues, options=told(**options))
    return ET.fromstring(create.configured(make, brokersync.joined(Path(), make)))


def composites(xml: ET.Element) -> dict[str | None, tuple[str | None, str | None, str | None]]:
    """The composite queues, by name: whether they only forward, where to, and which messages."""
    return {
        one.get("name"): (one.get("forwardOnly"), to.get("queue") or to.get("physicalName"), to.get("selector"))
        for one in xml.iter(f"{CORE}compositeQueue")
        for to in one.findall(f"{CORE}forwardTo/*")
    }


def shipped(xml: ET.Element) -> list[str | None]:
    return [one.get("physicalName") for one in xml.findall(f".//{CORE}staticallyIncludedDestinations/*")]


def invoked(xml: ET.Element) -> list[tuple[str | None, ...]]:
    """What is done once the broker runs: to which connector, the method, its arguments."""
    beans = [one for one in xml.findall("{*}bean") if (one.get("class") or "").endswith("MethodInvokingBean")]
    return [
        (
            bean.findall(".//{*}value")[0].text,
            method.get("value"),
            *(each.text for each in bean.findall(".//{*}value")[1:]),
        )
        for bean in beans
        for method in bean.findall("{*}property[@name='targetMethod']")
    ]


def test_where_copies_go_one_way_the_other_site_has_no_way_back() -> None:
    primary, other = made("orders.in", one_way="london"), made("orders.in", here=False, one_way="london")

    assert composites(primary) == {"orders.in": ("false", "orders.in.DR", "JMSActiveMQBrokerPath = 'null'")}
    assert composites(other) == {"orders.in.DR": ("true", "orders.in", None)}
    assert (shipped(primary), shipped(other)) == (["orders.in.DR"], [])


def doors(xml: ET.Element) -> dict[str | None, str | None]:
    return {one.get("name"): one.get("uri") for one in xml.iter(f"{CORE}transportConnector")}


def test_the_clients_connector_starts_where_nobody_finds_it_or_as_most_brokers_have_it() -> None:
    """And a network connector is stopped that shall not start."""
    xml = made("orders.in", browse_page=400)
    usual, stopped = (made("orders.in", boots_open=True, link_auto_start={site: False}) for site in ("paris", "london"))

    assert doors(xml) == {
        "openwire": "tcp://127.0.0.1:20003",
        "sync": "stomp://127.0.0.1:20004",
        "stomp": "auto://127.0.0.1:0",
    }
    assert invoked(xml) == [("stomp", "stop"), ("stomp", "setUri", "auto://127.0.0.1:20002")]
    assert doors(usual)["stomp"] == "auto://127.0.0.1:20002"
    assert (invoked(usual), invoked(stopped)) == ([], [("to-paris", "stop")])
    # Browsing shows all there is unless told otherwise.
    assert [next(one.iter(f"{CORE}policyEntry")).get("maxBrowsePageSize") for one in (xml, usual)] == ["400", "100000"]


def written(folder: Path, **options: Any) -> list[BrokerSyncBroker]:
    """The brokers in the settings file of such a lab."""
    sites = tuple(replace(site, ports=PORTS, others=OTHERS) for site in LAB.sites)
    loaded = load(write(folder, replace(LAB, sites=sites, topology=BROKERSYNC, options=told(**options)))).settings
    brokers = [loaded.sites[name].brokers[0] for name in ("london", "paris")]
    return [each for each in brokers if isinstance(each, BrokerSyncBroker)]


def test_the_settings_file_of_such_a_lab_loads(tmp_path: Path) -> None:
    london, _ = written(tmp_path)

    assert (london.clients, london.network, london.copies) == (("stomp",), "to-paris", "{queue}.to-paris")
    assert london.sync is not None
    assert (london.sync.connector, london.sync.username) == ("sync", "agent")
    assert london.sync.stomp == "stomp://127.0.0.1:20004"
    unmanaged = [
        (each.jolokia, each.network, each.copies) for each in written(tmp_path, jolokia=False, one_way="london")
    ]
    assert unmanaged == [(None, "to-paris", "{queue}.DR"), (None, None, "{queue}.DR")]


def test_the_hardened_policy_is_one_of_two_and_any_text_is_the_other() -> None:
    hardened = ET.fromstring(policy("hardened"))

    assert [one.text for one in hardened.findall("http/method")] == ["post"]
    assert "purge*" in [one.text for one in hardened.findall("deny/mbean/operation")]
    assert policy("<restrict/>") == "<restrict/>"


def test_a_name_that_means_something_else_to_these_brokers_is_refused(tmp_path: Path) -> None:
    make = Make(HERE, THERE, 20021, ["orders.in", "a,b"], options=told())

    with pytest.raises(UsageError, match="'a,b': a queue of Classic brokers"):
        create.create(tmp_path, tmp_path / "london", make, joined=brokersync.joined)
    assert not (tmp_path / "london").exists()
    with pytest.raises(UsageError, match="a lab of classic-brokersync has no option plugin"):
        told(plugin="x")


def test_a_queue_is_called_by_its_path_and_taken_in_small_portions() -> None:
    assert (CLASSIC.queue("orders.in"), ARTEMIS.queue("orders.in")) == ("/queue/orders.in", "orders.in")
    assert CLASSIC.subscribing(4096) == {"activemq.prefetchSize": "16"}
    assert CLASSIC.subscribing(1) == {"activemq.prefetchSize": "1"}
    assert ARTEMIS.subscribing(4096) == {"consumer-window-size": "4096", "subscription-type": "ANYCAST"}


@pytest.mark.parametrize(
    ("options", "store"),
    [
        ({}, {"lock": "store/lock", "lease": "1000ms", "keep_alive": "2000ms"}),
        ({"database": True}, {"dsn": {"file": "secrets/store"}, "lease": "10000ms", "keep_alive": "5000ms"}),
    ],
)
def test_the_settings_file_says_where_the_lock_is(options: dict[str, Any], store: dict[str, Any]) -> None:
    sites = tuple(replace(site, ports=PORTS, others=OTHERS) for site in LAB.sites)
    lab = replace(LAB, sites=sites, links=(), topology=SHARED_STORE, options=dict(sharedstore.options(options)))

    told = document(lab)

    assert told["store"] == store
    assert [site["brokers"][0]["broker"] for site in told["sites"].values()] == ["london", "paris"]


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("INFO | Starting Persistence Adapter", False),
        ("INFO | .../lock is locked. This broker is now in slave mode waiting a lock to be acquired", True),
        ("DEBUG | paris failed to acquire lease.  Sleeping for 2000 milli(s)", True),
    ],
)
def test_a_broker_waits_that_says_it_found_the_lock_taken(tmp_path: Path, line: str, waits: bool) -> None:
    (tmp_path / create.LOG).write_text(f"{line}\n")

    assert sharedstore.waits(tmp_path) is waits


def test_one_store_is_for_one_pair(tmp_path: Path) -> None:
    second = replace(HERE, pair="orders-2")

    with pytest.raises(UsageError, match="one pair"):
        sharedstore.make_broker(tmp_path, tmp_path / "london", Make(second, THERE, None, []))
