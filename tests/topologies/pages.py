"""What the pages of topologies show of the brokers' configuration, pasted into the real brokers of a lab."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, end_all

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"```(?:xml|properties|sh)\n(?:<!--|#) (.+?)(?: -->)?\n(.*?)```", re.DOTALL)
ACCEPTORS, RIGHTS = "in the place of <acceptors>", "in the place of the security setting #"
OLD_PROFILE: Final = "artemis.profile, in JAVA_ARGS, in the place of -Dhawtio.role=amq"


def blocks(page: str) -> dict[str, str]:
    return dict(BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")))


def exchanged(text: str) -> str:
    """What is said at London, as it is at Paris."""
    return text.replace("london", "LONDON").replace("paris", "london").replace("LONDON", "paris")


def in_the_place_of(pattern: str, xml: str, generated: str) -> str:
    return re.sub(pattern, lambda _: xml, generated, count=1, flags=re.DOTALL)


def at_lab(xml: str, generated: str, ports: Mapping[str, str], *, london: bool) -> str:
    """What the page shows of London, at one site of a lab: `ports` are the acceptors of the lab's own broker.xml that
    take the place of the page's ports, the only URI there is the way to the peer."""
    listening = dict(re.findall(r'<acceptor name="(\w+)">tcp://127\.0\.0\.1:(\d+)', generated))
    [way] = re.findall(r'(?:<amqp-connection uri="|<connector name="(?:london|paris|peer)">)(.+?)["<]', generated)
    xml = re.sub(r"tcp://\w+-1:61617", way, xml if london else exchanged(xml))
    for page, acceptor in ports.items():
        xml = xml.replace(f"0.0.0.0:{page}", f"127.0.0.1:{listening[acceptor]}")
    return xml


def with_user(generated: str, lab: Path, page: Mapping[str, str], peers: str = "mirror") -> None:
    """Beside the broker.xml of that broker, for its peer is still made: the logins of the page, its peer's too, and
    what dr-ctl may do at the console."""
    login = "".join(f"{user} = {user.upper()}-PASSWORD\n" for user in ("dr-ctl", peers))
    [own] = re.findall(r"^ *<name>.+</name>", generated, re.MULTILINE)
    for etc in [path.parent for path in lab.rglob("etc/broker.xml") if own in path.read_text("utf-8")]:
        for name, edit in {
            "artemis-users.properties": lambda text: f"{text}\n{login}",
            "artemis-roles.properties": lambda text: f"{text}\n{page['artemis-roles.properties']}",
            "artemis.profile": lambda text: (
                text.replace("HAWTIO_ROLES='amq'\n", page["artemis.profile"])
                if "artemis.profile" in page
                else text.replace("-Dhawtio.role=amq", page[OLD_PROFILE].strip())
            ),
            "management.xml": lambda text: re.sub(
                r"<default-access>.*?</default-access>|<match domain=.org.apache.activemq.artemis.>.*?</match>",
                lambda options: page[f"management.xml, {re.split('[ >]', options[0][1:])[0]}"],
                text,
                count=2,
                flags=re.DOTALL,
            ),
        }.items():
            (etc / name).write_text(edit((etc / name).read_text("utf-8")), "utf-8")


@contextmanager
def installed(folder: Path, topology: str, pasted: Callable[[str], str], **more: Any) -> Iterator[tuple[Lab, Operator]]:
    """Two brokers as a page has them, and the settings of `examples/`, with `more` of each broker."""
    with Lab.up(folder / "lab", topology=topology, queues=("orders.in",), serving=None, edit=pasted) as lab:
        document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{topology}.yaml").read_text("utf-8"))
        by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
        for site, section in document["sites"].items():
            [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
            broker |= {key: known[key] for key in ("jolokia", "stomp")} | {"password": {"plain": "DR-CTL-PASSWORD"}}
            broker |= more
        path = lab.directory / "pasted.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        lab.wait_mirrored()
        yield lab, Operator(lab, folder / "state", path)
    end_all()


def walked(operator: Operator, *commands: str) -> None:
    """Each of these commands succeeds; nothing stands against the move, and Paris serves in the end."""
    steps = [(words, operator.run(*words.split())) for words in (*commands, "status")]

    assert [step.code for _, step in steps] == [0] * len(steps), [step.told for _, step in steps if step.code]
    assert not [error for words, step in steps if "validate" in words for error in step.errors]
    assert steps[-1][1].document["summary"] == "paris serves"
