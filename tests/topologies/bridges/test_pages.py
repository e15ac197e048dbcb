"""The configuration that the page shows, pasted into broker.xml, makes two real brokers that fit the example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from dr_ctl_lab.lab.artemis.bridges import AGENT, CLIENTS, IDS
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, until
from tests.topologies.bridges.real import admin

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ROOT: Final = Path(__file__).parents[3]
BLOCK: Final = re.compile(r"```xml\n<!-- (.+?) -->\n(.*?)```", re.DOTALL)
Q: Final = "orders.in"
# What the page calls otherwise than a lab, which has its own users, ports and processor.
CALLED: Final = {"notification.ids": IDS, "apps": CLIENTS, "processor": AGENT}


@pytest.fixture(autouse=True)
def ended() -> object:
    yield
    end_all()


def pasted(generated: str, found: dict[str, str]) -> str:
    """The lab's broker.xml with the page's elements in the place of its own, and with the lab's ports and password."""
    site, peer = ("london", "paris") if '<connector name="paris">' in generated else ("paris", "london")
    ports = dict(re.findall(r'<acceptor name="(\w+)">tcp://127\.0\.0\.1:(\d+)', generated))
    [way] = re.findall(rf'<connector name="{peer}">(.+?)<', generated)
    [password, *_] = re.findall(r"<password>(.+?)</password>", generated)

    def of_page(name: str) -> str:
        xml = found[name]
        if site == "paris":
            xml = xml.replace("london", "LONDON").replace("paris", "london").replace("LONDON", "paris")
        xml = re.sub(r"tcp://\w+-1:61617", way, xml).replace("BRIDGE-PASSWORD", password)
        for page, port in {"61613": "clients", "61617": "bridge", "61618": "agents"}.items():
            xml = xml.replace(f"0.0.0.0:{page}", f"127.0.0.1:{ports[port]}")
        for page, called in CALLED.items():
            xml = re.sub(rf'(?<=[",.>]){page}(?=[",<])', called, xml)
        return xml

    rights_of = "in the place of the security setting #"
    doors, rights, addresses = map(of_page, ("in the place of <acceptors>", rights_of, "inside <addresses>"))
    xml = re.sub(r"<connectors>.*</diverts>", lambda _: doors, generated, flags=re.DOTALL)
    xml = re.sub(r"<security-setting .*</security-setting>", lambda _: rights, xml, flags=re.DOTALL)
    own = rf'<address name="(?:mirror\.)?(?:{re.escape(Q)}|{re.escape(IDS)})">.*?</address>'
    return re.sub(own, "", xml, flags=re.DOTALL).replace("<addresses>", f"<addresses>{addresses}")


def test_the_page_can_be_pasted(tmp_path: Path) -> None:
    found = dict(BLOCK.findall((ROOT / "docs" / "artemis-bridges.md").read_text("utf-8")))

    with Lab.up(
        tmp_path / "lab", topology=BRIDGES, queues=(Q,), serving=None, edit=lambda xml: pasted(xml, found)
    ) as lab:
        document = yaml.safe_load((ROOT / "examples" / "artemis-bridges.yaml").read_text("utf-8"))
        by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
        for site, section in document["sites"].items():
            [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
            broker |= {key: known[key] for key in ("name", "jolokia", "stomp", "username", "password")}
            broker["lasting_fence"] = {"roles": [CLIENTS]}
        path = lab.directory / "pasted.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        operator = Operator(lab, tmp_path / "state", path)
        until(lambda: admin(lab, "london").link_attached("paris"), why="the bridges are connected")

        steps = [
            operator.run(*words)
            for words in (
                ("fence", "paris", "--yes"),
                ("activate", "london", "--yes"),
                ("validate", "--to", "paris"),
                ("swapover", "--to", "paris", "--yes"),
                ("status",),
            )
        ]

    assert [each.code for each in steps] == [0] * 5, [each.told for each in steps if each.code]
    assert [each["text"] for each in steps[2].document["findings"] if each["severity"] == "error"] == []
    assert steps[-1].document["summary"] == "paris serves"
