"""What brokers of a lab of ActiveMQ Classic are told."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import UsageError
from dr_ctl.settings.loader import load
from dr_ctl.settings.topologies.classic_brokersync import BrokerSyncBroker
from dr_ctl.stomp_io.dialect import ARTEMIS, CLASSIC
from dr_ctl_lab.lab.classic import brokersync, create, fanout, sharedstore
from dr_ctl_lab.lab.classic.policy import policy
from dr_ctl_lab.lab.kinds import BROKERSYNC, FAN_OUT, KINDS, SHARED_STORE
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


def test_each_site_copies_what_was_sent_there_to_a_queue_named_for_the_peer() -> None:
    xml = made("orders.in")

    assert composites(xml) == {
        "orders.in": ("false", "orders.in.to-paris", "JMSActiveMQBrokerPath = 'null'"),
        "orders.in.to-london": ("true", "orders.in", None),
    }
    assert shipped(xml) == ["orders.in.to-paris"]


def test_one_way_the_primary_copies_and_the_other_has_no_way_back() -> None:
    primary, other = made("orders.in", one_way="london"), made("orders.in", here=False, one_way="london")

    assert composites(primary) == {"orders.in": ("false", "orders.in.DR", "JMSActiveMQBrokerPath = 'null'")}
    assert composites(other) == {"orders.in.DR": ("true", "orders.in", None)}
    assert (shipped(primary), shipped(other)) == (["orders.in.DR"], [])


def test_the_network_connector_goes_through_the_proxy_and_ships_nothing_else() -> None:
    [network] = made("orders.in").iter(f"{CORE}networkConnector")

    assert (network.get("name"), network.get("userName"), network.get("password")) == (
        "to-paris",
        "bridge",
        "bridge-pw",
    )
    assert "tcp://127.0.0.1:20021?" in (network.get("uri") or "")
    assert (network.get("staticBridge"), network.get("duplex")) == ("true", "false")


def doors(xml: ET.Element) -> dict[str | None, str | None]:
    return {one.get("name"): one.get("uri") for one in xml.iter(f"{CORE}transportConnector")}


def test_the_clients_connector_starts_where_nobody_finds_it_and_is_then_told_its_address() -> None:
    xml = made("orders.in")

    assert doors(xml) == {
        "openwire": "tcp://127.0.0.1:20003",
        "sync": "stomp://127.0.0.1:20004",
        "stomp": "auto://127.0.0.1:0",
    }
    assert invoked(xml) == [("stomp", "stop"), ("stomp", "setUri", "auto://127.0.0.1:20002")]


def test_it_can_be_had_as_most_brokers_have_it() -> None:
    xml = made("orders.in", boots_open=True)

    assert doors(xml)["stomp"] == "auto://127.0.0.1:20002"
    assert invoked(xml) == []


def test_a_network_connector_that_shall_not_start_is_stopped() -> None:
    xml = made("orders.in", boots_open=True, link_auto_start={"london": False})

    assert invoked(xml) == [("to-paris", "stop")]
    assert invoked(made("orders.in", here=False, boots_open=True, link_auto_start={"london": False})) == []


def test_everybody_has_a_password_of_his_own() -> None:
    users = {one.get("username"): one.get("password") for one in made().iter(f"{CORE}authenticationUser")}

    assert users == {"admin": "admin-l", "app": "app-pw", "agent": "agent-pw", "bridge": "bridge-pw"}


def test_browsing_shows_all_there_is_unless_told_otherwise() -> None:
    pages = [next(one.iter(f"{CORE}policyEntry")).get("maxBrowsePageSize") for one in (made(), made(browse_page=400))]

    assert pages == ["100000", "400"]


def test_the_settings_file_of_such_a_lab_loads(tmp_path: Path) -> None:
    sites = tuple(replace(site, ports=PORTS, others=OTHERS) for site in LAB.sites)
    lab = replace(LAB, sites=sites, topology=BROKERSYNC, options=told())

    london = load(write(tmp_path, lab)).settings.sites["london"].brokers[0]

    assert isinstance(london, BrokerSyncBroker)
    assert (london.clients, london.network, london.copies) == (("stomp",), "to-paris", "{queue}.to-paris")
    assert london.sync is not None
    assert (london.sync.connector, london.sync.username) == ("sync", "agent")
    assert london.sync.stomp == "stomp://127.0.0.1:20004"


def test_without_management_the_settings_name_none(tmp_path: Path) -> None:
    sites = tuple(replace(site, ports=PORTS, others=OTHERS) for site in LAB.sites)
    lab = replace(LAB, sites=sites, topology=BROKERSYNC, options=told(jolokia=False, one_way="london"))

    loaded = load(write(tmp_path, lab)).settings.sites
    brokers = [loaded[name].brokers[0] for name in ("london", "paris")]

    assert [(one.jolokia, one.network, one.copies) for one in brokers if isinstance(one, BrokerSyncBroker)] == [
        (None, "to-paris", "{queue}.DR"),
        (None, None, "{queue}.DR"),
    ]


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


def sharing(**options: Any) -> ET.Element:
    sites = [replace(site, ports={**PORTS, "database": 20009}, others={"database": "db-pw"}) for site in (HERE, THERE)]
    make = Make(*sites, None, ["orders.in"], options=sharedstore.options(options))
    return ET.fromstring(create.configured(make, sharedstore.joined(Path("/lab/london"), make)))


def test_brokers_that_share_a_directory_wait_for_its_lock_and_open_with_it() -> None:
    xml = sharing()

    [store] = xml.iter(f"{CORE}kahaDB")
    assert store.get("directory") == "/lab/store"
    assert [one.get("lockAcquireSleepInterval") for one in xml.iter(f"{CORE}shared-file-locker")] == ["1000"]
    assert doors(xml)["stomp"] == "auto://127.0.0.1:20002"
    assert invoked(xml) == []


def test_brokers_that_share_a_database_lease_their_lock() -> None:
    xml = sharing(database=True, lease_ms=2000, keep_alive_ms=700)

    [store] = xml.iter(f"{CORE}jdbcPersistenceAdapter")
    assert store.get("lockKeepAlivePeriod") == "700"
    assert [one.get("lockAcquireSleepInterval") for one in xml.iter(f"{CORE}lease-database-locker")] == ["2000"]
    [url] = [one.get("value") for one in xml.iter() if one.get("name") == "url"]
    assert url == "jdbc:postgresql://127.0.0.1:20009/postgres"


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


def test_a_broker_waits_that_says_it_found_the_lock_taken(tmp_path: Path) -> None:
    log = tmp_path / create.LOG
    log.write_text("INFO | Starting Persistence Adapter\n")

    assert not sharedstore.waits(tmp_path)
    log.write_text("INFO | .../lock is locked. This broker is now in slave mode waiting a lock to be acquired\n")
    assert sharedstore.waits(tmp_path)
    log.write_text("DEBUG | paris failed to acquire lease.  Sleeping for 2000 milli(s)\n")
    assert sharedstore.waits(tmp_path)


def test_one_store_is_for_one_pair(tmp_path: Path) -> None:
    second = replace(HERE, pair="orders-2")

    with pytest.raises(UsageError, match="one pair"):
        sharedstore.make_broker(tmp_path, tmp_path / "london", Make(second, THERE, None, []))


def test_producers_have_a_door_of_their_own_at_brokers_that_do_not_know_each_other() -> None:
    site = replace(HERE, ports={**PORTS, "producers": 20010})
    make = Make(site, THERE, None, ["orders.in"], options=KINDS.named(FAN_OUT).options({}))
    xml = ET.fromstring(create.configured(make, fanout.joined(Path(), make)))

    assert doors(xml)["producers"] == "auto://127.0.0.1:20010"
    assert doors(xml)["stomp"] == "auto://127.0.0.1:0"
    assert not list(xml.iter(f"{CORE}networkConnector"))
