"""The text that a lab makes: broker.xml, the settings file, its own state."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl_lab.lab import settings_file, state
from dr_ctl_lab.lab.artemis.mirror import configured
from dr_ctl_lab.lab.daemons import Process
from dr_ctl_lab.lab.kinds import KINDS, MIRROR
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.make import Make
from dr_ctl_lab.lab.state import LabState, LinkState, SiteState

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


def made(site: SiteState, peer: SiteState, *queues: str, **options: object) -> ET.Element:
    return ET.fromstring(configured(STOCK, Make(site, peer, 20021, list(queues), options=options)))


def test_clients_and_mirror_have_doors_of_their_own_and_the_clients_boots_closed() -> None:
    xml = made(LONDON, PARIS, "orders.in", 'a<"b', "$x", "ü")

    doors = {one.get("name"): one.text or "" for one in xml.iter("acceptor")}
    assert doors.keys() == {"clients", "mirror"}
    assert ("127.0.0.1:20002" in doors["clients"], "autoStart=false" in doors["clients"]) == (True, True)
    assert ("127.0.0.1:20003" in doors["mirror"], "autoStart" in doors["mirror"]) == (True, False)
    assert [one.get("name") for one in xml.iter("address")] == ["orders.in", "DLQ"], "plain names only"
    # Clients may send and consume, and neither delete nor manage.
    assert {one.get("type"): one.get("roles") for one in xml.iter("permission")} == {
        "deleteAddress": "amq",
        "consume": "amq,apps",
        "manage": "amq",
    }


def test_the_link_goes_through_the_proxy_with_the_peers_login() -> None:
    [link] = made(LONDON, PARIS, link_auto_start={"london": False}).iter("amqp-connection")
    expected = {"uri": "tcp://127.0.0.1:20021", "name": "paris", "password": "admin-p", "auto-start": "false"}
    assert expected.items() <= link.attrib.items()
    assert "admin-door" in {one.get("name") for one in made(PARIS, LONDON, admin_door=True).iter("acceptor")}


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


def test_the_state_reads_back_and_tells_no_password(tmp_path: Path) -> None:
    LAB.save(tmp_path)

    assert state.load(tmp_path) == LAB
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o600
    assert not [each for each in ("admin-l", "app-pw") if each in repr(LAB)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a lab's state"),
        ("{}", "is not a lab's state"),
        ('{"name": "x", "sites": [{}], "links": [], "queues": []}', "is not a lab's state"),
        (None, "holds no lab"),
    ],
)
def test_a_state_that_is_none_is_a_usage_error(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / state.FILE).write_text(text)

    with pytest.raises(UsageError, match=said):
        Lab.open(tmp_path)


@pytest.mark.parametrize(
    "asked",
    [
        {"sites": ("london", "london"), "serving": "london"},
        {"sites": ("London", "paris"), "serving": None},
        {"sites": ("a", "b"), "serving": "c"},
        {"pairs": 0},
        {"pairs": 5},
        {"topology": MIRROR, "options": {"plugin": "x"}},
        {"topology": "pigeons"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Lab.up(tmp_path / "lab", **asked)

    assert not (tmp_path / "lab").exists()
    *most, last = KINDS
    assert "pigeons" not in str(caught.value) or caught.value.remedy == f"There are {', '.join(most)} and {last}."


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
    with pytest.raises(UsageError, match="london and paris"):
        LAB.site("rome")


def test_a_kind_is_loaded_when_it_is_named() -> None:
    program = (
        "import sys; import dr_ctl_lab.lab.lab; from dr_ctl_lab.lab.kinds import KINDS;"
        "before = [each for each in sys.modules if each.startswith('dr_ctl_lab.lab.artemis')];"
        "KINDS.named('artemis-mirror');"
        "print(before, [each for each in sys.modules if 'continuity' in each])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[] []\n"
