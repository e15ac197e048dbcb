"""Real Artemis brokers of one site beside each other."""

import re
from pathlib import Path

import yaml

from dr_ctl_lab.lab.lab import Lab


def name_in(xml: str) -> str:
    match = re.search(r"<name>([^<]+)</name>", xml)
    assert match is not None
    return match[1]


def settings(lab: Lab, *, named: bool) -> Path:
    """Settings that name both nodes of London's broker, which are given twenty seconds, or one of them alone."""
    document = yaml.safe_load(lab.settings_path.read_text())
    [broker] = document["sites"]["london"]["brokers"]
    if named:
        broker["takeover"] = "20s"
    else:
        first, *_ = broker.pop("nodes")
        broker.pop("cluster")
        broker |= {key: first[key] for key in ("jolokia", "stomp")}
    path = lab.directory / "group.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def meeting_at_the_clients(xml: str) -> str:
    """The nodes of London meet at the clients' acceptor, and the link of Paris names one of them."""
    if "london" not in name_in(xml):
        return re.sub(r'uri="([^"#]+)#[^"]+"', r'uri="\1"', xml)
    match = re.search(r'name="clients">tcp://127.0.0.1:(\d+)', xml)
    assert match is not None
    return re.sub(r'(name="own">tcp://127.0.0.1:)\d+', rf"\g<1>{match[1]}", xml)


def is_active(lab: Lab, node: str) -> bool:
    """Of London's broker."""
    return any(site.active for site in lab.status().sites if (site.name, site.node) == ("london", node))
