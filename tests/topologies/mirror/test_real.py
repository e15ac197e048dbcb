"""Two real brokers that mirror each other, as the page configures them, with a user that may do what it has to."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, until

ROOT: Final = Path(__file__).parents[3]
BLOCK: Final = re.compile(r"```(?:xml|properties|sh)\n(?:<!--|#) (.+?)(?: -->)?\n(.*?)```", re.DOTALL)


def pasted(generated: str, page: dict[str, str], lab: Path) -> str:
    """The lab's broker.xml with the page's elements in the place of its own, and with the lab's ports; and what stands
    beside it, once."""
    site, peer = ("london", "paris") if 'name="paris" user=' in generated else ("paris", "london")
    ports = dict(re.findall(r'<acceptor name="(\w+)">tcp://127\.0\.0\.1:(\d+)', generated))
    [way] = re.findall(r'<amqp-connection uri="(.+?)"', generated)

    def of_page(name: str) -> str:
        xml = page[name]
        if site == "paris":
            xml = xml.replace("london", "LONDON").replace("paris", "london").replace("LONDON", "paris")
        xml = xml.replace(f"tcp://{peer}-1:61617", way)
        for port, acceptor in {"61613": "clients", "61617": "mirror"}.items():
            xml = xml.replace(f"0.0.0.0:{port}", f"127.0.0.1:{ports[acceptor]}")
        return xml

    for etc in [path.parent for path in lab.rglob("etc/broker.xml")]:
        if "dr-ctl =" in (etc / "artemis-users.properties").read_text("utf-8"):
            continue
        for name, edit in {
            "artemis-users.properties": lambda text: f"{text}dr-ctl = DR-CTL-PASSWORD\nmirror = MIRROR-PASSWORD\n",
            "artemis-roles.properties": lambda text: text + page["artemis-roles.properties"],
            "artemis.profile": lambda text: re.sub(r"HAWTIO_ROLES='amq'\n", page["artemis.profile"], text),
            "management.xml": lambda text: re.sub(
                r"<default-access>.*?</default-access>|<match domain=.org.apache.activemq.artemis.>.*?</match>",
                lambda found: page[f"management.xml, {re.split('[ >]', found[0][1:])[0]}"],
                text,
                count=2,
                flags=re.DOTALL,
            ),
        }.items():
            (etc / name).write_text(edit((etc / name).read_text("utf-8")), "utf-8")
    xml = re.sub(
        r"<acceptors>.*</broker-connections>",
        lambda _: of_page("in the place of <acceptors>"),
        generated,
        flags=re.DOTALL,
    )
    rights = of_page("in the place of the security setting #")
    return re.sub(
        r'<security-setting match="#">.*?</security-setting>', lambda _: rights, xml, count=1, flags=re.DOTALL
    )


@pytest.mark.broker
@pytest.mark.deep
@pytest.mark.parametrize("boots", ["closed", "open"])
def test_the_page_can_be_pasted(tmp_path: Path, boots: str) -> None:
    """With acceptors that boot closed, and with those that do not under a lasting fence."""
    page = dict(BLOCK.findall((ROOT / "docs" / "artemis-mirror.md").read_text("utf-8")))
    lasting = {"lasting_fence": {"roles": ["apps"]}} if boots == "open" else {}
    if lasting:
        page["in the place of <acceptors>"] = page["in the place of <acceptors>"].replace(";autoStart=false", "")

    with Lab.up(tmp_path / "lab", serving=None, edit=lambda xml: pasted(xml, page, tmp_path / "lab")) as lab:
        document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "artemis-mirror.yaml").read_text("utf-8"))
        by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
        for site, section in document["sites"].items():
            [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
            broker |= {key: known[key] for key in ("jolokia", "stomp")} | {"password": {"plain": "DR-CTL-PASSWORD"}}
            broker |= lasting
        path = lab.directory / "pasted.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        operator = Operator(lab, tmp_path / "state", path)
        until(
            lambda: all(
                lab.admin(here).link_attached(there) for here, there in (("london", "paris"), ("paris", "london"))
            )
        )

        steps = [
            operator.run(*words.split())
            for words in (
                "fence paris --yes" if lasting else "activate london --yes",
                "validate --to paris",
                "swapover --to paris --yes",
                "rehearse --on canary --yes",
                "fence paris --yes",
                "unfence paris --yes",
                "status",
            )
        ]
    end_all()

    assert [each.code for each in steps] == [0] * 7, [each.told for each in steps if each.code]
    assert [each["text"] for each in steps[1].document["findings"] if each["severity"] == "error"] == []
    assert steps[-1].document["summary"] == "paris serves"
