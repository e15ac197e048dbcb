"""Real Artemis brokers of one site beside each other: a second node of London's broker, and clusters."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.client import Account, Read, Reader, Wire
from dr_ctl.topologies.artemis import beans
from dr_ctl_lab.lab import daemons, distribution
from dr_ctl_lab.lab.artemis import create, mirror
from dr_ctl_lab.lab.artemis.admin import jolokia
from dr_ctl_lab.lab.artemis.group import clustered, with_listener
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.make import Make
from dr_ctl_lab.lab.ports import release_ports, reserve_ports
from dr_ctl_lab.lab.state import SiteState
from tests.broker.driving import until


def name_in(xml: str) -> str:
    found = re.search(r"<name>([^<]+)</name>", xml)
    assert found is not None
    return found[1]


@dataclass
class Backup:
    """The second node of London's broker."""

    site: SiteState
    instance: Path
    process: daemons.Process | None = None

    def named(self, lab: Lab, folder: Path, takeover: str) -> Path:
        """Settings that name both nodes."""
        document = yaml.safe_load(lab.settings_path.read_text())
        [broker] = document["sites"]["london"]["brokers"]
        own = {key: broker.pop(key) for key in ("jolokia", "stomp")}
        other = {"jolokia": jolokia(self.site), "stomp": str(self.site.stomp)}
        broker |= {"nodes": [{"name": "a", **own}, {"name": "b", **other}], "takeover": takeover}
        for section in document["sites"].values():
            for each in section["brokers"]:
                each["password"]["file"] = str(lab.settings_path.parent / each["password"]["file"])
        path = folder / "named.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def start(self) -> None:
        self.process = create.start(self.instance)

    def end(self) -> None:
        if self.process is not None:
            daemons.kill(self.process)

    def read(self, *attributes: str) -> Mapping[str, object] | None:
        """Attributes of the broker; None while its console does not answer."""
        who = self.site.admin
        with closing(Wire(Account(jolokia(self.site), who.user, who.password, "http://127.0.0.1"))) as wire:
            try:
                found = Reader(wire).look([Read(beans.server(self.site.broker), attributes)])[0].value()
            except BrokerError:
                return None
        assert isinstance(found, dict)
        return found

    def is_active(self) -> bool | None:
        found = self.read("Active")
        return None if found is None else bool(found["Active"])


@contextmanager
def group_at_london(directory: Path, policies: tuple[str, str], *, by_link: bool) -> Iterator[tuple[Lab, Backup]]:
    """A mirrored lab where London's broker has a backup, which is passive. Its client listeners open at boot, as they
    must where a takeover is to serve. The link of Paris names both nodes `by_link`; where it does not, the nodes meet
    at the clients' acceptor."""
    http, clients, link, own, other = reserve_ports(5, directory)
    meets: list[int] = []  # the clients' ports of both

    def configured(xml: str, policy: str, *, primary: bool) -> str:
        xml = xml.replace(";autoStart=false", "")
        if "shared-store" in policy:
            xml = re.sub(r"(-directory>)data/", lambda found: f"{found[1]}{directory / 'store'}/", xml)
        at = (own, other) if by_link else (meets[0], meets[1])
        mine, beside = at if primary else at[::-1]
        joined = clustered(xml, mine, [beside], policy)
        return with_listener(joined, own if primary else other) if by_link else joined

    def edit(xml: str) -> str:
        if name_in(xml) == "london":
            found = re.search(r'name="clients">tcp://127.0.0.1:(\d+)', xml)
            assert found is not None
            meets.extend((int(found[1]), clients))
            return configured(xml, policies[0], primary=True)
        return re.sub(r'uri="([^"]+)"', rf'uri="\1#tcp://127.0.0.1:{link}"', xml) if by_link else xml

    try:
        with Lab.up(directory / "lab", edit=edit) as lab:
            primary = lab.site("london")
            ports = {**primary.ports, "http": http, "clients": clients, "mirror": link}
            site = replace(primary, name="london-b", ports=ports, process=None)
            backup = Backup(site, directory / "london-b")
            port = next(each for each in lab.state.links if each.source == "london").port
            edited = partial(configured, policy=policies[1], primary=False)
            make = Make(site, lab.site("paris"), [port], lab.queues, edit=edited)
            create.create(
                distribution.obtain(), backup.instance, make,
                memory=create.memory, profile=mirror.profile, configured=mirror.configured,
            )  # fmt: skip
            backup.start()
            try:
                until(lambda: backup.is_active() is False, within_s=60, why="the backup does not wait")
                if "replication" in policies[1]:
                    until(lambda: (backup.read("ReplicaSync") or {}).get("ReplicaSync"), within_s=60)
                yield lab, backup
            finally:
                backup.end()
    finally:
        release_ports(directory)
