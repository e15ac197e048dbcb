"""What docs/nodes.md shows of a group's broker.xml is what the lab writes."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from dr_ctl_lab.lab.artemis.group import REPLICATED, SHARED, grouped
from dr_ctl_lab.lab.artemis.mirror import configured
from dr_ctl_lab.lab.spec import BrokerSpec
from dr_ctl_lab.lab.state import SiteState
from tests.test_docs import docs

HOSTS = {"127.0.0.1:1": "london-1a:61618", "127.0.0.1:2": "london-1b:61618"}
LINKS = {"127.0.0.1:3": "paris-1a:61617", "127.0.0.1:4": "paris-1b:61617"}


def written() -> ET.Element:
    """The broker.xml of the first of two nodes, with the hosts of the page in the place of the lab's ports."""
    ports = {"clients": 5, "mirror": 6, "listener": 7, "cluster": 1}
    a = SiteState("london", ports, "secret", "secret", node="a")
    b = replace(a, ports={**ports, "cluster": 2}, node="b")
    spec = BrokerSpec(a, replace(a, name="paris"), (3, 4), (), nodes=(a, b), store=Path("/store"))
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
    [cluster] = (canonical(each) for each in lab.iter("acceptor") if each.get("name") == "cluster")
    assert [canonical(each) for each in page.iter("acceptor")] == [cluster]
    [shown], [made] = ([*each.iter("amqp-connection")] for each in (page, lab))
    assert {*shown.items()} <= {*made.items()}
    assert all(policy in text for policy in (SHARED[1], *REPLICATED))
    assert all("autoStart" not in str(each.text) for each in lab.iter("acceptor"))
