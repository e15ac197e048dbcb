"""What a lab refuses before it makes anything, and what it writes down: of a group's broker.xml what the page
on nodes shows. What its brokers are told the brokers judge."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.core.errors import UsageError
from dr_ctl.core.machine import PartMissing
from dr_ctl_lab.lab import settings_file, state
from dr_ctl_lab.lab.artemis.continuity import JAR, KIND, find_jar
from dr_ctl_lab.lab.artemis.group import REPLICATED, SHARED, grouped
from dr_ctl_lab.lab.artemis.mirror import configured
from dr_ctl_lab.lab.classic import brokersync, create, sharedstore
from dr_ctl_lab.lab.daemons import Process
from dr_ctl_lab.lab.kinds import KINDS, MIRROR
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.spec import BrokerSpec
from dr_ctl_lab.lab.state import LabState, LinkState, SiteState
from tests.test_docs import docs

PORTS = {"http": 20001, "clients": 20002, "mirror": 20003, "openwire": 20004, "sync": 20005}
LONDON = SiteState("london", PORTS, "admin-l", "app-pw", process=Process(12, 345))
PARIS = SiteState("paris", PORTS, "admin-p", "app-pw")
LAB = LabState(
    "lab",
    (LONDON, PARIS),
    (LinkState("london", "paris", 20021, 20022), LinkState("paris", "london", 20023, 20024)),
    ("orders.in", "it's"),
)
CORE = "{http://activemq.apache.org/schema/core}"


def test_what_is_written_down_tells_no_password_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = settings_file.write(tmp_path, LAB)
    LAB.save(tmp_path)

    [broker] = yaml.safe_load(path.read_text())["sites"]["paris"]["brokers"]
    secret = tmp_path / broker["password"]["file"]
    assert secret.read_text() == "admin-p\n"
    assert state.load(tmp_path) == LAB
    assert [case.stat().st_mode & 0o777 for case in (secret, tmp_path / state.FILE)] == [0o600] * 2
    assert not [name for name in ("admin-l", "admin-p", "app-pw") if name in path.read_text() + repr(LAB)]


def test_where_copies_go_one_way_the_other_site_has_no_way_back() -> None:
    def copied(local: SiteState, remote: SiteState) -> dict[str, str | None]:
        """The queues from which messages are copied, with where to; shipped copies come in by one of their own."""
        site = replace(local, others={"agent": "a", "bridge": "b"})
        made = BrokerSpec(site, remote, [20021], ["orders.in"], options=brokersync.options({"one_way": "london"}))
        xml = create.configured(made, brokersync.topology_parts(Path(), made))
        queues = ET.fromstring(xml).iter(f"{CORE}compositeQueue")
        return {queue.attrib["name"]: to.get("physicalName") or to.get("queue") for queue in queues for to in queue[0]}

    assert copied(LONDON, PARIS) == {"orders.in": "orders.in.DR"}
    assert copied(PARIS, LONDON) == {"orders.in.DR": "orders.in"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "is not a lab's state") for text in ("", "{}", '{"name": "x", "sites": [{}], "links": []}')),
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
        {"nodes": 3},
        {"nodes": 2, "topology": "classic-shared-store"},
        {"nodes": 2, "topology": "classic-brokersync", "replicates": True},
        {"replicates": True},
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


def test_what_these_brokers_cannot_do_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    named = BrokerSpec(LONDON, PARIS, [20021], ["orders.in", "a,b"], options=brokersync.options({}))
    second = BrokerSpec(replace(LONDON, pair="orders-2"), PARIS, (), [])

    with pytest.raises(UsageError, match="'a,b': a queue of Classic brokers"):
        create.create(tmp_path, tmp_path / "london", named, topology_parts=brokersync.topology_parts)
    with pytest.raises(UsageError, match="one pair"):
        sharedstore.make_broker(tmp_path, tmp_path / "london", second)
    with pytest.raises(UsageError, match="a lab of classic-brokersync has no option plugin"):
        brokersync.options({"plugin": "x"})
    for asked in (("london", "orders-3"), ("rome",)):
        with pytest.raises(UsageError, match=r"no broker (london/orders-3|rome); it has london, paris"):
            LAB.site(*asked)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")

    with pytest.raises(UsageError, match="is not empty"):
        Lab.up(tmp_path)

    assert (tmp_path / "precious").exists()


def test_the_jar_that_is_told_goes_before_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, other = tmp_path / "told.jar", tmp_path / "other.jar"
    monkeypatch.setenv(JAR, "")
    for asked, said in ((None, "none was named"), (items, "no plugin at")):
        with pytest.raises(PartMissing, match=said) as failed:
            find_jar(asked)
        assert asked or "docs/artemis-continuity.md" in failed.value.remedy
    items.touch()
    other.touch()
    monkeypatch.setenv(JAR, str(other))

    assert [KIND.options(case) for case in ({"plugin": items}, {})] == [{"plugin": items}, {"plugin": other}]


HOSTS = {"127.0.0.1:1": "london-1a:61618", "127.0.0.1:2": "london-1b:61618"}
LINKS = {"127.0.0.1:3": "paris-1a:61617", "127.0.0.1:4": "paris-1b:61617"}


def written() -> ET.Element:
    """The broker.xml of the first of two nodes, with the hosts of the page in the place of the lab's ports."""
    ports = {"clients": 5, "mirror": 6, "listener": 7, "cluster": 1}
    a = SiteState("london", ports, "secret", "secret", node="a")
    b = replace(a, ports={**ports, "cluster": 2}, node="b")
    spec = BrokerSpec(a, replace(a, name="paris"), (3, 4), (), nodes=(a, b), store=Path("/store"), version=(2, 56))
    xml = grouped(configured("<core><acceptors></acceptors></core>", spec), spec)
    for at, host in {**HOSTS, **LINKS}.items():
        xml = re.sub(rf"{at}\b", host, xml)
    return ET.fromstring(xml)


def canonical(element: ET.Element) -> str:
    return ET.canonicalize(ET.tostring(element, encoding="unicode"), strip_text=True)


def test_the_page_shows_what_the_lab_writes() -> None:
    text = docs("nodes.md")
    [block] = re.findall(r"```xml\n<!-- node a -->\n(.*?)```", text, re.DOTALL)
    page, lab = ET.fromstring(f"<core>{block}</core>"), written()

    for tag in ("connectors", "cluster-user", "cluster-password", "cluster-connections", "ha-policy"):
        [shown], [made] = page.findall(tag), lab.findall(tag)
        assert canonical(shown) == canonical(made)
    [cluster] = (canonical(element) for element in lab.iter("acceptor") if element.get("name") == "cluster")
    assert [canonical(element) for element in page.iter("acceptor")] == [cluster]
    [shown], [made] = ([*case.iter("amqp-connection")] for case in (page, lab))
    assert {*shown.items()} <= {*made.items()}
    assert all(policy in text for policy in (SHARED[1], *REPLICATED))
    assert all("autoStart" not in str(element.text) for element in lab.iter("acceptor"))
