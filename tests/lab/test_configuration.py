"""The text that a lab makes: broker.xml, the settings file, its own state."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.lab import settings_file, state
from dr_ctl_lab.lab.artemis.mirror import configured
from dr_ctl_lab.lab.daemons import Process
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.make import Make
from dr_ctl_lab.lab.state import LabState, LinkState, SiteState

if TYPE_CHECKING:
    from pathlib import Path

LONDON = SiteState(
    "london", {"http": 20001, "clients": 20002, "mirror": 20003}, "admin-l", "app-pw", process=Process(12, 345)
)
PARIS = SiteState("paris", {"http": 20011, "clients": 20012, "mirror": 20013, "door": 20014}, "admin-p", "app-pw")
LAB = LabState(
    "lab",
    (LONDON, PARIS),
    (LinkState("london", "paris", 20021, 20022), LinkState("paris", "london", 20023, 20024)),
    ("orders.in", "it's"),
)
STOCK = """<core>
<max-disk-usage>90</max-disk-usage>
<acceptors><acceptor name="artemis">tcp://127.0.0.1:61616</acceptor></acceptors>
<security-settings>
<security-setting match="#"><permission type="deleteAddress" roles="amq"/>
<permission type="consume" roles="amq"/></security-setting>
<security-setting match="activemq.management.#"><permission type="manage" roles="amq"/></security-setting>
</security-settings>
<addresses><address name="DLQ"/></addresses>
</core>"""


def test_clients_and_mirror_have_doors_of_their_own_and_the_clients_boots_closed() -> None:
    xml = ET.fromstring(configured(STOCK, Make(LONDON, PARIS, 20021, ["orders.in"])))

    doors = {one.get("name"): one.text or "" for one in xml.iter("acceptor")}
    assert doors.keys() == {"clients", "mirror"}
    assert "127.0.0.1:20002" in doors["clients"]
    assert "autoStart=false" in doors["clients"]
    assert "127.0.0.1:20003" in doors["mirror"]
    assert "autoStart" not in doors["mirror"]


def test_the_link_goes_through_the_proxy_with_the_peers_login() -> None:
    xml = ET.fromstring(
        configured(STOCK, Make(LONDON, PARIS, 20021, [], options={"link_auto_start": {"london": False}}))
    )

    [link] = xml.iter("amqp-connection")
    expected = {"uri": "tcp://127.0.0.1:20021", "name": "paris", "password": "admin-p", "auto-start": "false"}
    assert expected.items() <= link.attrib.items()


def test_clients_may_send_and_consume_and_neither_delete_nor_manage() -> None:
    xml = ET.fromstring(configured(STOCK, Make(LONDON, PARIS, 20021, [])))

    assert {one.get("type"): one.get("roles") for one in xml.iter("permission")} == {
        "deleteAddress": "amq",
        "consume": "amq,apps",
        "manage": "amq",
    }


def test_only_plain_names_stand_in_the_xml() -> None:
    xml = ET.fromstring(configured(STOCK, Make(LONDON, PARIS, 20021, ["orders.in", 'a<"b', "$x", "ü"])))

    assert [one.get("name") for one in xml.iter("address")] == ["orders.in", "DLQ"]


def test_the_extra_door_is_there_on_request() -> None:
    xml = ET.fromstring(configured(STOCK, Make(PARIS, LONDON, 20023, [], options={"admin_door": True})))

    assert "admin-door" in {one.get("name") for one in xml.iter("acceptor")}


def test_the_settings_name_both_sites_and_hold_no_password(tmp_path: Path) -> None:
    path = settings_file.write(tmp_path, LAB)

    told = yaml.safe_load(path.read_text())
    assert told["topology"] == "artemis-mirror"
    [broker] = told["sites"]["paris"]["brokers"]
    assert broker == {
        "name": "orders-1",
        "jolokia": "http://127.0.0.1:20011/console/jolokia",
        "stomp": "stomp://127.0.0.1:20012",
        "username": "admin",
        "password": {"file": "secrets/paris"},
        "clients": ["clients"],
        "mirror": ["mirror"],
    }
    assert (tmp_path / "secrets" / "paris").read_text() == "admin-p\n"
    assert (tmp_path / "secrets" / "paris").stat().st_mode & 0o777 == 0o600
    assert "admin-p" not in path.read_text()


def test_the_state_reads_back(tmp_path: Path) -> None:
    LAB.save(tmp_path)

    assert state.load(tmp_path) == LAB
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o600


def test_passwords_are_in_no_repr() -> None:
    assert "admin-l" not in repr(LAB)
    assert "app-pw" not in repr(LAB)


@pytest.mark.parametrize("text", ["", "{}", '{"name": "x", "sites": [{}], "links": [], "queues": []}'])
def test_a_state_that_is_none_is_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / state.FILE).write_text(text)

    with pytest.raises(UsageError, match="is not a lab's state"):
        Lab.open(tmp_path)


def test_a_directory_without_a_lab_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no lab"):
        Lab.open(tmp_path)


def test_an_unknown_site_is_a_usage_error_that_names_the_others() -> None:
    with pytest.raises(UsageError, match="london and paris"):
        LAB.site("rome")


@pytest.mark.parametrize(
    ("sites", "serving"), [(("london", "london"), "london"), (("London", "paris"), None), (("a", "b"), "c")]
)
def test_sites_that_make_no_sense_are_refused_before_anything_is_made(
    tmp_path: Path, sites: tuple[str, str], serving: str | None
) -> None:
    with pytest.raises(UsageError):
        Lab.up(tmp_path / "lab", sites=sites, serving=serving)

    assert not (tmp_path / "lab").exists()


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")

    with pytest.raises(UsageError, match="is not empty"):
        Lab.up(tmp_path)

    assert (tmp_path / "precious").exists()


def test_a_second_pair_has_brokers_of_its_own_with_names_that_no_site_can_have() -> None:
    second = (replace(LONDON, pair="orders-2"), replace(PARIS, pair="orders-2"))
    lab = replace(LAB, sites=(*LAB.sites, *second))

    assert [site.broker for site in lab.sites] == ["london", "paris", "london.orders-2", "paris.orders-2"]
    assert lab.pairs == ("orders-1", "orders-2")
    assert lab.other("paris", "orders-2") is second[0]
    told = settings_file.document(lab)["sites"]["paris"]["brokers"]
    assert [(each["name"], each["password"]["file"]) for each in told] == [
        ("orders-1", "secrets/paris"),
        ("orders-2", "secrets/paris.orders-2"),
    ]
    with pytest.raises(UsageError, match="london with orders-3"):
        lab.site("london", "orders-3")


@pytest.mark.parametrize("pairs", [0, 5])
def test_a_lab_has_few_pairs_and_at_least_one(tmp_path: Path, pairs: int) -> None:
    with pytest.raises(UsageError, match="one to 4"):
        Lab.up(tmp_path / "lab", pairs=pairs)

    assert not (tmp_path / "lab").exists()
