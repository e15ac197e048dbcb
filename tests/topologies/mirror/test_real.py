"""Two real brokers that mirror each other, as the page configures them, with a user that may do what it has to."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]
ROOT: Final = Path(__file__).parents[3]
BLOCK: Final = re.compile(r"```(?:xml|properties|sh)\n(?:<!--|#) (.+?)(?: -->)?\n(.*?)```", re.DOTALL)

OLD_PROFILE: Final = "artemis.profile, in JAVA_ARGS, in the place of -Dhawtio.role=amq"


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

    with_user(lab, page)
    xml = re.sub(
        r"<acceptors>.*</broker-connections>",
        lambda _: of_page("in the place of <acceptors>"),
        generated,
        flags=re.DOTALL,
    )
    rights = of_page("in the place of the security setting #") + page["the rights of dr-ctl"]
    return re.sub(
        r'<security-setting match="#">.*?</security-setting>', lambda _: rights, xml, count=1, flags=re.DOTALL
    )


def with_user(lab: Path, page: dict[str, str], peers: str = "mirror") -> None:
    """Beside the brokers' broker.xml, once: the logins of the page, its peer's too, and what dr-ctl may do at the
    console."""
    login = "".join(f"{user} = {user.upper()}-PASSWORD\n" for user in ("dr-ctl", peers))
    for etc in [path.parent for path in lab.rglob("etc/broker.xml")]:
        if "dr-ctl =" in (etc / "artemis-users.properties").read_text("utf-8"):
            continue
        for name, edit in {
            "artemis-users.properties": lambda text: text + login,
            "artemis-roles.properties": lambda text: text + page["artemis-roles.properties"],
            "artemis.profile": lambda text: (
                re.sub(r"HAWTIO_ROLES='amq'\n", page["artemis.profile"], text)
                if "artemis.profile" in page
                else text.replace("-Dhawtio.role=amq", page[OLD_PROFILE].strip())
            ),
            "management.xml": lambda text: re.sub(
                r"<default-access>.*?</default-access>|<match domain=.org.apache.activemq.artemis.>.*?</match>",
                lambda found: page[f"management.xml, {re.split('[ >]', found[0][1:])[0]}"],
                text,
                count=2,
                flags=re.DOTALL,
            ),
        }.items():
            (etc / name).write_text(edit((etc / name).read_text("utf-8")), "utf-8")


@contextmanager
def installed(folder: Path, page: dict[str, str], lasting: dict[str, Any]) -> Iterator[tuple[Lab, Operator]]:
    """Two brokers as the page has them, and settings as in `examples/`, with `lasting` beside."""
    with Lab.up(folder / "lab", serving=None, edit=lambda xml: pasted(xml, page, folder / "lab")) as lab:
        document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "artemis-mirror.yaml").read_text("utf-8"))
        by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
        for site, section in document["sites"].items():
            [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
            broker |= {key: known[key] for key in ("jolokia", "stomp")} | {"password": {"plain": "DR-CTL-PASSWORD"}}
            broker |= lasting
        path = lab.directory / "pasted.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        until(
            lambda: all(
                lab.admin(here).link_attached(there) for here, there in (("london", "paris"), ("paris", "london"))
            )
        )
        yield lab, Operator(lab, folder / "state", path)
    end_all()


def own_page() -> dict[str, str]:
    return dict(BLOCK.findall((ROOT / "docs" / "artemis-mirror.md").read_text("utf-8")))


@pytest.mark.parametrize("boots", ["closed", "open"])
def test_the_page_can_be_pasted(tmp_path: Path, boots: str) -> None:
    """With acceptors that boot closed, and with those that do not under a lasting fence."""
    page = own_page()
    lasting = {"lasting_fence": {"roles": ["apps"]}} if boots == "open" else {}
    if lasting:
        page["in the place of <acceptors>"] = page["in the place of <acceptors>"].replace(";autoStart=false", "")

    with installed(tmp_path, page, lasting) as (_, operator):
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

    assert [each.code for each in steps] == [0] * 7, [each.told for each in steps if each.code]
    assert [each["text"] for each in steps[1].document["findings"] if each["severity"] == "error"] == []
    assert steps[-1].document["summary"] == "paris serves"


# What is taken out of a file of the page, and the finding that says so, with a word of what to do.
ABSENT: Final = {
    "the acceptor of the link": ("broker.xml", r'<acceptor name="mirror">.*?</acceptor>', "DR-DOOR-001", ""),
    "autoStart": ("broker.xml", ";autoStart=false", "DR-DOOR-007", "autoStart=false"),
    "the link": ("broker.xml", "<broker-connections>.*</broker-connections>", "DR-LINK-009", ""),
    "the rights of the link": ("broker.xml", ',mirror(?=")', "DR-LINK-004", ""),
    "default-access": ("management.xml", r",dr-ctl(?=.*</default-access>)", "DR-SITE-001", "management.xml"),
    "match": ("management.xml", r"(?<=\"\*\" roles=\"amq),dr-ctl", "DR-SITE-001", "management.xml"),
    "the console": ("artemis.profile", ",dr-ctl", "DR-SITE-001", "password"),
    "the role": ("artemis-roles.properties", "dr-ctl = dr-ctl", "DR-SITE-001", "password"),
}


def test_each_line_of_the_page_that_is_absent_is_told(tmp_path: Path) -> None:
    told = {}
    with installed(tmp_path, own_page(), {}) as (lab, operator):
        assert operator.run("activate", "london", "--yes").code == 0
        for absent, (name, line, ident, word) in ABSENT.items():
            file = lab.instance("paris") / "etc" / name
            whole = file.read_text("utf-8")
            file.write_text(re.sub(line, "", whole, flags=re.DOTALL), "utf-8")
            lab.stop("paris")
            lab.start("paris")
            until(lambda: operator.run("validate", "--to", "paris").rows(ident), why=f"{absent}: {ident}")  # noqa: B023
            told[absent] = operator.run("validate", "--to", "paris").rows(ident)[0]["remedy"]
            assert word in told[absent], told[absent]
            file.write_text(whole, "utf-8")

    assert told.keys() == ABSENT.keys()
